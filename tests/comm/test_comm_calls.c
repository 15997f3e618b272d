// tier 1; threads numbers
// Streams and events, messages, sub-communicators, mismatched calls, bad arguments and aborts.
#include "base/dtype.h"
#include "base/error.h"
#include "comm/comm.h"
#include "ranks.h"
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void expect_pass(int n, RankFunction function) {
  Ranks ranks;
  assert_int_equal(ranks_run(&ranks, n, function, NULL, 0), 0);
}

// Every rank must return an error that contains all of `words` (up to a NULL).
static void expect_failure(int n, RankFunction function, const char *const *words) {
  Ranks ranks;
  if (!ranks_can_fail()) return;
  assert_int_equal(ranks_run(&ranks, n, function, NULL, 1), n);
  for (int r = 0; r < n; r++)
    for (int w = 0; words[w]; w++)
      if (!strstr(ranks.messages[r], words[w]))
        fail_msg("rank %d: \"%s\" lacks \"%s\"", r, ranks.messages[r], words[w]);
}
#define EXPECT_FAILURE(n, function, ...) expect_failure(n, function, (const char *const[]){__VA_ARGS__, NULL})

// Streams -----------------------------------------------------------------------------------------------------------

enum { CALLS = 200, COUNT = 6000 };

// Many calls in flight, larger than a block and smaller, with the lists on a stack that is gone when they run.
static void issue(PlaitComm *comm, float *x, int call, PlaitStream *stream, PlaitEvent *event) {
  size_t count = call % 3 ? 10 : COUNT;
  PlaitBuffer list[2] = {{x, x, count / 2}, {x + count / 2, x + count / 2, count - count / 2}};
  plait_all_reduce(comm, list, 2, PLAIT_FP32, PLAIT_SUM, stream, event);
  memset(list, 0, sizeof list);
}

static int streams(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitStream *stream;
  PlaitEvent events[CALLS];
  float *x = xcalloc((size_t)CALLS * COUNT, sizeof *x);
  int code = plait_stream_create(comm, &stream, NULL), wrong = 0;
  for (int i = 0; i < CALLS * COUNT; i++) x[i] = (float)(i % 100 + rank);
  for (int call = 0; call < CALLS; call++) issue(comm, x + call * COUNT, call, stream, &events[call]);
  for (int call = CALLS - 1; call >= 0 && !code; call--) { // the last first: all before it are done as well
    if ((code = plait_event_wait(events[call]))) break;
    wrong += plait_event_done(events[call]) != 1;
    for (int i = 0; i < (call % 3 ? 10 : COUNT); i++)
      wrong += x[call * COUNT + i] != (float)((call * COUNT + i) % 100 * ranks->n + ranks->n * (ranks->n - 1) / 2);
  }
  // A call without a stream comes after those on it: here it sums the sums.
  x[0] = 1;
  issue(comm, x, 1, stream, NULL);
  issue(comm, x, 1, NULL, NULL);
  wrong += x[0] != (float)(ranks->n * ranks->n);
  if (!code) code = plait_stream_synchronize(stream);
  plait_stream_destroy(stream);
  free(x);
  EXPECT(!wrong);
  return code;
}

// Two streams and two communicators; the second stream waits for an event of the first.
static int two_streams(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitStream *a, *b;
  PlaitComm *copy;
  PlaitEvent first, second;
  int everyone[8], code = 0, x = 1;
  for (int r = 0; r < ranks->n; r++) everyone[r] = r;
  if ((code = plait_comm_create(comm, everyone, ranks->n, &copy, NULL))) return code;
  if ((code = plait_stream_create(comm, &a, NULL)) || (code = plait_stream_create(comm, &b, NULL))) return code;
  PlaitBuffer list = {&x, &x, 1};
  for (int i = 0; i < 50; i++) {
    x = 1;
    plait_all_reduce(comm, &list, 1, PLAIT_INT32, PLAIT_SUM, a, &first);
    plait_stream_wait(b, first);
    plait_all_reduce(copy, &list, 1, PLAIT_INT32, PLAIT_SUM, b, &second);
    code = plait_event_wait(second);
    if (code || x != ranks->n * ranks->n) break;
  }
  plait_stream_destroy(a);
  plait_stream_destroy(b);
  plait_comm_destroy(copy);
  EXPECT(code || x == ranks->n * ranks->n);
  return code;
}

