// A graph of a test's own on ranks: two inputs of numbers (fp32) with a length of their own each, of which the second
// may come late; and beside training a job that only this test knows. For tests of what a step reads, with ranks as
// threads (tests/runtime/test_own_inputs.c) and as processes (tests/process/own_inputs.c).
#pragma once
#include "model/config.h"
#include "op/build.h"
#include "runtime/session.h"
#include "setup/setup.h"
#include "train/save.h"
#include "tier.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OWN_SAMPLES = 8, OWN_IN = 6, OWN_HIDDEN = 8, OWN_OUT = 4, OWN_STEPS = 3 };
enum { OWN_X = INPUT_COUNT, OWN_TARGET, OWN_INPUTS };

// What one of the two numbers of a sample is.
static inline float own_number(int64_t sample, int id, int i) {
  return (float)sin(0.7 * (double)sample + 1.3 * i + (id == OWN_X ? 0 : 0.4 * i * i + 2));
}
static inline int own_length(int id) { return id == OWN_X ? OWN_IN : OWN_OUT; }

// ---- the graph -----------------------------------------------------------------------------------------------------

// target ~ second gelu(first x): two layers, of which a pipeline may have one each.
static inline Graph *own_graph(int64_t samples, bool late, int *loss) {
  Graph *g = graph_create();
  Init init = {.kind = INIT_NORMAL, .value = 0.5};
  DimName in[] = {DIM_BATCH, DIM_EMBED}, out[] = {DIM_BATCH, DIM_POSITION};
  g->region = REGION_MICRO;
  g->phase = PHASE_FORWARD;
  g->layers = 2;
  g->layer = 0;
  int x = graph_input(g, "x", DTYPE_F32, shape_of(2, (int64_t[]){samples, OWN_IN}, in)),
      target = graph_input(g, "target", DTYPE_F32, shape_of(2, (int64_t[]){samples, OWN_OUT}, out));
  for (int i = 0; i < g->input.count; i++) g->input.data[i].from = FROM_LOADER;
  if (late) g->input.data[graph_tensor(g, target)->input].filled = FILLED_LATE;
  int first = graph_variable(g, "first", VARIABLE_PARAMETER, DTYPE_F32,
                             shape_of(2, (int64_t[]){OWN_HIDDEN, OWN_IN}, (DimName[]){DIM_FFN, DIM_EMBED}), init),
      second = graph_variable(g, "second", VARIABLE_PARAMETER, DTYPE_F32,
                              shape_of(2, (int64_t[]){OWN_OUT, OWN_HIDDEN}, (DimName[]){DIM_POSITION, DIM_FFN}), init);
  int h = op_activation(g, "gelu", op_matmul(g, "hidden", x, graph_read(g, first), 1), ACTIVATION_GELU_TANH);
  g->layer = 1;
  int y = op_matmul(g, "y", h, graph_read(g, second), 1);
  *loss = op_squared_error(g, "loss", y, target, graph_read(g, graph_known(g, KNOWN_GRADIENT_SEED)));
  return g;
}

// ---- data ----------------------------------------------------------------------------------------------------------

// The numbers of samples, made by this. A late target is made when somebody waits for it, where `gated`.
typedef struct OwnSource {
  bool gated;
  int64_t before, last; // steps that somebody else has trained; the last one of this run
  _Atomic(Loader *) loader; // set when it is open
} OwnSource;

static inline int64_t own_row(const void *self, int input) {
  return input == OWN_X || input == OWN_TARGET ? own_length(input) * (int64_t)sizeof(float) : 0;
}

// True: somebody waits for the late input of a step of the loader. False: nobody does, for a long time.
static inline bool own_awaited(OwnSource *s, int64_t steps) {
  const struct timespec a_moment = {.tv_nsec = 100000};
  for (time_t end = time(NULL) + (time_t)test_seconds(5); time(NULL) < end; nanosleep(&a_moment, NULL)) {
    Loader *loader = atomic_load(&s->loader);
    if (loader && loader_stats(loader).late >= steps) return true;
  }
  return false;
}

static inline int own_read(void *self, int64_t i, void *const *to, Error *error) {
  OwnSource *s = self;
  for (int id = OWN_X; id < OWN_INPUTS; id++)
    for (int k = 0; to[id] && k < own_length(id); k++) ((float *)to[id])[k] = NAN; // not there yet
  bool trained_on = i < s->last * OWN_SAMPLES; // else it is read ahead only
  if (s->gated && trained_on && to[OWN_TARGET] && !to[OWN_X] && !own_awaited(s, i / OWN_SAMPLES + 1 - s->before))
    return error_set(error, PLAIT_FAILED, "nobody waits for the late input of sample %lld", (long long)i);
  for (int id = OWN_X; id < OWN_INPUTS; id++)
    for (int k = 0; to[id] && k < own_length(id); k++) ((float *)to[id])[k] = own_number(i, id, k);
  return PLAIT_OK;
}

// ---- training ------------------------------------------------------------------------------------------------------

// A role that plait does not have: the error of the model for targets that are 0.
static const JobRole own_role = {"size_of_y", MODEL_EVALUATE, ACTIVITY_EVALUATION};

