// tier 1
// Calls of tools: in each form, free text until the trigger, then a call whose arguments their schema holds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "grammar/grammar_tools.h"
#include "walks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tools =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"d\", \"parameters\": {\"type\": "
    "\"object\", "
    "\"properties\": {\"x\": {\"type\": \"integer\"}, \"y\": {\"enum\": [\"up\", \"down\"]}}, \"required\": [\"x\"], "
    "\"additionalProperties\": false}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

static Grammar *grammar_of(ToolOptions options) {
  Grammar *g;
  Error error = {0};
  json_t *tree = json_loads(tools, 0, NULL), *held = NULL;
  if (options.schema)
    options.schema = held =
        json_loads("{\"properties\": {\"name\": {\"type\": \"integer\"}}, \"additionalProperties\": false, \"type\": "
                   "\"object\"}",
                   0, NULL);
  options.where = "schema";
  if (grammar_from_tools(&g, tree, &options, &error) < 0) fail_msg("%s", error.message);
  json_decref(tree);
  json_decref(held);
  return g;
}

#define ADD "{\"name\": \"add\", \"arguments\": {\"x\": 1}}"
#define NOW "{\"name\": \"now\", \"arguments\": {}}"
#define CALL(inner) "<tool_call>\n" inner "\n</tool_call>"
enum { MOST = 16 };
#define DOCUMENT ((const json_t *)tools) // any pointer: grammar_of puts a schema in its place
static const struct {
  ToolOptions options;
  const char *answers[MOST]; // accepted ones, NULL, refused ones, NULL
} meanings[] = {
    {{TOOLS_HERMES, TOOLS_AUTO, NULL, true},
     {"", "Hello", "a < b <tool", CALL(ADD), "So: " CALL(NOW), CALL(ADD) "\n" CALL(NOW), CALL(ADD) " done",
      "<<tool_<tool_call", NULL, "<tool_call>", "<tool_call>\n{}", CALL("{\"name\": \"sub\", \"arguments\": {}}"),
      CALL("{\"name\": \"add\", \"arguments\": {}}"), "x" CALL("{\"name\": \"now\", \"arguments\": {\"x\": 1}}"),
      NULL}},
    {{TOOLS_HERMES, TOOLS_AUTO, NULL, false}, {"Hi", CALL(ADD), NULL, CALL(ADD) "\n", CALL(ADD) "\n" CALL(ADD), NULL}},
    {{TOOLS_HERMES, TOOLS_REQUIRED, NULL, true},
     {CALL(ADD), CALL(ADD) "\n" CALL(NOW) "\n" CALL(ADD), NULL, "", "Hello", " " CALL(ADD), CALL(ADD) "\n",
      CALL(ADD) "x", NULL}},
    {{TOOLS_HERMES, TOOLS_REQUIRED, "now", false}, {CALL(NOW), NULL, CALL(ADD), CALL(NOW) "\n" CALL(NOW), NULL}},
    {{TOOLS_LLAMA, TOOLS_AUTO, NULL, true},
     {"", "Hello {\"name\": 1}", "{\"a\": 1}", "{\"name\": \"add\", \"parameters\": {\"x\": 5, \"y\": \"up\"}}", NULL,
      "{\"name\": \"x\"}", "{\"name\": \"add\", \"parameters\": {\"x\": 5, \"y\": \"left\"}}", NULL}},
    {{TOOLS_LLAMA, TOOLS_REQUIRED, NULL, false},
     {"{\"name\": \"now\", \"parameters\": {}}", NULL, "", "Hello", "{\"name\": \"now\"}", NULL}},
    {{TOOLS_MISTRAL, TOOLS_AUTO, NULL, true},
     {"", "Hi [TOOL", "[TOOL_CALLS][" ADD "]", "Hi [TOOL_CALLS] [" ADD ", " NOW "]", NULL, "[TOOL_CALLS]",
      "[TOOL_CALLS][]", "[TOOL_CALLS][" ADD "] x", NULL}},
    {{TOOLS_HERMES, TOOLS_AUTO, NULL, true, DOCUMENT},
     {"{\"name\": 5}", "{}", CALL(ADD), CALL(ADD) "\n" CALL(NOW), NULL, "", "Hello", "{}" CALL(ADD), CALL(ADD) "{}",
      "{\"name\": true}", NULL}},
    {{TOOLS_LLAMA, TOOLS_AUTO, NULL, true, DOCUMENT},
     {"{\"name\": 5}", "{}", "{\"name\": \"now\", \"parameters\": {}}", NULL, "", "Hello",
      "{\"name\": \"sub\", \"parameters\": {}}", NULL}},
    {{TOOLS_MISTRAL, TOOLS_AUTO, NULL, true, DOCUMENT},
     {"{\"name\": 5}", "[TOOL_CALLS][" ADD "]", NULL, "", "Hello", "[" ADD "]", "{}[TOOL_CALLS][" ADD "]", NULL}},
    {{TOOLS_HERMES, TOOLS_REQUIRED, NULL, false, DOCUMENT}, {CALL(ADD), NULL, "{}", "", NULL}},
    {{TOOLS_MISTRAL, TOOLS_REQUIRED, "add", false},
     {"[TOOL_CALLS][" ADD "]", "[TOOL_CALLS] [" ADD "]", NULL, "[" ADD "]", "[TOOL_CALLS][" NOW "]",
      "[TOOL_CALLS][" ADD ", " ADD "]", NULL}},
};

