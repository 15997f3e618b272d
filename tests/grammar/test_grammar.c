// tier 1; rooms tokenizer
// Schemas as masks: which documents they accept and refuse, which schemas are refused and how; each mask has the tokens
// that are taken, and walks along masks end in documents that are accepted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "walks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Grammar *grammar_of(const char *schema) {
  Grammar *g;
  Error error = {0};
  json_t *tree = json_loads(schema, JSON_DECODE_ANY, NULL);
  if (!tree) fail_msg("not JSON: %s", schema);
  int code = grammar_from_schema(&g, tree, "schema", &error);
  json_decref(tree);
  if (code < 0) fail_msg("%s: %s", schema, error.message);
  return g;
}

// A schema, then documents: accepted ones, and after NULL refused ones, up to a second NULL.
enum { MOST = 24 };
static const struct { const char *schema, *documents[MOST];
} meanings[] = {
    {"{}",
     {"null", "true", "\"\"", "[]",     "{}", "0",  "-1.5", "[1, [2]]", "{\"a\": {\"b\": []}}", "{\"a\":1,\"b\":2}",
      NULL,   "",     " 1",   "[1 ,2]", "01", "1.", "tru",  "[1,]",     "{\"a\": 1, \"a\": 2}", "{\"a\" :1}",
      NULL}},
    {"{\"type\": \"integer\"}", {"0", "-7", "12345678901234567890123", NULL, "-0", "1.0", "1e2", "007", "", "-", NULL}},
    {"{\"type\": \"integer\", \"minimum\": 8, \"maximum\": 120}",
     {"8", "9", "10", "99", "100", "119", "120", NULL, "7", "0", "121", "1000", "-9", "200", "5", NULL}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": -12, \"exclusiveMaximum\": 3.5}",
     {"-11", "-2", "0", "3", NULL, "-12", "-13", "4", "-100", NULL}},
    {"{\"type\": \"integer\", \"minimum\": 1.5, \"maximum\": 1e20}",
     {"2", "99999999999999999999", "100000000000000000000", NULL, "1", "100000000000000000001", "0", NULL}},
    {"{\"type\": \"number\"}",
     {"0",
      "-0.0",
      "1e-07",
      "1.5e+300",
      "1e5",
      "1.7976931348623157e+308",
      "0.00012345678901234567",
      "1e16",
      NULL,
      "1e309",
      "1.8e+308",
      "1E5",
      ".5",
      "1.",
      "-",
      "1e",
      "1e+",
      "1.2.3",
      "Infinity",
      NULL}},
    {"{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}",
     {"0", "1", "0.5", "1.0", "1.00", "0.999", "1e-05", "9.9e-10", "5e-324", "-0.0", NULL, "1.01", "2", "-0.1",
      "-1e-05", "1e16", "1.5e0", NULL}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0.1, \"exclusiveMaximum\": 250}",
     {"0.11", "1", "249.99", "2.4e2", "249", NULL, "0.1", "0.10", "0.10000000000000000001", "250", "250.0", "2.5e2",
      "0", "1e-05", "300", NULL}},
    {"{\"type\": \"number\", \"maximum\": -1e-7}",
     {"-1", "-1e-07", "-0.5", "-1e+300", NULL, "0", "1", "-1e-08", "-0.0", "-9e-09", NULL}},
    {"{\"type\": \"string\"}",
     {"\"\"", "\"a b\"", "\"\\n\\\"\\\\\"", "\"\\u00e9\xc3\xa9\"", "\"\\ud83d\\ude00\"", "\"\\u007f\"", "\"\x7f\"",
      NULL, "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83dx\"", "\"\n\"", "\"\\u0041\"", "\"\\/\"", "\"\xed\xa0\x80\"",
      "\"\xc0\x80\"", "\"\xff\"", "\"a", NULL}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"abc\"", "\"\xc3\xa9\\u00e9\\n\"", "\"\\ud83d\\ude00\xf0\x9f\x98\x80\"", NULL, "\"a\"", "\"abcd\"",
      "\"\\ud83d\\ude00\"", "\"\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"^[a-c]+\\\\d{2}$\"}",
     {"\"a12\"", "\"abc00\"", NULL, "\"12\"", "\"a1\"", "\"a123\"", "\"d12\"", "\"xa12\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"b|^c|d$\"}",
     {"\"abc\"", "\"cx\"", "\"xd\"",
      "\"\xc3\xa9"
      "b\"",
      NULL, "\"\"", "\"ac\"", "\"da\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"^(\\\\w|\\u00e9|\\\\n)*$\", \"maxLength\": 3}",
     {"\"\"", "\"a_\"", "\"\xc3\xa9\\n\\u00e9\"", NULL, "\"\xc3\xa8\"", "\"a-\"", "\"aaaa\"", "\"\\t\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"^[^\\\\s\\\"]{1,2}$\"}",
     {"\"ab\"", "\"\\ud83d\\ude00\"", "\"\\\\\"", NULL, "\"\"", "\" \"", "\"\\\"\"", "\"\\n\"", "\"\\u00a0\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"^(a{2,3}|(?:bc)?)$\"}",
     {"\"aa\"", "\"aaa\"", "\"bc\"", "\"\"", NULL, "\"a\"", "\"aaaa\"", "\"b\"", "\"bcbc\"", NULL}},
    {"{\"type\": \"string\", \"pattern\": \"^(aa)*$\", \"minLength\": 3}",
     {"\"aaaa\"", "\"aaaaaa\"", NULL, "\"aa\"", "\"aaa\"", "\"\"", NULL}},
    {"{\"type\": \"string\", \"format\": \"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"0001-12-31\"", NULL, "\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"",
      "\"0000-01-01\"", "\"2024-13-01\"", "\"24-01-01\"", NULL}},
    {"{\"type\": \"string\", \"format\": \"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:30\"", NULL, "\"2024-01-01 00:00:00Z\"",
      "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\"", NULL}},
    {"{\"type\": \"string\", \"format\": \"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\"", NULL, "\"123e4567e89b12d3a456426614174000\"", NULL}},
    {"{\"type\": \"string\", \"format\": \"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.249.19.9\"", NULL, "\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\"", NULL}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"boolean\"}, \"c\": "
     "{}}, \"required\": [\"b\"], "
     "\"additionalProperties\": false}",
     {"{\"a\": 1, \"b\": true, \"c\": []}", "{\"b\":false}", "{\"b\": true, \"c\": 1}",
      "{\n  \"a\": 1,\n  \"b\": true\n}", "{ \"b\": true }", NULL, "{}", "{\"a\": 1}", "{\"b\": true, \"a\": 1}",
      "{\"b\": 1}", "{\"b\": true, \"d\": 1}", "{\"c\": 1, \"b\": true}", "{\"b\": true,}",
      "{\"b\": true, \"b\": true}", "{  \"b\": true}", NULL}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": "
     "\"null\"}}",
     {"{}", "{\"ab\": 1}", "{\"a\": null, \"ab\": 1, \"abc\": null}", "{\"\": null}",
      "{\"\xc3\xa9\": null, \"x\": null}", NULL, "{\"ab\": null}", "{\"x\": 1}", "{\"x\": null, \"x\": null}",
      "{\"\\u00e9\": null, \"\xc3\xa9\": null}", "{\"ab\": 1, \"ab\": 1}", "{\"\\n\": null, \"\\n\": null}", NULL}},
    {"{\"type\": \"object\", \"required\": [\"x\"], \"properties\": {\"\xc3\xa9\\n\": {\"const\": 1}}}",
     {"{\"\xc3\xa9\\n\": 1, \"x\": 2}", "{\"\\u00e9\\n\": 1, \"x\": 2, \"y\": 3}", "{\"y\": 1, \"x\": 2}", NULL, "{}",
      "{\"y\": 1}", "{\"\\u00e9\\n\": 2, \"x\": 1}", NULL}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"required\": [\"a\"]}",
     {"{\"a\": 1, \"b\": 2}", "{\"c\": 0, \"a\": 1}", NULL, "{\"b\": 2}", "{\"c\": 0, \"b\": 1}",
      "{\"b\": 2, \"a\": 1}", NULL}},
    {"{\"properties\": {\"a\": false, \"b\": {\"type\": \"null\"}}}",
     {"1", "{}", "{\"b\": null}", "{\"c\": 1}", NULL, "{\"a\": 1}", "{\"b\": 1}", NULL}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[1]", "[1, 2]", "[1,2,3]", "[\n  1,\n  2\n]", NULL, "[]", "[1, 2, 3, 4]", "[true]", "[1", NULL}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"string\"}, {\"type\": \"null\"}], \"items\": {\"type\": "
     "\"boolean\"}}",
     {"[]", "[\"a\"]", "[\"a\", null]", "[\"a\", null, true, false]", NULL, "[null]", "[\"a\", true]",
      "[\"a\", null, null]", NULL}},
    {"{\"type\": \"array\", \"prefixItems\": [{}, false], \"minItems\": 0}", {"[]", "[1]", NULL, "[1, 1]", NULL}},
    {"{\"type\": \"array\", \"items\": false}", {"[]", NULL, "[1]", NULL}},
    {"{\"enum\": [\"a\", \"ab\", 1, 12, 1.5, null, true, [1, \"x\"], {\"k\": \"v\", \"l\": 2}, 1e-7, 2.0]}",
     {"\"a\"",          "\"ab\"", "1",       "12", "1.5",   "null", "true", "[1, \"x\"]", "{\"k\": \"v\", \"l\": 2}",
      "1e-07",          "2.0",    "2",       NULL, "\"b\"", "\"\"", "2.5",  "false",      "[1]",
      "{\"k\": \"v\"}", "11",     "\"abc\"", NULL}},
    {"{\"enum\": [\"\\u00e9\", \"\\ud83d\\ude00\", \"q\\\"\", 3], \"type\": \"string\"}",
     {"\"\xc3\xa9\"", "\"\\u00e9\"", "\"\\u00E9\"", "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", "\"q\\\"\"", NULL,
      "3", "\"\xc3\xa8\"", "\"\\ud83d\\ude01\"", NULL}},
    {"{\"anyOf\": [{\"type\": \"string\", \"maxLength\": 1}, {\"type\": \"integer\"}, {\"type\": \"string\", "
     "\"pattern\": \"^xyz\"}]}",
     {"\"a\"", "5", "\"xyz1\"", "\"\"", NULL, "\"ab\"", "true", "\"xy\"", NULL}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, \"anyOf\": [{\"required\": [\"a\"]}, "
     "{\"required\": [\"b\"]}]}",
     {"{\"a\": 1}", "{\"b\": null}", "{\"a\": 1, \"b\": 2}", NULL, "{}", "{\"c\": 1}", "{\"a\": true}", NULL}},
    {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"a\"}, \"x\": {\"type\": \"integer\"}}, "
     "\"required\": [\"k\"]}, "
     "{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"b\"}}, \"required\": [\"k\"]}, {\"type\": "
     "\"null\"}]}",
     {"{\"k\": \"a\", \"x\": 1}", "{\"k\": \"b\", \"x\": \"y\"}", "null", NULL, "{\"k\": \"c\"}",
      "{\"k\": \"a\", \"x\": \"y\"}", "{}", NULL}},
    {"{\"allOf\": [{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"null\"}}}, {\"properties\": {\"b\": "
     "{\"type\": \"null\"}}, \"required\": [\"b\"]}]}",
     {"{\"a\": null, \"b\": null}", "{\"b\": null}", NULL, "{}", "{\"a\": null}", "{\"a\": 1, \"b\": null}", "1",
      NULL}},
    {"{\"allOf\": [{\"type\": [\"integer\", \"string\"]}, {\"minimum\": 3}, {\"type\": [\"number\", \"null\"], "
     "\"minimum\": 1, \"maximum\": 5}]}",
     {"3", "5", NULL, "2", "6", "\"a\"", "null", "3.5", NULL}},
    {"{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"integer\"}, \"next\": "
     "{\"anyOf\": [{\"$ref\": \"#/$defs/node\"}, {\"type\": \"null\"}]}}, "
     "\"required\": [\"v\", \"next\"], \"additionalProperties\": false}}, \"$ref\": \"#/$defs/node\"}",
     {"{\"v\": 1, \"next\": null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}", NULL, "{\"v\": 1}",
      "{\"v\": 1, \"next\": {}}", "null", NULL}},
    {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", {"[]", "[[], [[]]]", NULL, "[1]", "[[]", NULL}},
    {"{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}", {"null", NULL, "1", NULL}},
    {"{\"type\": [\"string\", \"null\"], \"minLength\": 1, \"title\": \"t\", \"default\": 5, \"x-own\": {\"not\": 1}}",
     {"\"a\"", "null", NULL, "\"\"", "1", NULL}},
    {"{\"definitions\": {\"a/b~c d\": {\"type\": \"null\"}}, \"$ref\": \"#/definitions/a~1b~0c%20d\"}",
     {"null", NULL, "1", NULL}},
};

static void test_documents(void **state) {
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    Grammar *g = grammar_of(meanings[i].schema);
    int accepted = 1;
    for (int k = 0; k < MOST; k++) {
      const char *text = meanings[i].documents[k];
      if (!text && !accepted--) break;
      if (text && grammar_accepts(g, text, strlen(text)) != accepted)
        fail_msg("%s %s %s", meanings[i].schema, accepted ? "refuses" : "accepts", text);
    }
    grammar_free(g);
  }
}

static void test_walks(void **state) {
  TokenTrie *trie = walk_vocabulary();
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    Grammar *g = grammar_of(meanings[i].schema);
    int ended = 0;
    for (uint64_t seed = 0; seed < 3 || (!ended && seed < 100); seed++) {
      ByteVector text = {0};
      int64_t taken = 0;
      const char *wrong = walk(g, trie, seed * 100 + i, 30, seed == 0, &text, &taken);
      vec_push(&text, 0);
      if (wrong == walk_is_endless) { // by chance: a key that must come is drawn letter by letter
        vec_free(&text);
        continue;
      }
      ended++;
      if (wrong) fail_msg("%s: after %s %s", meanings[i].schema, text.data, wrong);
      if (!grammar_accepts(g, text.data, (size_t)text.count - 1))
        fail_msg("%s refuses %s", meanings[i].schema, text.data);
      vec_free(&text);
    }
    if (!ended) fail_msg("%s: no walk ends", meanings[i].schema);
    grammar_free(g);
  }
  token_trie_free(trie);
}

// Schemas that are not built, or are none, by the path.
enum { WRONG = PLAIT_BAD_INPUT, NOT_BUILT = GRAMMAR_NOT_BUILT };
static const struct { const char *schema, *sentence; int code;
} refusals[] = {
    {"{\"properties\": {\"a\": {\"not\": {}}}}", "schema.properties.a.not is not built", NOT_BUILT},
    {"{\"type\": \"arary\"}", "schema.type is not one of object, array, string, number, integer, boolean and null",
     WRONG},
    {"{\"items\": {\"uniqueItems\": true}}", "schema.items.uniqueItems is not built", NOT_BUILT},
    {"{\"multipleOf\": 2}", "schema.multipleOf is not built", NOT_BUILT},
    {"{\"patternProperties\": {\"a\": {}}}", "schema.patternProperties is not built", NOT_BUILT},
    {"{\"if\": true, \"then\": false}", "schema.if is not built", NOT_BUILT},
    {"{\"$ref\": \"other.json\"}", "schema.$ref is other.json, and only references within the schema (#/…) are built",
     NOT_BUILT},
    {"{\"$ref\": \"#/$defs/x\"}", "schema.$ref is #/$defs/x, which the schema does not have", WRONG},
    {"{\"pattern\": \"a(?=b)\"}", "schema.pattern has a group that begins with (? and is not built", NOT_BUILT},
    {"{\"pattern\": \"\\\\bx\"}", "schema.pattern has \\b or \\B, which is not built", NOT_BUILT},
    {"{\"pattern\": \"(a\"}", "schema.pattern has a ( without its )", WRONG},
    {"{\"pattern\": \"((a{1000}){1000})\"}", "schema.pattern takes too many states", NOT_BUILT},
    {"{\"format\": \"email\"}", "schema.format is email, which is not built (date, time, date-time, uuid and ipv4 are)",
     NOT_BUILT},
    {"{\"minLength\": -1}", "schema.minLength is not a whole number from 0 on", WRONG},
    {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", "schema allows no document at all", WRONG},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}",
     "schema allows no document at all", WRONG},
    {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}",
     "schema.oneOf has the alternatives 0 and 1, and it is not plain that no document matches both; anyOf does not ask "
     "for that",
     NOT_BUILT},
    {"{\"enum\": [1], \"minimum\": 0}", "schema.minimum beside enum or const is not built", NOT_BUILT},
    {"{\"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}]}",
     "schema.allOf.pattern occurs twice in schemas that are put together, which is not built", NOT_BUILT},
    {"[]", "schema is not a schema (an object, true or false)", WRONG},
    {"{\"enum\": []}", "schema allows no document at all", WRONG},
    {"{\"pattern\": \"a**\"}", "schema.pattern repeats a repetition, which is not built", NOT_BUILT},
    {"{\"pattern\": 3}", "schema.pattern is not a string", WRONG},
    {"{\"pattern\": \"a{2,1}\"}", "schema.pattern has a repetition whose numbers are out of order", WRONG},
};

static void test_refusals(void **state) {
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    Grammar *g;
    Error error = {0};
    json_t *tree = json_loads(refusals[i].schema, JSON_DECODE_ANY, NULL);
    assert_non_null(tree);
    if (grammar_from_schema(&g, tree, "schema", &error) != refusals[i].code)
      fail_msg("%s: code %d, expected %d", refusals[i].schema, error.code, refusals[i].code);
    assert_null(g);
    assert_string_equal(error.message, refusals[i].sentence);
    json_decref(tree);
  }
}

