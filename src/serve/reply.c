// From what the engine draws to what the client reads.
#include "serve/reply.h"
#include "base/clock.h"
#include "serve/reply_logprobs.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

// The prompt's first token has no log-probability; the others' come from the engine.
static void begin_choice(Reply *r, int index) {
  const Call *c = r->call;
  const IdVector *ids = &c->ticket->prompt[index / c->n];
  ReplyChoice *choice = &r->choice[index];
  size_t bytes = 0;
  const char *text = c->echo ? call_prompt_text(c, (int)(index / c->n), &bytes) : NULL;
  ChatForm form = c->tools ? chat_form(r->model->chat) : CHAT_NO_CALLS;
  output_begin(&choice->output, r->model->tokenizer, &c->stops, form == CHAT_NO_CALLS);
  output_prompt(&choice->output, ids, c->echo, text, bytes);
  if (c->chat) reply_chat_begin(&choice->chat, form, c->tools, chat_has_reasoning(r->model->chat), c->thinks);
  if (c->echo && c->told) output_note(&choice->output, &(EngineEvent){.id = ids->data[0]}, 0, true);
}

void reply_begin(Reply *r, Call *call, const ServedModel *model, TicketQueue *queue) {
  uint64_t drawn[2];
  *r = (Reply){.call = call, .model = model, .queue = queue, .left = call->ticket->count, .asked = clock_seconds(),
               .created = time(NULL)};
  CHECK(getrandom(drawn, sizeof drawn, 0) == sizeof drawn);
  snprintf(r->id, sizeof r->id, "%s-%012llx%012llx", call->chat ? "chatcmpl" : "cmpl",
           (unsigned long long)(drawn[0] >> 16), (unsigned long long)(drawn[1] >> 16));
  r->choice = xcalloc((size_t)r->left, sizeof *r->choice);
  for (int i = 0; i < r->left; i++) begin_choice(r, i);
}

void reply_free(Reply *r) {
  for (int i = 0; r->choice && i < r->call->ticket->count; i++) {
    output_free(&r->choice[i].output);
    reply_chat_free(&r->choice[i].chat);
  }
  free(r->choice);
  mail_free(&r->mail);
}

static int decoded_bytes(const Tokenizer *t, int32_t id) {
  return tokenizer_token(t, id) ? t->decoded[id].bytes : 0;
}

static void note_scored(Reply *r, Output *o, const EngineEvent *e) {
  const OutputToken *last = &o->told.data[o->told.count - 1];
  int from = last->from + decoded_bytes(r->model->tokenizer, last->id);
  output_note(o, e, from < o->prompt ? from : o->prompt, false);
}

static void take_event(Reply *r, const EngineEvent *e) {
  ReplyChoice *c = &r->choice[e->request];
  if (e->scored) {
    note_scored(r, &c->output, e);
  } else if (e->id >= 0) {
    if (r->call->most) output_push(&c->output, e, r->call->told);
    r->first = r->mail.first;
  } else {
    output_end(&c->output, e->end);
    c->end = e->end;
    c->reused = e->reused;
    c->engine_ended = true;
    r->left--;
  }
  if (!c->output.stopped || c->engine_ended || c->unwanted) return;
  c->unwanted = true;
  ticket_queue_cancel(r->queue, r->call->ticket, (int)e->request);
}

int reply_update(Reply *r, Refusal *f) {
  Error error = {0};
  TicketState state = ticket_take(r->call->ticket, &r->mail, &error);
  for (int i = 0; i < r->mail.events.count; i++) take_event(r, &r->mail.events.data[i]);
  if (state == TICKET_REFUSED) return refusal_set(f, 400, "invalid_value", NULL, "%s", error.message);
  if (state != TICKET_FAILED || !r->left) return 0;
  bool stops = error.code == PLAIT_INTERRUPTED;
  return refusal_set(f, stops ? 503 : 500, stops ? "server_stops" : "server_failed", NULL, "%s", error.message);
}

int64_t reply_tokens(const Reply *r, int64_t *prompt, int64_t *reused) {
  const Ticket *t = r->call->ticket;
  int64_t drawn = 0;
  *prompt = *reused = 0;
  for (int i = 0; i < t->prompts; i++) {
    int64_t found = r->choice[i * r->call->n].reused;
    *prompt += t->prompt[i].count;
    *reused += found > 0 ? found : 0;
  }
  for (int i = 0; i < t->count; i++) drawn += r->choice[i].output.tokens;
  return drawn;
}

static json_t *usage_of(const Reply *r) {
  int64_t prompt, reused, drawn = reply_tokens(r, &prompt, &reused);
  return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)prompt, "completion_tokens",
                   (json_int_t)drawn, "total_tokens", (json_int_t)(prompt + drawn), "prompt_tokens_details",
                   "cached_tokens", (json_int_t)reused);
}

static json_t *frame_of(const Reply *r, const char *object, json_t *choices) {
  return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", r->id, "object", object, "created", (json_int_t)r->created,
                   "model", r->model->name, "system_fingerprint", r->model->fingerprint, "choices", choices);
}

