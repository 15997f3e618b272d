// tier 1; rooms comm; threads
// plait_world_run with threads: every rank once, and the first failure with its rank, whatever the others wait in.
// (Processes: tests/process/world_run.c.)
#include "plait/comm.h"
#include "plait/graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int add(PlaitComm *comm, void *argument, PlaitError *error) {
  double x = 1 << plait_comm_rank(comm);
  double *sums = argument;
  int code = plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
  sums[plait_comm_rank(comm)] = x;
  return code;
}

static void every_rank_once(void **state) {
  for (int n = 1; n <= 7; n++) {
    PlaitError error = {0};
    double sums[8] = {0};
    assert_int_equal(plait_world_run(n, add, sums, &error), 0);
    assert_int_equal(error.code, 0);
    for (int r = 0; r < 8; r++) assert_true(sums[r] == (r < n ? (1 << n) - 1 : 0));
  }
}

static int size(PlaitComm *comm, void *argument, PlaitError *error) {
  *(int *)argument = plait_comm_size(comm);
  return 5; // not a failure
}

static void without_launcher_zero_is_one(void **state) {
  int n = 0;
  assert_int_equal(plait_world_run(0, size, &n, NULL), 0);
  assert_int_equal(n, 1);
}

typedef enum How { SENTENCE, CODE_ONLY, LEAVES, MISMATCH, WORLD_ERROR } How;

// Rank 1 fails, in one of several ways; the others wait for it.
static int rank_1_fails(PlaitComm *comm, void *argument, PlaitError *error) {
  How how = *(const How *)argument;
  double x[2] = {0};
  if (plait_comm_rank(comm) == 1) {
    if (how == SENTENCE) {
      snprintf(error->message, sizeof error->message, "the disk is full");
      return PLAIT_NO_MEMORY;
    }
    if (how == CODE_ONLY) return -77;
    if (how == LEAVES) return 0;
    if (how == WORLD_ERROR) return plait_recv(comm, &(PlaitBuffer){NULL, x, 1}, 1, PLAIT_FP64, 99, NULL, NULL);
  }
  size_t count = how == MISMATCH && plait_comm_rank(comm) == 1 ? 2 : 1;
  return plait_all_reduce(comm, &(PlaitBuffer){x, x, count}, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
}

static void expect(How how, int code, const char *begins, const char *contains) {
  for (int n = 2; n <= 4; n++) {
    PlaitError error = {0};
    int got = plait_world_run(n, rank_1_fails, &how, &error);
    if (got != code || error.code != code || strncmp(error.message, begins, strlen(begins)) ||
        !strstr(error.message, contains))
      fail_msg("%d ranks: %d, %d: %s", n, got, error.code, error.message);
    assert_int_equal(plait_world_run(n, rank_1_fails, &how, NULL), code);
  }
}

static void first_failure_names_rank(void **state) {
  expect(SENTENCE, PLAIT_NO_MEMORY, "rank 1: the disk is full", "");
  expect(CODE_ONLY, -77, "rank 1: its function returned -77", "");
  expect(LEAVES, PLAIT_FAILED, "rank 1 has left a communicator of ", "all_reduce sum of 1 fp64");
  expect(MISMATCH, PLAIT_FAILED, "rank ", "buffer 0 has ");
  expect(WORLD_ERROR, PLAIT_BAD_INPUT, "rank 1: recv names a rank that is not in the communicator", "");
}

static void wrong_number(void **state) {
  double sums[8];
  PlaitError error = {0};
  assert_int_equal(plait_world_run(-1, add, sums, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "plait_world_run: -1 ranks; allowed: 1 or more, or 0 for as many as"));
  error = (PlaitError){0};
  assert_int_equal(plait_world_run(1 << 30, add, sums, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "a world of 1073741824 ranks: allowed are 1 to "));
}

// A rank may run a world of its own, here the function's.
static int nested(PlaitComm *comm, void *argument, PlaitError *error) {
  double sums[8];
  int code = plait_world_run(2, add, sums, error);
  return code ? code : sums[1] == 3 ? 0 : -1;
}

static void nests(void **state) {
  PlaitError error = {0};
  assert_int_equal(plait_world_run(3, nested, NULL, &error), 0);
}

// The handle that a function gets is one for plait_training_create: the world's ranks are the mesh's.
static int train(PlaitComm *comm, void *argument, PlaitError *error) {
  PlaitGraph *g = plait_graph_create(4, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){2}),
              w = plait_graph_parameter(g, "w", 2, (int64_t[]){2, 2}, 0.5);
  plait_graph_shard(g, w, 0, "tp");
  plait_graph_squared_error(g, plait_graph_linear(g, "y", x, w, -1), x);
  PlaitTraining *t;
  PlaitStepResult result = {0};
  const char *mesh = plait_comm_size(comm) == 1 ? "dp=1" : "dp=2 tp=2";
  int code = plait_training_create(g, &(PlaitTrainingOptions){.mesh = mesh, .comm = comm}, &t, error);
  for (int step = 0; step < 3 && !code; step++)
    code = plait_training_step(t, (const void *[]){(double[]){1, 2, 3, 4, 5, 6, 7, 8}}, 0.01, &result, error);
  ((double *)argument)[plait_comm_rank(comm)] = result.loss;
  plait_training_destroy(t);
  plait_graph_destroy(g);
  return code;
}

static void trains_half_by_hand(void **state) {
  double one, four[4];
  PlaitError error = {0};
  if (plait_world_run(1, train, &one, &error) || plait_world_run(4, train, four, &error)) fail_msg("%s", error.message);
  for (int r = 0; r < 4; r++)
    if (!(one > 0) || !(four[r] - one < 1e-12) || !(one - four[r] < 1e-12))
      fail_msg("rank %d: %.17g, not %.17g", r, four[r], one);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_once),          cmocka_unit_test(without_launcher_zero_is_one),
      cmocka_unit_test(first_failure_names_rank), cmocka_unit_test(wrong_number),
      cmocka_unit_test(nests),                    cmocka_unit_test(trains_half_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
