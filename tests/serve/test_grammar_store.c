// tier 1; rooms serve grammar
// Grammars of schemas that come again: found, bounded in number and size, and alive while somebody uses them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "serve/grammar_store.h"
#include <stdio.h>
#include <string.h>

static Grammar *compile(const char *text) {
  Grammar *g;
  Error error = {0};
  json_t *tree = json_loads(text, 0, NULL);
  assert_int_equal(grammar_from_schema(&g, tree, "schema", &error), PLAIT_OK);
  json_decref(tree);
  return g;
}

static bool accepts(const Grammar *g, const char *text) {
  GrammarState *s = grammar_begin(g);
  bool takes = grammar_take_bytes(s, text, strlen(text)) && grammar_may_end(s);
  grammar_end(s);
  return takes;
}

static void schema(int i, char text[64]) { snprintf(text, 64, "{\"const\": %d}", i); }

static void test_number(void **state) {
  (void)state;
  GrammarStore *s = grammar_store_create();
  char text[64];
  schema(0, text);
  assert_null(grammar_store_find(s, text));
  Grammar *first = grammar_store_add(s, text, compile(text)); // stays in use
  assert_ptr_equal(grammar_store_find(s, text), first);
  grammar_store_release(s, first);
  assert_ptr_equal(grammar_store_add(s, text, compile(text)), first); // another thread was faster
  grammar_store_release(s, first);
  for (int i = 1; i <= STORE_MOST; i++) {
    schema(i, text);
    grammar_store_release(s, grammar_store_add(s, text, compile(text)));
    schema(1, text); // is used again and again
    Grammar *g = grammar_store_find(s, text);
    assert_non_null(g);
    grammar_store_release(s, g);
  }
  assert_int_equal(grammar_store_count(s), STORE_MOST + 1);
  schema(0, text);
  assert_null(grammar_store_find(s, text)); // pushed out, and alive
  assert_true(accepts(first, "0") && !accepts(first, "1"));
  grammar_store_release(s, first);
  assert_int_equal(grammar_store_count(s), STORE_MOST);
  grammar_store_free(s);
}

static void test_size(void **state) {
  static const char large[] =
      "{\"type\": \"string\", \"pattern\": \"^(abcdefghijklmnopqrstuvwxyz)*$\", \"maxLength\": 18000}";
  (void)state;
  GrammarStore *s = grammar_store_create();
  Grammar *g = compile(large);
  int most = (int)(STORE_CELLS / grammar_cells(g));
  assert_true(most > 1 && most < STORE_MOST);
  grammar_free(g);
  for (int i = 0; i < 2 * most; i++) {
    char name[32];
    snprintf(name, sizeof name, "large %d", i);
    grammar_store_release(s, grammar_store_add(s, name, compile(large)));
    assert_int_equal(grammar_store_count(s), i < most ? i + 1 : most);
  }
  grammar_store_free(s);
}

static void test_none(void **state) { // without a store
  (void)state;
  assert_null(grammar_store_find(NULL, "{}"));
  Grammar *g = grammar_store_add(NULL, "{}", compile("{}"));
  assert_true(accepts(g, "[]"));
  grammar_store_release(NULL, g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_number), cmocka_unit_test(test_size),
                                     cmocka_unit_test(test_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
