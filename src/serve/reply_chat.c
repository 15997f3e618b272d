// From the parser's pieces to messages and deltas.
#include "serve/reply_chat.h"
#include "serve/reply_logprobs.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

// Templates of Mistral want ids of 9 letters and digits.
static void draw_id(ChatForm form, char id[24]) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  unsigned char drawn[16];
  int n = form == CHAT_MISTRAL ? 9 : 16, at = form == CHAT_MISTRAL ? 0 : snprintf(id, 24, "call_");
  CHECK(getrandom(drawn, sizeof drawn, 0) == sizeof drawn);
  for (int i = 0; i < n; i++) id[at++] = letters[drawn[i] % (sizeof letters - 1)];
  id[at] = 0;
}

static void take(void *chat, const ChatDelta *d) {
  ReplyChat *c = chat;
  if (d->kind == CHAT_CONTENT) bytes_append(&c->content, d->text, d->bytes);
  if (d->kind == CHAT_REASONING) bytes_append(&c->reasoning, d->text, d->bytes);
  if (d->kind == CHAT_CALL) {
    ReplyCall call = {.sent = 0};
    draw_id(c->form, call.id);
    bytes_append(&call.name, d->text, d->bytes);
    vec_push(&c->calls, call);
  }
  if (d->kind == CHAT_ARGUMENTS && d->bytes && c->calls.count)
    bytes_append(&c->calls.data[c->calls.count - 1].arguments, d->text, d->bytes);
}

void reply_chat_begin(ReplyChat *c, ChatForm form, const json_t *tools, bool reasoning, bool thinks) {
  *c = (ReplyChat){.form = form};
  c->parser = chat_parser_create(&(ChatParserOptions){.form = form,
                                                      .tools = tools,
                                                      .reasoning = reasoning || thinks,
                                                      .in_reasoning = thinks,
                                                      .tell = take,
                                                      .context = c});
}

void reply_chat_free(ReplyChat *c) {
  for (int i = 0; i < c->calls.count; i++) {
    vec_free(&c->calls.data[i].name);
    vec_free(&c->calls.data[i].arguments);
  }
  vec_free(&c->calls);
  vec_free(&c->content);
  vec_free(&c->reasoning);
  chat_parser_destroy(c->parser);
}

void reply_chat_update(ReplyChat *c, const Output *o, bool last) {
  if (!c->parser) return;
  if (o->ready > c->fed) chat_parser_push(c->parser, o->text.data + c->fed, (size_t)(o->ready - c->fed));
  c->fed = o->ready;
  if (!last) return;
  chat_parser_end(c->parser);
  chat_parser_destroy(c->parser);
  c->parser = NULL;
}

static json_t *call_of(const ReplyCall *call, int from) {
  return json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", call->id, "type", "function", "function", "name",
                   json_of_text(&call->name, 0, call->name.count), "arguments",
                   json_of_text(&call->arguments, from, call->arguments.count));
}

json_t *reply_chat_message(const ReplyChat *c) {
  bool silent = !c->content.count && c->calls.count;
  json_t *calls = json_array();
  json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
                              silent ? json_null() : json_of_text(&c->content, 0, c->content.count));
  if (c->reasoning.count)
    json_object_set_new(message, "reasoning_content", json_of_text(&c->reasoning, 0, c->reasoning.count));
  for (int i = 0; i < c->calls.count; i++) json_array_append_new(calls, call_of(&c->calls.data[i], 0));
  if (c->calls.count) json_object_set(message, "tool_calls", calls);
  json_decref(calls);
  return message;
}

static void put_new(json_t *delta, const char *key, const ByteVector *text, int *sent) {
  if (text->count == *sent) return;
  json_object_set_new(delta, key, json_of_text(text, *sent, text->count));
  *sent = text->count;
}

static void put_call(json_t *list, ReplyCall *call, int index) {
  json_t *entry;
  if (!call->told) entry = call_of(call, 0);
  else if (call->arguments.count > call->sent)
    entry = json_pack("{s:{s:o}}", "function", "arguments",
                      json_of_text(&call->arguments, call->sent, call->arguments.count));
  else return;
  json_object_set_new(entry, "index", json_integer(index));
  json_array_append_new(list, entry);
  call->told = true;
  call->sent = call->arguments.count;
}

json_t *reply_chat_delta(ReplyChat *c) {
  json_t *delta = json_object(), *calls = json_array();
  put_new(delta, "reasoning_content", &c->reasoning, &c->reasoning_sent);
  put_new(delta, "content", &c->content, &c->content_sent);
  for (int i = 0; i < c->calls.count; i++) put_call(calls, &c->calls.data[i], i);
  if (json_array_size(calls)) json_object_set(delta, "tool_calls", calls);
  json_decref(calls);
  return delta;
}

const char *reply_chat_finish(const ReplyChat *c, const char *finish) {
  return finish && !strcmp(finish, "stop") && c->calls.count ? "tool_calls" : finish;
}
