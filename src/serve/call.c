// Requests for text: from JSON to a ticket.
#include "serve/call.h"
#include "serve/call_rules.h"
#include "base/fault.h"
#include "base/json_read.h"
#include <string.h>
#include <sys/random.h>

enum { USUAL_TOKENS = 16, MOST_N = 128, MOST_STOP = 256, LAST = 16, MOST_BIASES = 1024 };

// ---- prompts

int call_encode_text(const ServedModel *m, const json_t *text, IdVector *ids, Refusal *f) {
  Error error = {0};
  int64_t missed;
  int code = text_setup_encode(m->text, m->tokenizer, json_string_value(text), json_string_length(text), ids, &missed,
                               &error);
  return code ? refusal_set(f, 400, "invalid_value", "prompt", "%s", error.message) : 0;
}

int call_encode_chat(const ServedModel *m, const ChatPrompt *prompt, IdVector *ids, Refusal *f) {
  Error error = {0};
  if (!m->chat)
    return refusal_set(f, 400, "no_chat_template", "messages",
                       "the model has no chat template; use v1/completions, or start plait serve with --template FILE");
  int code = chat_encode(m->chat, prompt, ids, &error);
  if (code) return refusal_set(f, 400, "invalid_value", "messages", "%s", error.message);
  return ids->count ? 0 : refusal_set(f, 400, "invalid_value", "messages", "the template makes an empty prompt");
}

// The model may have rows for more ids than the tokenizer has tokens: nothing was learnt of these.
static bool is_token(const ServedModel *m, long long id) {
  bool known = id >= 0 && id < m->source->config.vocab;
  return known && FAULT(padding_is_a_token, m->allowed[id], true);
}

static int refuse_token(long long id, const char *field, Refusal *f) {
  return refusal_set(f, 400, "invalid_value", field, "%lld is not the id of a token of the model's tokenizer", id);
}

static int read_ids(const ServedModel *m, const json_t *list, IdVector *ids, Refusal *f) {
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) {
    int64_t id = json_integer_value(item);
    if (!json_is_integer(item)) return refusal_set(f, 400, "invalid_value", "prompt", "token ids are whole numbers");
    if (!is_token(m, id)) return refuse_token(id, "prompt", f);
    vec_push(ids, (int32_t)id);
  }
  return ids->count ? 0 : refusal_set(f, 400, "invalid_value", "prompt", "the prompt has no tokens");
}

// The prompts of a completion: how many there are.
static int count_prompts(const json_t *prompt) {
  if (json_is_string(prompt)) return 1;
  if (!json_is_array(prompt)) return 0;
  return json_is_integer(json_array_get(prompt, 0)) ? 1 : (int)json_array_size(prompt);
}

static const json_t *prompt_at(const json_t *prompt, int i) {
  bool one = json_is_string(prompt) || json_is_integer(json_array_get(prompt, 0));
  return one ? prompt : json_array_get(prompt, (size_t)i);
}

const char *call_prompt_text(const Call *c, int i, size_t *bytes) {
  const json_t *p = prompt_at(json_object_get(c->json, "prompt"), i);
  *bytes = json_string_length(p);
  return json_string_value(p);
}

static int read_prompts(Call *c, const ServedModel *m, Refusal *f) {
  const json_t *prompt = json_object_get(c->json, "prompt");
  int code = 0;
  for (int i = 0; i < c->ticket->prompts && !code; i++) {
    const json_t *p = prompt_at(prompt, i);
    IdVector *ids = &c->ticket->prompt[i];
    if (json_is_string(p)) code = call_encode_text(m, p, ids, f);
    else if (json_is_array(p)) code = read_ids(m, p, ids, f);
    else code = refusal_set(f, 400, "invalid_value", "prompt",
                            "prompt must be a text, a list of texts, a list of token ids, or a list of such lists");
  }
  return code;
}

static int read_chat(Call *c, const ServedModel *m, Refusal *f) {
  bool prefill = false;
  const json_t *kwargs = json_object_get(c->json, "chat_template_kwargs");
  Error error = {0};
  if (chat_check_kwargs(kwargs, "chat_template_kwargs", &error))
    return refusal_set(f, 400, "invalid_value", "chat_template_kwargs", "%s", error.message);
  json_t *messages = call_messages(json_object_get(c->json, "messages"), &prefill, &c->ignored, f);
  if (!messages) return -1;
  IdVector *ids = &c->ticket->prompt[0];
  int code = call_tools(c->json, m, &c->tools, f);
  const ChatPrompt chat = {
      .messages = messages, .tools = c->tools, .kwargs = kwargs, .answer = !prefill, .prefill = prefill};
  if (!code) code = call_encode_chat(m, &chat, ids, f);
  json_decref(messages);
  if (code) return code;
  ByteVector tail = {0};
  int n = ids->count < LAST ? ids->count : LAST;
  tokenizer_decode(m->tokenizer, ids->data + ids->count - n, n, 0, &tail, NULL);
  c->thinks = !prefill && chat_begins_reasoning(&tail);
  vec_free(&tail);
  return 0;
}

