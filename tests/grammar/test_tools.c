// tier 1
// Calls of tools: in each form, free text until the trigger, then a call whose arguments their schema holds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/philox.h"
#include "chat/chat_parser.h"
#include "grammar/grammar_tools.h"
#include "walks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tools =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"d\", \"parameters\": {\"type\": "
    "\"object\", "
    "\"properties\": {\"x\": {\"type\": \"integer\"}, \"y\": {\"enum\": [\"up\", \"down\"]}}, \"required\": [\"x\"], "
    "\"additionalProperties\": false}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\"}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"say\", \"parameters\": {\"properties\": {\"text\": {\"type\": "
    "\"string\"}, \"maybe\": {\"anyOf\": [{\"$ref\": \"#/$defs/w\"}, {\"type\": \"null\"}]}, \"word\": {\"enum\": "
    "[\"on "
    "the way\", null]}, \"list\": {\"type\": \"array\", \"items\": {\"type\": [\"integer\", \"object\"]}}}, "
    "\"required\": "
    "[\"text\"], \"$defs\": {\"w\": {\"type\": \"string\"}}}}}]";

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
#define QWEN(name, parameters) "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define X(value) P("x", value)
#define Y(value) P("y", value)
#define GLM(name, parameters) "<tool_call>" name "\n" parameters "</tool_call>"
#define A(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
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
    {{TOOLS_QWEN_XML, TOOLS_AUTO, NULL, true},
     {"", "a <b>", QWEN("add", X("1")), "So " QWEN("add", X("1") Y("up")) "\n" QWEN("now", ""), NULL, "<tool_call>",
      QWEN("sub", ""), QWEN("add", ""), QWEN("add", Y("up")), QWEN("add", X("1") Y("left")), QWEN("add", X("a")),
      QWEN("add", X("1") X("1")), NULL}},
    {{TOOLS_QWEN_XML, TOOLS_REQUIRED, "say", false},
     {QWEN("say", P("text", "any\n\"text\"</x>\n")), QWEN("say", P("text", "")),
      QWEN("say", P("text", "a") P("maybe", "null")), QWEN("say", P("text", "a") P("word", "null")),
      QWEN("say", P("text", "a") P("word", "on the way")), QWEN("say", P("text", "a") P("list", "[1, {}]")), NULL, "",
      QWEN("now", ""), QWEN("say", ""), QWEN("say", P("text", "a") P("word", "other")),
      "<tool_call>\n<function=say>\n<parameter=text>\nso", NULL}},
    {{TOOLS_GLM, TOOLS_REQUIRED, NULL, true},
     {GLM("now", ""), GLM("add", A("x", "5") A("y", "down")) "\n" GLM("say", A("text", "a\nb")), NULL, "", "Hi",
      GLM("add", A("y", "down")), GLM("add", A("x", "\"5\"")), GLM("say", A("text", "a") A("text", "b")), NULL}},
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

static void collect(void *context, const ChatDelta *d) {
  if (d->kind == CHAT_ARGUMENTS) bytes_append(context, d->text, d->bytes);
  else assert_int_equal(d->kind, CHAT_CALL);
}

// A call in XML that the grammar lets through is one that the parser of answers reads, with arguments as in the schema.
static void test_read(void **state) {
  static const struct { ToolForm tools; ChatForm chat; } forms[] = {{TOOLS_QWEN_XML, CHAT_QWEN_XML},
                                                                    {TOOLS_GLM, CHAT_GLM}};
  static const char *const pieces[] = {"<tool_call>",
                                       "\n<function=say>",
                                       "\n</function>\n</tool_call>",
                                       "\n<parameter=",
                                       "text",
                                       "maybe",
                                       "word",
                                       "list",
                                       ">\n",
                                       "</parameter>",
                                       "\n</parameter>",
                                       "say",
                                       "\n<arg_key>",
                                       "</arg_key>\n<arg_value>",
                                       "</arg_value>",
                                       "\n</tool_call>",
                                       "a",
                                       "\"",
                                       "\\",
                                       "5",
                                       "null",
                                       "on the way",
                                       "[1, {}]",
                                       "\n",
                                       "</x",
                                       "\303\251"};
  enum { PIECES = sizeof pieces / sizeof *pieces };
  json_t *list = json_loads(tools, 0, NULL);
  int whole = 0;
  for (int form = 0; form < 2; form++) {
    Grammar *g = grammar_of((ToolOptions){forms[form].tools, TOOLS_REQUIRED, "say", false});
    for (uint64_t seed = 0; seed < 200; seed++) {
      ByteVector text = {0}, arguments = {0};
      GrammarState *at = grammar_begin(g);
      for (uint32_t i = 0; i < 2000 && !grammar_may_end(at); i++) {
        uint32_t drawn[4];
        philox4x32(philox_key(seed, 3, 0), i, 0, 0, 0, drawn);
        const char *piece = pieces[drawn[0] % PIECES];
        if (grammar_take_bytes(at, piece, strlen(piece))) bytes_append(&text, piece, strlen(piece));
      }
      bool wrong = !grammar_may_end(at);
      grammar_end(at);
      ChatParser *p = chat_parser_create(
          &(ChatParserOptions){.form = forms[form].chat, .tools = list, .tell = collect, .context = &arguments});
      if (!wrong) {
        chat_parser_push(p, text.data, (size_t)text.count);
        chat_parser_end(p);
        assert_int_equal(chat_parser_calls(p), 1);
        json_t *read = json_loadb(arguments.data, (size_t)arguments.count, JSON_ALLOW_NUL, NULL);
        const json_t *maybe = json_object_get(read, "maybe"), *word = json_object_get(read, "word");
        const json_t *items = json_object_get(read, "list");
        bool is_word = json_is_null(word) || (word && !strcmp(json_string_value(word), "on the way"));
        bool valid = json_is_string(json_object_get(read, "text")) && (!items || json_is_array(items)) &&
                     (!maybe || json_is_string(maybe) || json_is_null(maybe)) && (!word || is_word);
        if (!valid)
          fail_msg("%.*s: %.*s", text.count, text.data, arguments.count, arguments.data);
        whole += valid;
        json_decref(read);
      }
      chat_parser_destroy(p);
      vec_free(&text);
      vec_free(&arguments);
    }
    grammar_free(g);
  }
  assert_true(whole > 20);
  json_decref(list);
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
                                     cmocka_unit_test(test_read), cmocka_unit_test(test_special),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
