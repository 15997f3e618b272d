// tier 1; rooms chat
// Answers taken apart: what is told for each form of calls, and that it does not depend on how the text is cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/philox.h"
#include "chat/chat_parser.h"
#include <stdio.h>
#include <string.h>

typedef struct Told {
  char text[4000];
  size_t bytes;
  ChatDeltaKind kind;
} Told;

// "R:…", "C:…", "F:name", "A:…", each once for deltas of the same kind in a row.
static void tell(void *context, const ChatDelta *delta) {
  Told *t = context;
  bool same = t->bytes && t->kind == delta->kind && delta->kind != CHAT_CALL;
  assert_true(delta->bytes > 0);
  if (!same) t->bytes += (size_t)sprintf(t->text + t->bytes, "%s%c:", t->bytes ? "|" : "", "CRFA"[delta->kind]);
  assert_true(t->bytes + delta->bytes < sizeof t->text);
  memcpy(t->text + t->bytes, delta->text, delta->bytes);
  t->bytes += delta->bytes;
  t->text[t->bytes] = 0;
  t->kind = delta->kind;
}

static const struct {
  const char *text, *told;
  ChatForm form;
  int reasoning; // 0 no, 1 it may come, 2 the answer begins in it
} cases[] = {
    {"Hello  there \n", "C:Hello  there \n", CHAT_NO_CALLS},
    {"<think>no</think>", "C:<think>no</think>", CHAT_NO_CALLS},
    {"\n<think>\nso it is\n\n</think>\n\nYes.\n", "R:so it is|C:Yes.\n", CHAT_NO_CALLS, 1},
    {"so it is\n</think>\n\nYes.", "R:so it is|C:Yes.", CHAT_NO_CALLS, 2},
    {"  <thinking> is not it", "C:  <thinking> is not it", CHAT_NO_CALLS, 1},
    {"<think>a < b </thin k> ", "R:a < b </thin k>", CHAT_NO_CALLS, 1},
    {"<think></think>x", "C:x", CHAT_HERMES, 1},
    {"Yes <think>x</think>", "C:Yes <think>x</think>", CHAT_HERMES, 1},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>", "F:f|A:{\"a\": \"}\\\"\"}",
     CHAT_HERMES},
    {"I ask.\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"arguments\": [1, {}], "
     "\"name\": "
     "\"g\\u00e9\"}</tool_call>\n",
     "C:I ask.|F:f|A:{}|F:gé|A:[1, {}]", CHAT_HERMES},
    {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "F:f|A:{\"a\": 1}", CHAT_HERMES},
    {"<tool_call>{\"name\": \"f\"}</tool_call> and more", "F:f|A:{}|C:and more", CHAT_HERMES},
    {"<tool_call>{\"name\": \"f\", \"arguments\": null, \"id\": \"}\"}</tool_call>", "F:f|A:{}", CHAT_HERMES},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "F:f|A:{\"a\": ", CHAT_HERMES},
    {"<tool_call>{\"name\": \"f", "C:<tool_call>{\"name\": \"f", CHAT_HERMES},
    {"a <tool_call> b", "C:a <tool_call> b", CHAT_HERMES},
    {"<tool_call>{\"weather\": 1}</tool_call>", "C:<tool_call>{\"weather\": 1}</tool_call>", CHAT_HERMES},
    {"a <tool_ca", "C:a <tool_ca", CHAT_HERMES},
    {"<think>\nx\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, 2]}}\n</tool_call>",
     "R:x|F:f|A:{\"x\": [1, 2]}", CHAT_HERMES, 1},
    {"{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": \"c\"}}}", "F:f|A:{\"a\": {\"b\": \"c\"}}", CHAT_LLAMA3},
    {"<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": "
     "{}}",
     "F:f|A:{}|F:g|A:{}", CHAT_LLAMA3},
    {"<|python_tag|>brave.call(\"x\")", "C:<|python_tag|>brave.call(\"x\")", CHAT_LLAMA3},
    {"{\"answer\": 1}", "C:{\"answer\": 1}", CHAT_LLAMA3},
    {" Text {\"name\": \"f\", \"parameters\": {}}", "C: Text {\"name\": \"f\", \"parameters\": {}}", CHAT_LLAMA3},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", "
     "\"arguments\": {}}]",
     "F:f|A:{\"a\": 1}|F:g|A:{}", CHAT_MISTRAL},
    {"[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123[ARGS]{}", "F:f|A:{\"a\": 1}|F:g|A:{}", CHAT_MISTRAL},
    {"So: [TOOL_CALLS] {\"name\": \"f\", \"arguments\": {}}", "C:So:|F:f|A:{}", CHAT_MISTRAL},
    {"[TOOL_CALLS] nothing", "C:[TOOL_CALLS] nothing", CHAT_MISTRAL},
    {"[TOOL_CALLS][]", "C:[TOOL_CALLS][]", CHAT_MISTRAL},
    {"So:\n<tool_call>\n<function=f>\n<parameter=text>\na "
     "\"b\"\n</x>\n\n</parameter>\n<parameter=count>\n5\n</parameter>\n"
     "</function>\n</tool_call>",
     "C:So:|F:f|A:{\"text\": \"a \\\"b\\\"\\n</x>\\n\", \"count\": 5}", CHAT_QWEN_XML},
    {"<tool_call><function=f><parameter=text>5</parameter><parameter=maybe>null</parameter><parameter=list>[1,\n2]"
     "</parameter><parameter=on>True</parameter></function></tool_call>\n<tool_call>\n<function=f></function></"
     "tool_call>.",
     "F:f|A:{\"text\": \"5\", \"maybe\": null, \"list\": [1,\n2], \"on\": true}|F:f|A:{}|C:.", CHAT_QWEN_XML},
    {"<tool_call><function=f><parameter=maybe>5</parameter><parameter=text>\n</parameter><parameter=text>\n\n</"
     "parameter>"
     "<parameter=word>null</parameter><parameter=free>{\"a\": 1}</parameter><parameter=free>{a</parameter></function>",
     "F:f|A:{\"maybe\": \"5\", \"text\": \"\", \"text\": \"\", \"word\": \"null\", \"free\": {\"a\": 1}, \"free\": "
     "\"{a\"}",
     CHAT_QWEN_XML},
    {"<tool_call><function=other><parameter=k>1</parameter><parameter=l>x y</parameter></function></tool_call>",
     "F:other|A:{\"k\": 1, \"l\": \"x y\"}", CHAT_QWEN_XML},
    {"<tool_call><function=f><parameter=text>\nso it g", "F:f|A:{\"text\": \"so it g", CHAT_QWEN_XML},
    {"<tool_call>\n<funct", "C:<tool_call>\n<funct", CHAT_QWEN_XML},
    {"<tool_call>\n<function=a b>", "C:<tool_call>\n<function=a b>", CHAT_QWEN_XML},
    {"<tool_call>\n{\"name\": \"f\"}</tool_call>", "C:<tool_call>\n{\"name\": \"f\"}</tool_call>", CHAT_QWEN_XML},
    {"<tool_call><function=f></function>\n<function=g></function></tool_call>", "F:f|A:{}|F:g|A:{}", CHAT_QWEN_XML},
    {"<tool_call><function=f>\nwhat</tool_call>", "F:f|A:{}|C:what</tool_call>", CHAT_QWEN_XML},
    {"Yes\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>\na</arg_value>\n<arg_key>count</arg_key>\n<arg_value>5"
     "</arg_value>\n</tool_call>",
     "C:Yes|F:f|A:{\"text\": \"\\na\", \"count\": 5}", CHAT_GLM},
    {"<tool_call>f\n</tool_call>\n<tool_call>g<arg_key>a</arg_key><arg_value>{\"b\": [true]}</arg_value></tool_call> "
     "ok",
     "F:f|A:{}|F:g|A:{\"a\": {\"b\": [true]}}|C:ok", CHAT_GLM},
    {"<tool_call>some words</tool_call>", "C:<tool_call>some words</tool_call>", CHAT_GLM},
    {"<tool_call>f\nthen", "C:<tool_call>f\nthen", CHAT_GLM}};

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"text\": {\"type\": "
    "\"string\"}, \"count\": {\"type\": \"integer\"}, \"maybe\": {\"anyOf\": [{\"$ref\": \"#/$defs/word\"}, {\"type\": "
    "\"null\"}]}, \"list\": {\"type\": \"array\"}, \"on\": {\"type\": \"boolean\"}, \"word\": {\"enum\": [\"null\"]}, "
    "\"free\": {}}, \"$defs\": {\"word\": {\"type\": \"string\"}}}}}]";
