// Stop strings across tokens, by the bytes of the text.
#include "serve/output.h"
#include "base/fault.h"
#include <string.h>

void output_begin(Output *o, const Tokenizer *tokenizer, const Stops *stops, bool skip_special) {
  *o = (Output){.stops = stops};
  tokenizer_stream_begin(&o->stream, tokenizer, skip_special);
}

void output_free(Output *o) {
  vec_free(&o->text);
  vec_free(&o->told);
  vec_free(&o->top_ids);
  vec_free(&o->top_logprobs);
}

void output_prompt(Output *o, const IdVector *ids, bool echo, const char *text, size_t bytes) {
  ByteVector unused = {0}, shown = {0};
  TokenizerStream all;
  tokenizer_stream_begin(&all, o->stream.t, 0);
  for (int i = 0; i < ids->count; i++) {
    tokenizer_stream_push(&o->stream, ids->data[i], &unused);
    if (echo && !text) tokenizer_stream_push(&all, ids->data[i], &shown);
  }
  tokenizer_stream_end(&o->stream, &unused);
  tokenizer_stream_end(&all, &shown);
  if (echo && text) bytes_append(&o->text, text, bytes);
  else if (echo) bytes_append(&o->text, shown.data, (size_t)shown.count);
  o->prompt = o->ready = o->text.count;
  vec_free(&unused);
  vec_free(&shown);
}

void output_note(Output *o, const EngineEvent *e, int from, bool first) {
  vec_push(&o->told, (OutputToken){.id = e->id, .from = from, .first = first, .logprob = e->logprob, .top = e->top,
                                   .top_at = o->top_ids.count});
  for (int i = 0; i < e->top; i++) {
    vec_push(&o->top_ids, e->top_ids[i]);
    vec_push(&o->top_logprobs, e->top_logprobs[i]);
  }
}

// The first stop in the text from `from` on; -1: none.
static int find_stop(const Output *o, int from) {
  int best = -1;
  for (int i = 0; i < o->stops->count; i++) {
    const char *at = memmem(o->text.data + from, (size_t)(o->text.count - from), o->stops->text[i],
                            (size_t)o->stops->bytes[i]);
    if (at && (best < 0 || at - o->text.data < best)) best = (int)(at - o->text.data);
  }
  return best;
}

// Bytes at the end of the text that a stop may begin with.
static int held_back(const Output *o) {
  int most = 0, count = o->text.count - o->prompt;
  for (int i = 0; i < o->stops->count; i++)
    for (int n = o->stops->bytes[i] - 1; n > most; n--)
      if (n <= count && !memcmp(o->text.data + o->text.count - n, o->stops->text[i], (size_t)n)) most = n;
  return FAULT(stops_are_sent_early, most, 0);
}

static void look_for_stops(Output *o, bool last) {
  int at = o->text.count > o->ready ? find_stop(o, o->ready) : -1;
  if (at >= 0) {
    o->text.count = at;
    o->stopped = o->over = true;
    o->finish = "stop";
  }
  o->ready = o->text.count - (last || at >= 0 ? 0 : held_back(o));
}

void output_push(Output *o, const EngineEvent *e, bool note) {
  if (o->over) return;
  o->tokens++;
  if (note) output_note(o, e, o->text.count, false);
  tokenizer_stream_push(&o->stream, e->id, &o->text);
  look_for_stops(o, false);
}

void output_end(Output *o, RequestEnd end) {
  if (o->over) return;
  tokenizer_stream_end(&o->stream, &o->text);
  look_for_stops(o, true);
  o->over = true;
  if (!o->stopped && end == REQUEST_STOPPED) o->finish = "stop";
  if (!o->stopped && end == REQUEST_IS_FULL) o->finish = "length";
}
