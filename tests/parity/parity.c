// Runs tiny models under layouts, with dropout, ragged documents, and random biases and norm weights.
#include "parity.h"
#include "corpora.h"
#include "train/setup.h"
#include "train/state_tensors.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

// All sizes differ, so that no dim can be taken for another; vocab 61 does not divide by 2, so that padding is met.
#define GPT(heads, ffn, vocab, tied)                                                                                                        \
  "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": " heads ", \"n_positions\": 20, \"n_inner\": " ffn ","            \
  " \"vocab_size\": " vocab ", \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, \"resid_pdrop\": 0.1,"                  \
  " \"embd_pdrop\": 0.1, \"attn_pdrop\": 0.1, \"tie_word_embeddings\": " tied ", \"initializer_range\": 0.2}"
#define LLAMA(embed, heads, kv, ffn, tied)                                                                                                  \
  "{\"model_type\": \"llama\", \"hidden_size\": " embed ", \"intermediate_size\": " ffn ", \"num_hidden_layers\": 4,"                       \
  " \"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv ", \"head_dim\": 6,"                                                  \
  " \"max_position_embeddings\": 64, \"vocab_size\": 53, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","        \
  " \"tie_word_embeddings\": " tied ", \"attention_dropout\": 0.1,"                                                                         \
  " \"initializer_range\": 0.2}"
// Those named "3" divide by 3 as well: three key and value heads, or two that three ranks share.
static const struct { const char *name, *json; } models[] = {
    {"gpt", GPT("4", "40", "61", "true")},
    {"gpt untied", GPT("4", "40", "61", "false")},
    {"gpt 50257", GPT("4", "40", "50257", "true")},
    {"gpt 3", GPT("6", "42", "61", "true")},
    {"gpt untied 3", GPT("3", "42", "61", "false")},
    {"llama", LLAMA("20", "4", "2", "28", "false")},
    {"llama tied", LLAMA("20", "4", "2", "28", "true")},
    {"llama one", LLAMA("20", "4", "1", "28", "true")},
    {"llama 3", LLAMA("21", "6", "3", "30", "false")},
    {"llama tied 3", LLAMA("21", "6", "2", "30", "true")},
};

enum { SEQ = PARITY_SEQ, GLOBAL = 16 };

typedef struct Worker { struct Shared *s; int rank; Error error; pthread_t thread; } Worker;

typedef struct Shared {
  const ParityCase *c;
  Job *job;
  PlaitWorld *world;
  LoaderConfig data;
  ParityResult *result;
  Worker *worker;
  Rank **ranks;
  pthread_mutex_t lock; // of what follows
  pthread_cond_t changed;
  int waiting, met;     // ranks at a meeting, and how many meetings there were
  int enough;           // rank 0 has seen enough; the others read it behind a meeting
  int code;             // of the first rank that failed, with its error: no meeting waits any more
  Error error;
  pthread_barrier_t end;
} Shared;

static int seq_of(const ParityCase *c) { return c->seq ? c->seq : SEQ; }

// All ranks wait for each other; not 0 when one has failed.
static int meet(Shared *s) {
  pthread_mutex_lock(&s->lock);
  int meeting = s->met;
  if (++s->waiting == s->job->options.mesh.ranks) {
    s->waiting = 0;
    s->met++;
    pthread_cond_broadcast(&s->changed);
  }
  while (s->met == meeting && !s->code) pthread_cond_wait(&s->changed, &s->lock);
  int code = s->code;
  pthread_mutex_unlock(&s->lock);
  return code;
}

