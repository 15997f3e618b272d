// tier 1 2; rooms compile program; threads numbers
// Copies that updates write (compile/fuse.c): after every step they are the rounded weights, also of a step that was
// skipped; weights that something else has written are read by the next step; and BEGIN passes over Copies that are as
// the update left them.
#include "base/dtype.h"
#include "data/synthetic.h"
#include "op/op.h"
#include "setup/setup.h"
#include "runtime/session.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { STEPS = 3, VOCAB = 61, MOST_PIECES = 512 };
static char folder[64] = "/tmp/plait-copies-XXXXXX";
static char *prefix;
static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, "
    "\"vocab_size\": 61, \"activation_function\": \"gelu_new\"}";

static int make_folder(void **state) {
  if (!mkdtemp(folder)) return -1;
  prefix = xformat("%s/corpus", folder);
  error = (Error){0};
  return synthetic_corpus(prefix, 60, 1, 45, VOCAB, 7, &error);
}

static int remove_folder(void **state) {
  char *command = xformat("rm -rf %s", folder);
  int code = system(command);
  free(command);
  free(prefix);
  return code;
}

// written: Copies are written by updates; else BEGIN makes them in every step. skips: the first step is skipped.
typedef struct Setting { const char *keys; int written, skips; } Setting;
#define IN_BACKWARD " parallel.update=in_backward optimizer.clip=0 run.non_finite=stop "
static const Setting settings[] = {
    {"precision=bf16", 1, 0},
    {"precision=bf16 optimizer.name=sgd", 1, 0},
    {"precision=bf16 optimizer.name=lion", 1, 0},
    {"precision=bf16 optimizer.name=muon", 1, 0},
    {"precision=bf16 optimizer.states=8bit", 1, 0},
    {"precision=bf16 parallel.grad_dtype=bf16", 1, 0},
    {"precision=fp16 loss_scale.initial=1e9", 1, 1},
    {"precision=bf16 batch.micro=12" IN_BACKWARD, 1, 0},
    {"precision=bf16 mesh.dp=2", 1, 0},
    {"precision=bf16 mesh.dp=2 parallel.zero=1", 0, 0},
    {"precision=bf16 mesh.dp=2 parallel.zero=2", 0, 0},
    {"precision=bf16 mesh.dp=2 parallel.zero=3", 1, 0},
    {"precision=bf16 mesh.dp=2 parallel.zero=3 parallel.reshard=false", 0, 0},
    {"precision=bf16 mesh.dp=2 parallel.zero=3 parallel.unsplit_tensors=true", 1, 0},
    {"precision=fp16 mesh.dp=2 parallel.zero=3 loss_scale.initial=1e9", 1, 1},
    {"precision=bf16 mesh.dp=2 parallel.zero=3 batch.micro=6" IN_BACKWARD, 1, 0},
    {"precision=bf16 mesh.tp=2", 1, 0},
    {"precision=bf16 mesh.pp=2 parallel.recompute=full", 1, 0},
    {"precision=bf16 mesh.pp=2 parallel.pipeline=zb-v", 1, 0},
    {"precision=bf16 mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1", 0, 0},
    {"precision=bf16 optimizer.delay=1", 0, 0},
    {"precision=bf16 optimizer.master=split", 0, 0},
    {"precision=bf16 mesh.dp=2 mesh.tp=2 mesh.pp=2 parallel.zero=3", 1, 0},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

// Of the weights, before the last step: they become what they were at first; nothing; their Copies become 0 after the
// State's back, and that after another executor has run the last step but one.
typedef enum Plan { GO_BACK, STAY, HARM, HARM_BEHIND_ANOTHER } Plan;
typedef struct Training {
  const Setting *setting;
  Plan plan;
  Recipe recipe;
  ModelConfig config;
  Job *job;
  Session *session;
  DataSource source;
  int skipped;
  double loss; // of the last step
} Training;

static void training_open(Training *t, const Setting *setting, Plan plan) {
  *t = (Training){.setting = setting, .plan = plan};
  char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 18}, batch: {global: 12, micro: 2}, "
                "optimizer: {weight_decay: 0.1}, run: {dir: /none}}";
  char *keys[12], *word = xstrdup(setting->keys), *rest = word;
  int count = 0;
  while ((keys[count] = strtok_r(rest, " ", &rest))) count++;
  SUCCEED(recipe_parse("test", text, strlen(text), "/", count, keys, &t->recipe, &error));
  SUCCEED(model_config_parse(&t->config, model, strlen(model), "model", &error));
  SUCCEED(setup_job(&t->recipe, &t->config, &(RunSetting){.threads = 1}, &t->job, &error));
  SUCCEED(session_open(&(SessionOptions){.ranks = recipe_rank_count(&t->recipe)}, &t->session, &error));
  t->source = (DataSource){prefix, 1};
  free(word);
}

