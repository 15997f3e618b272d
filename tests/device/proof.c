// Runs small trainings on devices and with options that no recipe asks for.
#include "proof.h"
#include "checkpoint/checkpoint.h"
#include "comm/net.h"
#include "data/synthetic.h"
#include "runtime/session.h"
#include "setup/run_plan.h"
#include "setup/setup.h"
#include "tier.h"
#include "train/save.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of the above first
#include <cmocka.h>

const char *const proof_layouts[4] = {"mesh.dp=2 parallel.zero=1", "mesh.tp=2 mesh.pp=2",
                                      "mesh.dp=2 mesh.cp=2 parallel.zero=3", "mesh.dp=2 mesh.pp=2 parallel.zero=2"};

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, "
    "\"vocab_size\": 61, \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1, "
    "\"attn_pdrop\": 0.1}";
enum { VOCAB = 61 };
static const double LEARNING_RATE = 1e-2;

static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

typedef struct Training {
  const Proof *proof;
  ProofResult *result;
  Recipe recipe;
  ModelConfig config;
  Job *job;
  DataSource source;
  Checkpoint *from;
  SaveExtra extra;
} Training;

static char *prefix; // of the corpus

static void delete_corpus(void) {
  char *command = xformat("rm -f %s.*", prefix);
  if (system(command)) perror(prefix);
  free(command);
}

static const char *corpus(void) {
  if (prefix) return prefix;
  atexit(delete_corpus);
  prefix = xformat("%s/plait-proof-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
  SUCCEED(synthetic_corpus(prefix, 60, 1, 45, VOCAB, 7, &error));
  return prefix;
}

static int compile(Training *t, Error *e) {
  const Proof *p = t->proof;
  RunPlan plan;
  int code = resolve(&t->recipe, &t->config, &(RunSetting){.threads = 1}, &plan, e);
  plan.options.device = p->device ? p->device : device_cpu();
  if (!code && p->set) p->set(&plan.options);
  if (!code) code = job_create(&t->config, &plan.options, &(JobOptions){.threads = 1, .seed = 5}, &t->job, e);
  run_plan_free(&plan);
  return code;
}

static void open_training(Training *t, const Proof *p, ProofResult *result) {
  *t = (Training){.proof = p, .result = result, .source = {corpus(), 1}};
  char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 18}, batch: {global: 12, micro: 1}, precision: "
                "fp32, run: {dir: /none}}";
  char *keys[8], *words = xstrdup(p->keys), *rest = words;
  int count = 0;
  while ((keys[count] = strtok_r(rest, " ", &rest))) count++;
  SUCCEED(recipe_parse("proof", text, strlen(text), "/", count, keys, &t->recipe, &error));
  SUCCEED(model_config_parse(&t->config, model, strlen(model), "model", &error));
  SUCCEED(compile(t, &error));
  SUCCEED(save_extra_create(&t->recipe, &t->config, &t->extra, &error));
  t->extra.step = p->last;
  if (p->first > 1) {
    int64_t step;
    assert_int_equal(checkpoint_latest_valid(p->folder, &step, &t->from, NULL, &error), 1);
    assert_int_equal(step, p->first - 1);
  }
  free(words);
}

static void close_training(Training *t) {
  job_destroy(t->job);
  checkpoint_close(t->from);
  save_extra_free(&t->extra);
  recipe_free(&t->recipe);
  model_config_free(&t->config);
}

// FNV-1a.
static uint64_t digest_of(const State *s) {
  enum { AT_ONCE = 1 << 12 };
  const Graph *g = s->program->graph;
  double piece[AT_ONCE];
  uint64_t digest = 14695981039346656037u;
  for (int v = 0; v < g->variable.count; v++)
    for (ShardBoxes b = state_boxes(s, v, -1); variable_is_saved(&g->variable.data[v]) && shard_next(&b);) {
      BoxPieces pieces = {.whole = b.box, .most = AT_ONCE};
      while (box_next_piece(&pieces)) {
        size_t bytes = (size_t)box_elements(&pieces.piece) * dtype_size(state_dtype(s, v, -1));
        state_read(s, v, -1, &pieces.piece, piece);
        for (size_t i = 0; i < bytes; i++) digest = (digest ^ ((const unsigned char *)piece)[i]) * 1099511628211u;
      }
    }
  return digest;
}

static int train(Rank *r, void *training, Error *e) {
  Training *t = training;
  const Proof *p = t->proof;
  DataSource source;
  LoaderConfig data = setup_loader(&t->recipe, &t->config, 0, &source);
  data.sources = &t->source;
  int code = rank_load(r, t->job, e);
  if (!code && !t->from) rank_initialise(r);
  if (!code && t->from) code = save_load(r, t->from, e);
  if (!code) code = rank_open_data(r, &data, p->first - 1, e);
  for (int step = p->first; step <= p->last && !code; step++) {
    StepResult result;
    code = rank_step(r, step, LEARNING_RATE, &result, e);
    if (!code && !r->rank) t->result->loss[step] = result.loss, t->result->norm[step] = result.grad_norm;
  }
  if (code) return code;
  t->result->digest[r->rank] = digest_of(r->state);
  SaveExtra extra = t->extra;
  return p->folder && p->first == 1 ? save_checkpoint(r, p->folder, &extra, 0, e) : PLAIT_OK;
}

