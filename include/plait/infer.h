// Generation from a program of your own: many requests at once on one model, as `plait generate` runs them
// (docs/generation.md). A request's tokens are the same bits alone or beside any others.
//
//   PlaitEngine *engine;
//   PlaitRequest request = {.prompt = ids, .prompt_count = n, .max_tokens = 100};
//   int64_t number;
//   if (plait_engine_open("runs/my", 1, (const char *[]){"infer.context=512"}, &engine, &error)) …
//   plait_engine_submit(engine, &request, &number, &error);
//   while (!plait_engine_is_idle(engine) && !plait_engine_tick(engine, &error))
//     for (PlaitToken token; plait_engine_poll(engine, &token);) …
//
// Functions that can fail return a code of plait/error.h. An engine is used by one thread at a time.
#pragma once
#include "plait/api.h"
#include "plait/error.h"
#include <stdint.h>

PLAIT_API_BEGIN

typedef struct PlaitEngine PlaitEngine;

// All zero: always the most likely token.
typedef struct PlaitSampling {
  double temperature; // 0 … 100; 0: the most likely token
  int64_t top_k;      // only the k most likely tokens; 0: all
  double top_p;       // of these the fewest that together have this probability; 0: all
  double min_p;       // only tokens with at least this share of the most likely one's probability
  double repetition_penalty; // divides positive logits of tokens that the text has, and multiplies negative ones; 0: 1
  double presence_penalty,
      frequency_penalty; // what a logit loses if its token was drawn, and for each time that it was
  uint64_t seed;      // a token is drawn from (seed, its position) alone
} PlaitSampling;

typedef struct PlaitRequest {
  const int32_t *prompt; // (prompt_count), at least one id
  int64_t prompt_count, max_tokens;
  const int32_t *ends;   // (end_count) ids that end the request, and are none of its tokens
  int end_count;
  PlaitSampling sampling;
  int logprobs;          // not 0: tokens have their log-probabilities
} PlaitRequest;

typedef enum PlaitEnd {
  PLAIT_NO_END,
  PLAIT_END_STOP,
  PLAIT_END_LENGTH,
  PLAIT_END_CANCELLED,
  PLAIT_END_BROKEN
} PlaitEnd;

// A token of a request, or its end.
typedef struct PlaitToken {
  int64_t request;
  int32_t id;     // -1: the request has ended
  PlaitEnd end;   // STOP: it drew one of its ends. LENGTH: max_tokens. BROKEN: the model's logits are not finite
  double logprob; // natural logarithm, where the request asked for it; else 0
} PlaitToken;

// A checkpoint, a run or a Hugging Face folder, on ranks that are threads of this process; overrides are keys that say
// how it computes ("mesh.tp=2", "precision=bf16", "infer.requests=16": docs/recipes.md), NULL when there are none.
// Without run.threads it takes all cores. The caller closes *engine; it is NULL after an error.
int plait_engine_open(const char *model, int override_count, const char *const *overrides, PlaitEngine **engine,
                      PlaitError *error);
void plait_engine_close(PlaitEngine *engine); // NULL is fine

// Everything is copied. *number is by what its tokens name it. PLAIT_BAD_INPUT, and no request, for values out of
// range.
int plait_engine_submit(PlaitEngine *engine, const PlaitRequest *request, int64_t *number, PlaitError *error);
void plait_engine_cancel(PlaitEngine *engine, int64_t number); // its end can be polled; unknown ones are ignored
// Computes a token of each request that has a place, and parts of prompts. After an error the engine can only be
// closed.
int plait_engine_tick(PlaitEngine *engine, PlaitError *error);
// 1: the next token or end, in the order of the tokens of a request; 0: there is none until the next tick.
int plait_engine_poll(PlaitEngine *engine, PlaitToken *token);
int plait_engine_is_idle(const PlaitEngine *engine); // no request is open
int plait_engine_vocab(const PlaitEngine *engine);   // ids are below this

PLAIT_API_END
