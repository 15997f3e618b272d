// tier 1
// Answers as messages and as streams: reasoning, calls of tools, stops and log-probabilities are the same, whatever the
// pieces in which the tokens come.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "served_bytes.h"

static ServedBytes served;

static Call read_call(const char *request, bool chat) {
  Call call;
  Refusal refusal;
  if (call_read(&call, &served.model, request, strlen(request), chat, &refusal)) fail_msg("%s", refusal.message);
  return call;
}

static json_t *whole_of(const char *request, bool chat, const char *text) {
  Call call = read_call(request, chat);
  json_t *answer = served_bytes_answer(&served, &call, text, (int)strlen(text), 7, NULL);
  assert_non_null(answer);
  json_t *choice = json_incref(json_array_get(json_object_get(answer, "choices"), 0));
  json_decref(answer);
  call_free(&call);
  return choice;
}

typedef struct Joined {
  ByteVector content, reasoning, arguments[4];
  char names[4][40], ids[4][40];
  int calls;
  char finish[40];
} Joined;

static void add(ByteVector *to, const json_t *text) {
  if (json_is_string(text)) bytes_append(to, json_string_value(text), json_string_length(text));
}

static void join_calls(Joined *j, json_t *calls) {
  size_t i;
  json_t *call;
  json_array_foreach(calls, i, call) {
    int index = (int)json_integer_value(json_object_get(call, "index"));
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name");
    assert_in_range(index, 0, 3);
    assert_true(!!name == (index == j->calls)); // a call has its name once
    if (name) {
      snprintf(j->names[index], sizeof j->names[index], "%s", json_string_value(name));
      snprintf(j->ids[index], sizeof j->ids[index], "%s", json_string_value(json_object_get(call, "id")));
      j->calls++;
    }
    add(&j->arguments[index], json_object_get(function, "arguments"));
  }
}

static void join(Joined *j, ByteVector *events) {
  vec_push(events, 0);
  for (char *at = events->data, *end; (end = strstr(at, "\n\n")); at = end + 2) {
    *end = 0;
    assert_memory_equal(at, "data: ", 6);
    if (!strcmp(at, "data: [DONE]")) continue;
    json_error_t error;
    json_t *event = json_loads(at + 6, 0, &error);
    if (!event) fail_msg("%s: %s", error.text, at);
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0), *delta = json_object_get(choice, "delta");
    add(&j->content, json_object_get(choice, "text"));
    add(&j->content, json_object_get(delta, "content"));
    add(&j->reasoning, json_object_get(delta, "reasoning_content"));
    join_calls(j, json_object_get(delta, "tool_calls"));
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish) snprintf(j->finish, sizeof j->finish, "%s", finish);
    json_decref(event);
  }
}

static void expect_text(const ByteVector *text, const char *right) {
  if (strlen(right) != (size_t)text->count || (text->count && memcmp(text->data, right, (size_t)text->count) != 0))
    fail_msg("\"%.*s\", expected \"%s\"", text->count, text->data, right);
}

// A stream in pieces of each size has the content, reasoning, first call's name and arguments, and end.
static void expect_stream(const char *request, bool chat, const char *text, const char *const right[5]) {
  for (int piece = 1; piece < 12; piece++) {
    Call call = read_call(request, chat);
    ByteVector events = {0};
    Joined j = {.calls = 0};
    served_bytes_answer(&served, &call, text, (int)strlen(text), piece, &events);
    join(&j, &events);
    expect_text(&j.content, right[0]);
    expect_text(&j.reasoning, right[1]);
    assert_string_equal(j.names[0], right[2]);
    expect_text(&j.arguments[0], right[3]);
    assert_string_equal(j.finish, right[4]);
    vec_free(&events);
    vec_free(&j.content);
    vec_free(&j.reasoning);
    for (int i = 0; i < 4; i++) vec_free(&j.arguments[i]);
    call_free(&call);
  }
}

static void expect(const char *request, bool chat, const char *text, const char *const right[5]) {
  json_t *choice = whole_of(request, chat, text), *message = json_object_get(choice, "message");
  const json_t *content = json_object_get(chat ? message : choice, chat ? "content" : "text");
  const json_t *reasoning = json_object_get(message, "reasoning_content");
  const json_t *function = json_object_get(json_array_get(json_object_get(message, "tool_calls"), 0), "function");
  assert_string_equal(json_is_string(content) ? json_string_value(content) : "", right[0]);
  assert_string_equal(reasoning ? json_string_value(reasoning) : "", right[1]);
  assert_string_equal(function ? json_string_value(json_object_get(function, "name")) : "", right[2]);
  assert_string_equal(function ? json_string_value(json_object_get(function, "arguments")) : "", right[3]);
  assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), right[4]);
  json_decref(choice);
  expect_stream(request, chat, text, right);
}

#define CHAT(more) "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]" more "}"
#define TOOLS ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {}}}]"

static void parts_of_answers(void **state) {
  expect("{\"prompt\": \"a\"}", false, "plain <think>", (const char *[]){"plain <think>", "", "", "", "stop"});
  expect(CHAT(""), true, "plain", (const char *[]){"plain", "", "", "", "stop"});
  expect(CHAT(""), true, "<think>\nwhy\n</think>\n\nso", (const char *[]){"so", "why", "", "", "stop"});
  expect(CHAT(", \"chat_template_kwargs\": {\"enable_thinking\": true}"), true, "why\n</think>\n\nso",
         (const char *[]){"so", "why", "", "", "stop"});
  expect(CHAT(TOOLS), true, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>",
         (const char *[]){"", "", "add", "{\"a\": [1, 2]}", "tool_calls"});
  expect(CHAT(TOOLS), true,
         "<think>hm</think>I add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
         (const char *[]){"I add.", "hm", "add", "{}", "tool_calls"});
  expect(CHAT(TOOLS ", \"tool_choice\": \"none\""), true,
         "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
         (const char *[]){"<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "", "", "", "stop"});
}

static void stops_across_tokens(void **state) {
  expect("{\"prompt\": \"a\", \"stop\": [\"xyz\", \"ende\"]}", false, "xyxy en endXende xyz",
         (const char *[]){"xyxy en endX", "", "", "", "stop"});
  expect("{\"prompt\": \"a\", \"stop\": \"xyz\"}", false, "axy", (const char *[]){"axy", "", "", "", "stop"});
  expect("{\"prompt\": \"a\", \"stop\": \"\\u00e4\\u00f6\"}", false, "\xc3\xa4\xc3\xa4\xc3\xb6!",
         (const char *[]){"\xc3\xa4", "", "", "", "stop"});
  expect("{\"prompt\": \"a\", \"stop\": \"aab\"}", false, "aaaab", (const char *[]){"aa", "", "", "", "stop"});
}

// A character comes as a whole, and bytes that are none become U+FFFD.
static void text_is_utf8(void **state) {
  expect("{\"prompt\": \"a\"}", false, "\xe2\x82\xac\xf0\x9f\x98\x80",
         (const char *[]){"\xe2\x82\xac\xf0\x9f\x98\x80", "", "", "", "stop"});
  expect("{\"prompt\": \"a\"}", false, "a\xff\xe2\x82",
         (const char *[]){"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "", "", "", "stop"});
}

int main(void) {
  served_bytes_open(&served);
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_answers), cmocka_unit_test(stops_across_tokens),
                                     cmocka_unit_test(text_is_utf8)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  served_bytes_close(&served);
  return failed;
}
