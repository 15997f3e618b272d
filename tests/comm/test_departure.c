// tier 2; threads
// A rank that destroys its handle to a communicator while others still need it there: they return an error that names
// it, whatever they wait in. And the other way round: destroying it right after the last call disturbs nobody.
#include "base/error.h"
#include "comm/comm.h"
#include "ranks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum Wait { COLLECTIVE, STREAM, ROOTED, RECEIVE, RENDEZVOUS, SENT, POLL, MESSAGE_ON_STREAM, WAITS } Wait;
static const char *const call_of[WAITS] = {"all_reduce sum of 3 fp32 (call 3 of the communicator)",
                                           "all_reduce sum of 3 fp32 (call 3 of the communicator)",
                                           "gather of 3 fp32 with root 0 (call 3 of the communicator)",
                                           "recv of 3 fp32 from 1 (message 2 between them)",
                                           "send of 3 fp32 to 1 (message 2 between them)",
                                           "send of 3 fp32 to 1 (message 2 between them)",
                                           "send of 3 fp32 to 1 (message 2 between them)",
                                           "recv of 3 fp32 from 1 (message 2 between them)"};

typedef struct Plan { Wait wait; int of_world, late; } Plan; // late: the others wait already when the rank leaves

enum { MOST_RANKS = 4 };

// Two collectives, and a message each way between ranks 0 and 1.
static int meet(PlaitComm *comm, int rank) {
  float x[3] = {0}, y[3 * MOST_RANKS];
  PlaitBuffer list = {x, y, 3};
  int code = plait_barrier(comm, NULL, NULL);
  if (!code && rank < 2) {
    PlaitEvent sent;
    code = plait_send(comm, &list, 1, PLAIT_FP32, !rank, NULL, &sent);
    if (!code) code = plait_recv(comm, &list, 1, PLAIT_FP32, !rank, NULL, NULL);
    if (!code) code = plait_event_wait(sent);
  }
  return code ? code : plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL);
}

static int on_stream(PlaitComm *comm, const PlaitBuffer *list, int message) {
  PlaitStream *stream;
  PlaitEvent event;
  int code = plait_stream_create(comm, &stream, NULL);
  if (code) return code;
  if (message) plait_recv(comm, list, 1, PLAIT_FP32, 1, stream, &event);
  else plait_all_reduce(comm, list, 1, PLAIT_FP32, PLAIT_SUM, stream, &event);
  code = plait_event_wait(event);
  plait_stream_destroy(stream);
  return code;
}

// What rank 1 has no part in any more.
static int wait_for_departed(PlaitComm *comm, Wait wait) {
  float x[3] = {0}, y[3 * MOST_RANKS];
  PlaitBuffer list = {x, y, 3};
  PlaitEvent event;
  int code;
  switch (wait) {
  case COLLECTIVE: return plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
  case STREAM:
  case MESSAGE_ON_STREAM: return on_stream(comm, &list, wait == MESSAGE_ON_STREAM);
  case ROOTED: return plait_gather(comm, &list, 1, PLAIT_FP32, 0, NULL, NULL);
  case RECEIVE: return plait_recv(comm, &list, 1, PLAIT_FP32, 1, NULL, NULL);
  case RENDEZVOUS: return plait_send(comm, &list, 1, PLAIT_FP32, 1, NULL, NULL);
  default:
    if ((code = plait_send(comm, &list, 1, PLAIT_FP32, 1, NULL, &event))) return code;
    if (wait == SENT) return plait_event_wait(event);
    while (!(code = plait_event_done(event))) usleep(100);
    return code;
  }
}

// Rank 1 leaves; rank 0 needs it, and the others too where that is a collective. Where it left another communicator
// than the world's, it learns what became of the others in the world's.
static int departure(Ranks *ranks, PlaitComm *world, int rank) {
  const Plan *plan = ranks->context;
  PlaitComm *comm = world;
  int all[8], code = 0;
  for (int r = 0; r < ranks->n; r++) all[r] = r;
  if (!plan->of_world) code = plait_comm_create(world, all, ranks->n, &comm, NULL);
  if (!code) code = meet(comm, rank);
  if (code) return code;
  if (rank == 1 && plan->late) usleep(5000);
  if (rank != 1 && !plan->late) usleep(5000);
  if (rank == 1 && plan->of_world) return 0; // ranks_run destroys its handle
  if (rank == 1) plait_comm_destroy(comm);
  else if (rank == 0 || plan->wait <= ROOTED) code = wait_for_departed(comm, plan->wait);
  if (code < 0 && plait_comm_failed_rank(world) != 1)
    return ranks_fail(ranks, rank, "rank %d is named as the one that failed", plait_comm_failed_rank(world));
  int later = plan->of_world ? code : plait_barrier(world, NULL, NULL); // the world has failed
  if (rank != 1 && !plan->of_world) plait_comm_destroy(comm);
  return code ? code : later;
}