static json_t *logprobs_of(const Reply *r, const Output *o, int from, int to) {
  if (!r->call->told || from == to) return json_null();
  return r->call->chat ? logprobs_of_chat(o, from, to) : logprobs_of_completion(o, from, to);
}

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

// ---- at once

json_t *reply_json(const Reply *r, Refusal *f) {
  json_t *choices = json_array();
  for (int i = 0; i < r->call->ticket->count; i++) {
    ReplyChoice *c = &r->choice[i];
    if (c->end == REQUEST_BROKEN) {
      refusal_set(f, 500, "model_broken", NULL, "the model's logits are not finite: its weights are broken");
      json_decref(choices);
      return NULL;
    }
    if (r->call->chat) reply_chat_update(&c->chat, &c->output, true);
    json_t *choice = json_pack("{s:i, s:o, s:o}", "index", i, "logprobs",
                               logprobs_of(r, &c->output, 0, c->output.told.count), "finish_reason",
                               text_or_null(reply_chat_finish(&c->chat, c->output.finish)));
    if (r->call->chat) json_object_set_new(choice, "message", reply_chat_message(&c->chat));
    else json_object_set_new(choice, "text", json_of_text(&c->output.text, 0, c->output.text.count));
    json_array_append_new(choices, choice);
  }
  json_t *frame = frame_of(r, r->call->chat ? "chat.completion" : "text_completion", choices);
  json_object_set_new(frame, "usage", usage_of(r));
  return frame;
}

// ---- in pieces

static void put_event(ByteVector *out, json_t *event) {
  char *text = json_dumps(event, JSON_COMPACT);
  CHECK(text);
  bytes_append(out, "data: ", 6);
  bytes_append(out, text, strlen(text));
  bytes_append(out, "\n\n", 2);
  free(text);
  json_decref(event);
}

static void put_choice(const Reply *r, int index, json_t *body, json_t *logprobs, const char *finish, ByteVector *out) {
  json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", index, r->call->chat ? "delta" : "text", body, "logprobs",
                             logprobs, "finish_reason", text_or_null(finish));
  json_t *list = json_array();
  json_array_append_new(list, choice);
  json_t *frame = frame_of(r, r->call->chat ? "chat.completion.chunk" : "text_completion", list);
  if (r->call->include_usage) json_object_set_new(frame, "usage", json_null());
  put_event(out, frame);
}

// Tokens whose text has begun before what is sent.
static int told_until(const Output *o, int from, bool last) {
  int to = from;
  while (to < o->told.count && (last || o->told.data[to].from < o->ready)) to++;
  return to;
}

static json_t *delta_of(ReplyChoice *c) {
  reply_chat_update(&c->chat, &c->output, c->output.over);
  return reply_chat_delta(&c->chat);
}

static void put_new_text(Reply *r, int index, ByteVector *out) {
  ReplyChoice *c = &r->choice[index];
  Output *o = &c->output;
  if (r->call->chat && !c->began)
    put_choice(r, index, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), json_null(), NULL, out);
  c->began = true;
  if (o->ready == c->sent && !o->over) return;
  int told = told_until(o, c->told_sent, o->over);
  json_t *logprobs = logprobs_of(r, o, c->told_sent, told), *body;
  bool is_new = told > c->told_sent;
  c->told_sent = told;
  if (r->call->chat) {
    body = delta_of(c);
    is_new |= json_object_size(body) > 0;
  } else {
    body = json_of_text(&o->text, c->sent, o->ready);
    is_new |= o->ready > c->sent;
  }
  c->sent = o->ready;
  if (is_new) {
    put_choice(r, index, body, logprobs, NULL, out);
  } else {
    json_decref(body);
    json_decref(logprobs);
  }
}

static void put_end(Reply *r, int index, ByteVector *out) {
  ReplyChoice *c = &r->choice[index];
  Refusal f;
  c->ended = true;
  if (c->output.finish) {
    const char *finish = reply_chat_finish(&c->chat, c->output.finish);
    put_choice(r, index, r->call->chat ? json_object() : json_string(""), json_null(), finish, out);
    return;
  }
  refusal_set(&f, 500, "model_broken", NULL, "the model's logits are not finite: its weights are broken");
  reply_refusal_event(&f, out);
}

void reply_refusal_event(const Refusal *f, ByteVector *out) {
  char *text = refusal_print(f);
  bytes_append(out, "data: ", 6);
  bytes_append(out, text, strlen(text));
  bytes_append(out, "\n\n", 2);
  free(text);
}

void reply_events(Reply *r, ByteVector *out) {
  for (int i = 0; i < r->call->ticket->count; i++) {
    ReplyChoice *c = &r->choice[i];
    if (c->ended) continue;
    put_new_text(r, i, out);
    if (c->output.over) put_end(r, i, out);
  }
  if (!reply_is_whole(r) || r->usage_sent) return;
  r->usage_sent = true;
  if (r->call->include_usage) {
    json_t *frame = frame_of(r, r->call->chat ? "chat.completion.chunk" : "text_completion", json_array());
    json_object_set_new(frame, "usage", usage_of(r));
    put_event(out, frame);
  }
  const char done[] = "data: [DONE]\n\n";
  bytes_append(out, done, sizeof done - 1);
}