typedef struct OwnRun {
  Recipe recipe;
  ModelConfig config;
  Job *job;
  SaveExtra extra;
  char *checkpoints; // NULL: it saves nothing
  Checkpoint *from;
  bool late;
  int64_t first, last; // steps
  OwnSource source[16]; // of each rank
  double loss[OWN_STEPS + 1], norm[OWN_STEPS + 1], size[OWN_STEPS + 1];
  int64_t waits; // of rank 0 for late inputs
} OwnRun;

static const char own_model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": 8, \"n_inner\": 8, "
    "\"vocab_size\": 16, \"activation_function\": \"gelu_new\"}"; // of the recipe: only its number of layers counts

// keys: "key=value …". Nothing stays open after an error but what own_close closes.
static inline int own_open(OwnRun *run, const char *keys, bool late, Error *error) {
  char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 8}, batch: {global: 8, micro: 2}, precision: "
                "fp32, optimizer: {name: adamw}, run: {dir: /none}}";
  char *key[8], *words = xstrdup(keys), *rest = words;
  RunPlan plan = {0};
  int count = 0, loss, code;
  *run = (OwnRun){.late = late, .first = 1, .last = OWN_STEPS};
  while (count < 8 && (key[count] = strtok_r(rest, " ", &rest))) count++;
  code = recipe_parse("test", text, strlen(text), "/", count, key, &run->recipe, error);
  free(words);
  if (!code) code = model_config_parse(&run->config, own_model, strlen(own_model), "model", error);
  if (!code) code = save_extra_create(&run->recipe, &run->config, &run->extra, error);
  if (!code) code = resolve(&run->recipe, &run->config, &(RunSetting){.threads = 1}, &plan, error);
  plan.options.step.update.count = OWN_SAMPLES * OWN_OUT;
  if (!code) {
    Graph *g = own_graph(plan.options.micro_samples, late, &loss);
    code = job_create_built(g, loss, &plan.options, &(JobOptions){.threads = 1, .seed = 5}, &run->job, error);
  }
  if (!code) {
    Graph *g = own_graph(plan.options.micro_samples, false, &loss);
    code = job_add(run->job, &own_role, g, loss, error);
  }
  run_plan_free(&plan);
  return code;
}

static inline void own_close(OwnRun *run) {
  job_destroy(run->job);
  checkpoint_close(run->from);
  save_extra_free(&run->extra);
  model_config_free(&run->config);
  recipe_free(&run->recipe);
}

// Of samples 0 to OWN_SAMPLES - 1, with the weights as they are.
static inline int own_size(Rank *r, double *size, Error *error) {
  float x[OWN_SAMPLES * OWN_IN], zero[OWN_SAMPLES * OWN_OUT] = {0};
  for (int i = 0; i < OWN_SAMPLES * OWN_IN; i++) x[i] = own_number(i / OWN_IN, OWN_X, i % OWN_IN);
  StepInput of[OWN_INPUTS] = {[OWN_X] = {x, OWN_IN * sizeof *x, LIES_BY_ROW_OF_ALL},
                              [OWN_TARGET] = {zero, OWN_OUT * sizeof *x, LIES_BY_ROW_OF_ALL}};
  int code = rank_run(r, &own_role, &(StepInputs){.of = of, .count = OWN_INPUTS}, error);
  *size = state_scalar(r->state, KNOWN_LOSS);
  return code;
}

static inline bool own_reads_target(const Rank *r) {
  const Mesh *mesh = &r->job->options.parallel.mesh;
  return mesh_pipeline_coordinate(mesh, r->rank) == mesh_pipeline_ranks(mesh) - 1;
}

// A task: steps first to last.
static inline int own_train(Rank *r, void *own, Error *error) {
  OwnRun *run = own;
  OwnSource *source = &run->source[r->rank];
  SampleSource samples = {.self = source, .datasets = 0, .total = INT64_MAX, .row = own_row, .read = own_read};
  LoaderConfig data = {.samples = &samples, .seq_len = 1, .prefetch_steps = 1};
  int code = rank_load(r, run->job, error);
  if (!code && !run->from) rank_initialise(r);
  if (!code && run->from) code = save_load(r, run->from, error);
  source->before = run->first - 1;
  source->last = run->last;
  source->gated = run->late && own_reads_target(r);
  if (!code) code = rank_open_data(r, &data, run->first - 1, error);
  if (!code) atomic_store(&source->loader, r->loader);
  for (int64_t step = run->first; step <= run->last && !code; step++) {
    StepResult result;
    double size = 0;
    code = rank_step(r, step, 1e-2, &result, error);
    if (!code) code = own_size(r, &size, error);
    if (r->rank == 0) run->loss[step] = result.loss, run->norm[step] = result.grad_norm, run->size[step] = size;
  }
  if (r->rank == 0 && r->loader) run->waits = loader_stats(r->loader).late;
  SaveExtra extra = run->extra;
  extra.step = run->last;
  return code || !run->checkpoints ? code : save_checkpoint(r, run->checkpoints, &extra, 0, error);
}