static void fail_all(Worker *w, int code) {
  Shared *s = w->s;
  pthread_mutex_lock(&s->lock);
  if (!s->code) {
    s->code = code;
    s->error = w->error;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  plait_world_abort(s->world, w->error.message);
}

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
    if (!data) continue; // another rank owns it
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

// Collects on rank 0 while the others wait.
static int dump(Worker *w, unsigned kinds, const char *prefix, ParityDump d) {
  Shared *s = w->s;
  int code = meet(s);
  if (!code && w->rank == 0) s->result->tensors[d] = gather(s, kinds, prefix, &s->result->tensor[d]);
  return code ? code : meet(s);
}

static int one_step(Worker *w, Rank *r, int i) {
  Shared *s = w->s;
  ParityResult *out = s->result;
  StepResult step;
  double *saved = NULL;
  if (w->rank == 0 && i + 1 == s->c->poison) poison(w, &saved);
  if (s->c->before_step) s->c->before_step(r, i + 1, s->c->context);
  int code = rank_step(r, i + 1, 1e-2, &step, &w->error);
  if (saved) poison(w, &saved);
  if (w->rank == 0) {
    out->skipped[i] = step.skipped;
    if (step.skipped) finite_describe(s->job->train, &s->job->options.mesh, &step.first, out->non_finite, sizeof out->non_finite);
    out->loss[i] = step.loss;
    out->norm[i] = step.grad_norm;
    out->tokens[i] = step.tokens;
  }
  if (!code && i < PARITY_GRADIENTS) code = dump(w, 1 << VARIABLE_METRIC, "dump.", (ParityDump)(DUMP_GRADIENT + i));
  if (!code && w->rank == 0 && i < PARITY_GRADIENTS && s->c->enough) s->enough = s->c->enough(out, i, s->c->judge);
  return code ? code : meet(s);
}

// How full the slots of this rank's stages were. Called by all ranks, each in its turn at the lock.
static void record_slots(Shared *s, const Rank *r) {
  const Program *p = r->state->program;
  pthread_mutex_lock(&s->lock);
  for (int stage = p->coordinate; stage < p->graph->stages; stage += p->schedule->coordinates) {
    int most = executor_most_in_flight(r->train, stage);
    if (most > s->result->most_in_flight[stage]) s->result->most_in_flight[stage] = most;
    s->result->slots[stage] = p->slots[stage].count;
  }
  pthread_mutex_unlock(&s->lock);
}

static int run_steps(Worker *w, Rank *r) {
  Shared *s = w->s;
  ParityResult *out = s->result;
  int code = dump(w, 1 << VARIABLE_PARAMETER, "", DUMP_INITIAL);
  for (int i = 0; i < s->c->steps && !code && !s->enough; i++) code = one_step(w, r, i);
  if (code || s->enough) return code;
  record_slots(s, r);
  double loss, tokens;
  code = rank_evaluate(r, &s->data, 2, &loss, &tokens, &w->error);
  if (w->rank == 0) out->eval_loss = loss, out->eval_tokens = tokens;
  return code ? code : dump(w, CHECKPOINT_KINDS, "", DUMP_FINAL);
}

static void *work(void *argument) {
  Worker *w = argument;
  Shared *s = w->s;
  PlaitComm *world = NULL;
  Rank *r = NULL;
  int code = plait_comm_world(s->world, w->rank, &world, &w->error);
  const Job *job = s->c->job_of ? s->c->job_of(s->job, w->rank, s->c->context) : s->job;
  if (!code) code = rank_create(job, w->rank, world, &r, &w->error);
  s->ranks[w->rank] = r;
  if (!code) code = rank_open_data(r, &s->data, 0, &w->error);
  if (!code) code = run_steps(w, r);
  if (code) fail_all(w, code);
  pthread_barrier_wait(&s->end); // the others may still read this rank's memory
  rank_destroy(r);
  plait_comm_destroy(world);
  return NULL;
}

// The case as a recipe: what a user would write. The model and the corpus are this test's, so their paths are not opened.
static char *recipe_of(const ParityCase *c, Arena *arena) {
  static const char *const recompute[] = {"none", "selective", "full"};
  return arena_format(arena, "model: {config: /config.json}\ndata: {train: /corpus, seq_len: %d}\nmesh: {pp: %d, dp: %d, tp: %d}\n"
                      "parallel: {zero: %d, sequence: %s, recompute: %s, pipeline: %s}\nprecision: %s\nbatch: {global: %d, micro: %d}\n"
                      "optimizer: {name: adamw, lr: 1e-2, betas: [0.9, 0.95], epsilon: 1e-8, weight_decay: 0.1, clip: 1.0}\n"
                      "run: {dir: /run, dump_gradients: /gradients}\n",
                      seq_of(c), c->pp, c->dp, c->tp, c->zero, c->sequence ? "true" : "false", recompute[c->recompute],
                      c->schedule ? c->schedule : "1f1b", dtype_name(c->precision), c->global ? c->global : GLOBAL, c->micro);
}

static int read_recipe(const ParityCase *c, Recipe *recipe, Error *error) {
  Arena arena = {0};
  char *text = recipe_of(c, &arena), *next = arena_format(&arena, "%s %s", c->settings ? c->settings : "", c->more_settings ? c->more_settings : "");
  char *override[32];
  int count = 0;
  for (char *word; (word = strtok_r(next, " ", &next)) && count < 32;) override[count++] = word;
  int code = recipe_parse(c->name, text, strlen(text), "/", count, override, recipe, error);
  arena_free(&arena);
  return code;
}

static int compile(const ParityCase *c, const ModelConfig *config, Job **job, Error *error) {
  Recipe recipe;
  CompileOptions options;
  const ScheduleGenerator *schedule = NULL;
  const Backend *backend = c->backend ? c->backend : c->reference ? backend_reference() : backend_cpu();
  int code = read_recipe(c, &recipe, error);
  if (!code) code = setup_compile_options(&recipe, config, &options, &schedule, error);
  if (!code && options.layout.bucket_bytes > 0) options.layout.bucket_bytes = 4000; // a few buckets, of a few gradients
  if (!code) code = job_create(config, &options, schedule, backend, c->threads ? c->threads : 1, c->helpers, 1234, options.step_samples, job, error);
  if (!code) (*job)->check = recipe.run.check;
  recipe_free(&recipe);
  return code;
}

static void randomize_inits(Graph *g) {
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER && g->variable.data[i].init.kind != INIT_NORMAL)
      g->variable.data[i].init = (Init){INIT_NORMAL, 0.5};
}