// Containers may be nested deep, up to a bound; then they can still be closed.
static void test_nesting(void **state) {
  Grammar *g = grammar_of("{}");
  GrammarState *s = grammar_begin(g);
  int depth = 0;
  while (grammar_take_bytes(s, "[", 1)) depth++;
  assert_int_equal(depth, 256);
  for (int i = 0; i < depth; i++) assert_true(grammar_take_bytes(s, "]", 1));
  assert_true(grammar_may_end(s));
  assert_false(grammar_take_bytes(s, " ", 1));
  grammar_end(s);
  grammar_free(g);
}

// Between tokens there is a blank, or a new line with an indent of a bounded length.
static void test_white_space(void **state) {
  static const struct { const char *before, *blank; int most; } places[] = {
      {"{\n", " ", 8},      {"{\n", "\t", 1},         {"[[\n", " ", 16},          {"[[[\n", "\t", 3},
      {"[[1,\n", " ", 16},  {"[[1\n", " ", 8},        {"[1\n", " ", 0},           {"{\"a\": 1,\n", " ", 8},
      {"{\"a\":", " ", 1},  {"{\"a\": 1,", " ", 1},   {"[1", " ", 1},             {"[[[[[[[[[[[[\n", " ", 64},
      {"[[\n ", "\t", 0},   {"[[\n\t", " ", 0}};
  Grammar *g = grammar_of("{}");
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    GrammarState *s = grammar_begin(g);
    int blanks = 0;
    assert_true(grammar_take_bytes(s, places[i].before, strlen(places[i].before)));
    while (blanks < 1000 && grammar_take_bytes(s, places[i].blank, 1)) blanks++;
    if (blanks != places[i].most) fail_msg("%s: %d blanks, expected %d", places[i].before, blanks, places[i].most);
    grammar_end(s);
  }
  grammar_free(g);
}

