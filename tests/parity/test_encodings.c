// tier 2; rooms ir checkpoint comm train; numbers
// A row of encodings.def that only this test asks for: moments in 4 bits, two to a stored byte, in blocks of 128. Three
// steps in several layouts, with ranks that are threads or processes over net, give one rank's numbers; a run that is
// resumed gives those of one that was not.
#include "corpora.h"
#include "parity.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "ir/encoding.h"
#include "runtime/state_tensors.h"
#include "tier.h"
#include "train/save.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of these first
#include <cmocka.h>

enum { STEPS = 3, SAVED = 2, MOST_RANKS = 8 };

// Steps after `from` of a job; after the second and the third each rank writes its part of a checkpoint.
typedef struct Trial {
  const Job *job;
  const char *corpus, *dir;
  char source[160]; // the checkpoint that it begins with; "": at the beginning
  int64_t from;
  double *loss, *norm; // (STEPS) written by rank 0
} Trial;

static int save(Rank *r, const Trial *t, int64_t step, Error *error) {
  CheckpointTensor *tensors;
  int code = r->rank == 0 ? save_begin(t->dir, step, error) : PLAIT_OK;
  if (!code) code = rank_barrier(r, error);
  if (code) return code;
  int count = state_tensors(r->state, variable_is_saved, &tensors);
  code = save_part(t->dir, step, r->rank, tensors, count, error);
  free(tensors);
  if (!code) code = rank_barrier(r, error);
  SaveCommit commit = {.dir = t->dir, .step = step, .parts = t->job->options.parallel.mesh.ranks};
  if (!code && r->rank == 0) code = save_commit(&commit, error);
  return code ? code : rank_barrier(r, error);
}

static int begin(Rank *r, const Trial *t, Error *error) {
  int code = rank_load(r, t->job, error);
  if (code) return code;
  rank_initialise(r);
  Checkpoint *checkpoint = NULL;
  if (*t->source) code = checkpoint_open(&checkpoint, t->source, error);
  if (!code && checkpoint) code = save_load(r, checkpoint, error);
  checkpoint_close(checkpoint);
  DataSource source = {t->corpus, 1};
  LoaderConfig data = {.sources = &source, .source_count = 1, .seq_len = PARITY_SEQ, .document_mask = 1,
                       .vocab_size = LLAMA_VOCAB, .seed = 99, .prefetch_steps = 2};
  return code ? code : rank_open_data(r, &data, t->from, error);
}

static int train(Rank *r, void *context, Error *error) {
  const Trial *t = context;
  StepResult result;
  int code = begin(r, t, error);
  for (int64_t step = t->from + 1; step <= STEPS && !code; step++) {
    code = rank_step(r, step, 1e-2, &result, error);
    if (r->rank == 0) t->loss[step - 1] = result.loss, t->norm[step - 1] = result.grad_norm;
    if (!code && step >= SAVED) code = save(r, t, step, error);
  }
  return code;
}

static void by_threads(Trial *t) {
  Session *session;
  Error error = {0};
  int code = session_open(&(SessionOptions){.ranks = t->job->options.parallel.mesh.ranks}, &session, &error);
  if (!code) code = session_run(session, train, t, &error);
  if (code) fail_msg("%s", error.message);
  session_close(session);
}

static int as_process(Trial *t, int rank, int ranks, int port) {
  NetOptions options = {rank, ranks, "127.0.0.1", port, "test_encodings", 600, test_seconds(60)};
  PlaitWorld *world;
  PlaitComm *comm;
  Session *session;
  Error error = {0};
  int code = net_world_create(&options, &world, &error);
  if (!code) code = plait_comm_world(world, rank, &comm, &error);
  if (!code) code = session_open(&(SessionOptions){.comm = comm}, &session, &error);
  if (!code) code = session_run(session, train, t, &error);
  if (code) return printf("rank %d: %s\n", rank, error.message), 1;
  session_close(session);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return 0;
}

static void by_net(Trial *t) {
  static int worlds;
  int ranks = t->job->options.parallel.mesh.ranks, port = 12000 + (getpid() * 40 + 20 * worlds++) % 8000, failed = 0;
  pid_t child[MOST_RANKS];
  fflush(stdout);
  for (int r = 0; r < ranks; r++) {
    if ((child[r] = fork())) continue;
    alarm((unsigned)test_seconds(120));
    int status = as_process(t, r, ranks, port);
    fflush(stdout);
    _exit(status);
  }
  for (int r = 0; r < ranks; r++) {
    int status = 0;
    waitpid(child[r], &status, 0);
    failed += status != 0;
  }
  assert_int_equal(failed, 0);
}