// Helps all ranks all the time.
typedef struct Busybody { pthread_t thread; TeamGroup *group; atomic_int stop; int64_t helped; } Busybody;

static void nothing(void *argument, int i) {}
static void *help_everybody(void *argument) {
  Busybody *b = argument;
  Team *team = team_create_in(b->group, 1);
  while (!atomic_load(&b->stop))
    if (team_help(team)) b->helped++;
    else {
      team_run(team, 1, nothing, NULL); // back at work of its own: it may come to jobs that were not cut for it
      sched_yield();
    }
  team_destroy(team);
  return NULL;
}

static void start_helping(Job *job, Busybody *b) {
  team_group_destroy(job->teams);
  b->group = job->teams = team_group_create(job->options.mesh.ranks + 1, job->helpers);
  CHECK(!pthread_create(&b->thread, NULL, help_everybody, b));
}

static int64_t stop_helping(Busybody *b) {
  atomic_store(&b->stop, 1);
  pthread_join(b->thread, NULL);
  return b->helped;
}

static void run_ranks(Shared *s) {
  int n = s->job->options.mesh.ranks;
  Busybody busybody = {.helped = 0};
  if (s->c->helpers) start_helping(s->job, &busybody);
  s->worker = xcalloc((size_t)n, sizeof *s->worker);
  s->ranks = xcalloc((size_t)n, sizeof *s->ranks);
  pthread_barrier_init(&s->end, NULL, (unsigned)n);
  for (int r = 0; r < n; r++) {
    s->worker[r] = (Worker){.s = s, .rank = r};
    CHECK(!pthread_create(&s->worker[r].thread, NULL, work, &s->worker[r]));
  }
  for (int r = 0; r < n; r++) pthread_join(s->worker[r].thread, NULL);
  if (s->c->helpers) s->result->helped = stop_helping(&busybody);
  pthread_barrier_destroy(&s->end);
  free(s->ranks);
  free(s->worker);
}

static const char *model_of(const ParityCase *c) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].name, c->model)) return models[i].json;
  CHECK(0, "no model %s", c->model);
}

