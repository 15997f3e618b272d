// Runs tiny models under layouts, with dropout, ragged documents, and random biases and norm weights.
#include "parity.h"
#include "corpora.h"
#include "experts.h"
#include "setup/setup.h"
#include "runtime/state_tensors.h"
#include "train/routers.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

// All sizes differ, so that no dim can be taken for another; vocab 61 does not divide by 2, so that padding is met.
#define GPT(heads, ffn, vocab, tied)                                                                                   \
  "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": " heads                                      \
  ", \"n_positions\": 20, \"n_inner\": " ffn ","                                                                       \
  " \"vocab_size\": " vocab                                                                                            \
  ", \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, \"resid_pdrop\": 0.1,"                       \
  " \"embd_pdrop\": 0.1, \"attn_pdrop\": 0.1, \"tie_word_embeddings\": " tied ", \"initializer_range\": 0.2}"
#define ROTARY(type, embed, heads, kv, ffn, tied, more)                                                                \
  "{\"model_type\": \"" type "\", \"hidden_size\": " embed ", \"intermediate_size\": " ffn                             \
  ", \"num_hidden_layers\": 4,"                                                                                        \
  " \"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv ", \"head_dim\": 6,"                             \
  " \"max_position_embeddings\": 64, \"vocab_size\": 53, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "            \
  "\"hidden_act\": \"silu\","                                                                                          \
  " \"tie_word_embeddings\": " tied ", \"attention_dropout\": 0.1,"                                                    \
  " \"initializer_range\": 0.2" more "}"
#define LLAMA(embed, heads, kv, ffn, tied) ROTARY("llama", embed, heads, kv, ffn, tied, "")
#define WINDOW ", \"sliding_window\": 18" // as long as the longest sequence
#define NEO(heads, ffn)                                                                                                \
  "{\"model_type\": \"gpt_neo\", \"num_layers\": 4, \"hidden_size\": 24, \"num_heads\": " heads ","                    \
  " \"max_position_embeddings\": 20, \"intermediate_size\": " ffn ", \"vocab_size\": 61, \"window_size\": 18,"         \
  " \"attention_types\": [[[\"global\", \"local\"], 2]], \"resid_dropout\": 0.1, \"embed_dropout\": 0.1,"              \
  " \"attention_dropout\": 0.1, \"tie_word_embeddings\": true, \"initializer_range\": 0.2}"
// Twelve experts. Of four layers with a shared expert the second has none of either, and is as wide as `dense`.
#define MIXTRAL(embed, heads, kv, ffn)                                                                                 \
  ROTARY("mixtral", embed, heads, kv, ffn, "false", ", \"num_local_experts\": 12, \"num_experts_per_tok\": 3")
#define QWEN_MOE(embed, heads, kv, dense, shared)                                                                      \
  ROTARY("qwen2_moe", embed, heads, kv, dense, "true",                                                                 \
         ", \"num_experts\": 12, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 36, \"mlp_only_layers\": [1]," \
         " \"shared_expert_intermediate_size\": " shared)
// Those named "3" divide by 3 and by 6 as well: three key and value heads, or two that three ranks share.
static const struct { const char *name, *json; } models[] = {
    {"gpt", GPT("4", "40", "61", "true")},
    {"gpt untied", GPT("4", "40", "61", "false")},
    {"gpt 50257", GPT("4", "40", "50257", "true")},
    {"gpt 3", GPT("6", "42", "61", "true")},
    {"gpt untied 3", GPT("3", "42", "61", "false")},
    {"llama", LLAMA("20", "4", "2", "28", "false")},
    {"llama tied", LLAMA("20", "4", "2", "28", "true")},
    {"llama one", LLAMA("20", "4", "1", "28", "true")},
    {"llama 3", LLAMA("24", "6", "3", "30", "false")},
    {"llama tied 3", LLAMA("24", "6", "2", "30", "true")},
    {"qwen2", ROTARY("qwen2", "20", "4", "2", "28", "true", "")},
    {"qwen2 3", ROTARY("qwen2", "24", "6", "3", "30", "true", "")},
    {"qwen3", ROTARY("qwen3", "20", "4", "2", "28", "false", "")},
    {"qwen3 3", ROTARY("qwen3", "24", "6", "2", "30", "false", "")},
    {"mistral", ROTARY("mistral", "20", "4", "2", "28", "false", WINDOW)},
    {"mistral 3", ROTARY("mistral", "24", "6", "3", "30", "false", WINDOW)},
    {"experts", LLAMA("20", "4", "2", "28", "false")}, // of the tests' own families
    {"experts alike", LLAMA("20", "4", "2", "28", "false")},
    {"experts apart", LLAMA("20", "4", "2", "28", "false")},
    {"experts", LLAMA("20", "4", "2", "28", "false")}, // of the tests' own family
    {"mixtral", MIXTRAL("20", "4", "2", "28")},
    {"mixtral 3", MIXTRAL("24", "6", "3", "30")},
    {"qwen moe", QWEN_MOE("20", "4", "2", "44", "28")},
    {"qwen moe 3", QWEN_MOE("24", "6", "3", "42", "30")},
    {"gpt neo", NEO("4", "40")},
    {"gpt neo 3", NEO("6", "42")},
};

