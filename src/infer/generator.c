// A window that slides over the tokens.
#include "infer/generator.h"
#include <stdlib.h>
#include <string.h>

int generator_create(Generator *g, const ModelSource *source, const InferenceOptions *options,
                     const SampleOptions *sample, Launch *launch, Error *error) {
  InferenceOptions o = *options;
  *g = (Generator){.sample = *sample, .vocab = (int)source->config.vocab, .window = (int)options->seq};
  o.mode = MODEL_GENERATE;
  o.rows = 1;
  int code = inference_open(&g->model, source, &o, launch, error);
  if (code) return code;
  size_t rows = (size_t)inference_local_rows(&g->model), all = rows * (size_t)g->window;
  static const KnownInput windows[] = {INPUT_TOKENS, INPUT_POSITIONS, INPUT_DOCUMENTS};
  for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
    g->input[windows[k]] = xcalloc(all, sizeof **g->input);
  g->input[INPUT_INDEX] = xcalloc(rows, sizeof **g->input);
  g->logits = xcalloc((size_t)inference_rows(&g->model) * (size_t)g->vocab, sizeof *g->logits);
  g->scratch = xcalloc((size_t)g->vocab, sizeof *g->scratch);
  for (size_t i = 0; i < all; i++) g->input[INPUT_POSITIONS][i] = (int32_t)(i % (size_t)g->window);
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

// All data ranks compute the same text: they may be there to share the weights (parallel.zero), not the work.
static void fill_window(Generator *g) {
  int64_t n = g->count < g->window ? g->count : g->window;
  for (int64_t row = 0; row < inference_local_rows(&g->model); row++) {
    memcpy(g->input[INPUT_TOKENS] + row * g->window, g->ids + g->count - n, sizeof *g->ids * (size_t)n);
    g->input[INPUT_INDEX][row] = (int32_t)n - 1; // tokens after it are not seen: attention is causal
  }
}

// A rank's part of the windows' rows: (rows, window) → (rows, its positions); malloc'ed.
static int32_t *part_of(const Generator *g, const WindowPart *part, const int32_t *whole) {
  int64_t rows = inference_local_rows(&g->model), length = window_part_length(part, g->window);
  int32_t *out = xcalloc((size_t)(rows * length), sizeof *out);
  for (int64_t row = 0; row < rows; row++)
    window_part_take(part, g->window, whole + row * g->window, out + row * length);
  return out;
}

// The model's part of a token: each rank on its part of the windows.
static int compute(Rank *r, const Generator *g, Error *error) {
  WindowPart part = rank_window_part(r->job, r->rank);
  StepInput of[INPUT_COUNT] = {[INPUT_INDEX] = {.base = g->input[INPUT_INDEX]}};
  int32_t *mine[INPUT_COUNT] = {0};
  for (int id = 0; id < INPUT_COUNT; id++)
    if (g->input[id] && id != INPUT_INDEX) of[id].base = mine[id] = part_of(g, &part, g->input[id]);
  int code = rank_run(r, &role_generate, &(StepInputs){.of = of, .count = INPUT_COUNT}, error);
  for (int id = 0; id < INPUT_COUNT; id++) free(mine[id]);
  return code;
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

int generator_next(Generator *g, int32_t *id, Error *error) {
  CHECK(g->count > 0);
  fill_window(g);
  int code = session_run(g->model.session, draw, g, error);
  if (code) return code;
  *id = g->next;
  if (*id < 0) return error_set(error, PLAIT_FAILED, "the model's logits are not finite: its weights are broken");
  append(g, *id);
  return PLAIT_OK;
}