int parity_run(const ParityCase *c, const char *corpus, ParityResult *result, Error *error) {
  const char *json = model_of(c);
  CHECK(c->steps <= PARITY_MAX_STEPS);
  ModelConfig config = {0};
  *result = (ParityResult){.steps = c->steps};
  Shared s = {.c = c, .result = result, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  int code = model_config_parse(&config, json, strlen(json), c->model, error);
  if (!code && c->layers) config.layers = c->layers;
  if (!code) code = compile(c, &config, &s.job, error);
  if (!code) randomize_inits(s.job->train);
  if (!code && c->edit) c->edit(s.job, c->context);
  if (!code) code = plait_world_local_create(s.job->options.mesh.ranks, &s.world, error);
  DataSource source = {corpus, 1};
  s.data = (LoaderConfig){.sources = &source, .source_count = 1, .seq_len = seq_of(c), .document_mask = 1, .vocab_size = (int)config.vocab,
                          .seed = 99, .prefetch_steps = 1};
  if (!code) {
    run_ranks(&s);
    code = s.code;
    if (code) *error = s.error;
  }
  plait_world_destroy(s.world);
  job_destroy(s.job);
  model_config_free(&config);
  if (code) parity_free(result);
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
  *r = (ParityResult){0};
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

enum { KIND_COUNTER, KIND_PARAMETER, KIND_MOMENT_1, KIND_MOMENT_2, KINDS };

// Tensors of a dump are compared by kind: parameters, first and second moments are of different sizes.
static int kind_of(const NamedTensor *t) {
  if (t->elements == 1) return KIND_COUNTER; // must be equal
  const char *name = t->name;
  if (!strncmp(name, "moment1.", 8)) return KIND_MOMENT_1;
  if (!strncmp(name, "moment2.", 8)) return KIND_MOMENT_2;
  return KIND_PARAMETER;
}

// Largest difference of each kind, against the largest element of that kind.
static void worst_elements(const ParityResult *a, const ParityResult *b, ParityDump d, double *worst) {
  double largest[KINDS] = {0};
  for (int i = 0; i < KINDS; i++) worst[i] = same_tensors(a, b, d) ? 0 : INFINITY;
  for (int i = 0; i < b->tensors[d] && !worst[0]; i++) {
    int kind = kind_of(&b->tensor[d][i]);
    for (int64_t k = 0; k < b->tensor[d][i].elements; k++) {
      double x = a->tensor[d][i].data[k], y = b->tensor[d][i].data[k];
      if (isnan(x) || isnan(y) || (kind == KIND_COUNTER && x != y)) worst[kind] = INFINITY;
      largest[kind] = fmax(largest[kind], fabs(y));
      worst[kind] = fmax(worst[kind], fabs(x - y));
    }
  }
  for (int i = 0; i < KINDS; i++)
    if (worst[i] > 0 && worst[i] < INFINITY) worst[i] /= largest[i];
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
  for (int d = 0; d < DUMP_COUNT; d++) {
    int step = d - DUMP_GRADIENT; // of a gradient
    if (d >= DUMP_GRADIENT && d < DUMP_FINAL && step >= b->steps) continue;
    same = same && !parity_first_different(a, b, (ParityDump)d);
  }
  return same;
}

ParityDifference parity_compare_step(const ParityResult *a, const ParityResult *b, int i) {
  ParityDifference d = {0};
  if (a->skipped[i] != b->skipped[i]) d.loss = INFINITY;
  if (b->skipped[i]) return d;
  d.loss = a->tokens[i] == b->tokens[i] ? relative(a->loss[i], b->loss[i]) : INFINITY;
  d.norm = relative(a->norm[i], b->norm[i]);
  if (i >= PARITY_GRADIENTS) return d;
  double worst[KINDS];
  worst_elements(a, b, (ParityDump)(DUMP_GRADIENT + i), worst);
  d.gradient = worst[KIND_PARAMETER];
  return d;
}

ParityDifference parity_compare(const ParityResult *a, const ParityResult *b) {
  ParityDifference d = {0};
  for (int i = 0; i < b->steps; i++) {
    ParityDifference step = parity_compare_step(a, b, i);
    d.loss = fmax(d.loss, step.loss);
    d.norm = fmax(d.norm, step.norm);
    d.gradient = fmax(d.gradient, step.gradient);
  }
  double worst[KINDS];
  worst_elements(a, b, DUMP_FINAL, worst);
  d.weight = fmax(worst[KIND_COUNTER], worst[KIND_PARAMETER]);
  d.moment = fmax(worst[KIND_MOMENT_1], worst[KIND_MOMENT_2]);
  d.parameter = fmax(d.weight, d.moment);
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