enum { SEQ = PARITY_SEQ, GLOBAL = 16 };

// A case under way.
typedef struct Run {
  const ParityCase *c;
  Job *job;
  Session *session;
  LoaderConfig data;
  ParityResult *result;
  int step;        // 0 …
  double told[64]; // per rank: the loss of the step, or of the evaluation
} Run;

static int seq_of(const ParityCase *c) { return c->seq ? c->seq : SEQ; }

static int by_name(const void *a, const void *b) {
  return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

// Gathers Variables of all ranks, between tasks; wanted NULL: the reduced gradients.
static int gather(const Run *run, VariableTest *wanted, NamedTensor **out) {
  Vec(NamedTensor) all = {0};
  for (int r = 0; r < session_ranks(run->session); r++) {
    CheckpointTensor *boxes;
    State *state = session_rank(run->session, r)->state;
    int n = wanted ? state_tensors(state, wanted, &boxes) : state_tensors_of(state, OF_DUMP, &boxes);
    for (int i = 0; i < n; i++) {
      CheckpointTensor *t = &boxes[i];
      if (!t->primary) continue;
      NamedTensor *whole = NULL;
      for (int k = 0; k < all.count && !whole; k++)
        if (!strcmp(all.data[k].name, t->name)) whole = &all.data[k];
      int64_t elements = 1;
      for (int d = 0; d < t->rank; d++) elements *= t->global[d];
      if (!whole) {
        NamedTensor fresh = {xstrdup(t->name), elements, xcalloc((size_t)elements, sizeof(double))};
        for (int64_t k = 0; k < fresh.elements; k++) fresh.data[k] = NAN; // what no rank holds must not compare equal
        vec_push(&all, fresh);
        whole = &all.data[all.count - 1];
      }
      checkpoint_tensor_to_whole(t, whole->data, DTYPE_F64);
    }
    free(boxes);
  }
  qsort(all.data, (size_t)all.count, sizeof *all.data, by_name);
  *out = all.data;
  return all.count;
}

// What MICRO reads of a parameter: with delayed gradients an older version.
static int read_in_micro(const Graph *g, int parameter) {
  for (int v = 0; v < g->variable.count; v++)
    if (g->variable.data[v].version && g->variable.data[v].parameter == parameter &&
        g->variable.data[v].version == g->variable.data[parameter].delay)
      return v;
  return parameter;
}

// Rank 0's first parameter: set to infinity, and given back its values (saved: NULL before).
static void poison(const Rank *r, void **saved) {
  const Graph *g = r->state->program->graph;
  for (int i = 0; i < g->variable.count; i++) {
    ShardBoxes b = state_boxes(r->state, i, -1);
    if (g->variable.data[i].kind != VARIABLE_PARAMETER || !shard_next(&b)) continue; // another rank owns it
    Box box = b.box;
    i = read_in_micro(g, i);
    size_t n = (size_t)box_elements(&box);
    if (*saved) {
      state_write(r->state, i, -1, &box, *saved);
      free(*saved);
      return;
    }
    double *infinite = xcalloc(n, sizeof *infinite);
    *saved = xcalloc(n, sizeof(double));
    state_read(r->state, i, -1, &box, *saved);
    for (size_t k = 0; k < n; k++) dtype_store(infinite, g->variable.data[i].dtype, (int64_t)k, INFINITY);
    state_write(r->state, i, -1, &box, infinite);
    free(infinite);
    return;
  }
}

static void dump(const Run *run, VariableTest *wanted, ParityDump d) {
  run->result->tensors[d] = gather(run, wanted, &run->result->tensor[d]);
}

static int load(Rank *r, void *run, Error *error) {
  const Run *x = run;
  int code = rank_load(r, x->c->job_of ? x->c->job_of(x->job, r->rank, x->c->context) : x->job, error);
  if (code) return code;
  rank_initialise(r);
  if (x->c->loaded) x->c->loaded(r, x->c->context);
  code = rank_open_data(r, &x->data, 0, error);
  return code ? code : rank_open_evaluation(r, &x->data, error);
}

// What every rank has been told: all must have the same, to the bit; where they differ it is NaN, which equals nothing.
static double told_alike(const Run *run) {
  for (int i = 1; i < session_ranks(run->session); i++)
    if (memcmp(&run->told[i], &run->told[0], sizeof run->told[0])) return NAN;
  return run->told[0];
}

static void record_step(const Run *run, const StepResult *step) {
  ParityResult *out = run->result;
  int i = run->step;
  out->skipped[i] = step->skipped;
  if (step->skipped)
    finite_describe(job_train(run->job)->graph, &run->job->options.parallel.mesh, &step->first, out->non_finite,
                    sizeof out->non_finite);
  out->loss[i] = step->loss;
  out->norm[i] = step->grad_norm;
  out->tokens[i] = step->tokens;
}

// As metrics.jsonl has it: what a rank reads of itself.
static void record_routers(const Run *run, const State *state) {
  Routers routers = {.layers = 0};
  int i = run->step;
  routers_read(&routers, state);
  run->result->router_loss[i][0] = routers.balance;
  run->result->router_loss[i][1] = routers.z;
  for (int layer = 0; layer < routers.layers; layer++)
    for (int x = 0; x < 2 * routers.experts; x++) // chosen, kept
      run->result->router_load[i] += routers.load[layer].chosen[x] * (2 * routers.experts * layer + x + 1);
  routers_free(&routers);
}

enum { PARITY_MOST_AHEAD = 16 }; // steps that a stream has begun

static int one_step(Rank *r, void *run, Error *error) {
  Run *x = run;
  StepResult step;
  void *saved = NULL;
  if (r->rank == 0 && x->step + 1 == x->c->poison) poison(r, &saved);
  if (x->c->before_step) x->c->before_step(r, x->step + 1, x->c->context);
  // A stream drains before a step whose weights this test changes.
  int ahead = 0, most = rank_most_ahead(r);
  double rates[PARITY_MOST_AHEAD + 1];
  CHECK(most <= PARITY_MOST_AHEAD);
  for (int k = 0; k <= most; k++) rates[k] = 1e-2;
  while (ahead < most && x->step + ahead + 1 < x->c->steps && !x->c->before_step &&
         x->step + ahead + 2 != x->c->poison)
    ahead++;
  int code = rank_step_on(r, x->step + 1, rates, ahead, &step, error);
  if (saved) poison(r, &saved);
  x->told[r->rank] = step.loss;
  if (r->rank == 0) record_step(x, &step), record_routers(x, r->state);
  return code;
}

static int evaluate(Rank *r, void *run, Error *error) {
  Run *x = run;
  double loss, tokens;
  // Choices of experts are known by step, sample and position, which two batches have in common.
  int batches = x->c->records || x->c->follows ? 1 : 2;
  int code = rank_evaluate(r, batches, NULL, NULL, &loss, &tokens, error);
  x->told[r->rank] = loss;
  if (r->rank == 0) x->result->eval_tokens = tokens;
  return code;
}

// How full the slots of the stages were, over all ranks.
static void record_slots(const Run *run) {
  ParityResult *out = run->result;
  for (int i = 0; i < session_ranks(run->session); i++) {
    const Rank *r = session_rank(run->session, i);
    const Program *p = r->state->program;
    for (int stage = 0; stage < p->graph->stages; stage++) {
      if (!program_runs(p, stage)) continue;
      int most = executor_most_in_flight(r->train, stage);
      if (most > out->most_in_flight[stage]) out->most_in_flight[stage] = most;
      out->slots[stage] = p->slots[stage].count;
    }
  }
}

static int run_steps(Run *run, Error *error) {
  const ParityCase *c = run->c;
  int code = session_run(run->session, load, run, error), enough = 0;
  if (!code) dump(run, variable_is_loaded, DUMP_INITIAL);
  for (run->step = 0; run->step < c->steps && !code && !enough; run->step++) {
    code = session_run(run->session, one_step, run, error);
    if (!code) run->result->loss[run->step] = told_alike(run);
    if (code || run->step >= PARITY_GRADIENTS) continue;
    dump(run, NULL, (ParityDump)(DUMP_GRADIENT + run->step));
    if (c->enough) enough = c->enough(run->result, run->step, c->judge);
  }
  if (code || enough) return code;
  record_slots(run);
  code = session_run(run->session, evaluate, run, error);
  if (!code) run->result->eval_loss = told_alike(run);
  if (!code) dump(run, variable_is_saved, DUMP_FINAL);
  return code;
}

// The case as a recipe: what a user would write. The model and the corpus are this test's, so their paths are not
// opened.
static char *recipe_of(const ParityCase *c, Arena *arena) {
  static const char *const recompute[] = {"none", "selective", "full"};
  return arena_format(
      arena,
      "model: {config: /config.json}\ndata: {train: /corpus, seq_len: %d}\nmesh: {pp: %d, dp: %d, cp: %d, tp: %d}\n"
      "parallel: {zero: %d, sequence: %s, recompute: %s, pipeline: %s}\nprecision: %s\nbatch: {global: %d, micro: %d}\n"
      "optimizer: {name: adamw, lr: 1e-2, betas: [0.9, 0.95], epsilon: 1e-8, weight_decay: 0.1, clip: 1.0}\n"
      "run: {dir: /run, dump_gradients: /gradients}\n",
      seq_of(c), c->pp, c->dp, c->cp ? c->cp : 1, c->tp, c->zero, c->sequence ? "true" : "false",
      recompute[c->recompute], c->schedule ? c->schedule : "1f1b", dtype_name(c->precision),
      c->global ? c->global : GLOBAL, c->micro);
}

int parity_recipe(const ParityCase *c, Recipe *recipe, Error *error) {
  Arena arena = {0};
  char *text = recipe_of(c, &arena),
       *next = arena_format(&arena, "%s %s", c->settings ? c->settings : "", c->more_settings ? c->more_settings : "");
  char *override[32];
  int count = 0;
  for (char *word; (word = strtok_r(next, " ", &next)) && count < 32;) override[count++] = word;
  int code = recipe_parse(c->name, text, strlen(text), "/", count, override, recipe, error);
  arena_free(&arena);
  return code;
}

static const char *model_of(const ParityCase *c) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].name, c->model)) return models[i].json;
  CHECK(0, "no model %s", c->model);
}