// A call of one of the rank's streams is under way, of this kind (NULL: any); or of its own thread.
static int stream_runs_a(const Ranks *ranks, int rank, const char *kind) {
  char text[160];
  for (int i = 0; i < LAST_CALL_STREAMS; i++) {
    uint64_t last = last_call_get(&world_last(ranks->world, rank)->stream[i]);
    comm_last_describe(last, text, sizeof text);
    if (comm_last_runs(last) && (!kind || strstr(text, kind))) return 1;
  }
  return 0;
}
static int stream_runs(const Ranks *ranks, int rank) { return stream_runs_a(ranks, rank, NULL); }
static int thread_runs(const Ranks *ranks, int rank) {
  return comm_last_runs(last_call_get(&world_last(ranks->world, rank)->own));
}

static int waits_in(const Ranks *ranks, int rank, const char *communicator) {
  char text[160];
  double alive;
  uint64_t last = comm_last(ranks->world, rank, &alive);
  comm_last_describe(last, text, sizeof text);
  return comm_last_runs(last) && strstr(text, "on its stream, barrier") && strstr(text, communicator);
}

// What is said of a rank that waits for a stream is what that stream does, whatever its other streams have done since.
static int the_stream_that_is_waited_for(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitStream *other, *stream;
  PlaitComm *alone;
  PlaitEvent done, first;
  int code = plait_comm_create(comm, &rank, 1, &alone, NULL);
  if (code || (code = plait_stream_create(comm, &other, NULL)) || (code = plait_stream_create(comm, &stream, NULL)))
    return code;
  if (rank == 0) {
    plait_barrier(comm, stream, &done);
    AWAIT(stream_runs(ranks, rank));
    plait_barrier(alone, other, &first);
    code = plait_event_wait(first);
  }
  if (rank == 1) AWAIT(waits_in(ranks, 0, "of a communicator of 2 ranks"));
  if (rank == 1) plait_barrier(comm, stream, &done);
  if (!code) code = plait_event_wait(done);
  plait_stream_destroy(other);
  plait_stream_destroy(stream);
  plait_comm_destroy(alone);
  return code;
}

// Events are done exactly when they should be: not before the last rank has come.
static int events_poll(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitStream *stream;
  PlaitEvent event = {0};
  EXPECT(plait_event_done(event) == 1 && plait_event_wait(event) == 0);
  int code = plait_stream_create(comm, &stream, NULL), early = 0;
  if (code) return code;
  if (rank == 0) {
    plait_barrier(comm, stream, &event);
    AWAIT(plait_event_done(event) || stream_runs(ranks, rank)); // the stream is in the barrier
    for (int i = 0; i < 1000; i++) early |= plait_event_done(event) != 0;
  }
  int go = 1; // rank 1 enters the barrier only after rank 0 has looked
  if (rank == 0) code = plait_send(comm, &(PlaitBuffer){&go, NULL, 1}, 1, PLAIT_INT32, 1, NULL, NULL);
  if (rank == 1) code = plait_recv(comm, &(PlaitBuffer){NULL, &go, 1}, 1, PLAIT_INT32, 0, NULL, NULL);
  if (rank != 0) plait_barrier(comm, stream, &event);
  while (!code && !(code = plait_event_done(event))) sched_yield();
  plait_stream_destroy(stream);
  EXPECT(!early);
  return code < 0 ? code : 0;
}

// Chaos delays what is on a stream; nanosleep never sleeps less than it is told to. Results are as without.
static int delayed(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { BARRIERS = 100, LEAST = 4000000 }; // ns in all; expected are 100 · 1/2 · 150 µs
  struct timespec begin, end;
  PlaitStream *stream;
  int code = plait_stream_create(comm, &stream, NULL);
  if (code) return code;
  stream_set_chaos(stream, 7);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < BARRIERS; i++) plait_barrier(comm, stream, NULL);
  code = plait_stream_synchronize(stream);
  clock_gettime(CLOCK_MONOTONIC, &end);
  plait_stream_destroy(stream);
  EXPECT((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec >= LEAST);
  return code;
}

// Blocks travel around a ring of streams while the rank works with the one that it has: two blocks in turn, and every
// rank sees every block once, in order.
static int ring_of_streams(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { SIZE = 5000 };
  int n = ranks->n, code, wrong = 0;
  int32_t *block[2] = {xcalloc(SIZE, sizeof **block), xcalloc(SIZE, sizeof **block)};
  PlaitStream *stream;
  PlaitEvent arrived = {0};
  if ((code = plait_stream_create(comm, &stream, NULL))) return code;
  for (int i = 0; i < SIZE; i++) block[0][i] = rank * SIZE + i;
  for (int step = 0; step < n && !code; step++) {
    const int32_t *here = block[step % 2];
    PlaitBuffer list[2] = {{here, block[1 - step % 2], 1}, {here + 1, block[1 - step % 2] + 1, SIZE - 1}};
    if (step < n - 1) code = plait_shift(comm, list, 2, PLAIT_INT32, 1, stream, &arrived);
    for (int i = 0; i < SIZE; i++) wrong += here[i] != (rank - step + n) % n * SIZE + i;
    int waited = plait_event_wait(arrived);
    if (!code) code = waited;
  }
  plait_stream_destroy(stream);
  free(block[0]);
  free(block[1]);
  EXPECT(!wrong);
  return code;
}