// Whole tensors of a checkpoint ---------------------------------------------------------------------------------------

static Checkpoint *open_step(const char *dir, int step) {
  char path[200];
  Checkpoint *checkpoint;
  Error error = {0};
  snprintf(path, sizeof path, "%s/step-%d", dir, step);
  if (checkpoint_open(&checkpoint, path, &error)) fail_msg("%s", error.message);
  return checkpoint;
}

static double *whole(Checkpoint *c, const CheckpointEntry *e, int64_t *elements) {
  int64_t zero[BOX_MAX_RANK] = {0};
  Error error = {0};
  *elements = 1;
  for (int d = 0; d < e->rank; d++) *elements *= e->global[d];
  double *x = calloc((size_t)*elements, sizeof *x);
  if (checkpoint_read_box(c, e->name, zero, e->global, DTYPE_F64, x, &error)) fail_msg("%s", error.message);
  return x;
}

// The widest difference of an element, of its tensor's largest.
static double furthest(const char *one, const char *other, int step) {
  Checkpoint *a = open_step(one, step), *b = open_step(other, step);
  double worst = 0;
  assert_int_equal(checkpoint_count(a), checkpoint_count(b));
  for (int i = 0; i < checkpoint_count(a); i++) {
    const CheckpointEntry *e = checkpoint_entry(a, i), *f = checkpoint_find(b, e->name);
    int64_t n, m;
    assert_non_null(f);
    double *x = whole(a, e, &n), *y = whole(b, f, &m), most = 0, apart = 0;
    assert_int_equal(n, m);
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(x[k])), apart = fmax(apart, fabs(x[k] - y[k]));
    if (most > 0) worst = fmax(worst, apart / most);
    free(x);
    free(y);
  }
  checkpoint_close(a);
  checkpoint_close(b);
  return worst;
}

// Layouts -------------------------------------------------------------------------------------------------------------

static void widen(ModelConfig *config) { // so that matrices have whole blocks in each row
  config->ffn = 384;
  model_measure(config);
}

// Not GPT: its bias of keys, which softmax does not see, has a gradient that is nothing but rounding.
static const struct { ParityCase one, layout[4]; } groups[] = {
#define CASE(...) {.model = "llama", .precision = DTYPE_F64, .global = 24, .moments = ENCODING_4BIT, __VA_ARGS__}
    {CASE(.name = "one rank", .dp = 1, .tp = 1, .pp = 1, .micro = 12),
     {CASE(.name = "dp 3 zero 2", .dp = 3, .tp = 1, .pp = 1, .micro = 4, .zero = 2),
      CASE(.name = "tp 2 pp 2", .dp = 1, .tp = 2, .pp = 2, .micro = 4),
      CASE(.name = "dp 8 zero 3", .dp = 8, .tp = 1, .pp = 1, .micro = 3, .zero = 3),
      CASE(.name = "dp 2 pp 2 zero 1", .dp = 2, .tp = 1, .pp = 2, .micro = 3, .zero = 1)}},
    {CASE(.name = "one rank, wide", .dp = 1, .tp = 1, .pp = 1, .micro = 12, .config = widen),
     {CASE(.name = "wide dp 3 zero 1", .dp = 3, .tp = 1, .pp = 1, .micro = 4, .zero = 1, .config = widen),
      CASE(.name = "wide tp 2", .dp = 1, .tp = 2, .pp = 1, .micro = 6, .config = widen),
      CASE(.name = "wide dp 2 tp 2 zero 2", .dp = 2, .tp = 2, .pp = 1, .micro = 3, .zero = 2, .config = widen),
      CASE(.name = "wide dp 4 zero 3", .dp = 4, .tp = 1, .pp = 1, .micro = 3, .zero = 3, .config = widen)}},
};
enum { GROUPS = sizeof groups / sizeof *groups };

static char root[128];
static double *shared; // (2, STEPS) losses and norms: of processes, too

// Runs a case into a folder of its own; from 0, or from the checkpoint of another folder. Losses and norms go to
// `told` (2, STEPS).
static void run(const ParityCase *c, const char *folder, const char *from, int net, double *told) {
  Job *job;
  Error error = {0};
  char dir[160];
  if (parity_job(c, &job, &error)) fail_msg("%s: %s", c->name, error.message);
  snprintf(dir, sizeof dir, "%s/%s", root, folder);
  Trial t = {.job = job, .corpus = corpus_for(c->model, CORPUS_RAGGED), .dir = dir, .loss = shared,
             .norm = shared + STEPS};
  if (from) {
    snprintf(t.source, sizeof t.source, "%s/%s/step-%d", root, from, SAVED);
    t.from = SAVED;
  }
  memset(shared, 0, sizeof *shared * 2 * STEPS);
  if (net) by_net(&t);
  else by_threads(&t);
  memcpy(told, shared, sizeof *shared * 2 * STEPS);
  job_destroy(job);
}