// ---- other fields

static int read_stops(Call *c, Refusal *f) {
  const json_t *stop = json_object_get(c->json, "stop");
  size_t count = json_is_array(stop) ? json_array_size(stop) : stop != NULL;
  if (count > MOST_STOPS) return refusal_set(f, 400, "invalid_value", "stop", "stop has at most 4 texts");
  for (size_t i = 0; i < count; i++) {
    const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
    size_t bytes = json_string_length(text);
    if (!json_is_string(text) || !bytes || bytes > MOST_STOP)
      return refusal_set(f, 400, "invalid_value", "stop", "stop must be a text of 1 to 256 bytes, or up to 4 of them");
    c->stops.text[c->stops.count] = json_string_value(text);
    c->stops.bytes[c->stops.count++] = (int)bytes;
  }
  return 0;
}

static int read_biases(Call *c, const ServedModel *m, Refusal *f) {
  json_t *biases = json_object_get(c->json, "logit_bias"), *value;
  const char *key;
  if (biases && (!json_is_object(biases) || json_object_size(biases) > MOST_BIASES))
    return refusal_set(f, 400, "invalid_value", "logit_bias", "logit_bias must be an object of at most 1024 token ids");
  json_object_foreach(biases, key, value) {
    char *end;
    long long id = strtoll(key, &end, 10);
    double bias = json_number_value(value);
    if (!*key || *end || !json_is_number(value) || !(bias >= -100) || !(bias <= 100))
      return refusal_set(f, 400, "invalid_value", "logit_bias",
                         "logit_bias must be an object of token ids, each with a number from -100 to 100");
    if (!is_token(m, id)) return refuse_token(id, "logit_bias", f);
    vec_push(&c->ticket->bias, (SampleBias){(int32_t)id, (float)bias});
  }
  return 0;
}

static int not_zero(const json_t *json, const char *key, Refusal *f) {
  const json_t *v = json_object_get(json, key);
  if (!json_is_number(v) || json_number_value(v) != 0) return 0;
  return refusal_set(f, 400, "invalid_value", key, "%s must be above 0", key);
}

static int read_sample(const json_t *json, SampleOptions *s, Refusal *f) {
  uint64_t drawn;
  CHECK(getrandom(&drawn, sizeof drawn, 0) == sizeof drawn);
  int64_t seed = (int64_t)(drawn >> 11);
  int code = field_number(json, "temperature", 0, 2, &s->temperature, f);
  if (!code) code = field_integer(json, "top_k", 0, INT32_MAX, &s->top_k, f);
  if (!code) code = field_number(json, "top_p", 0, 1, &s->top_p, f);
  if (!code) code = not_zero(json, "top_p", f);
  if (!code) code = field_number(json, "min_p", 0, 1, &s->min_p, f);
  if (!code) code = field_number(json, "repetition_penalty", 0, 100, &s->repetition, f);
  if (!code) code = not_zero(json, "repetition_penalty", f);
  if (!code) code = field_number(json, "presence_penalty", -2, 2, &s->presence, f);
  if (!code) code = field_number(json, "frequency_penalty", -2, 2, &s->frequency, f);
  if (!code) code = field_integer(json, "seed", 0, (int64_t)1 << 53, &seed, f);
  s->seed = (uint64_t)seed;
  return code;
}

// *top: how many of the most likely tokens are told; -1: no log-probabilities.
static int read_logprobs(Call *c, int *top, Refusal *f) {
  int64_t count = -1;
  bool wanted = false;
  int code;
  if (c->chat) {
    code = field_flag(c->json, "logprobs", &wanted, f);
    count = wanted ? 0 : -1;
    if (!code) code = field_integer(c->json, "top_logprobs", 0, MOST_TOP, &count, f);
    if (!code && !wanted && count > 0)
      return refusal_set(f, 400, "invalid_value", "top_logprobs", "top_logprobs needs logprobs: true");
    if (!wanted) count = -1;
  } else {
    if (json_is_false(json_object_get(c->json, "logprobs"))) json_object_del(c->json, "logprobs");
    code = field_integer(c->json, "logprobs", 0, MOST_TOP, &count, f);
  }
  c->told = count >= 0;
  *top = (int)count;
  return code;
}