static void test_streams(void **state) {
  for (int n = 1; n <= 8; n += n < 4 ? 1 : 4) expect_pass(n, streams);
  expect_pass(2, two_streams);
  expect_pass(5, two_streams);
  if (ranks_can_fail()) expect_pass(2, the_stream_that_is_waited_for); // threads: rank 1 reads what rank 0 shows
  expect_pass(2, events_poll);
  expect_pass(4, events_poll);
  expect_pass(1, delayed);
  for (int n = 1; n <= 8; n += n < 4 ? 1 : 4) expect_pass(n, ring_of_streams);
}

// Messages ----------------------------------------------------------------------------------------------------------

// 100 messages in flight from each rank to each (itself too), cut otherwise on the other side; order is kept.
static int many_messages(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { MESSAGES = 100 };
  int n = ranks->n, code = 0;
  int64_t out[MESSAGES][3], in[3];
  PlaitEvent sent[MESSAGES][8];
  for (int i = 0; i < MESSAGES; i++) {
    for (int k = 0; k < 3; k++) out[i][k] = rank * 1000 + i * 3 + k;
    PlaitBuffer list[2] = {{out[i], NULL, 1}, {out[i] + 1, NULL, 2}};
    for (int peer = 0; peer < n && !code; peer++)
      code = plait_send(comm, list, 2, PLAIT_INT64, peer, NULL, &sent[i][peer]);
  }
  PlaitBuffer list[3] = {{NULL, in, 2}, {NULL, NULL, 0}, {NULL, in + 2, 1}};
  int wrong = 0;
  for (int peer = n - 1; peer >= 0; peer--)
    for (int i = 0; i < MESSAGES && !code; i++) {
      code = plait_recv(comm, list, 3, PLAIT_INT64, peer, NULL, NULL);
      for (int k = 0; k < 3; k++) wrong += in[k] != peer * 1000 + i * 3 + k;
    }
  for (int i = 0; i < MESSAGES; i++)
    for (int peer = 0; peer < n && !code; peer++) code = plait_event_wait(sent[i][peer]);
  EXPECT(!wrong);
  return code;
}

// A pipeline on streams: receive, then pass on, all queued before anything arrives; sends overtaken by direct ones keep
// their place in the order of issue.
static int pipeline(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { MICRO = 20, SIZE = 5000 };
  int n = ranks->n, code, wrong = 0;
  float *x = xcalloc(MICRO * SIZE, sizeof *x);
  PlaitStream *stream;
  PlaitEvent received[MICRO], sent[MICRO];
  if ((code = plait_stream_create(comm, &stream, NULL))) return code;
  for (int m = 0; m < MICRO; m++) {
    PlaitBuffer list = {x + m * SIZE, x + m * SIZE, SIZE};
    for (int i = 0; i < SIZE && rank == 0; i++) x[m * SIZE + i] = (float)(m * SIZE + i);
    if (rank > 0) plait_recv(comm, &list, 1, PLAIT_FP32, rank - 1, stream, &received[m]);
    if (rank < n - 1) plait_send(comm, &list, 1, PLAIT_FP32, rank + 1, rank == 0 && m % 2 ? NULL : stream, &sent[m]);
  }
  for (int m = 0; m < MICRO && !code; m++) {
    if (rank > 0) code = plait_event_wait(received[m]);
    for (int i = 0; i < SIZE && !code; i++) wrong += x[m * SIZE + i] != (float)(m * SIZE + i);
    if (rank < n - 1 && !code) code = plait_event_wait(sent[m]);
  }
  plait_stream_destroy(stream);
  free(x);
  EXPECT(!wrong);
  return code;
}