static void test_answers(void **state) {
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    Grammar *g = grammar_of(meanings[i].options);
    int accepted = 1;
    for (int k = 0; k < MOST; k++) {
      const char *text = meanings[i].answers[k];
      if (!text && !accepted--) break;
      if (text && grammar_accepts(g, text, strlen(text)) != accepted)
        fail_msg("options %zu %s %s", i, accepted ? "refuse" : "accept", text);
    }
    grammar_free(g);
  }
}

static void test_walks(void **state) {
  TokenTrie *trie = walk_vocabulary();
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    Grammar *g = grammar_of(meanings[i].options);
    for (uint64_t seed = 0; seed < 8; seed++) {
      ByteVector text = {0};
      int64_t taken = 0;
      const char *wrong = walk(g, trie, seed * 100 + i, 30, seed < 2, &text, &taken);
      if (wrong && wrong != walk_is_endless) fail_msg("options %zu: %s", i, wrong);
      vec_free(&text);
    }
    grammar_free(g);
  }
  token_trie_free(trie);
}

// Special tokens may stand in free text, and as the trigger, and nowhere else.
static void test_special(void **state) {
  static const char *const text[] = {"[TOOL_CALLS]", "<think>", "[", "]", "{\"name\": \"now\", \"arguments\": {", "}",
                                     "x\"",          "[TOOL",   NULL};
  static const bool special[] = {true, true, false, false, false, false, false, false, false};
  int bytes[9], n = 9;
  uint8_t allowed[9];
  bool may_end;
  for (int i = 0; i < n; i++) bytes[i] = text[i] ? (int)strlen(text[i]) : 0;
  TokenTrie *trie = token_trie_of(text, bytes, special, n);
  for (int choice = 0; choice < 2; choice++) {
    Grammar *g = grammar_of((ToolOptions){TOOLS_MISTRAL, choice ? TOOLS_REQUIRED : TOOLS_AUTO, NULL, true});
    GrammarState *s = grammar_begin(g);
    grammar_mask(s, trie, allowed, &may_end);
    assert_memory_equal(allowed, choice ? "\1\0\1\0\0\0\0\1\0" : "\1\1\1\1\1\1\1\1\0", (size_t)n);
    assert_int_equal(may_end, !choice);
    assert_int_equal(grammar_take(s, trie, 1), !choice); // <think>
    assert_true(grammar_take(s, trie, 0));
    grammar_mask(s, trie, allowed, &may_end);
    assert_memory_equal(allowed, "\0\0\1\0\0\0\0\0\0", (size_t)n);
    assert_false(grammar_take(s, trie, 1));
    assert_true(grammar_take(s, trie, 2) && grammar_take(s, trie, 4) && grammar_take(s, trie, 5) &&
                grammar_take(s, trie, 5));
    assert_true(grammar_take(s, trie, 3) && grammar_may_end(s));
    grammar_end(s);
    grammar_free(g);
  }
  Grammar *g = grammar_of((ToolOptions){TOOLS_MISTRAL, TOOLS_AUTO, NULL, true, DOCUMENT});
  GrammarState *s = grammar_begin(g); // beside a document, too
  grammar_mask(s, trie, allowed, &may_end);
  assert_memory_equal(allowed, "\1\0\1\0\0\0\0\1\0", (size_t)n);
  grammar_end(s);
  grammar_free(g);
  token_trie_free(trie);
}

static const struct { const char *tools, *sentence;
} refusals[] = {
    {"[]", "tools is not a list of tools"},
    {"[{\"type\": \"web\"}]", "tools.0.type is not function, the only type that is built"},
    {"[{\"type\": \"function\", \"function\": {}}]", "tools.0.function.name is not a name"},
    {"[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", "tool_choice is g, which no tool is named"},
    {"[{\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": []}}]",
     "tools.0.function.parameters is not an object"},
    {"[{\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": {\"type\": \"array\"}}}]",
     "tools.0.function.parameters.type is not object"},
    {"[{\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": {\"properties\": {\"a\": {\"not\": "
     "{}}}}}}]",
     "tools.0.function.parameters.properties.a.not is not built"},
    {"[{\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": {\"properties\": {\"a\": false}, "
     "\"required\": [\"a\"]}}}]",
     "tools has a tool whose parameters allow no arguments at all"},
};

static void test_refusals(void **state) {
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    Grammar *g;
    Error error = {0};
    ToolOptions options = {TOOLS_HERMES, TOOLS_REQUIRED, "g", false};
    json_t *tree = json_loads(refusals[i].tools, 0, NULL);
    assert_non_null(tree);
    bool is_built = strstr(refusals[i].sentence, "built") == NULL;
    assert_int_equal(grammar_from_tools(&g, tree, &options, &error), is_built ? PLAIT_BAD_INPUT : GRAMMAR_NOT_BUILT);
    assert_null(g);
    assert_string_equal(error.message, refusals[i].sentence);
    json_decref(tree);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_walks),
                                     cmocka_unit_test(test_special), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