int parity_config(const ParityCase *c, ModelConfig *config, Error *error) {
  const char *json = model_of(c);
  *config = (ModelConfig){0};
  int code = model_config_parse(config, json, strlen(json), c->model, error);
  if (!code && !strcmp(c->model, "experts")) config->family = &parity_experts, model_measure(config);
  if (!code && !strcmp(c->model, "experts alike")) config->family = &parity_experts_alike, model_measure(config);
  if (!code && !strcmp(c->model, "experts apart")) config->family = &parity_experts_apart, model_measure(config);
  if (!code && c->layers) config->layers = c->layers, model_measure(config);
  if (!code && c->config) c->config(config);
  return code;
}

static int compile(const ParityCase *c, const ModelConfig *config, Routing *routing, Job **job, Error *error) {
  Recipe recipe;
  RunPlan plan = {0};
  JobOptions run = {.threads = c->threads ? c->threads : 1, .helpers = c->helpers, .seed = 1234};
  int code = parity_recipe(c, &recipe, error);
  if (!code) code = resolve(&recipe, config, &(RunSetting){.threads = 1}, &plan, error);
  CompileOptions options = plan.options;
  int64_t *bucket_bytes = &options.parallel.overlap.bucket_bytes;
  if (!code && *bucket_bytes > 0)
    *bucket_bytes = c->bucket_bytes ? c->bucket_bytes : 4000; // a few buckets, of a few gradients
  if (c->moments) options.step.transform.states = c->moments;
  options.device = c->device ? c->device : c->reference ? device_reference() : device_cpu();
  if (routing || c->follows) options.device = routing_device(options.device, routing, c->follows);
  run.evaluate_samples = code ? 0 : options.step.batch.samples;
  run.check = recipe.run.desync_check;
  if (!code) code = job_create(config, &options, &run, job, error);
  run_plan_free(&plan);
  recipe_free(&recipe);
  return code;
}