// Two receives on two streams: the first issued gets the first message, though its stream starts later. When the second
// stream begins, it has both to choose from.
static int issue_order(Ranks *ranks, PlaitComm *comm, int rank) {
  int x[2] = {1, 2}, go = 0, code = 0;
  PlaitEvent sent[2], received = {0};
  if (rank == 0) {
    for (int i = 0; i < 2 && !code; i++)
      code = plait_send(comm, &(PlaitBuffer){&x[i], NULL, 1}, 1, PLAIT_INT32, 1, NULL, &sent[i]);
    if (!code) code = plait_barrier(comm, NULL, NULL); // both are sent
    if (!code)
      code =
          plait_recv(comm, &(PlaitBuffer){NULL, &go, 1}, 1, PLAIT_INT32, 1, NULL, NULL); // the second stream receives
    int early = plait_event_done(sent[0]) != 0;
    if (!code) code = plait_barrier(comm, NULL, NULL); // the first stream starts
    if (!code) code = plait_event_wait(sent[0]);
    if (!code) code = plait_event_wait(sent[1]);
    EXPECT(!early);
    return code;
  }
  PlaitStream *late, *early;
  if ((code = plait_stream_create(comm, &late, NULL)) || (code = plait_stream_create(comm, &early, NULL))) return code;
  code = plait_barrier(comm, NULL, NULL);
  plait_barrier(comm, late, NULL);
  AWAIT(stream_runs(ranks, rank));
  plait_recv(comm, &(PlaitBuffer){NULL, &x[1], 1}, 1, PLAIT_INT32, 0, late, NULL);
  plait_recv(comm, &(PlaitBuffer){NULL, &x[0], 1}, 1, PLAIT_INT32, 0, early, &received);
  AWAIT(plait_event_done(received) || stream_runs_a(ranks, rank, "recv"));
  for (int i = 0; i < 1000; i++) plait_event_done(received); // a moment in which it must not take the first message
  if (!code) code = plait_send(comm, &(PlaitBuffer){&go, NULL, 1}, 1, PLAIT_INT32, 0, NULL, NULL);
  if (!code) code = plait_stream_synchronize(early);
  plait_stream_destroy(early);
  plait_stream_destroy(late);
  EXPECT(x[1] == 1 && x[0] == 2);
  return code;
}

static int wrong_message(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0};
  PlaitBuffer list = {x, x, rank ? 7 : 8};
  PlaitEvent sent;
  if (rank) return plait_recv(comm, &list, 1, PLAIT_FP32, 0, NULL, NULL);
  int code = plait_send(comm, &list, 1, PLAIT_FP32, 1, NULL, &sent);
  return code ? code : plait_event_wait(sent);
}

static int message_to_myself(Ranks *ranks, PlaitComm *comm, int rank) {
  float x = 0;
  return plait_send(comm, &(PlaitBuffer){&x, NULL, 1}, 1, PLAIT_FP32, rank, NULL, NULL);
}

static void test_messages(void **state) {
  expect_pass(1, many_messages);
  expect_pass(3, many_messages);
  expect_pass(2, pipeline);
  expect_pass(5, pipeline);
  expect_pass(2, issue_order);
  EXPECT_FAILURE(2, wrong_message, "rank 0 calls send of 8 fp32 to 1", "rank 1 calls recv of 7 fp32 from 0");
  EXPECT_FAILURE(1, message_to_myself, "rank 0: send to itself");
}

// Communicators -----------------------------------------------------------------------------------------------------

static int sum_over(PlaitComm *comm, int value, int *sum) {
  *sum = value;
  return plait_all_reduce(comm, &(PlaitBuffer){sum, sum, 1}, 1, PLAIT_INT32, PLAIT_SUM, NULL, NULL);
}

// A 2 × 4 mesh: rows and columns overlap, rows are disjoint; and all ranks in reverse order.
static int mesh(Ranks *ranks, PlaitComm *world, int rank) {
  int row[4], column[2], reversed[8], sum, code;
  PlaitComm *comms[3];
  for (int i = 0; i < 4; i++) row[i] = rank / 4 * 4 + i;
  for (int i = 0; i < 2; i++) column[i] = i * 4 + rank % 4;
  for (int i = 0; i < 8; i++) reversed[i] = 7 - i;
  if ((code = plait_comm_create(world, row, 4, &comms[0], NULL))) return code;
  if ((code = plait_comm_create(comms[0], column, 2, &comms[1], NULL))) return code;
  if ((code = plait_comm_create(world, reversed, 8, &comms[2], NULL))) return code;
  EXPECT(plait_comm_size(comms[0]) == 4 && plait_comm_rank(comms[0]) == rank % 4);
  EXPECT(plait_comm_rank(comms[1]) == rank / 4 && plait_comm_world_rank(comms[1], 1) == 4 + rank % 4);
  EXPECT(plait_comm_rank(comms[2]) == 7 - rank);
  for (int i = 0; i < 100; i++) {
    if ((code = sum_over(comms[0], rank + i, &sum))) return code;
    EXPECT(sum == rank / 4 * 16 + 6 + 4 * i);
    if ((code = sum_over(comms[1], rank + i, &sum))) return code;
    EXPECT(sum == 2 * (rank % 4) + 4 + 2 * i);
  }
  int all[8];
  if ((code = plait_all_gather(comms[2], &(PlaitBuffer){&rank, all, 1}, 1, PLAIT_INT32, NULL, NULL))) return code;
  for (int i = 0; i < 8; i++) EXPECT(all[i] == 7 - i);
  for (int i = 0; i < 3; i++) plait_comm_destroy(comms[i]);
  return 0;
}

