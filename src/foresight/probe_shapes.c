// Runs of a probe: small models in several shapes, and the model of a recipe.
#include "base/file.h"
#include "data/synthetic.h"
#include "setup/setup.h"
#include "foresight/probe_state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const ProbeShape probe_shapes[] = {
#define SHAPE(example, ...) {EXAMPLE_##example, __VA_ARGS__},
#include "foresight/probe_shapes.def"
};
const int probe_shape_count = sizeof probe_shapes / sizeof *probe_shapes;

// Merges the times of kernels of another run of the same kind: the least counts, since disturbances only slow down.
static void merge(Probe *p, ProbeTimes *more) {
  for (int i = 0; i < more->kernel.count; i++) {
    const MeasuredKernel *k = &more->kernel.data[i];
    MeasuredKernel *same = NULL;
    for (int j = 0; j < p->times.kernel.count && !same; j++)
      if (probe_same_kernel(&p->times.kernel.data[j], k)) same = &p->times.kernel.data[j];
    if (!same) vec_push(&p->times.kernel, *k);
    else if (k->seconds < same->seconds) same->seconds = k->seconds;
  }
  probe_times_free(more);
}

// On tp ranks divide heads; half of them have their own keys and values.
static int cuts_tensors(const ProbeShape *s, Crew crew) {
  return s->axis == AXIS_TP && s->heads / 2 % crew.ranks == 0 && s->vocabulary % crew.ranks == 0;
}

int probe_recipe(const Probe *p, const ProbeShape *s, Crew crew, Dtype dtype, Recipe *recipe, int count,
                     char **more, Error *error) {
  char text[1024];
  int tp = cuts_tensors(s, crew), data = tp ? 1 : crew.ranks;
  int n = snprintf(text, sizeof text,
                   "model: {config: probe.json}\n"
                   "data: {train: vocabulary-%d, seq_len: %d, document_mask: false}\n"
                   "precision: %s\n"
                   "mesh: {%s: %d}\n"
                   "batch: {global: %d, micro: %d}\n"
                   "parallel: {recompute: %s}\n"
                   "optimizer: {name: adamw, lr: 1e-4, weight_decay: 0.1, clip: 1}\n"
                   "schedule: {name: constant, steps: 9}\n"
                   "checkpoint: {every: 0, resume: never}\n"
                   "run: {dir: run, comm: %s, threads: %d, work_stealing: false, tensorboard: false}\n",
                   s->vocabulary, s->sequence, dtype_name(dtype), axis_names[tp ? AXIS_TP : AXIS_DP], crew.ranks,
                   data * s->sequences * s->microbatches, s->sequences, s->recompute,
                   p->comm && crew.ranks > 1 ? "mpi" : "local", crew.ranks * crew.threads);
  return recipe_parse("probe", text, (size_t)n, p->folder, count, more, recipe, error);
}

int probe_corpus(const Probe *p, int vocabulary, Error *error) {
  char *prefix = xformat("%s/vocabulary-%d", p->folder, vocabulary), *data = xformat("%s.bin", prefix);
  int code = file_exists(data) ? PLAIT_OK : synthetic_corpus(prefix, 64, 512, 4096, vocabulary, 1, error);
  free(prefix);
  free(data);
  return code;
}

// One rank alone: where ranks are processes, that is rank 0; the others wait before what all do.
static int waits_for_rank_0(const Probe *p, Crew crew) {
  return p->comm && crew.ranks == 1 && plait_comm_rank(p->comm);
}

int probe_shape_run(Probe *p, const ProbeShape *s, Crew crew, Dtype dtype, Error *error) {
  const int64_t steps = s->microbatches > 1 ? 1 : 2;
  Recipe recipe = {0};
  ModelConfig config = {0};
  ProbeTimes times = {0};
  ProbeResult result;
  ExampleSizes sizes = {1, s->width, s->heads, s->sequence, s->vocabulary};
  if (waits_for_rank_0(p, crew)) return PLAIT_OK;
  int code = probe_corpus(p, s->vocabulary, error);
  if (!code) code = probe_recipe(p, s, crew, dtype, &recipe, 0, NULL, error);
  if (!code) code = model_config_example(&config, s->example, &sizes, error);
  PlaitComm *comm = crew.ranks > 1 ? p->comm : NULL;
  if (!code) code = probe_run(&recipe, &config, steps, p->cache, comm, &times, &result, error);
  if (!code && crew.ranks > 1 && cuts_tensors(s, crew)) {
    vec_push(&p->skew, result.skew / result.kernels / sqrt(2 * log(crew.ranks)));
  }
  if (!code && crew.ranks == 1) {
    p->beside += fmax(0, result.step - result.kernels - result.waits);
    p->instructions += result.instructions;
  }
  if (!code) merge(p, &times);
  recipe_free(&recipe);
  model_config_free(&config);
  return code;
}

// The recipe's own model, as far as two blocks of it: on each crew by data parallelism, with this number of
// microbatches.
int probe_recipe_run(Probe *p, Crew crew, int microbatches, Error *error) {
  char ranks[32], threads[32], batch[32], data[640], comm[32];
  Recipe recipe = {0};
  ModelConfig config = {0};
  ProbeTimes times = {0};
  if (waits_for_rank_0(p, crew)) return PLAIT_OK;
  int code = recipe_load(p->options->recipe, p->options->keys, p->options->key, &recipe, error);
  if (!code) code = setup_model_config(&recipe, &config, error);
  if (!code) code = probe_corpus(p, (int)config.vocab, error);
  snprintf(ranks, sizeof ranks, "mesh.dp=%d", crew.ranks);
  snprintf(threads, sizeof threads, "run.threads=%d", crew.ranks * crew.threads);
  snprintf(batch, sizeof batch, "batch.global=%d", recipe.batch.micro * crew.ranks * microbatches);
  snprintf(data, sizeof data, "data.train=%s/vocabulary-%d", p->folder, (int)config.vocab);
  snprintf(comm, sizeof comm, "run.comm=%s", p->comm && crew.ranks > 1 ? "mpi" : "local");
  char *own[] = {"mesh=null",
                 "parallel=null",
                 "layout=null",
                 "data.valid=null",
                 "data.split=null",
                 "data.tokenizer=null",
                 "eval=null",
                 "run.work_stealing=false",
                 "optimizer.delay=null",
                 ranks,
                 threads,
                 batch,
                 data,
                 comm};
  enum { OWN = sizeof own / sizeof *own };
  int given = p->options->keys;
  char **keys = xcalloc((size_t)(given + OWN), sizeof *keys);
  for (int i = 0; i < given; i++) keys[i] = p->options->key[i];
  for (int i = 0; i < OWN; i++) keys[given + i] = own[i];
  recipe_free(&recipe);
  if (!code) code = recipe_load(p->options->recipe, given + OWN, keys, &recipe, error);
  if (config.layers > 2) config.layers = 2;
  if (!code) code = probe_run(&recipe, &config, 1, p->cache, crew.ranks > 1 ? p->comm : NULL, &times, NULL, error);
  if (!code) merge(p, &times);
  free(keys);
  recipe_free(&recipe);
  model_config_free(&config);
  return code;
}