int parity_job(const ParityCase *c, Job **job, Error *error) {
  ModelConfig config = {0};
  *job = NULL;
  int code = parity_config(c, &config, error);
  if (!code) code = compile(c, &config, NULL, job, error);
  model_config_free(&config);
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
  Team *team;
  CHECK(!team_create_in(b->group, 1, &team, NULL));
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
  b->group = job->teams = team_group_create(job->options.parallel.mesh.ranks + 1, job->run.helpers);
  CHECK(!pthread_create(&b->thread, NULL, help_everybody, b));
}

static int64_t stop_helping(Busybody *b) {
  atomic_store(&b->stop, 1);
  pthread_join(b->thread, NULL);
  return b->helped;
}

static int run_ranks(Run *run, Error *error) {
  Busybody busybody = {.helped = 0};
  int code = session_open(&(SessionOptions){.ranks = run->job->options.parallel.mesh.ranks}, &run->session, error);
  if (code) return code;
  if (run->c->helpers) start_helping(run->job, &busybody);
  code = run_steps(run, error);
  if (run->c->helpers) run->result->helped = stop_helping(&busybody);
  session_close(run->session);
  return code;
}

static int experts_text(uint32_t set, char *text, size_t size) {
  size_t n = 0;
  text[0] = 0;
  for (int x = 0; x < 32; x++)
    if (set >> x & 1 && n < size) n += (size_t)snprintf(text + n, size - n, "%s%d", n ? ", " : "", x);
  return (int)n;
}