// The same list again and again gives communicators of their own.
static int repeated(Ranks *ranks, PlaitComm *world, int rank) {
  int list[3] = {2, 0, 1}, sum;
  for (int i = 0; i < 50; i++) {
    PlaitComm *comm;
    int code = plait_comm_create(world, list, 3, &comm, NULL);
    if (!code) code = sum_over(comm, rank, &sum);
    if (code) return code;
    EXPECT(sum == 3);
    plait_comm_destroy(comm);
  }
  return 0;
}

static int wrong_order(Ranks *ranks, PlaitComm *world, int rank) {
  int list[2] = {rank, !rank};
  PlaitComm *comm;
  return plait_comm_create(world, list, 2, &comm, NULL);
}

static int refused_lists(Ranks *ranks, PlaitComm *world, int rank) {
  PlaitComm *comm;
  Error errors[4] = {0};
  EXPECT(plait_comm_create(world, (int[]){rank, rank}, 2, &comm, &errors[0]) < 0 && strstr(errors[0].message, "twice"));
  EXPECT(plait_comm_create(world, (int[]){rank, 9}, 2, &comm, &errors[1]) < 0 && strstr(errors[1].message, "rank 9"));
  EXPECT(plait_comm_create(world, (int[]){!rank}, 1, &comm, &errors[2]) < 0 && strstr(errors[2].message, "not in"));
  EXPECT(plait_comm_world(ranks->world, rank, &comm, &errors[3]) < 0 && !comm);
  EXPECT(plait_comm_world(ranks->world, 2, &comm, NULL) < 0 && plait_comm_world(ranks->world, -1, &comm, NULL) < 0);
  return plait_barrier(world, NULL, NULL); // nothing of this fails the world
}

static void test_communicators(void **state) {
  PlaitWorld *world;
  expect_pass(8, mesh);
  expect_pass(3, repeated);
  expect_pass(2, refused_lists);
  EXPECT_FAILURE(2, wrong_order, "[0 1]", "[1 0]", "rank 0", "rank 1");
  assert_int_equal(plait_world_local_create(0, &world, NULL), PLAIT_BAD_INPUT);
}

// Mismatches, bad arguments, aborts ---------------------------------------------------------------------------------

static int wrong_kind(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[64] = {0}, y[64];
  PlaitBuffer list = {x, y, 5};
  int code = plait_barrier(comm, NULL, NULL);
  if (code) return code;
  return rank == 2 ? plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL)
                   : plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}
static int wrong_dtype(Ranks *ranks, PlaitComm *comm, int rank) {
  double x[4] = {0};
  return plait_broadcast(comm, &(PlaitBuffer){x, x, 4}, 1, rank == 1 ? PLAIT_FP32 : PLAIT_FP64, 0, NULL, NULL);
}
static int wrong_count(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[9000] = {0};
  PlaitBuffer list[2] = {{x, x, 4000}, {x + 4000, x + 4000, rank == 3 ? 4001 : 4000}};
  return plait_all_reduce(comm, list, 2, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}
static int wrong_root(Ranks *ranks, PlaitComm *comm, int rank) {
  float x = 0, y[8];
  return plait_gather(comm, &(PlaitBuffer){&x, y, 1}, 1, PLAIT_FP32, rank, NULL, NULL);
}
static int wrong_op(Ranks *ranks, PlaitComm *comm, int rank) {
  float x = 0;
  return plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_FP32, rank ? PLAIT_MAX : PLAIT_SUM, NULL, NULL);
}
static int wrong_v(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0}, y[8];
  size_t sends[2] = {1, 2}, receives[2] = {rank ? 2 : 1, rank ? 2 : 3};
  return plait_all_to_all_v(comm, x, sends, NULL, y, receives, NULL, PLAIT_FP32, NULL, NULL);
}
// Ranks that wait elsewhere (in a message, another communicator's creation, on an event) learn of it too.
static int wrong_on_stream(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitStream *stream;
  PlaitEvent event;
  PlaitComm *pair = NULL;
  float x[8] = {0};
  PlaitBuffer list = {x, x, (size_t)rank + 1};
  int code, list_of_two[2] = {0, 1};
  if ((rank < 2 && (code = plait_comm_create(comm, list_of_two, 2, &pair, NULL)))) return code;
  if (rank == 2) return plait_recv(comm, &list, 1, PLAIT_FP32, 0, NULL, NULL);
  if (rank == 3) return plait_comm_create(comm, (int[]){4, 3}, 2, &pair, NULL);
  if (rank == 4) return plait_barrier(comm, NULL, NULL);
  if ((code = plait_stream_create(comm, &stream, NULL))) return code;
  plait_all_reduce(pair, &list, 1, PLAIT_FP32, PLAIT_SUM, stream, NULL);
  plait_barrier(pair, stream, &event);
  code = plait_event_wait(event);
  int again = plait_event_done(event), later = plait_stream_synchronize(stream);
  plait_stream_destroy(stream);
  plait_comm_destroy(pair);
  EXPECT(code < 0 && again == code && later == code);
  return code;
}

