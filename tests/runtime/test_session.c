// tier 1; rooms program; threads numbers
// Sessions: tasks on all ranks, the first failure and who caused it; and what elasticity will do: closing, opening
// again with fewer ranks, and continuing with the very losses of a run that nothing happened to.
#include "runtime/session.h"
#include "data/synthetic.h"
#include "train/save.h"
#include "setup/setup.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

static Session *open_local(int ranks, int64_t epoch) {
  Session *s;
  SUCCEED(session_open(&(SessionOptions){.ranks = ranks, .epoch = epoch}, &s, &error));
  return s;
}

// ---- tasks ---------------------------------------------------------------------------------------------------------

typedef struct Sum { _Atomic int64_t calls; int64_t of_ranks[8]; } Sum;

static int sum_ranks(Rank *r, void *context, Error *e) {
  Sum *sum = context;
  int64_t x = r->rank + 1;
  atomic_fetch_add(&sum->calls, 1);
  if (plait_all_reduce(r->world, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_INT64, PLAIT_SUM, NULL, NULL))
    return error_set(e, PLAIT_FAILED, "sum");
  sum->of_ranks[r->rank] = x;
  return PLAIT_OK;
}

static void tasks_run_on_all_ranks(void **state) {
  for (int n = 1; n <= 8; n++) {
    Session *s = open_local(n, 0);
    assert_int_equal(session_ranks(s), n);
    assert_true(session_is_local(s));
    for (int time = 1; time <= 20; time++) { // each starts when the one before has ended everywhere
      Sum sum = {0};
      SUCCEED(session_run(s, sum_ranks, &sum, &error));
      assert_int_equal(sum.calls, n);
      for (int r = 0; r < n; r++) assert_int_equal(sum.of_ranks[r], n * (n + 1) / 2);
    }
    assert_int_equal(session_culprit(s), -1);
    assert_null(session_rank(s, n));
    session_close(s);
  }
}

// ---- tasks that do not wait for each other

enum { QUEUED = 200 };
typedef struct Queued {
  int64_t number;
  _Atomic int *done;
  const _Atomic int *gate;
  int fails_on;
} Queued; // done: (ranks)

// Rank 1 stands at the gate; the others pass. Each sees its own tasks in their order.
static int pass(Rank *r, void *context, Error *e) {
  Queued *q = context;
  while (r->rank == 1 && q->gate && !atomic_load(q->gate)) usleep(100);
  if (atomic_load(&q->done[r->rank]) != q->number) return error_set(e, PLAIT_FAILED, "out of order");
  atomic_store(&q->done[r->rank], (int)q->number + 1);
  return r->rank == q->fails_on ? error_set(e, PLAIT_NO_MEMORY, "full") : PLAIT_OK;
}

static void ranks_run_ahead(void **state) {
  _Atomic int done[2] = {0}, gate = 0;
  static Queued q[QUEUED];
  Session *s = open_local(2, 0);
  int64_t last = 0;
  for (int i = 0; i < 50; i++) {
    q[i] = (Queued){i, done, &gate, -1};
    last = session_begin(s, pass, &q[i]);
  }
  q[50] = (Queued){50, done, NULL, -1};
  SUCCEED(session_run_on(s, 0, pass, &q[50], &error)); // while rank 1 waits
  assert_int_equal(done[0], 51);
  assert_int_equal(done[1], 0);
  atomic_store(&gate, 1);
  SUCCEED(session_wait(s, last, &error));
  assert_int_equal(done[1], 50);
  atomic_store(&done[1], 51);
  for (int i = 51; i < QUEUED; i++) { // more than are kept
    q[i] = (Queued){i, done, NULL, i == QUEUED - 3 ? 1 : -1};
    last = session_begin(s, pass, &q[i]);
  }
  assert_int_equal(session_wait(s, last, &error), PLAIT_NO_MEMORY);
  assert_string_equal(error.message, "rank 1: full");
  assert_int_equal(done[1], QUEUED - 2); // nothing after its failure
  session_close(s);
}