static void append(ByteVector *text, const char *more) { bytes_append(text, more, strlen(more)); }

// A short schema that grows when its parts are put together is refused before it takes long.
static void test_growth(void **state) {
  ByteVector text = {0};
  char part[200];
  append(&text, "{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
  for (int i = 0; i < 40; i++) {
    snprintf(part, sizeof part,
             "\"d%d\": {\"anyOf\": [{\"$ref\": \"#/$defs/d%d\", \"minLength\": %d}, {\"$ref\": \"#/$defs/d%d\", "
             "\"maxLength\": %d}]}, ",
             i, i + 1, i, i + 1, 500 - i);
    append(&text, part);
  }
  append(&text, "\"d40\": {\"type\": \"string\", \"pattern\": \"^a*b*c*$\"}}}");
  Grammar *g;
  Error error = {0};
  json_t *tree = json_loadb(text.data, (size_t)text.count, 0, NULL);
  assert_non_null(tree);
  assert_int_equal(grammar_from_schema(&g, tree, "schema", &error), GRAMMAR_NOT_BUILT);
  assert_non_null(strstr(error.message, " makes the schema too large"));
  json_decref(tree);
  vec_free(&text);
}

// The vocabularies of tokenizers: a document's own tokens are in the masks, special ones never.
static void test_tokenizers(void **state) {
  static const char *const names[] = {"gpt2", "llama2", "llama3"};
  static const char document[] = "{\"name\": \"\xc3\xa9t\xc3\xa9 \xf0\x9f\x98\x80\", \"list\": [1, 2.5, null]}";
  Grammar *g = grammar_of("{\"type\": \"object\"}");
  for (int i = 0; i < 3; i++) {
    char path[300];
    Tokenizer *t;
    Error error = {0};
    IdVector ids = {0};
    bool may_end = false;
    snprintf(path, sizeof path, "%s/tokenizer/golden/%s.json", TESTS_FOLDER, names[i]);
    if (tokenizer_load(path, &t, &error) < 0) fail_msg("%s", error.message);
    assert_int_equal(tokenizer_encode(t, document, sizeof document - 1, 0, &ids, &error), PLAIT_OK);
    TokenTrie *trie = token_trie_create(t);
    uint8_t *allowed = xcalloc((size_t)token_trie_size(trie), 1);
    GrammarState *s = grammar_begin(g);
    for (int k = 0; k < ids.count; k++) {
      grammar_mask(s, trie, allowed, &may_end);
      assert_false(may_end);
      for (int id = 0; id < token_trie_size(trie); id++) assert_false(allowed[id] && t->token_special[id]);
      const char *text = t->decoded[ids.data[k]].text;
      if (!k && text[0] == ' ') { // a blank that decoding takes away where a text begins
        assert_true(grammar_take_bytes(s, text + 1, (size_t)t->decoded[ids.data[k]].bytes - 1));
        continue;
      }
      if (!allowed[ids.data[k]]) fail_msg("%s: token %d of %d", names[i], k, ids.count);
      assert_true(grammar_take(s, trie, ids.data[k]));
    }
    grammar_mask(s, trie, allowed, &may_end);
    assert_true(may_end);
    grammar_end(s);
    free(allowed);
    token_trie_free(trie);
    vec_free(&ids);
    tokenizer_destroy(t);
  }
  grammar_free(g);
}

static void test_object(void **state) {
  json_t *any = json_pack("{s:s}", "type", "object");
  Grammar *g;
  Error error = {0};
  assert_int_equal(grammar_from_schema(&g, any, "schema", &error), PLAIT_OK);
  json_decref(any);
  assert_true(grammar_accepts(g, "{\"a\": [1]}", 10));
  assert_false(grammar_accepts(g, "[]", 2));
  grammar_free(g);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "drive")) return drive();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_documents),   cmocka_unit_test(test_walks),
                                     cmocka_unit_test(test_refusals),    cmocka_unit_test(test_nesting),
                                     cmocka_unit_test(test_white_space), cmocka_unit_test(test_growth),
                                     cmocka_unit_test(test_tokenizers), cmocka_unit_test(test_object)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
