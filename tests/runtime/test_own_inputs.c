// tier 1; rooms ir data compile program; threads numbers
// What a step reads is a table's rows, or a graph's own inputs: numbers of fp32 from a source of samples, of different
// lengths, one of them filled late. And a job of a role that plait does not have shares the Variables of training.
#include "own_inputs.h"
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

static char folder[64] = "/tmp/plait-own-inputs-XXXXXX";

static int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }

static int remove_folder(void **state) {
  Error unread = {0};
  return folder_remove(folder, &unread);
}

static void train(OwnRun *run) {
  Session *session;
  SUCCEED(session_open(&(SessionOptions){.ranks = recipe_rank_count(&run->recipe)}, &session, &error));
  SUCCEED(session_run(session, own_train, run, &error));
  session_close(session);
}

static OwnRun run_of(const char *keys, bool late) {
  OwnRun run;
  SUCCEED(own_open(&run, keys, late, &error));
  train(&run);
  own_close(&run);
  return run;
}

static void same(const char *keys, const OwnRun *a, const OwnRun *b, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; i++)
    if (!(fabs(a->loss[i] - b->loss[i]) <= 1e-6 * b->loss[i] && fabs(a->norm[i] - b->norm[i]) <= 1e-6 * b->norm[i] &&
          fabs(a->size[i] - b->size[i]) <= 1e-6 * b->size[i]))
      fail_msg("%s, step %lld: loss %.9g, norm %.9g, size %.9g; of one rank %.9g, %.9g, %.9g", keys, (long long)i,
               a->loss[i], a->norm[i], a->size[i], b->loss[i], b->norm[i], b->size[i]);
}

static const char *const layouts[] = {"mesh.dp=2 parallel.zero=1", "mesh.dp=2 mesh.tp=2 layout.name=tensor",
                                      "mesh.pp=2 mesh.dp=2 batch.micro=1", "mesh.dp=4 parallel.zero=3"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

// The one rank's numbers are right: the first loss and the size of y, by hand, with the weights that it began with.
typedef struct Weights { float first[OWN_HIDDEN * OWN_IN], second[OWN_OUT * OWN_HIDDEN]; double size; } Weights;

static int read_weights(Rank *r, void *weights, Error *e) {
  Weights *w = weights;
  const Graph *g = r->state->program->graph;
  int first = graph_find_variable(g, "first"), second = graph_find_variable(g, "second");
  state_read(r->state, first, -1, &(Box){.rank = 2, .local = {OWN_HIDDEN, OWN_IN}}, w->first);
  state_read(r->state, second, -1, &(Box){.rank = 2, .local = {OWN_OUT, OWN_HIDDEN}}, w->second);
  return own_size(r, &w->size, e);
}

static void the_numbers_of_one_rank(void **state) {
  OwnRun run;
  Session *session;
  Weights w;
  SUCCEED(own_open(&run, "mesh.dp=1", false, &error));
  run.last = 0;
  SUCCEED(session_open(&(SessionOptions){.ranks = 1}, &session, &error));
  SUCCEED(session_run(session, own_train, &run, &error));
  SUCCEED(session_run(session, read_weights, &w, &error));
  session_close(session);
  own_close(&run);
  double loss = 0, size = 0;
  for (int s = 0; s < OWN_SAMPLES; s++)
    for (int o = 0; o < OWN_OUT; o++) {
      double y = 0;
      for (int h = 0; h < OWN_HIDDEN; h++) {
        double u = 0;
        for (int i = 0; i < OWN_IN; i++) u += (double)w.first[h * OWN_IN + i] * (double)own_number(s, OWN_X, i);
        y += (double)w.second[o * OWN_HIDDEN + h] * 0.5 * u * (1 + tanh(sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
      }
      double off = y - (double)own_number(s, OWN_TARGET, o);
      size += y * y / (OWN_SAMPLES * OWN_OUT);
      loss += off * off / (OWN_SAMPLES * OWN_OUT);
    }
  OwnRun one = run_of("mesh.dp=1", false);
  assert_true(fabs(w.size - size) <= 1e-5 * size && fabs(one.loss[1] - loss) <= 1e-5 * loss);
  assert_true(fabs(one.size[1] - size) > 1e-3 * size && one.loss[1] > one.loss[2] && one.loss[2] > 0); // it learns
}

static void layouts_are_as_one_rank(void **state) {
  OwnRun one = run_of("mesh.dp=1", false);
  for (int i = 0; i < LAYOUTS; i++) {
    OwnRun run = run_of(layouts[i], false);
    same(layouts[i], &run, &one, 1, OWN_STEPS);
    assert_int_equal(run.waits, 0);
  }
}

// The target is made only when an instruction of the forward pass stands waiting for it.
static void late_is_as_before(void **state) {
  OwnRun one = run_of("mesh.dp=1", false);
  for (int i = -1; i < LAYOUTS; i++) {
    const char *keys = i < 0 ? "mesh.dp=1" : layouts[i];
    OwnRun run = run_of(keys, true);
    same(keys, &run, &one, 1, OWN_STEPS);
    assert_int_equal(run.waits, strstr(keys, "pp=2") ? 0 : OWN_STEPS); // rank 0 is of the first stage
  }
}

static void they_continue_from_a_checkpoint(void **state) {
  OwnRun one = run_of("mesh.dp=1", false);
  for (int i = 0; i < LAYOUTS; i++) {
    OwnRun run;
    const char *then = layouts[(i + 1) % LAYOUTS];
    char *checkpoints = xformat("%s/%d", folder, i);
    SUCCEED(own_open(&run, layouts[i], false, &error));
    run.checkpoints = checkpoints;
    run.last = 2;
    train(&run);
    own_close(&run);
    SUCCEED(own_open(&run, then, i & 1, &error));
    int64_t step;
    char *warnings = NULL;
    assert_int_equal(checkpoint_latest_valid(checkpoints, &step, &run.from, &warnings, &error), 1);
    assert_int_equal(step, 2);
    run.first = 3;
    train(&run);
    same(then, &run, &one, 3, OWN_STEPS);
    own_close(&run);
    free(warnings);
    free(checkpoints);
  }
}

// The data must have what the graph reads.
static int64_t row_of_x(const void *self, int input) { return input == OWN_X ? own_row(self, input) : 0; }

static int open_without_target(Rank *r, void *own, Error *e) {
  OwnRun *run = own;
  SampleSource samples = {.total = INT64_MAX, .row = row_of_x, .read = own_read};
  int code = rank_load(r, run->job, e);
  return code ? code : rank_open_data(r, &(LoaderConfig){.samples = &samples, .prefetch_steps = 1}, 0, e);
}

static void data_lacks_an_input(void **state) {
  OwnRun run;
  Session *session;
  SUCCEED(own_open(&run, "mesh.dp=1", false, &error));
  SUCCEED(session_open(&(SessionOptions){.ranks = 1}, &session, &error));
  assert_int_equal(session_run(session, open_without_target, &run, &error), PLAIT_FAILED);
  assert_string_equal(error.message, "the graph reads 16 bytes of a sample's target, and the data has 0");
  session_close(session);
  own_close(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_numbers_of_one_rank), cmocka_unit_test(layouts_are_as_one_rank),
      cmocka_unit_test(late_is_as_before),       cmocka_unit_test(they_continue_from_a_checkpoint),
      cmocka_unit_test(data_lacks_an_input)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