static void training_close(Training *t) {
  session_close(t->session);
  job_destroy(t->job);
  recipe_free(&t->recipe);
  model_config_free(&t->config);
}

// All parts of a rank's parameters, as they were.
typedef struct Kept { int count, variable[MOST_PIECES]; Box box[MOST_PIECES]; void *data[MOST_PIECES]; } Kept;

static void keep(const State *s, Kept *k) {
  const Graph *g = s->program->graph;
  for (int v = 0; v < g->variable.count; v++)
    for (ShardBoxes b = state_boxes(s, v, -1); g->variable.data[v].kind == VARIABLE_PARAMETER && shard_next(&b);) {
      CHECK(k->count < MOST_PIECES);
      k->variable[k->count] = v;
      k->box[k->count] = b.box;
      k->data[k->count] = xcalloc((size_t)box_elements(&b.box), sizeof(double));
      state_read(s, v, -1, &b.box, k->data[k->count++]);
    }
}

static void put_back(State *s, Kept *k) {
  for (int i = 0; i < k->count; i++) {
    state_write(s, k->variable[i], -1, &k->box[i], k->data[i]);
    free(k->data[i]);
  }
}

static int check_copy(const State *s, int v, Error *e) {
  const Variable *variable = &s->program->graph->variable.data[v];
  int wrong = 0;
  for (ShardBoxes b = state_boxes(s, v, -1); shard_next(&b);) {
    int64_t n = box_elements(&b.box);
    float *weight = xcalloc((size_t)n, sizeof *weight);
    uint16_t *copy = xcalloc((size_t)n, sizeof *copy), expected;
    state_read(s, v, -1, &b.box, weight);
    state_read(s, v, 0, &b.box, copy);
    for (int64_t i = 0; i < n; i++) {
      dtype_store(&expected, variable->copy[0].dtype, 0, weight[i]);
      wrong += copy[i] != expected;
    }
    free(weight);
    free(copy);
  }
  return wrong ? error_set(e, PLAIT_FAILED, "%d elements of the Copy of %s are not its own", wrong, variable->name)
               : PLAIT_OK;
}

// Of what BEGIN passes over.
static int check_copies(const Training *t, const State *s, Error *e) {
  const Graph *g = s->program->graph;
  int code = PLAIT_OK, refreshed = 0, casts = 0;
  for (int i = 0; i < s->program->begin.count && !code; i++) {
    const Node *n = &g->node.data[s->program->begin.instruction[i].node];
    if (node_is(n, ROLE_CAST)) casts++;
    if (!n->refreshes) continue;
    refreshed++;
    code = check_copy(s, graph_tensor(g, n->output[0])->variable, e);
  }
  if (code) return code;
  return refreshed == (t->setting->written ? casts : 0) && (casts || !t->setting->written)
             ? PLAIT_OK
             : error_set(e, PLAIT_FAILED, "of %d casts %d are of Copies that an update writes", casts, refreshed);
}