static json_t *tool_list;

// seed 0: in one piece; 1: a byte at a time; else random pieces. Returns how many calls there are.
static int parse(const char *text, ChatForm form, int reasoning, uint32_t seed, Told *told) {
  ChatParserOptions o = {.form = form,
                         .tools = tool_list,
                         .reasoning = reasoning > 0,
                         .in_reasoning = reasoning > 1,
                         .tell = tell,
                         .context = told};
  ChatParser *p = chat_parser_create(&o);
  size_t bytes = strlen(text), at = 0, n;
  for (uint32_t i = 0; at < bytes; at += n, i++) {
    uint32_t drawn[4];
    philox4x32(philox_key(seed, 0, 0), i, 0, 0, 0, drawn);
    n = seed == 0 ? bytes : seed == 1 ? 1 : 1 + drawn[0] % (2 + seed % 11);
    if (n > bytes - at) n = bytes - at;
    char *piece = malloc(n); // so that a sanitizer sees who reads beyond it
    memcpy(piece, text + at, n);
    chat_parser_push(p, piece, n);
    free(piece);
  }
  chat_parser_end(p);
  int calls = chat_parser_calls(p);
  chat_parser_destroy(p);
  return calls;
}

static void test_answers(void **state) {
  (void)state;
  assert_non_null(tool_list = json_loads(tools, 0, NULL));
  for (int k = 0; k < (int)(sizeof cases / sizeof *cases); k++)
    for (uint32_t seed = 0; seed < 200; seed++) {
      Told told = {0};
      int calls = parse(cases[k].text, cases[k].form, cases[k].reasoning, seed, &told), expected = 0;
      for (const char *c = cases[k].told; *c; c++)
        expected += !strncmp(c, "|F:", 3) || (c == cases[k].told && *c == 'F');
      assert_int_equal(calls, expected);
      if (strcmp(told.text, cases[k].told) != 0)
        fail_msg("%s, seed %u:\n  %s\n  should be\n  %s", cases[k].text, seed, told.text, cases[k].told);
    }
  json_decref(tool_list);
}