typedef struct Injected { int rank, named; const char *message; } Injected; // named: the rank in its sentence; -1: none

// One rank fails while the others wait for it.
static int fail_one(Rank *r, void *context, Error *e) {
  const Injected *f = context;
  if (r->rank == f->rank)
    return error_set_about(e, PLAIT_NO_MEMORY, &(ErrorFacts){.rank = error_rank(f->named, NULL)}, "%s", f->message);
  int code = rank_barrier(r, e);
  return code ? code : rank_barrier(r, e);
}

static void the_first_failure_is_kept(void **state) {
  static const struct { int ranks, rank, named; const char *message, *said;
  } table[] = {{4, 2, -1, "there is no memory left", "rank 2: there is no memory left"},
               {4, 0, 1, "step 3: layer 1, rank 1 (dp 1): infinite",
                "step 3: layer 1, rank 1 (dp 1): infinite"}, // it names a rank already
               {2, 1, -1, "a rank 0 of something", "rank 1: a rank 0 of something"}, // nobody reads the words
               {1, 0, -1, "there is no memory left", "there is no memory left"}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    Session *s = open_local(table[i].ranks, 0);
    Injected fault = {table[i].rank, table[i].named, table[i].message};
    for (int time = 0; time < 2; time++) { // and stays: nothing runs any more
      Sum sum = {0};
      Error e = {0};
      int code = time ? session_run(s, sum_ranks, &sum, &e) : session_run(s, fail_one, &fault, &e);
      assert_int_equal(code, PLAIT_NO_MEMORY);
      assert_string_equal(e.message, table[i].said);
      assert_int_equal(e.rank.known, table[i].ranks > 1);
      assert_int_equal(e.rank.rank, table[i].named >= 0 ? table[i].named : table[i].rank);
      assert_int_equal(e.blamed.rank, table[i].rank);
      assert_int_equal(session_culprit(s), table[i].rank);
      assert_int_equal(sum.calls, 0);
    }
    session_close(s);
  }
}

typedef struct Codes { int given, got[4]; } Codes;

static int fail_with(Rank *r, void *context, Error *e) {
  Codes *c = context;
  if (r->rank == 1) return error_set(e, c->given, "run: cannot be written: No space left on device");
  return c->got[r->rank] = rank_barrier(r, e);
}

// A launcher asks whichever rank it hears first whether another try would end in the same way.
static void others_know_of_a_full_disk(void **state) {
  static const int given[] = {PLAIT_UNWRITABLE, PLAIT_NO_MEMORY, PLAIT_FAILED};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    Session *s = open_local(4, 0);
    Codes codes = {.given = given[i]};
    Error e = {0};
    assert_int_equal(session_run(s, fail_with, &codes, &e), given[i]);
    for (int r = 0; r < 4; r++)
      if (r != 1) assert_int_equal(codes.got[r], i ? PLAIT_FAILED : PLAIT_UNWRITABLE);
    session_close(s);
  }
}

static void too_many_ranks_are_refused(void **state) {
  Session *s = NULL;
  Error e = {0};
  assert_int_equal(session_open(&(SessionOptions){.ranks = 0}, &s, &e), PLAIT_BAD_INPUT);
  assert_null(s);
}

// One rank of a world that somebody else has made: it runs in the caller's thread.
static int note_thread(Rank *r, void *thread, Error *e) {
  *(pthread_t *)thread = pthread_self();
  return PLAIT_OK;
}

static void a_joined_world(void **state) {
  PlaitWorld *world;
  PlaitComm *comm;
  Session *s;
  pthread_t thread;
  SUCCEED(plait_world_local_create(1, &world, &error));
  SUCCEED(plait_comm_world(world, 0, &comm, &error));
  SUCCEED(session_open(&(SessionOptions){.comm = comm}, &s, &error));
  assert_ptr_equal(session_world(s), world);
  SUCCEED(session_run(s, note_thread, &thread, &error));
  assert_true(pthread_equal(thread, pthread_self()));
  session_close(s);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
}

// ---- membership ----------------------------------------------------------------------------------------------------

