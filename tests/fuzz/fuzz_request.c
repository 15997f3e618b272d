// Requests of plait serve, and the tokens of their answers: what is taken is in range, what is refused has a sentence,
// and a stream says what the whole answer says. The first byte chooses chat or text and how tokens come in pieces; the
// request follows up to the end of its line, then bytes that the model draws.
#include "fuzz.h"
#include "../served_bytes.h"

static void check_choice(const ServedBytes *s, const RequestOptions *o) {
  CHECK(o->count > 0 && o->count <= BYTES_CONTEXT && o->most > 0 && o->most <= BYTES_CONTEXT);
  CHECK(o->sample.temperature >= 0 && o->sample.top_p > 0 && o->sample.repetition > 0);
  for (int i = 0; i < o->sample.biases; i++) CHECK(o->sample.bias[i].id >= 0 && o->sample.bias[i].id < BYTES_VOCAB);
  for (int64_t i = 0; i < o->count; i++) CHECK(o->prompt[i] >= 0 && o->prompt[i] < BYTES_VOCAB);
  CHECK(o->logprobs >= -1 && o->logprobs <= MOST_TOP);
}

static void add(ByteVector *to, const json_t *text) {
  if (json_is_string(text)) bytes_append(to, json_string_value(text), json_string_length(text));
}

// All that the first choice of the events says.
static void join(const ByteVector *events, ByteVector *text) {
  bool done = false;
  for (char *at = events->data, *end; at && (end = strstr(at, "\n\n")); at = end + 2) {
    *end = 0;
    CHECK(!done && !strncmp(at, "data: ", 6), "%s", at);
    if ((done = !strcmp(at + 6, "[DONE]"))) continue;
    json_t *event = json_loads(at + 6, JSON_ALLOW_NUL, NULL);
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    CHECK(event, "%s", at);
    json_t *delta = json_object_get(choice, "delta"), *call;
    size_t i;
    if (json_integer_value(json_object_get(choice, "index")) == 0) {
      add(text, json_object_get(choice, "text"));
      add(text, json_object_get(delta, "content"));
      json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
        add(text, json_object_get(json_object_get(call, "function"), "arguments"));
    }
    json_decref(event);
  }
  CHECK(done);
}

static void join_whole(const json_t *answer, ByteVector *text) {
  const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
  json_t *message = json_object_get(choice, "message"), *call;
  size_t i;
  add(text, json_object_get(choice, "text"));
  add(text, json_object_get(message, "content"));
  json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    add(text, json_object_get(json_object_get(call, "function"), "arguments"));
}

// Contents and arguments come in turns in a stream; their bytes are the same.
static uint64_t sum_of(const ByteVector *text) {
  uint64_t sum = (uint64_t)text->count;
  for (int i = 0; i < text->count; i++) sum += (uint64_t)(unsigned char)text->data[i] << 20;
  return sum;
}

static void check_answers(ServedBytes *s, const char *request, size_t bytes, bool chat, const char *drawn, int count,
                          int piece) {
  ByteVector events = {0}, text[2] = {{0}, {0}};
  for (int stream = 0; stream < 2; stream++) {
    Call call;
    Refusal refusal;
    CHECK(!call_read(&call, &s->model, request, bytes, chat, &refusal));
    json_t *answer = served_bytes_answer(s, &call, drawn, count, stream ? piece : count + 1, stream ? &events : NULL);
    if (stream) {
      vec_push(&events, 0);
      join(&events, &text[1]);
    } else {
      join_whole(answer, &text[0]);
      json_decref(answer);
    }
    call_free(&call);
  }
  CHECK(sum_of(&text[0]) == sum_of(&text[1]), "%.*s\nas a stream %.*s", text[0].count, text[0].data, text[1].count,
        text[1].data);
  vec_free(&events);
  vec_free(&text[0]);
  vec_free(&text[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static ServedBytes s;
  if (!s.tokenizer) served_bytes_open(&s);
  unsigned how = fuzz_byte(&data, &size);
  bool chat = how & 1;
  const uint8_t *end = memchr(data, '\n', size);
  size_t bytes = end ? (size_t)(end - data) : size;
  Call call;
  Refusal refusal = {0};
  int code = call_read(&call, &s.model, (const char *)data, bytes, chat, &refusal);
  if (code) {
    char *text = refusal_print(&refusal);
    json_t *tree = json_loads(text, JSON_ALLOW_NUL, NULL);
    CHECK(tree && refusal.status >= 400 && refusal.status < 500 && *refusal.message, "%s", text);
    json_decref(tree);
    free(text);
  } else {
    for (int i = 0; i < call.ticket->count; i++) check_choice(&s, &call.ticket->choice[i]);
  }
  bool answers = !code && call.ticket->count <= 4 && !call.echo;
  call_free(&call);
  if (answers && end)
    check_answers(&s, (const char *)data, bytes, chat, (const char *)end + 1, (int)(size - bytes - 1),
                  1 + (how >> 1) % 9);
  return 0;
}