static double apart(const char *a, const char *b) {
  char one[160], other[160];
  snprintf(one, sizeof one, "%s/%s", root, a);
  snprintf(other, sizeof other, "%s/%s", root, b);
  return furthest(one, other, STEPS);
}

static void near(const char *name, const double *a, const double *b, int from) {
  for (int k = 0; k < 2; k++)
    for (int i = from; i < STEPS; i++)
      if (!(fabs(a[k * STEPS + i] - b[k * STEPS + i]) <= 1e-9 * fabs(b[k * STEPS + i])))
        fail_msg("%s: step %d: %.17g is not %.17g", name, i + 1, a[k * STEPS + i], b[k * STEPS + i]);
}

static void layouts_have_one_ranks_numbers(void **state) {
  for (int g = 0; g < GROUPS; g++) {
    double one[2 * STEPS], told[2 * STEPS], again[2 * STEPS];
    run(&groups[g].one, "one", NULL, 0, one);
    assert_true(one[0] > 1 && one[0] != one[STEPS - 1]);
    for (int i = 0; i < 4; i++) {
      const ParityCase *c = &groups[g].layout[i];
      if (!parity_wanted(c)) continue;
      run(c, "threads", NULL, 0, told);
      near(c->name, told, one, 0);
      double d = apart("threads", "one");
      print_message("%s: %.1e\n", c->name, d);
      assert_true(d < 1e-8);
      run(c, "net", NULL, 1, again); // the same bits
      assert_memory_equal(told, again, sizeof told);
      assert_true(apart("net", "threads") == 0);
      run(c, "resumed", "threads", i % 2, again); // where it was saved, to the bit
      for (int k = SAVED; k < STEPS; k++) assert_true(told[k] == again[k] && told[STEPS + k] == again[STEPS + k]);
      assert_true(apart("resumed", "threads") == 0);
      run(&groups[g].one, "resumed", "threads", 0, again); // and by one rank
      near(c->name, again, one, SAVED);
      assert_true(apart("resumed", "one") < 1e-8);
    }
  }
}

// Two to a byte: in the memory plan, and so in what State allocates.
static void two_lie_in_a_byte(void **state) {
  int64_t optimizer[2];
  for (int k = 0; k < 2; k++) {
    ParityCase c = groups[1].one;
    Job *job;
    Error error = {0};
    c.moments = k ? ENCODING_4BIT : ENCODING_8BIT;
    if (parity_job(&c, &job, &error)) fail_msg("%s", error.message);
    const Program *p = job_train(job)->program[0];
    int encoded = 0;
    for (int i = 0; i < p->graph->variable.count; i++) {
      const Variable *v = &p->graph->variable.data[i];
      int is = v->encoding == c.moments || v->encoding == encodings[c.moments].squares;
      if (!is) continue;
      encoded++;
      assert_int_equal(variable_bytes(v, -1, 1001), k ? 501 : 1001);
      const Variable *scales = &p->graph->variable.data[variable_part(p->graph, i)];
      Shape shape = encoding_scales_shape(v->encoding, &v->shape);
      assert_memory_equal(scales->shape.size, shape.size, sizeof *shape.size * (size_t)shape.rank);
    }
    assert_true(encoded >= 8);
    optimizer[k] = p->memory.optimizer;
    job_destroy(job);
  }
  print_message("moments: %lld bytes in 8 bits, %lld in 4\n", (long long)optimizer[0], (long long)optimizer[1]);
  assert_true(optimizer[1] < 3 * optimizer[0] / 4); // vectors have theirs in fp64
}

static int make(void **state) {
  const char *tmp = getenv("TMPDIR");
  snprintf(root, sizeof root, "%s/encodings-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  shared = mmap(NULL, sizeof *shared * 2 * STEPS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return !mkdtemp(root) || shared == MAP_FAILED || corpora_make(state);
}

static int unmake(void **state) {
  char command[160];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  return system(command) || corpora_remove(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two_lie_in_a_byte),
                                     cmocka_unit_test(layouts_have_one_ranks_numbers)};
  return cmocka_run_group_tests(tests, make, unmake);
}