// Random texts of what the forms are made of.
static void test_cuts(void **state) {
  static const char *const words[] = {"<tool_call>",
                                      "</tool_call>",
                                      "<function=f>",
                                      "<function=",
                                      "</function>",
                                      "<parameter=text>",
                                      "<parameter=count>",
                                      "</parameter>",
                                      "<arg_key>text</arg_key>",
                                      "<arg_key>",
                                      "</arg_key>",
                                      "<arg_value>",
                                      "</arg_value>",
                                      "\n",
                                      " ",
                                      "f",
                                      "5",
                                      "null",
                                      "[TOOL_CALLS]",
                                      "[ARGS]",
                                      "{\"name\": \"f\", \"arguments\": ",
                                      "{}",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      "<",
                                      "\"",
                                      "\\",
                                      "</",
                                      ">",
                                      "<think>",
                                      "</think>"};
  enum { WORDS = sizeof words / sizeof *words };
  (void)state;
  assert_non_null(tool_list = json_loads(tools, 0, NULL));
  for (uint32_t seed = 0; seed < 20000; seed++) {
    char text[600] = "";
    uint32_t drawn[4];
    philox4x32(philox_key(seed, 7, 0), 0, 0, 0, 0, drawn);
    ChatForm form = (ChatForm)(drawn[0] % (CHAT_MISTRAL + 1));
    int reasoning = (int)(drawn[1] % 3), count = 1 + (int)(drawn[2] % 20);
    for (int i = 0; i < count; i++) {
      philox4x32(philox_key(seed, 7, 0), 1 + (uint32_t)i, 0, 0, 0, drawn);
      strcat(text, words[drawn[0] % WORDS]);
    }
    Told whole = {0};
    int calls = parse(text, form, reasoning, 0, &whole);
    for (uint32_t cut = 1; cut < 4; cut++) {
      Told told = {0};
      if (parse(text, form, reasoning, cut, &told) != calls || strcmp(told.text, whole.text) != 0)
        fail_msg("form %d, cut %u: %s\n  %s\n  should be\n  %s", (int)form, cut, text, told.text, whole.text);
    }
  }
  json_decref(tool_list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_cuts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
