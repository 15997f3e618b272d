// Generation as a library (include/plait/infer.h) over infer/engine.
#include "plait/infer.h"
#include "base/cores.h"
#include "infer/engine.h"
#include <stdlib.h>

struct PlaitEngine {
  ModelSource source;
  Launch launch;
  Engine *engine;
};

int plait_engine_open(const char *model, int override_count, const char *const *overrides, PlaitEngine **engine,
                      PlaitError *error) {
  Error unread = {0};
  if (!error) error = &unread;
  PlaitEngine *e = xcalloc(1, sizeof *e);
  e->launch.ranks = 1;
  *engine = NULL;
  int code = model_source_open(&e->source, model, error);
  const EngineOptions o = {.command = "plait_engine_open",
                           .threads = cores_available(),
                           .key_count = override_count,
                           .keys = (char **)(uintptr_t)overrides}; // reads them only
  if (!code) code = engine_open(&e->engine, &e->source, &o, &e->launch, error);
  if (code) plait_engine_close(e);
  else *engine = e;
  return code;
}

void plait_engine_close(PlaitEngine *e) {
  if (!e) return;
  engine_close(e->engine);
  model_source_close(&e->source);
  free(e);
}

int plait_engine_submit(PlaitEngine *e, const PlaitRequest *r, int64_t *number, PlaitError *error) {
  Error unread = {0};
  const PlaitSampling *s = &r->sampling;
  const RequestOptions o = {.prompt = r->prompt,
                            .count = r->prompt_count,
                            .most = r->max_tokens,
                            .ends = r->ends,
                            .end_count = r->end_count,
                            .logprobs = r->logprobs ? 0 : -1,
                            .sample = {.temperature = s->temperature,
                                       .top_k = s->top_k,
                                       .top_p = s->top_p,
                                       .min_p = s->min_p,
                                       .repetition = s->repetition_penalty,
                                       .presence = s->presence_penalty,
                                       .frequency = s->frequency_penalty,
                                       .seed = s->seed}};
  return engine_submit(e->engine, &o, number, error ? error : &unread);
}

void plait_engine_cancel(PlaitEngine *e, int64_t number) { engine_cancel(e->engine, number); }

int plait_engine_tick(PlaitEngine *e, PlaitError *error) {
  Error unread = {0};
  return engine_tick(e->engine, error ? error : &unread);
}

int plait_engine_poll(PlaitEngine *e, PlaitToken *token) {
  static const PlaitEnd ends[] = {[REQUEST_IS_OPEN] = PLAIT_NO_END,
                                  [REQUEST_STOPPED] = PLAIT_END_STOP,
                                  [REQUEST_IS_FULL] = PLAIT_END_LENGTH,
                                  [REQUEST_CANCELLED] = PLAIT_END_CANCELLED,
                                  [REQUEST_BROKEN] = PLAIT_END_BROKEN};
  EngineEvent event;
  if (!engine_poll(e->engine, &event)) return 0;
  *token = (PlaitToken){event.request, event.id, ends[event.end], event.logprob};
  return 1;
}

int plait_engine_is_idle(const PlaitEngine *e) { return engine_is_idle(e->engine); }

int plait_engine_vocab(const PlaitEngine *e) { return (int)e->source.config.vocab; }
