// Lists of what blocks compute again: as text, filled up, and refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "parallel/recompute_list.h"
#include <stdlib.h>
#include <string.h>

static void expect(const char *text, int blocks, const char *as) {
  RecomputeList list;
  Error error = {0};
  if (recompute_list_parse(text, blocks, &list, &error)) fail_msg("%s: %s", text, error.message);
  char *back = recompute_list_text(&list);
  if (strcmp(back, as)) fail_msg("%s is %s instead of %s", text, back, as);
  free(back);
  RecomputeList again;
  assert_int_equal(recompute_list_parse(as, list.blocks, &again, &error), PLAIT_OK);
  assert_memory_equal(&list, &again, sizeof list);
}

static void texts(void **state) {
  expect("keep", 0, "keep");
  expect("full x 4, selective x 2,keep x6", 0, "full x 4, selective x 2, keep x 6");
  expect("(keep)", 0, "full");
  expect("((keep))", 0, "(full)");
  expect("(keep, keep) x 2, keep", 0, "(keep x 2) x 2, keep");
  expect("((keep*2),selective)*2,full,full", 0, "((keep x 2), selective) x 2, full x 2");
  expect("keep, full", 5, "keep, full, keep, full, keep");
  expect("(keep x 3)", 7, "(keep x 3) x 2, full"); // cut off at the last block
  expect("((keep x 2), keep)", 4, "((keep x 2), keep), (full)");
  expect("(selective, keep), full", 4, "(selective, keep), full, (selective)");
}

static void normal(void **state) {
  char *text = recompute_list_normal("  (keep*2,full)x 3 ,selective");
  assert_string_equal(text, "(keep x 2, full) x 3, selective");
  free(text);
}

static void wrong(void **state) {
  static const struct { const char *text; int blocks; const char *said; } bad[] = {
      {"", 0, "ends where keep, selective, full or a segment in parentheses must follow"},
      {"keep,", 0, "ends where keep, selective, full or a segment in parentheses must follow"},
      {"none", 0, "has none, where keep, selective, full or a segment in parentheses must stand"},
      {"keep x 0", 0, "has x 0, but a count from 1 to 1024 must follow x"},
      {"keep x", 0, "has x , but a count from 1 to 1024 must follow x"},
      {"keep x 1025", 0, "has x 1025, but a count from 1 to 1024 must follow x"},
      {"(keep, full", 0, "has a ( without its )"},
      {"keep)", 0, "has a ) without its ("},
      {"keep full", 0, "has full, where a comma or x and a count must stand"},
      {"(keep x 600) x 2", 0, "has more than 1024 blocks or 1024 segments, the most that are allowed"},
      {"keep x 5", 4, "has 5 blocks, but the model has 4; give 4, or fewer: then the list begins again"},
      {"((((((((((((((((((keep))))))))))))))))))", 0, "has segments inside each other more than 16 deep"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    RecomputeList list;
    Error error = {0};
    assert_int_equal(recompute_list_parse(bad[i].text, bad[i].blocks, &list, &error), PLAIT_BAD_INPUT);
    assert_string_equal(error.message, bad[i].said);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(normal), cmocka_unit_test(wrong)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