static int bad_memory(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0};
  PlaitBuffer list = {x, rank ? x + 4 : x + 1, 4};
  return plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}
static int bad_mean(Ranks *ranks, PlaitComm *comm, int rank) {
  int x = 0;
  return plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_INT32, PLAIT_MEAN, NULL, NULL);
}
static int bad_peer(Ranks *ranks, PlaitComm *comm, int rank) {
  int x = 0;
  if (rank) return plait_barrier(comm, NULL, NULL);
  return plait_recv(comm, &(PlaitBuffer){NULL, &x, 1}, 1, PLAIT_INT32, 2, NULL, NULL);
}
static int bad_pointer(Ranks *ranks, PlaitComm *comm, int rank) {
  PlaitBuffer list = {NULL, NULL, 3};
  return rank ? plait_barrier(comm, NULL, NULL) : plait_all_gather(comm, &list, 1, PLAIT_INT32, NULL, NULL);
}

// Strides: where a call has no parts, below the count, beyond all memory; parts that meet what is sent, though the
// first does not.
static int bad_stride(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0}, y[8];
  PlaitBuffer list = {x, y, 2, 3};
  return rank ? plait_barrier(comm, NULL, NULL) : plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL);
}
static int bad_recv_stride(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0}, y[8];
  PlaitBuffer list = {x, y, 2, 0, -4};
  return rank ? plait_barrier(comm, NULL, NULL)
              : plait_reduce_scatter(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}
static int dense_stride(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0}, y[8];
  PlaitBuffer list = {x, y + 1, 2, 0, -1};
  return rank ? plait_barrier(comm, NULL, NULL) : plait_all_to_all(comm, &list, 1, PLAIT_FP32, NULL, NULL);
}
static int vast_stride(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0}, y[8];
  PlaitBuffer list = {x, y, 2, 0, PTRDIFF_MIN};
  return rank ? plait_barrier(comm, NULL, NULL) : plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL);
}
static int strided_overlap(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[8] = {0};
  PlaitBuffer list = {x, x + 4, 2, 0, -3}; // parts at 4 and 1
  return rank ? plait_barrier(comm, NULL, NULL) : plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL);
}

// Of a row-major matrix in one piece of memory, columns are sent and others received: these do not overlap. And in
// place.
static int strides_between(Ranks *ranks, PlaitComm *comm, int rank) {
  int x[8] = {0}, code;
  for (int p = 0; p < 2; p++) x[4 * p] = 10 * rank + p;
  if ((code = plait_all_to_all(comm, &(PlaitBuffer){x, x + 6, 1, 4, -4}, 1, PLAIT_INT32, NULL, NULL))) return code;
  for (int p = 0; p < 2; p++) EXPECT(x[6 - 4 * p] == 10 * p + rank && x[4 * p] == 10 * rank + p);
  for (int p = 0; p < 2; p++) x[4 - 3 * p] = p == rank ? rank + 7 : 0; // part p at 4 - 3 p
  if ((code = plait_all_gather(comm, &(PlaitBuffer){x + 4 - 3 * rank, x + 4, 1, 0, -3}, 1, PLAIT_INT32, NULL, NULL)))
    return code;
  for (int p = 0; p < 2; p++) EXPECT(x[4 - 3 * p] == p + 7);
  return 0;
}

// Names, and numbers only where there is no name.
static int bad_dtype(Ranks *ranks, PlaitComm *comm, int rank) {
  float x = 0;
  return plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, (PlaitDtype)17, PLAIT_SUM, NULL, NULL);
}
static int bad_op(Ranks *ranks, PlaitComm *comm, int rank) {
  float x = 0;
  return plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_FP32, (PlaitOp)5, NULL, NULL);
}
static int bad_count(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[2] = {0};
  PlaitBuffer list[2] = {{x, x, 1}, {x + 1, x + 1, SIZE_MAX}};
  return rank ? plait_barrier(comm, NULL, NULL) : plait_reduce(comm, list, 2, PLAIT_FP32, PLAIT_MAX, 1, NULL, NULL);
}

