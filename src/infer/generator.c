// Ticks: the tokens that are new go through the model, and their keys and values into the cache.
#include "infer/generator.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

enum { TICK = 64, PAGE = 32 }; // tokens of a prompt at a time; positions of a page

int generator_create(Generator *g, const ModelSource *source, const InferenceOptions *options,
                     const SampleOptions *sample, Launch *launch, Error *error) {
  InferenceOptions o = *options;
  *g = (Generator){.sample = *sample, .vocab = (int)source->config.vocab, .window = (int)options->seq};
  g->tick = options->tick ? (int)options->tick : TICK;
  if (g->tick > g->window) g->tick = g->window;
  o.mode = MODEL_GENERATE;
  o.rows = 1;
  o.seq = g->tick;
  o.context = g->window;
  o.page = PAGE;
  o.requests = 1;
  int code = inference_open(&g->model, source, &o, launch, error);
  if (code) return code;
  const int64_t *length = g->model.job->options.step.batch.length, pages = length[DIM_PAGE];
  int64_t rows = inference_local_rows(&g->model);
  const int64_t sizes[INPUT_COUNT] = {[INPUT_TOKENS] = g->tick,     [INPUT_POSITIONS] = g->tick,
                                      [INPUT_CACHE_ROWS] = g->tick, [INPUT_REQUESTS] = g->tick,
                                      [INPUT_PAGES] = pages,        [INPUT_INDEX] = 1};
  for (int id = 0; id < INPUT_COUNT; id++)
    if (sizes[id]) g->input[id] = xcalloc((size_t)(rows * sizes[id]), sizeof **g->input);
  for (int64_t i = 0; i < rows * pages; i++)
    g->input[INPUT_PAGES][i] = (int32_t)(i % pages); // one request has them all
  g->logits = xcalloc((size_t)inference_rows(&g->model) * (size_t)g->vocab, sizeof *g->logits);
  g->scratch = xcalloc((size_t)g->vocab, sizeof *g->scratch);
  return PLAIT_OK;
}

void generator_destroy(Generator *g) {
  inference_close(&g->model);
  free(g->ids);
  for (int id = 0; id < INPUT_COUNT; id++) free(g->input[id]);
  free(g->logits);
  free(g->scratch);
  *g = (Generator){0};
}

static void append(Generator *g, int32_t id) {
  if (g->count == g->capacity) {
    g->capacity = g->capacity ? 2 * g->capacity : 256;
    g->ids = xrealloc(g->ids, sizeof *g->ids * (size_t)g->capacity);
  }
  g->ids[g->count++] = id;
}

int generator_push(Generator *g, const int32_t *ids, int64_t count, Error *error) {
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= g->vocab)
      return error_set(error, PLAIT_BAD_INPUT,
                       "token %d is not in the model's vocabulary of %d: the tokenizer belongs to another model",
                       ids[i], g->vocab);
    append(g, ids[i]);
  }
  return PLAIT_OK;
}

// The next tick: the tokens from `done` on, as many as fit. All data ranks compute the same text: they may be there to
// share the weights (parallel.zero), not the work.
static void fill_tick(Generator *g) {
  int64_t left = g->count - g->done;
  g->tokens = (int)(left < g->tick ? left : g->tick);
  int64_t length = g->tokens == 1 ? 1 : g->tick;
  for (int64_t row = 0; row < inference_local_rows(&g->model); row++) {
    for (int64_t i = 0; i < length; i++) {
      bool there = i < g->tokens;
      int64_t at = row * length + i, position = there ? FAULT(chunks_begin_at_0, g->done - g->begin, 0) + i : 0;
      g->input[INPUT_TOKENS][at] = there ? g->ids[g->done + i] : 0;
      g->input[INPUT_POSITIONS][at] = (int32_t)position;
      g->input[INPUT_CACHE_ROWS][at] = there ? (int32_t)position : -1;
      g->input[INPUT_REQUESTS][at] = there ? 0 : -1;
    }
    g->input[INPUT_INDEX][row] = g->tokens - 1;
  }
}

// The model's part of a tick.
static int compute(Rank *r, void *generator, Error *error) {
  const Generator *g = generator;
  StepInput of[INPUT_COUNT] = {{0}};
  for (int id = 0; id < INPUT_COUNT; id++) of[id].base = g->input[id];
  return rank_run(r, g->tokens == 1 ? &role_generate : &role_prefill, &(StepInputs){.of = of, .count = INPUT_COUNT},
                  error);
}

static int draw(Rank *r, void *generator, Error *error) {
  Generator *g = generator;
  int32_t id = -1;
  int code = compute(r, g, error);
  if (!code) code = inference_logits(r, g->logits, error);
  if (code) return code;
  if (r->rank == 0) id = sample_token(g->logits, g->vocab, g->allowed, &g->sample, (uint64_t)g->count, g->scratch);
  if (plait_broadcast(r->world, &(PlaitBuffer){&id, &id, 1}, 1, PLAIT_INT32, 0, NULL, NULL))
    return plait_comm_failure(r->world, error);
  if (session_is_local(g->model.session) && r->rank) return PLAIT_OK; // threads have one Generator
  g->next = id;
  return PLAIT_OK;
}

// Where the window is full, its later half is computed again as the beginning of a new one.
static void make_room(Generator *g) {
  if (g->count - g->begin <= g->window) return;
  g->begin = g->count - (g->window + 1) / 2;
  g->done = g->begin;
}

int generator_next(Generator *g, int32_t *id, Error *error) {
  CHECK(g->count > 0);
  make_room(g);
  int code = PLAIT_OK;
  for (fill_tick(g); !code && g->done + g->tokens < g->count; fill_tick(g)) {
    code = session_run(g->model.session, compute, g, error);
    g->done += g->tokens;
  }
  if (!code) code = session_run(g->model.session, draw, g, error);
  if (code) return code;
  g->done += g->tokens;
  *id = g->next;
  if (*id < 0) return error_set(error, PLAIT_FAILED, "the model's logits are not finite: its weights are broken");
  append(g, *id);
  return PLAIT_OK;
}