static int read_shape(Call *c, Refusal *f) {
  const json_t *options = json_object_get(c->json, "stream_options");
  c->n = 1;
  c->most = c->chat ? INT32_MAX : USUAL_TOKENS;
  int code = field_integer(c->json, "n", 1, MOST_N, &c->n, f);
  if (!code) code = field_integer(c->json, "max_tokens", c->chat ? 1 : 0, INT32_MAX, &c->most, f);
  if (!code) code = field_integer(c->json, "max_completion_tokens", 1, INT32_MAX, &c->most, f);
  if (!code) code = field_flag(c->json, "stream", &c->stream, f);
  if (!code) code = field_flag(c->json, "echo", &c->echo, f);
  if (!code && options && !json_is_object(options))
    code = refusal_set(f, 400, "invalid_value", "stream_options", "stream_options must be an object");
  if (!code && options) code = field_flag(options, "include_usage", &c->include_usage, f);
  if (!code && !c->most && !c->echo)
    code = refusal_set(f, 400, "invalid_value", "max_tokens", "max_tokens must be 1 or more, or echo true");
  return code;
}

// ---- all of it

static int make_ticket(Call *c, Refusal *f) {
  int prompts = c->chat ? 1 : count_prompts(json_object_get(c->json, "prompt"));
  if (!prompts)
    return refusal_set(f, 400, json_object_get(c->json, "prompt") ? "invalid_value" : "missing_field", "prompt",
                       "prompt must be a text, a list of texts, a list of token ids, or a list of such lists");
  if (prompts * c->n > MOST_CHOICES)
    return refusal_set(f, 400, "invalid_value", "n", "a request has at most %d choices; this one has %lld",
                       MOST_CHOICES, (long long)(prompts * c->n));
  c->ticket = ticket_create((int)(prompts * c->n), prompts);
  return 0;
}

static int fill_choices(Call *c, const ServedModel *m, const RequestOptions *like, Refusal *f) {
  Ticket *t = c->ticket;
  t->quiet = !c->stream && !c->stops.count; // a stop string may end an answer at any token
  for (int i = 0; i < t->count; i++) {
    const IdVector *ids = &t->prompt[i / c->n];
    int64_t room = m->context - ids->count;
    if (room < (c->most > 0))
      return refusal_set(f, 400, "context_length_exceeded", c->chat ? "messages" : "prompt",
                         "the context has %lld tokens, and the prompt has %d: there is no room for an answer",
                         (long long)m->context, ids->count);
    RequestOptions *o = &t->choice[i];
    *o = *like;
    o->prompt = ids->data;
    o->count = ids->count;
    o->most = c->most < room ? c->most : room;
    if (o->most < 1) o->most = 1;
    o->score = c->echo && c->told;
    o->sample.seed += FAULT(choices_share_a_seed, (uint64_t)(i % c->n), 0);
    o->sample.bias = t->bias.data;
    o->sample.biases = t->bias.count;
  }
  return 0;
}

static int check_model(const Call *c, const ServedModel *m, Refusal *f) {
  const json_t *name = json_object_get(c->json, "model");
  if (!name) return 0;
  if (!json_is_string(name)) return refusal_set(f, 400, "invalid_value", "model", "model must be a text");
  return served_model_check(m, json_string_value(name), f);
}

static int read_rest(Call *c, const ServedModel *m, Refusal *f) {
  bool ignore_eos = false;
  RequestOptions like = {.ends = m->text->ends.data, .allowed = m->allowed, .sample = m->usual};
  int code = check_model(c, m, f);
  if (!code) code = read_shape(c, f);
  if (!code) code = read_stops(c, f);
  if (!code) code = read_sample(c->json, &like.sample, f);
  if (!code) code = read_logprobs(c, &like.logprobs, f);
  if (!code) code = field_flag(c->json, "ignore_eos", &ignore_eos, f);
  like.end_count = ignore_eos ? 0 : m->text->ends.count;
  if (!code) code = make_ticket(c, f);
  if (!code) code = read_biases(c, m, f);
  if (!code) code = c->chat ? read_chat(c, m, f) : read_prompts(c, m, f);
  if (!code) code = fill_choices(c, m, &like, f);
  if (!code) code = call_rules_read(c, m, f);
  return code;
}

int call_read(Call *c, const ServedModel *m, const char *body, size_t bytes, bool chat, Refusal *f) {
  Error error = {0};
  *c = (Call){.chat = chat};
  if (json_read(body ? body : "", bytes, "the request", &c->json, &error))
    return refusal_set(f, 400, "invalid_json", NULL, "%s", error.message);
  if (!json_is_object(c->json)) return refusal_set(f, 400, "invalid_json", NULL, "the request is not a JSON object");
  int code = fields_check(c->json, chat ? FIELD_CHAT : FIELD_TEXT, &c->ignored, f);
  return code ? code : read_rest(c, m, f);
}

void call_free(Call *c) {
  json_decref(c->json);
  ticket_release(c->ticket);
  *c = (Call){0};
}
