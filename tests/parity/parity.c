// Runs tiny models under layouts, with dropout, ragged documents, and random biases and norm weights.
#include "parity.h"
#include "corpora.h"
#include "train/state_tensors.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

// All sizes differ, so that no dim can be taken for another; vocab 61 does not divide by 2, so that padding is met.
#define GPT(tied)                                                                                                                 \
  "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, \"vocab_size\": 61,"  \
  " \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1,"                   \
  " \"attn_pdrop\": 0.1, \"tie_word_embeddings\": " tied ", \"initializer_range\": 0.2}"
#define LLAMA(tied)                                                                                                               \
  "{\"model_type\": \"llama\", \"hidden_size\": 20, \"intermediate_size\": 28, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"   \
  " \"num_key_value_heads\": 2, \"head_dim\": 6, \"max_position_embeddings\": 64, \"vocab_size\": 53, \"rms_norm_eps\": 1e-5,"         \
  " \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": " tied ", \"attention_dropout\": 0.1,"                  \
  " \"initializer_range\": 0.2}"
static const struct { const char *name, *json; } models[] = {
    {"gpt", GPT("true")}, {"gpt untied", GPT("false")}, {"llama", LLAMA("false")}, {"llama tied", LLAMA("true")}};

enum { SEQ = PARITY_SEQ, GLOBAL = 16 };

typedef struct Shared {
  const ParityCase *c;
  Job *job;
  PlaitWorld *world;
  LoaderConfig data;
  ParityResult *result;
  Rank **ranks;
  pthread_barrier_t barrier;
} Shared;

typedef struct Worker { Shared *s; int rank, code; Error error; pthread_t thread; } Worker;

static int by_name(const void *a, const void *b) { return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name); }

// Gathers Variables of all ranks (rank 0's work, while the others wait).
static int gather(Shared *s, unsigned kinds, const char *prefix, NamedTensor **out) {
  Vec(NamedTensor) all = {0};
  for (int r = 0; r < s->job->options.mesh.ranks; r++) {
    CheckpointTensor *boxes;
    int n = state_tensors(s->ranks[r]->state, kinds, prefix, 0, &boxes);
    for (int i = 0; i < n; i++) {
      CheckpointTensor *t = &boxes[i];
      if (!t->primary) continue;
      NamedTensor *whole = NULL;
      for (int k = 0; k < all.count && !whole; k++)
        if (!strcmp(all.data[k].name, t->name)) whole = &all.data[k];
      Box box = {.rank = t->rank}, full = {.rank = t->rank};
      memcpy(box.offset, t->offset, sizeof box.offset);
      memcpy(box.local, t->local, sizeof box.local);
      memcpy(full.local, t->global, sizeof full.local);
      if (!whole) {
        NamedTensor fresh = {xstrdup(t->name), box_elements(&full), xcalloc((size_t)box_elements(&full), sizeof(double))};
        for (int64_t k = 0; k < fresh.elements; k++) fresh.data[k] = NAN; // what no rank holds must not compare equal
        vec_push(&all, fresh);
        whole = &all.data[all.count - 1];
      }
      int64_t stride[BOX_MAX_RANK];
      box_strides(&full, stride);
      if (box_elements(&box)) box_copy(&box, whole->data, &full, stride, DTYPE_F64, t->data, &box, t->stride, t->dtype);
    }
    free(boxes);
  }
  qsort(all.data, (size_t)all.count, sizeof *all.data, by_name);
  *out = all.data;
  return all.count;
}

// Rank 0's first parameter: set to infinity, and given back its values (saved: NULL before).
static void poison(Worker *w, double **saved) {
  const State *state = w->s->ranks[w->rank]->state;
  const Graph *g = state->program->graph;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v->kind != VARIABLE_PARAMETER || state->program->variable_offset[i] < 0) continue;
    void *data = state_variable(state, v->name, -1);
    double *old = *saved;
    if (!old) *saved = xcalloc((size_t)v->allocated, sizeof(double));
    for (int64_t k = 0; k < v->allocated; k++) {
      if (!old) (*saved)[k] = dtype_load(data, v->dtype, k);
      dtype_store(data, v->dtype, k, old ? old[k] : INFINITY);
    }
    free(old);
    return;
  }
}