static int run_session(Training *t, const SessionOptions *options, Error *e) {
  Session *session;
  int code = session_open(options, &session, e);
  if (code) return code;
  code = session_run(session, train, t, e);
  session_close(session);
  return code;
}

static int join(Training *t, int rank, int ranks, int port) {
  PlaitWorld *world;
  PlaitComm *comm;
  Error e = {0};
  NetOptions options = {rank, ranks, "127.0.0.1", port, "proof", 600, test_seconds(60)};
  alarm((unsigned)test_seconds(60));
  int code = net_world_create(&options, &world, &e);
  if (!code) code = plait_comm_world(world, rank, &comm, &e);
  if (!code) code = run_session(t, &(SessionOptions){.comm = comm}, &e);
  if (code) printf("rank %d: %s\n", rank, e.message);
  fflush(stdout);
  if (code) return 1;
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return 0;
}

static void run_processes(Training *t, int ranks) {
  static int worlds;
  int port = 22000 + (getpid() * 40 + 20 * worlds++) % 8000, failed = 0;
  pid_t child[PROOF_RANKS];
  fflush(stdout);
  for (int r = 0; r < ranks; r++)
    if (!(child[r] = fork())) _exit(join(t, r, ranks, port));
  for (int r = 0; r < ranks; r++) {
    int status = 1;
    waitpid(child[r], &status, 0);
    failed += status != 0;
  }
  if (failed) fail_msg("%s: %d of %d processes failed", t->proof->keys, failed, ranks);
}

static void run_apart(Training *t, int ranks) {
  int status = 1;
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    Error e = {0};
    alarm((unsigned)test_seconds(60));
    if (run_session(t, &(SessionOptions){.ranks = ranks}, &e)) printf("%s\n", e.message);
    fflush(stdout);
    _exit(e.code != PLAIT_OK);
  }
  waitpid(child, &status, 0);
  if (status) fail_msg("%s: the process failed", t->proof->keys);
}

const ProofResult *proof_run(const Proof *p) {
  ProofResult *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Training t;
  open_training(&t, p, result);
  int ranks = recipe_rank_count(&t.recipe);
  assert_true(ranks <= PROOF_RANKS);
  if (p->net) run_processes(&t, ranks);
  else if (p->apart) run_apart(&t, ranks);
  else SUCCEED(run_session(&t, &(SessionOptions){.ranks = ranks}, &error));
  close_training(&t);
  return result;
}

static int same(double a, double b, double rounding) { return fabs(a - b) <= rounding * fabs(b); }

// Of the steps of a run: bits of another one, and one rank's numbers.
static void compare(const Proof *p, const ProofResult *r, const ProofResult *plain, const ProofResult *one) {
  for (int s = p->first; s <= p->last; s++) {
    if (r->loss[s] != plain->loss[s] || r->norm[s] != plain->norm[s])
      fail_msg("%s%s, step %d: loss %.17g and norm %.17g, on the CPU %.17g and %.17g", p->keys, p->net ? ", net" : "",
               s, r->loss[s], r->norm[s], plain->loss[s], plain->norm[s]);
    assert_true(same(r->loss[s], one->loss[s], 1e-5) && same(r->norm[s], one->norm[s], 1e-3));
  }
  for (int i = 0; i < PROOF_RANKS && p->last == PROOF_STEPS; i++)
    if (r->digest[i] != plain->digest[i])
      fail_msg("%s%s: rank %d has other bits than on the CPU", p->keys, p->net ? ", net" : "", i);
}

static void delete(const char *folder) {
  char *command = xformat("rm -rf %s", folder);
  assert_int_equal(system(command), 0);
  free(command);
}

static void prove(const Proof *what, const char *keys, int net, const ProofResult *plain, const ProofResult *one) {
  char *folder = xformat("%s-checkpoints", corpus());
  Proof p = *what, ordinary = {.keys = keys, .first = PROOF_STEPS, .last = PROOF_STEPS, .folder = folder};
  p.keys = keys;
  p.net = net;
  p.first = 1;
  p.last = PROOF_STEPS;
  compare(&p, proof_run(&p), plain, one);
  p.folder = folder;
  p.last = PROOF_STEPS - 1;
  compare(&p, proof_run(&p), plain, one);
  p.first = p.last = PROOF_STEPS;
  compare(&p, proof_run(&p), plain, one);
  compare(&ordinary, proof_run(&ordinary), plain, one);
  delete(folder);
  free(folder);
}

void proof_of(const Proof *what) {
  Proof all = {.keys = "", .first = 1, .last = PROOF_STEPS};
  const ProofResult *one = proof_run(&all);
  assert_true(one->loss[PROOF_STEPS] > 1 && one->loss[PROOF_STEPS] < one->loss[1] && one->norm[1] > 0);
  for (int i = 0; i < (test_tier() == 1 ? 1 : 4); i++) {
    all.keys = proof_layouts[i];
    const ProofResult *plain = proof_run(&all);
    for (int net = 0; net < 2; net++) prove(what, proof_layouts[i], net, plain, one);
  }
}
