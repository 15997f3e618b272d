// Slurm's lists of machines: order, padding, several brackets, limits, and a sentence for a text that is not a list.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/node_list.h"
#include <stdlib.h>
#include <string.h>

// names: with a space between them
static void lists(const char *text, const char *names) {
  NodeList list;
  Error error = {0};
  char joined[2000] = "";
  assert_int_equal(node_list_parse("nodes", text, &list, &error), PLAIT_OK);
  for (int i = 0; i < list.count; i++) strcat(strcat(joined, i ? " " : ""), list.name[i]);
  assert_string_equal(joined, names);
  node_list_free(&list);
}

static void refuses(const char *text, const char *why) {
  NodeList list;
  Error error = {0};
  assert_int_equal(node_list_parse("SLURM_JOB_NODELIST", text, &list, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, why)) fail_msg("\"%s\": %s", text, error.message);
  assert_null(list.name);
  assert_int_equal(list.count, 0);
}

static void names_in_order(void **state) {
  (void)state;
  lists("m5", "m5");
  lists("n[01-03,7],m5", "n01 n02 n03 n7 m5");
  lists("n[01-03,07],m5", "n01 n02 n03 n07 m5");
  lists("n[8-11]", "n8 n9 n10 n11");
  lists("n[098-101]", "n098 n099 n100 n101");
  lists("rack[0-1]node[00-01]-ib,login.site", "rack0node00-ib rack0node01-ib rack1node00-ib rack1node01-ib login.site");
  lists("[3,1]", "3 1");
  lists("a-b_c[0]", "a-b_c0");
}

static void what_is_no_list(void **state) {
  (void)state;
  refuses("", "a name is missing at character 1");
  refuses("n1,", "a name is missing at character 4");
  refuses("n[3-1]", "a range ends before it begins at character 3");
  refuses("n[1", "neither a comma nor ] is at character 4");
  refuses("n[]", "a number is missing at character 3");
  refuses("n[1,]", "a number is missing at character 5");
  refuses("n[1-]", "a number is missing at character 5");
  refuses("n 1", "a character that is in no name at character 2");
  refuses("n]", "a character that is in no name");
  refuses("n[1-1000000]", "a range is too long");
  refuses("n[1-9999999999]", "more than 9 digits");
  refuses("n[0-999][0-999]", "more than 65536 machines");
  refuses("n[0][0][0][0][0][0][0][0][0]", "too many brackets");
  char longest[400] = "";
  memset(longest, 'a', NODE_NAME_MOST + 1);
  refuses(longest, "more than 255 characters");
  strcpy(longest + NODE_NAME_MOST - 1, "[10]");
  refuses(longest, "more than 255 characters");
  strcpy(longest + NODE_NAME_MOST - 2, "[10]");
  NodeList list;
  assert_int_equal(node_list_parse("nodes", longest, &list, NULL), PLAIT_OK);
  assert_int_equal(strlen(list.name[0]), NODE_NAME_MOST);
  node_list_free(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_in_order), cmocka_unit_test(what_is_no_list)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