static int run_steps(Worker *w, Rank *r) {
  Shared *s = w->s;
  ParityResult *out = s->result;
  pthread_barrier_wait(&s->barrier);
  if (w->rank == 0) out->tensors[DUMP_INITIAL] = gather(s, 1 << VARIABLE_PARAMETER, "", &out->tensor[DUMP_INITIAL]);
  pthread_barrier_wait(&s->barrier);
  for (int i = 0; i < s->c->steps; i++) {
    StepResult step;
    double *saved = NULL;
    if (w->rank == 0 && i + 1 == s->c->poison) poison(w, &saved);
    int code = rank_step(r, i + 1, 1e-2, &step, &w->error);
    if (code) return code;
    if (saved) poison(w, &saved);
    if (w->rank == 0) {
      out->skipped[i] = step.skipped;
      out->loss[i] = step.loss;
      out->norm[i] = step.grad_norm;
      out->tokens[i] = step.tokens;
    }
    pthread_barrier_wait(&s->barrier);
    if (w->rank == 0 && i < PARITY_GRADIENTS)
      out->tensors[DUMP_GRADIENT + i] = gather(s, 1 << VARIABLE_METRIC, "dump.", &out->tensor[DUMP_GRADIENT + i]);
    pthread_barrier_wait(&s->barrier);
  }
  double loss, tokens;
  int code = rank_evaluate(r, &s->data, 2, &loss, &tokens, &w->error);
  if (w->rank == 0) out->eval_loss = loss, out->eval_tokens = tokens;
  pthread_barrier_wait(&s->barrier);
  if (w->rank == 0) out->tensors[DUMP_FINAL] = gather(s, CHECKPOINT_KINDS, "", &out->tensor[DUMP_FINAL]);
  pthread_barrier_wait(&s->barrier);
  return code;
}

static void *work(void *argument) {
  Worker *w = argument;
  Shared *s = w->s;
  PlaitComm *world = NULL;
  Rank *r = NULL;
  w->code = plait_comm_world(s->world, w->rank, &world, &w->error);
  if (!w->code) w->code = rank_create(s->job, w->rank, world, &r, &w->error);
  s->ranks[w->rank] = r;
  if (!w->code) w->code = rank_open_data(r, &s->data, 0, &w->error);
  if (!w->code) w->code = run_steps(w, r);
  if (w->code) { // the others may stand at a barrier of this test: nothing sensible is left to do
    fprintf(stderr, "parity %s, rank %d: %s\n", s->c->name, w->rank, w->error.message);
    abort();
  }
  pthread_barrier_wait(&s->barrier);
  rank_destroy(r);
  plait_comm_destroy(world);
  return NULL;
}

static CompileOptions options_of(const ParityCase *c) {
  Mesh mesh = mesh_create(4, (const char *[]){"pp", "dp", "cp", "tp"}, (int[]){c->pp, c->dp, 1, c->tp});
  Layout layout = layout_standard(&mesh, c->zero, 4000);
  if (c->sequence) layout_add_sequence(&layout, &mesh);
  return (CompileOptions){.mode = MODEL_TRAIN, .micro_samples = (int64_t)c->micro * c->dp, .step_samples = c->global ? c->global : GLOBAL, .seq = SEQ,
                          .precision = c->precision, .mesh = mesh, .layout = layout, .stages = c->pp, .recompute = c->recompute,
                          .update = {.optimizer = "adamw", .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1.0,
                                     .dump_gradients = 1}};
}

static void randomize_inits(Graph *g) {
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER && g->variable.data[i].init.kind != INIT_NORMAL)
      g->variable.data[i].init = (Init){INIT_NORMAL, 0.5};
}

static int run_ranks(Shared *s) {
  int n = s->job->options.mesh.ranks;
  Worker *w = xcalloc((size_t)n, sizeof *w);
  s->ranks = xcalloc((size_t)n, sizeof *s->ranks);
  pthread_barrier_init(&s->barrier, NULL, (unsigned)n);
  for (int r = 0; r < n; r++) {
    w[r] = (Worker){.s = s, .rank = r};
    CHECK(!pthread_create(&w[r].thread, NULL, work, &w[r]));
  }
  for (int r = 0; r < n; r++) pthread_join(w[r].thread, NULL);
  pthread_barrier_destroy(&s->barrier);
  free(s->ranks);
  free(w);
  return PLAIT_OK;
}

int parity_run(const ParityCase *c, const char *corpus, ParityResult *result, Error *error) {
  const char *json = NULL;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].name, c->model)) json = models[i].json;
  CHECK(json && c->steps <= PARITY_MAX_STEPS);
  ModelConfig config = {0};
  *result = (ParityResult){.steps = c->steps};
  Shared s = {.c = c, .result = result};
  int code = model_config_parse(&config, json, strlen(json), c->model, error);
  CompileOptions options = options_of(c);
  const ScheduleGenerator *schedule = schedule_by_name(c->schedule ? c->schedule : "1f1b");
  const Backend *backend = c->reference ? backend_reference() : backend_cpu();
  if (!code) code = job_create(&config, &options, schedule, backend, c->threads ? c->threads : 1, 1234, options.step_samples, &s.job, error);
  if (!code) randomize_inits(s.job->train);
  if (!code) code = plait_world_local_create(options.mesh.ranks, &s.world, error);
  DataSource source = {corpus, 1};
  s.data = (LoaderConfig){.sources = &source, .source_count = 1, .seq_len = SEQ, .document_mask = 1, .vocab_size = (int)config.vocab,
                          .seed = 99, .prefetch_steps = 1};
  if (!code) code = run_ranks(&s);
  plait_world_destroy(s.world);
  job_destroy(s.job);
  model_config_free(&config);
  return code;
}