enum { STEPS = 6, VOCAB = 61 };
static char folder[64] = "/tmp/plait-session-XXXXXX";

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 24, \"n_head\": 4, \"n_positions\": 20, \"n_inner\": 40, "
    "\"vocab_size\": 61,"
    " \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"attn_pdrop\": 0.1}";

static char *in_folder(const char *name) { return xformat("%s/%s", folder, name); }

static int make_folder(void **state) {
  if (!mkdtemp(folder)) return -1;
  char *prefix = in_folder("corpus");
  error = (Error){0};
  int code = synthetic_corpus(prefix, 60, 1, 45, VOCAB, 7, &error);
  free(prefix);
  return code;
}

static int remove_folder(void **state) {
  char *command = xformat("rm -rf %s", folder);
  int code = system(command);
  free(command);
  return code;
}

// A run: what is compiled for one mesh.
typedef struct Training {
  Recipe recipe;
  ModelConfig config;
  Job *job;
  Session *session;
  DataSource source;
  char *prefix, *checkpoints;
  int64_t first, last; // steps of the next task
  double loss[STEPS + 1], norm[STEPS + 1];
  Checkpoint *from;
  SaveExtra extra;
} Training;

static void training_open(Training *t, char *mesh, int64_t epoch) {
  *t = (Training){.prefix = in_folder("corpus"), .checkpoints = in_folder("checkpoints")};
  char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 18}, batch: {global: 12, micro: 1}, precision: "
                "fp64, run: {dir: /none}}";
  char *keys[8], *word = xstrdup(mesh), *rest = word;
  int count = 0;
  while ((keys[count] = strtok_r(rest, " ", &rest))) count++;
  SUCCEED(recipe_parse("test", text, strlen(text), "/", count, keys, &t->recipe, &error));
  SUCCEED(model_config_parse(&t->config, model, strlen(model), "model", &error));
  SUCCEED(setup_job(&t->recipe, &t->config, &(RunSetting){.threads = 1}, &t->job, &error));
  t->session = open_local(recipe_rank_count(&t->recipe), epoch);
  t->source = (DataSource){t->prefix, 1};
  SUCCEED(save_extra_create(&t->recipe, &t->config, &t->extra, &error));
  free(word);
}

static void training_close(Training *t) {
  session_close(t->session);
  job_destroy(t->job);
  checkpoint_close(t->from);
  save_extra_free(&t->extra);
  recipe_free(&t->recipe);
  model_config_free(&t->config);
  free(t->prefix);
  free(t->checkpoints);
}

static int start(Rank *r, void *training, Error *e) {
  Training *t = training;
  DataSource source;
  LoaderConfig data = setup_loader(&t->recipe, &t->config, 0, &source);
  data.sources = &t->source;
  int code = rank_load(r, t->job, e);
  if (!code && !t->from) rank_initialise(r);
  if (!code && t->from) code = save_load(r, t->from, e);
  return code ? code : rank_open_data(r, &data, t->first - 1, e);
}

static int train(Rank *r, void *training, Error *e) {
  Training *t = training;
  int code = PLAIT_OK;
  for (int64_t step = t->first; step <= t->last && !code; step++) {
    StepResult result;
    code = rank_step(r, step, 1e-2, &result, e);
    if (r->rank == 0) t->loss[step] = result.loss, t->norm[step] = result.grad_norm;
  }
  return code;
}

static int save(Rank *r, void *training, Error *e) {
  Training *t = training;
  SaveExtra extra = t->extra;
  extra.step = t->last;
  return save_checkpoint(r, t->checkpoints, &extra, 0, e);
}

