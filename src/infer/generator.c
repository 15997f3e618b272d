// A window that slides over the tokens.
#include "infer/generator.h"
#include <stdlib.h>
#include <string.h>

int generator_create(Generator *g, const ModelSource *source, int64_t window, const SampleOptions *sample, int threads,
                     Error *error) {
  *g = (Generator){.sample = *sample, .vocab = (int)source->config.vocab, .window = (int)window};
  g->tokens = xcalloc((size_t)window, sizeof(int32_t));
  g->positions = xcalloc((size_t)window, sizeof(int32_t));
  g->documents = xcalloc((size_t)window, sizeof(int32_t));
  g->index = xcalloc(1, sizeof(int32_t));
  g->scratch = xcalloc((size_t)g->vocab, sizeof *g->scratch);
  for (int i = 0; i < g->window; i++) g->positions[i] = i;
  return single_create(&g->model, source, MODEL_GENERATE, 1, window, threads, error);
}

void generator_destroy(Generator *g) {
  single_destroy(&g->model);
  free(g->ids);
  free(g->tokens);
  free(g->positions);
  free(g->documents);
  free(g->index);
  free(g->scratch);
  *g = (Generator){.model.logits = -1};
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
                       "token %d is not in the model's vocabulary of %d: the tokenizer is another model's", ids[i],
                       g->vocab);
    append(g, ids[i]);
  }
  return PLAIT_OK;
}

int generator_logits(Generator *g, const float **logits, Error *error) {
  CHECK(g->count > 0);
  int64_t n = g->count < g->window ? g->count : g->window;
  memcpy(g->tokens, g->ids + g->count - n, sizeof *g->tokens * (size_t)n);
  g->index[0] = (int32_t)n - 1; // what lies behind it is not seen: attention is causal
  const SingleInput inputs[] = {
      {"tokens", g->tokens}, {"positions", g->positions}, {"documents", g->documents}, {"index", g->index}};
  int code = single_run(&g->model, inputs, 4, error);
  *logits = code ? NULL : executor_tensor(g->model.executor, g->model.logits);
  return code;
}

int generator_next(Generator *g, int32_t *id, Error *error) {
  const float *logits;
  int code = generator_logits(g, &logits, error);
  if (code) return code;
  *id = sample_token(logits, g->vocab, g->allowed, &g->sample, (uint64_t)g->count, g->scratch);
  if (*id < 0) return error_set(error, PLAIT_FAILED, "the model's logits are not finite: its weights are broken");
  append(g, *id);
  return PLAIT_OK;
}