static int wrong_distance(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[5] = {0}, y[5];
  return plait_shift(comm, &(PlaitBuffer){x, y, 5}, 1, PLAIT_FP32, rank == 2 ? -1 : 1, NULL, NULL);
}
static int shift_in_place(Ranks *ranks, PlaitComm *comm, int rank) {
  float x[5] = {0};
  return plait_shift(comm, &(PlaitBuffer){x, x, 5}, 1, PLAIT_FP32, 4, NULL, NULL);
}

static int aborted(Ranks *ranks, PlaitComm *comm, int rank) {
  int x = 0;
  PlaitBuffer list = {&x, &x, 1};
  PlaitEvent sent;
  if (rank == 0) {
    for (int r = 1; r < ranks->n; r++)
      AWAIT(r == 2 ? last_call_get(&world_last(ranks->world, r)->own) != 0 : thread_runs(ranks, r));
    plait_world_abort(ranks->world, "the disk is full");
    plait_world_abort(ranks->world, "only the first message counts");
  }
  if (rank == 1) return plait_recv(comm, &list, 1, PLAIT_INT32, 2, NULL, NULL);
  if (rank == 2) return plait_send(comm, &list, 1, PLAIT_INT32, 3, NULL, &sent) < 0 ? -1 : plait_event_wait(sent);
  return plait_barrier(comm, NULL, NULL);
}

// Aborts at any moment among transfers of memory that is freed at once: address and thread sanitizers watch.
static int abort_in_the_middle(Ranks *ranks, PlaitComm *comm, int rank) {
  int code = 0;
  for (int i = 0; !code && i < 100000; i++) {
    float *x = xcalloc(20000, sizeof *x);
    PlaitBuffer list = {x, x, 20000}, message = {x, x + 10000, 10000};
    PlaitEvent sent = {0};
    if (rank == 0 && i == 20) plait_world_abort(ranks->world, "enough");
    code = plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
    if (!code) code = plait_send(comm, &message, 1, PLAIT_FP32, (rank + 1) % ranks->n, NULL, &sent);
    if (!code) code = plait_recv(comm, &message, 1, PLAIT_FP32, (rank + ranks->n - 1) % ranks->n, NULL, NULL);
    int waited = plait_event_wait(sent);
    if (!code) code = waited;
    free(x);
  }
  return code;
}

// A sender's memory is its own again only when nobody reads it any more, also when the world fails during the copy.
static int abort_while_copying(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { LARGE = 8 << 20 };
  PlaitEvent sent;
  int code = plait_barrier(comm, NULL, NULL), mixed = 0;
  char *x = xcalloc(LARGE, 1);
  memset(x, 1, LARGE); // touched by all, so that the copy begins at once
  if (rank == 0 && !code) {
    code = plait_send(comm, &(PlaitBuffer){x, NULL, LARGE}, 1, PLAIT_UINT8, 1, NULL, &sent);
    int waited = plait_event_wait(sent);
    if (!code) code = waited;
    memset(x, 2, LARGE);
  } else if (rank == 1 && !code) {
    code = plait_recv(comm, &(PlaitBuffer){NULL, x, LARGE}, 1, PLAIT_UINT8, 0, NULL, NULL);
    for (int i = 0; i < LARGE; i++) mixed += x[i] != 1;
  } else if (!code) {
    for (volatile unsigned spin = *(unsigned *)ranks->context; spin > 0;) spin = spin - 1;
    plait_world_abort(ranks->world, "enough");
  }
  free(x);
  EXPECT(!mixed);
  return 0;
}