// Without telling the State.
static void harm(const State *s) {
  const Program *p = s->program;
  for (int v = 0; v < p->graph->variable.count; v++) {
    const Variable *variable = &p->graph->variable.data[v];
    if (variable->copies)
      memset(state_address(s, program_variable_place(p, v, 0, s->turn)), 0, (size_t)variable->copy[0].allocated_ * 2);
  }
}

// Two steps, then the plan, then one step of which the loss counts. Without GO_BACK the two steps change no weight.
static int train(Rank *r, void *training, Error *e) {
  Training *t = training;
  DataSource source;
  LoaderConfig data = setup_loader(&t->recipe, &t->config, 0, &source);
  StepResult result;
  Kept kept = {0};
  data.sources = &t->source;
  int code = rank_load(r, t->job, e);
  if (!code) rank_initialise(r);
  if (!code) code = rank_open_data(r, &data, 0, e);
  if (!code && t->plan == GO_BACK) keep(r->state, &kept);
  Executor *own = r->train, *other = NULL;
  if (!code && t->plan == HARM_BEHIND_ANOTHER)
    code = executor_create(job_train(t->job)->program[0], r->state, r->queue, r->world, t->job->run.seed, &other, e);
  for (int64_t step = 1; step <= STEPS && !code; step++) {
    if (step == STEPS && t->plan == GO_BACK) put_back(r->state, &kept);
    if (step == STEPS && t->plan >= HARM) harm(r->state);
    if (other) r->train = step == STEPS - 1 ? other : own;
    code = rank_step(r, step, t->plan != GO_BACK && step < STEPS ? 0 : 1e-2, &result, e);
    if (!code && t->plan < HARM) code = check_copies(t, r->state, e);
    if (!r->rank) t->skipped += result.skipped;
  }
  r->train = own;
  executor_destroy(other);
  if (!r->rank) t->loss = result.loss;
  return code;
}

static double loss_of(const Setting *setting, Plan plan) {
  Training t;
  training_open(&t, setting, plan);
  error = (Error){0};
  if (session_run(t.session, train, &t, &error)) fail_msg("%s: %s", setting->keys, error.message);
  if (setting->skips != (t.skipped > 0)) fail_msg("%s: %d steps were skipped", setting->keys, t.skipped);
  training_close(&t);
  return t.loss;
}

static void weights_that_are_put_back_are_read(void **state) {
  for (int i = 0; i < SETTINGS; i += test_tier() < 2 ? 2 : 1) {
    double back = loss_of(&settings[i], GO_BACK), stayed = loss_of(&settings[i], STAY);
    if (!strstr(settings[i].keys, "delay") && (!(back > 0) || back != stayed)) // that reads older weights
      fail_msg("%s: a step on the weights as they were has loss %.17g, and one on weights that never changed %.17g",
               settings[i].keys, back, stayed);
  }
}

static void fresh_copies_are_passed_over(void **state) {
  for (int i = 0; i < 2; i++) {
    static const Setting two[] = {{"precision=bf16", 1, 0}, {"precision=bf16 optimizer.delay=1", 0, 0}};
    double normal = loss_of(&two[i], STAY), harmed = loss_of(&two[i], HARM);
    if (two[i].written == (harmed == normal)) fail_msg("%s: %.17g and %.17g", two[i].keys, normal, harmed);
  }
}

// Who has run a step last is who knows what the Copies are.
static void other_programs_make_copies_stale(void **state) {
  static const Setting setting = {"precision=bf16", 1, 0};
  double normal = loss_of(&setting, STAY), other = loss_of(&setting, HARM_BEHIND_ANOTHER);
  if (normal != other) fail_msg("%.17g, and after another executor %.17g", normal, other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(weights_that_are_put_back_are_read),
                                     cmocka_unit_test(fresh_copies_are_passed_over),
                                     cmocka_unit_test(other_programs_make_copies_stale)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
