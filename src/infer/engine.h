// An inference engine: many requests at once on one model. Each tick the scheduler chooses tokens of them, all ranks
// compute these, and rank 0 draws what follows. A request's tokens and log-probabilities are the same bits alone or
// beside any others.
#pragma once
#include "infer/inference.h"
#include "infer/scheduler.h"

typedef struct EngineOptions {
  const char *command;          // for messages, as in InferenceOptions
  const RecipeInstead *instead;
  int requests; // of a data rank at a time, where infer.requests is auto; 0: 8
  int threads;  // of all ranks on this machine together, where the keys have no run.threads; 0: all cores
  int key_count;
  char **keys;  // how it computes, and infer.
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
  double prompt_seconds;         // of ticks that have tokens of prompts
  int64_t decoded_tokens;        // that were drawn in the other ticks
  int64_t received_bytes;        // of logits, from other ranks
} EngineTimes;

// Of now: requests that run and that wait, and pages of all data ranks.
typedef struct EngineLoad { int running, waiting, pages, pages_used; } EngineLoad;

// Where the most tokens of a tick come from: infer.tokens, what plait probe has measured, or a constant.
typedef enum TokensFrom { TOKENS_GIVEN, TOKENS_MEASURED, TOKENS_USUAL } TokensFrom;

typedef struct Engine Engine;

// Collective where ranks are processes, as is engine_close. The caller closes *engine, also after an error.
int engine_open(Engine **engine, const ModelSource *source, const EngineOptions *options, Launch *launch, Error *error);
// Its halves. After the first all is known, and no rank has memory: engine_model, engine_options, and engine_start or
// engine_close may follow. Where ranks are processes, they agree on its code before the second (launch_agree).
int engine_compile(Engine **engine, const ModelSource *source, const EngineOptions *options, Launch *launch,
                   Error *error);
int engine_start(Engine *engine, Error *error);
void engine_close(Engine *engine); // NULL is fine

// The rest is for the process of rank 0; the others call engine_follow, which returns when rank 0's closes its engine,
// or with the error of a tick.
int engine_follow(Engine *engine, Error *error);
// PLAIT_BAD_INPUT with a sentence for an empty prompt, an id outside of the vocabulary, or a value out of range;
// nothing changes then. `request` becomes its number.
int engine_submit(Engine *engine, const RequestOptions *options, int64_t *request, Error *error);
void engine_cancel(Engine *engine, int64_t request); // its end is an event; unknown ones are ignored
// Requests' rules are not called any more, so that they may be freed before engine_close, also after an error. No tick
// may follow.
void engine_forget_rules(Engine *engine);
bool engine_is_idle(const Engine *engine);           // no request is open
// One tick, where a request is open. After an error the engine can only be closed.
int engine_tick(Engine *engine, Error *error);
// The next event, in the order of the tokens of a request; false: there is none until the next tick. Log-probabilities
// are to be read before that.
bool engine_poll(Engine *engine, EngineEvent *event);
EngineTimes engine_times(const Engine *engine);
const SchedulerOptions *engine_options(const Engine *engine); // what the keys came to
// After engine_compile: of memory of a rank for ticks under way, beside its Program's.
int64_t engine_flight_bytes(const Engine *engine, int rank);
TokensFrom engine_tokens_from(const Engine *engine);
EngineLoad engine_load(const Engine *engine);
const Inference *engine_model(const Engine *engine);