static void test_departure(void **state) {
  Ranks ranks;
  char words[256];
  if (!ranks_can_fail()) return; // tests/process/failures.c
  for (int k = 0; k < 4 * WAITS; k++) {
    Plan plan = {(Wait)(k / 4), k & 1, k >> 1 & 1};
    int n = 2 + k % 3, message = plan.wait > ROOTED;
    ranks_run(&ranks, n, departure, &plan, 1);
    snprintf(words, sizeof words,
             "rank 1 has left a communicator of %d ranks (its handle was destroyed), in which rank ", n);
    for (int r = 0; r < n; r++) {
      if (plan.of_world && (r == 1 || (message && r))) continue;
      if (ranks.codes[r] >= 0 || !strstr(ranks.messages[r], words) || !strstr(ranks.messages[r], call_of[plan.wait]))
        fail_msg("wait %d, world's %d, late %d, rank %d of %d: code %d, %s", plan.wait, plan.of_world, plan.late, r, n,
                 ranks.codes[r], ranks.messages[r]);
    }
  }
}

// Where the communicator is not there yet. The rank has no other handle to create one with.
static int creation(Ranks *ranks, PlaitComm *world, int rank) {
  PlaitComm *comm;
  int late = *(int *)ranks->context, list[3] = {late == 2 ? 1 : 0, late == 2 ? 0 : 1, 2};
  if (rank == 1 ? late : !late) usleep(5000);
  return rank == 1 ? 0 : plait_comm_create(world, list, 3, &comm, NULL);
}

static void test_creation(void **state) {
  Ranks ranks;
  if (!ranks_can_fail()) return;
  for (int late = 0; late < 3; late++) {
    assert_int_equal(ranks_run(&ranks, 3, creation, &late, 1), 2);
    for (int r = 0; r < 3; r += 2)
      if (!strstr(ranks.messages[r], "but rank 1 has destroyed all its handles and cannot join"))
        fail_msg("%s", ranks.messages[r]);
  }
}

// Communicators that every rank destroys as soon as its own last call is done, large and small calls, with a message at
// the end.
static int in_time(Ranks *ranks, PlaitComm *world, int rank) {
  enum { ROUNDS = 300, MOST = 6000 };
  static float x[8][2 * MOST];
  int n = ranks->n, all[8], code = 0;
  for (int r = 0; r < n; r++) all[r] = r;
  for (int round = 0; round < ROUNDS && !code; round++) {
    PlaitComm *comm;
    PlaitEvent sent = {0};
    PlaitBuffer list = {x[rank], x[rank] + MOST, (size_t)(round % 3 ? 5 : MOST)};
    if ((code = plait_comm_create(world, all, n, &comm, NULL))) return code;
    for (int i = 0; i <= round % 4 && !code; i++)
      code = plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
    if (!code && rank && round % 2)
      code = plait_send(comm, &list, 1, PLAIT_FP32, 0, NULL, round % 4 == 1 ? &sent : NULL);
    for (int r = 1; r < n && !rank && round % 2 && !code; r++)
      code = plait_recv(comm, &list, 1, PLAIT_FP32, r, NULL, NULL);
    if (!code) code = plait_event_wait(sent);
    plait_comm_destroy(comm);
  }
  return code;
}

static void test_in_time(void **state) {
  Ranks ranks;
  for (int n = 1; n <= 8; n *= 2) assert_int_equal(ranks_run(&ranks, n, in_time, NULL, 0), 0);
}

// At any moment: nobody hangs, and who returns an error has the sentence.
static int any_moment(Ranks *ranks, PlaitComm *world, int rank) {
  int code = 0, delay = *(int *)ranks->context;
  for (int i = 0; i < (rank == 1 ? delay % 5 : 6) && !code; i++) code = plait_barrier(world, NULL, NULL);
  for (volatile int spin = delay * (rank == 1) * 20; spin > 0;) spin = spin - 1;
  return code;
}

static void test_any_moment(void **state) {
  Ranks ranks;
  if (!ranks_can_fail()) return;
  for (int delay = 0; delay < 300; delay++) {
    assert_int_equal(ranks_run(&ranks, 3, any_moment, &delay, 1), 2);
    for (int r = 0; r < 3; r += 2) assert_non_null(strstr(ranks.messages[r], "rank 1 has left"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_departure), cmocka_unit_test(test_creation),
                                     cmocka_unit_test(test_in_time), cmocka_unit_test(test_any_moment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