void parity_free(ParityResult *r) {
  for (int d = 0; d < DUMP_COUNT; d++) {
    for (int i = 0; i < r->tensors[d]; i++) {
      free(r->tensor[d][i].name);
      free(r->tensor[d][i].data);
    }
    free(r->tensor[d]);
  }
}

static double relative(double a, double b) {
  double d = fabs(a - b) / fmax(fabs(b), 1e-300);
  return isnan(d) ? INFINITY : d;
}

static int same_tensors(const ParityResult *a, const ParityResult *b, ParityDump d) {
  if (a->tensors[d] != b->tensors[d] || !b->tensors[d]) return 0;
  for (int i = 0; i < b->tensors[d]; i++)
    if (strcmp(a->tensor[d][i].name, b->tensor[d][i].name) || a->tensor[d][i].elements != b->tensor[d][i].elements) return 0;
  return 1;
}

static double worst_element(const ParityResult *a, const ParityResult *b, ParityDump d) {
  double largest = 0, worst = 0;
  if (!same_tensors(a, b, d)) return INFINITY;
  for (int i = 0; i < b->tensors[d]; i++) {
    int count = !strcmp(b->tensor[d][i].name, "optimizer_step"); // must be equal, and would hide all others
    for (int64_t k = 0; k < b->tensor[d][i].elements; k++) {
      double x = a->tensor[d][i].data[k], y = b->tensor[d][i].data[k];
      if (isnan(x) || isnan(y) || (count && x != y)) return INFINITY;
      if (!count) largest = fmax(largest, fabs(y));
      worst = fmax(worst, fabs(x - y));
    }
  }
  return worst > 0 ? worst / largest : 0;
}

const char *parity_first_different(const ParityResult *a, const ParityResult *b, ParityDump d) {
  if (!same_tensors(a, b, d)) return "the list of tensors";
  for (int i = 0; i < b->tensors[d]; i++)
    if (memcmp(a->tensor[d][i].data, b->tensor[d][i].data, (size_t)b->tensor[d][i].elements * sizeof(double))) return b->tensor[d][i].name;
  return NULL;
}

int parity_same_bits(const ParityResult *a, const ParityResult *b) {
  size_t size = (size_t)b->steps * sizeof(double);
  int same = a->steps == b->steps && !memcmp(a->loss, b->loss, size) && !memcmp(a->norm, b->norm, size) && a->eval_loss == b->eval_loss;
  for (int d = 0; d < DUMP_COUNT; d++) same = same && !parity_first_different(a, b, (ParityDump)d);
  return same;
}

ParityDifference parity_compare(const ParityResult *a, const ParityResult *b) {
  ParityDifference d = {0};
  for (int i = 0; i < b->steps; i++) {
    if (a->skipped[i] != b->skipped[i]) d.loss = INFINITY;
    if (b->skipped[i]) continue;
    d.loss = fmax(d.loss, relative(a->loss[i], b->loss[i]));
    d.norm = fmax(d.norm, relative(a->norm[i], b->norm[i]));
    if (a->tokens[i] != b->tokens[i]) d.loss = INFINITY;
  }
  for (int i = 0; i < PARITY_GRADIENTS && i < b->steps; i++) d.gradient = fmax(d.gradient, worst_element(a, b, (ParityDump)(DUMP_GRADIENT + i)));
  d.parameter = worst_element(a, b, DUMP_FINAL);
  d.eval = relative(a->eval_loss, b->eval_loss) + fabs(a->eval_tokens - b->eval_tokens);
  return d;
}

double parity_norm(const ParityResult *r, int step) {
  double sum = 0;
  for (int i = 0; i < r->tensors[DUMP_GRADIENT + step]; i++)
    for (int64_t k = 0; k < r->tensor[DUMP_GRADIENT + step][i].elements; k++)
      sum += r->tensor[DUMP_GRADIENT + step][i].data[k] * r->tensor[DUMP_GRADIENT + step][i].data[k];
  return sqrt(sum);
}

int parity_steps(int full) {
  const char *steps = getenv("PARITY_STEPS");
  if (steps) return atoi(steps) < full ? atoi(steps) : full;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  if (full > 4) full = 4;
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  if (full > 4) full = 4;
#endif
#endif
  return full;
}

int parity_wanted(const ParityCase *c) {
  const char *filter = getenv("PARITY_ONLY");
  return !filter || strstr(c->name, filter);
}