static void describe_flips(const Run *run) {
  RoutingFlips *flips = &run->result->flips;
  *flips = routing_flips();
  const RoutingFlip *f = &flips->widest;
  char here[64], there[64], pass[32] = "the evaluation";
  experts_text(f->here, here, sizeof here);
  experts_text(f->there, there, sizeof there);
  if (f->step) snprintf(pass, sizeof pass, "step %d", (int)f->step);
  if (flips->count)
    snprintf(run->result->flip, sizeof run->result->flip,
             "%s, %s, sample %d, position %d: experts %s instead of %s, whose gap is %.1e", f->node, pass,
             (int)f->sample, (int)f->position, here, there, f->gap);
}

int parity_run(const ParityCase *c, const char *corpus, ParityResult *result, Error *error) {
  CHECK(c->steps <= PARITY_MAX_STEPS);
  ModelConfig config;
  *result = (ParityResult){.steps = c->steps};
  Run run = {.c = c, .result = result};
  int code = parity_config(c, &config, error);
  if (!code && c->records) result->routing = routing_create();
  if (!code) code = compile(c, &config, result->routing, &run.job, error);
  if (!code) randomize_inits(job_train(run.job)->graph);
  for (int evaluation = 0; !code && (c->records || c->follows) && evaluation < 2; evaluation++)
    routing_learn(job_find(run.job, evaluation ? &role_evaluate : &role_train)->graph);
  if (!code && c->edit) c->edit(run.job, c->context);
  DataSource source = {corpus, 1};
  run.data = (LoaderConfig){.sources = &source,
                            .source_count = 1,
                            .seq_len = seq_of(c),
                            .document_mask = 1,
                            .vocab_size = (int)config.vocab,
                            .seed = 99,
                            .prefetch_steps = PARITY_MOST_AHEAD};
  if (!code) code = run_ranks(&run, error);
  if (!code && c->follows) describe_flips(&run);
  job_destroy(run.job);
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
  routing_destroy(r->routing);
  *r = (ParityResult){0};
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
  return !filter || filter[0] == '=' || strstr(c->name, filter); // =: of the matrix, which has made its list by it
}