// Steps first … last on a mesh, from the newest checkpoint where first is not 1; keep: saves one after them.
static void run_part(Training *all, char *mesh, int64_t epoch, int64_t first, int64_t last, int keep) {
  Training t;
  training_open(&t, mesh, epoch);
  assert_int_equal(session_epoch(t.session), epoch);
  t.first = first;
  t.last = last;
  if (first > 1) {
    int64_t step;
    char *warnings = NULL;
    assert_int_equal(checkpoint_latest_valid(t.checkpoints, &step, &t.from, &warnings, &error), 1);
    assert_int_equal(step, first - 1);
    free(warnings);
  }
  SUCCEED(session_run(t.session, start, &t, &error));
  SUCCEED(session_run(t.session, train, &t, &error));
  if (keep) SUCCEED(session_run(t.session, save, &t, &error));
  memcpy(all->loss + first, t.loss + first, sizeof(double) * (size_t)(last - first + 1));
  memcpy(all->norm + first, t.norm + first, sizeof(double) * (size_t)(last - first + 1));
  training_close(&t);
}

// A world of 6, closed and formed again with 4, then with 3, then with more: in one process, with one rank's numbers.
static void a_smaller_world_continues(void **state) {
  Training whole = {0}, parts = {0};
  run_part(&whole, "", 0, 1, STEPS, 0);
  run_part(&parts, "mesh.dp=3 mesh.tp=2 parallel.zero=1", 0, 1, 2, 1);
  run_part(&parts, "mesh.dp=2 mesh.pp=2", 1, 3, 3, 1);
  run_part(&parts, "mesh.cp=3 parallel.zero=3", 2, 4, 4, 1);
  run_part(&parts, "mesh.dp=2 mesh.tp=2 mesh.pp=2 parallel.zero=2", 3, 5, STEPS, 1);
  for (int i = 1; i <= STEPS; i++) {
    if (!(fabs(whole.loss[i] - parts.loss[i]) <= 1e-10 * whole.loss[i] &&
          fabs(whole.norm[i] - parts.norm[i]) <= 1e-10 * whole.norm[i]))
      fail_msg("step %d: loss %.17g and norm %.17g, of one rank %.17g and %.17g", i, parts.loss[i], parts.norm[i],
               whole.loss[i], whole.norm[i]);
    assert_true(whole.loss[i] > 1 && whole.norm[i] > 0);
  }
}

// A rank that dies in a step: its session ends with its words, and the next one continues from the checkpoint.
static int die_in_step(Rank *r, void *training, Error *e) {
  StepResult result;
  Training *t = training;
  int code = rank_step(r, t->first, 1e-2, &result, e);
  if (code) return code;
  if (r->rank == 1) return error_set(e, PLAIT_FAILED, "the machine is gone");
  return rank_step(r, t->first + 1, 1e-2, &result, e);
}

static void after_a_failure(void **state) {
  Training whole = {0}, parts = {0}, broken;
  char *checkpoints = in_folder("checkpoints"), *away = in_folder("away");
  assert_int_equal(rename(checkpoints, away), 0); // of the test before
  free(checkpoints);
  free(away);
  run_part(&whole, "", 0, 1, 4, 0);
  run_part(&parts, "mesh.dp=2", 0, 1, 2, 1);
  training_open(&broken, "mesh.dp=4 parallel.zero=2", 1);
  broken.first = 3;
  int64_t step;
  assert_int_equal(checkpoint_latest_valid(broken.checkpoints, &step, &broken.from, NULL, &error), 1);
  SUCCEED(session_run(broken.session, start, &broken, &error));
  Error e = {0};
  assert_int_equal(session_run(broken.session, die_in_step, &broken, &e), PLAIT_FAILED);
  assert_string_equal(e.message, "rank 1: the machine is gone");
  assert_int_equal(session_culprit(broken.session), 1);
  training_close(&broken);
  run_part(&parts, "mesh.dp=3", 2, 3, 4, 1);
  for (int i = 1; i <= 4; i++) assert_true(fabs(whole.loss[i] - parts.loss[i]) <= 1e-10 * whole.loss[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tasks_run_on_all_ranks),
                                     cmocka_unit_test(ranks_run_ahead),
                                     cmocka_unit_test(the_first_failure_is_kept),
                                     cmocka_unit_test(too_many_ranks_are_refused),
                                     cmocka_unit_test(a_joined_world),
                                     cmocka_unit_test(others_know_of_a_full_disk),
                                     cmocka_unit_test(a_smaller_world_continues),
                                     cmocka_unit_test(after_a_failure)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
