// An inference engine: many requests at once on one model. Each tick the scheduler chooses tokens of them, all ranks
// compute these, and rank 0 draws what follows. A request's tokens and log-probabilities are the same bits alone or
// beside any others.
#pragma once
#include "infer/inference.h"
#include "infer/scheduler.h"

typedef struct EngineOptions {
  InferenceOptions model; // mode, seq, rows, tick, page, pages and logits are filled in; context: what a request looks
                          // back on at most; requests: of a data rank at a time; kv_memory: of its cache
  int64_t tokens;    // of a data rank in a tick at most; 0: 256, or as many as requests
  int64_t page;      // tokens of a page of the cache; 0: 32
  int64_t pages;     // of a data rank; 0: as many as kv_memory says, else enough for all its requests
  int64_t speculate; // tokens guessed for a request in a tick, 0 … REQUEST_MOST_DRAFTS
  bool no_prefix;    // pages are not kept for later requests
} EngineOptions;

// A token that was drawn for a request, or its end.
typedef struct EngineEvent {
  int64_t request;
  int32_t id;     // -1: the request has ended, with `end`
  bool scored;    // it is a token of the prompt, from the second one on
  RequestEnd end;
  int64_t reused; // with its end: tokens of its prompt that the cache had; -1: it has not begun
  double logprob; // of the token, where the request asked for it: natural logarithm
  int top;        // of the most likely tokens, in order: (top)
  const int32_t *top_ids;       // valid until the next engine_tick
  const double *top_logprobs;
} EngineEvent;

typedef struct EngineTimes {
  int64_t ticks, prompt_tokens, drawn_tokens, reused_tokens, preempted, guessed, accepted;
  double seconds, model_seconds; // of ticks, and of these in the model and between ranks
} EngineTimes;

// Of now: requests that run and that wait, and pages of all data ranks.
typedef struct EngineLoad { int running, waiting, pages, pages_used; } EngineLoad;

typedef struct Engine Engine;

// The context where nobody says one: as in training, or as the model's config says, at most 4,096, since keys and
// values take memory.
int64_t engine_usual_context(const ModelSource *source);

// Collective where ranks are processes, as is engine_close. The caller closes *engine, also after an error.
int engine_open(Engine **engine, const ModelSource *source, const EngineOptions *options, Launch *launch, Error *error);
void engine_close(Engine *engine); // NULL is fine

// The rest is for the process of rank 0; the others call engine_follow, which returns when rank 0's closes its engine,
// or with the error of a tick.
int engine_follow(Engine *engine, Error *error);
// PLAIT_BAD_INPUT with a sentence for an empty prompt, an id outside of the vocabulary, or a value out of range;
// nothing changes then. `request` becomes its number.
int engine_submit(Engine *engine, const RequestOptions *options, int64_t *request, Error *error);
void engine_cancel(Engine *engine, int64_t request); // its end is an event; unknown ones are ignored
bool engine_is_idle(const Engine *engine);           // no request is open
// One tick, where a request is open. After an error the engine can only be closed.
int engine_tick(Engine *engine, Error *error);
// The next event, in the order of the tokens of a request; false: there is none until the next tick. Log-probabilities
// are to be read before that.
bool engine_poll(Engine *engine, EngineEvent *event);
EngineTimes engine_times(const Engine *engine);
EngineLoad engine_load(const Engine *engine);
const Inference *engine_model(const Engine *engine);