static void test_failures(void **state) {
  EXPECT_FAILURE(4, wrong_kind, "rank 0 calls all_reduce sum of 5 fp32", "rank 2 calls all_gather of 5 fp32", "call 2");
  EXPECT_FAILURE(3, wrong_dtype, "of 4 fp64 with root 0", "rank 1 calls broadcast of 4 fp32");
  EXPECT_FAILURE(4, wrong_count, "rank 3 calls all_reduce", "buffer 1 has 4000 and 4001 elements");
  EXPECT_FAILURE(2, wrong_root, "with root 0", "with root 1");
  EXPECT_FAILURE(2, wrong_op, "all_reduce sum", "all_reduce max");
  EXPECT_FAILURE(2, wrong_v, "1 elements from rank 1 for rank 0, which expects 3");
  EXPECT_FAILURE(5, wrong_on_stream, "rank 0 calls all_reduce sum of 1", "rank 1 calls all_reduce sum of 2");
  EXPECT_FAILURE(2, bad_memory, "rank 0: all_reduce overlaps otherwise than in place (fp32, sum, buffer 0 of 1)");
  EXPECT_FAILURE(2, bad_mean, "all_reduce takes a mean of integers (int32, mean)");
  EXPECT_FAILURE(2, bad_peer, "rank 0: recv names a rank that is not in the communicator (int32, peer 2 of 2 ranks)");
  EXPECT_FAILURE(3, bad_pointer, "rank 0: all_gather has no send memory (int32, buffer 0 of 1)");
  EXPECT_FAILURE(2, bad_dtype, "all_reduce has an unknown dtype (dtype number 17, sum)");
  EXPECT_FAILURE(2, bad_op, "all_reduce has an unknown operation (fp32, operation number 5)");
  EXPECT_FAILURE(2, bad_count, "rank 0: reduce has an impossible count (fp32, max, root 1 of 2 ranks, buffer 1 of 2)");
  EXPECT_FAILURE(4, wrong_distance, "rank 0 calls shift of 5 fp32 by 1 while rank 2 calls shift of 5 fp32 by 3",
                 "call 1");
  EXPECT_FAILURE(3, shift_in_place,
                 "shift overlaps, and this call does not work in place (fp32, by 1 of 3 ranks, buffer");
  EXPECT_FAILURE(2, bad_stride, "rank 0: all_gather has a stride where it sends no parts (fp32, buffer 0 of 1)");
  EXPECT_FAILURE(2, bad_recv_stride, "rank 0: reduce_scatter has a stride where it receives no parts (fp32, sum");
  EXPECT_FAILURE(2, dense_stride,
                 "rank 0: all_to_all receives parts that overlap: the stride is below the count (fp32");
  EXPECT_FAILURE(2, vast_stride, "rank 0: all_gather has an impossible stride (fp32");
  EXPECT_FAILURE(2, strided_overlap, "rank 0: all_gather overlaps otherwise than in place (fp32");
  expect_pass(2, strides_between);
  EXPECT_FAILURE(6, aborted, "the disk is full");
  for (int i = 0; i < 10; i++) EXPECT_FAILURE(4, abort_in_the_middle, "enough");
  for (unsigned delay = 200000; delay < 4800000 && ranks_can_fail(); delay += 200000) {
    Ranks ranks;
    assert_int_equal(ranks_run(&ranks, 3, abort_while_copying, &delay, 0), 0);
  }
}

// Numbers -----------------------------------------------------------------------------------------------------------

// All fp16 and bf16 values survive a reduction of one value and zeros, sums round as the plain conversions do, NaN
// stays.
static int half_values(Ranks *ranks, PlaitComm *comm, int rank) {
  for (int t = PLAIT_BF16; t <= PLAIT_FP16; t++)
    for (int pass = 0; pass < 2; pass++) {
      enum { ALL = 65536 };
      static const float added[] = {0, 1.0009765e-3f};
      uint16_t *x = xcalloc(ALL, 2), *y = xcalloc(ALL, 2), other = 0;
      dtype_store(&other, (Dtype)t, 0, added[pass]);
      for (int i = 0; i < ALL; i++) x[i] = rank ? other : (uint16_t)i;
      int wrong = -1, code = plait_all_reduce(comm, &(PlaitBuffer){x, y, ALL}, 1, (PlaitDtype)t, PLAIT_SUM, NULL, NULL);
      for (int i = 0; i < ALL && !code; i++) {
        uint16_t value = (uint16_t)i, expected;
        float sum = (float)dtype_load(&value, (Dtype)t, 0) + (float)dtype_load(&other, (Dtype)t, 0);
        dtype_store(&expected, (Dtype)t, 0, sum);
        if (isnan(sum) ? !isnan(dtype_load(&y[i], (Dtype)t, 0)) : y[i] != expected) wrong = i;
      }
      free(x);
      free(y);
      if (code) return code;
      if (wrong >= 0) return ranks_fail(ranks, rank, "%s value %d", dtype_name((Dtype)t), wrong);
    }
  return 0;
}

static int nan_stays(Ranks *ranks, PlaitComm *comm, int rank) {
  for (int who = 0; who < ranks->n; who++)
    for (int op = 0; op < PLAIT_OP_COUNT; op++) {
      double x = who == rank ? NAN : rank;
      int code = plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_FP64, (PlaitOp)op, NULL, NULL);
      if (code) return code;
      EXPECT(isnan(x));
    }
  return 0;
}

static void test_numbers(void **state) {
  expect_pass(2, half_values);
  expect_pass(3, nan_stays);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_streams),
                                     cmocka_unit_test(test_messages), cmocka_unit_test(test_communicators),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
