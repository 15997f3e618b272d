// tier 1; numbers
// Names of held-out sources: as short as they can be, none twice, fit for metrics.
#include "train/held_out.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_names(int count, const char *const *prefixes, const char *const *names) {
  RecipeCorpus items[8] = {0};
  for (int k = 0; k < count; k++) items[k].prefix = (char *)prefixes[k];
  RecipeCorpora list = {.items = items, .count = count};
  HeldOut h = {.sources = &list, .count = count};
  for (int k = 0; k < count; k++) {
    char name[HELD_OUT_NAME];
    held_out_name(&h, k, name);
    assert_string_equal(name, names[k]);
  }
}
#define EXPECT(count, prefixes, names) expect_names(count, (const char *[])prefixes, (const char *[])names)
#define LIST(...) {__VA_ARGS__}
#define FORTY "abcdefghijklmnopqrstuvwxyzabcdefghijklmn"

static void test_names(void **state) {
  EXPECT(2, LIST("/a/wiki", "/a/code"), LIST("wiki", "code"));
  EXPECT(3, LIST("/a/wiki", "/b/wiki", "/a/code"), LIST("wiki_1", "wiki_2", "code"));
  // a numbered name that another source has of itself, however often
  EXPECT(3, LIST("/a/wiki", "/b/wiki", "/a/wiki_1"), LIST("wiki_1_1", "wiki_2", "wiki_1"));
  EXPECT(4, LIST("/a/wiki", "/b/wiki", "/a/wiki_1", "/a/wiki_1_1"), LIST("wiki_1_1_1", "wiki_2", "wiki_1", "wiki_1_1"));
  EXPECT(4, LIST("/a/wiki", "/b/wiki", "/a/wiki_1", "/b/wiki_1"), LIST("wiki_1_1", "wiki_2", "wiki_1_3", "wiki_1_4"));
  // equal only when cut off, or when what metrics may not have is replaced
  EXPECT(2, LIST("/" FORTY "x", "/" FORTY "y"), LIST(FORTY "_1", FORTY "_2"));
  EXPECT(2, LIST("/a b", "/a\"b"), LIST("a_b_1", "a_b_2"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
