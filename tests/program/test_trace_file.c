// Trace files: JSON with every rank's spans, text escaped, what does not fit counted, nothing kept while off.
#include "base/file.h"
#include "runtime/trace.h"
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3 };
typedef struct Worker {
  PlaitWorld *world;
  const char *path;
  int rank, code;
  Error error;
} Worker;

// Rank r has room for the spans of step 2, r + 1 and one in flight, but not for those of step 3.
static void *work(void *argument) {
  Worker *w = argument;
  PlaitComm *comm;
  if ((w->code = plait_comm_world(w->world, w->rank, &comm, &w->error))) return NULL;
  Trace *t = trace_create(w->rank, "rank \"x\"\n", 2, 2, w->rank + 2);
  w->code = trace_align(t, comm, true, &w->error);
  for (int64_t step = 1; step <= 4 && !w->code; step++) {
    if (trace_turn(t, step)) w->code = trace_write(t, comm, w->path, &w->error);
    for (int i = 0; i <= w->rank; i++) trace_end(t, trace_begin(t), "a\\b", "n", "kernel", 1, i);
    if (step == 2) trace_add(t, &(TraceSpan){"all_reduce", "n", "in flight", t->zero, t->zero + 1, -1, -1, "dp"});
  }
  trace_destroy(t);
  plait_comm_destroy(comm);
  return NULL;
}

static int count(const json_t *events, int pid, const char *phase) {
  size_t i;
  json_t *e;
  int n = 0;
  json_array_foreach(events, i, e) n += json_integer_value(json_object_get(e, "pid")) == pid &&
                                        !strcmp(json_string_value(json_object_get(e, "ph")), phase);
  return n;
}

static void test_ranks(void **state) {
  char path[] = "/tmp/plait-trace-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  Worker w[RANKS];
  pthread_t thread[RANKS];
  PlaitWorld *world;
  Error error = {0};
  assert_int_equal(plait_world_local_create(RANKS, &world, &error), 0);
  for (int r = 0; r < RANKS; r++) {
    w[r] = (Worker){.world = world, .path = path, .rank = r};
    assert_int_equal(pthread_create(&thread[r], NULL, work, &w[r]), 0);
  }
  for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
  for (int r = 0; r < RANKS; r++) assert_int_equal(w[r].code, PLAIT_OK);
  plait_world_destroy(world);
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *events = json_object_get(root, "traceEvents");
  assert_true(json_is_array(events));
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(count(events, r, "X"), r + 1); // of step 2; of step 3 none fits
    assert_int_equal(count(events, r, "b"), 1);
    assert_int_equal(count(events, r, "e"), 1);
    assert_int_equal(count(events, r, "i"), 1); // says how many did not fit
  }
  const json_t *title = json_object_get(json_object_get(json_array_get(events, 0), "args"), "name");
  assert_string_equal(json_string_value(title), "rank \"x\"\n");
  json_decref(root);
  unlink(path);
}

static void test_off(void **state) {
  Error error = {0};
  Trace *t = trace_create(0, "rank 0", 5, 1, 4);
  assert_int_equal(trace_turn(t, 4), 0);
  assert_true(trace_begin(t) == 0 && trace_begin(NULL) == 0);
  trace_end(t, trace_begin(t), "a", NULL, "b", -1, -1);
  trace_end(NULL, 0, "a", NULL, "b", -1, -1);
  assert_int_equal(t->count, 0);
  assert_int_equal(trace_turn(t, 6), 0); // nothing to write
  t->on = true;
  trace_end(t, trace_begin(t), "a", NULL, "b", -1, -1);
  assert_int_equal(trace_turn(t, 6), 1);
  assert_int_equal(trace_write(t, NULL, "/nowhere/t.json", &error), PLAIT_FAILED);
  assert_int_equal(trace_turn(t, 7), 0); // once
  trace_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_off)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
