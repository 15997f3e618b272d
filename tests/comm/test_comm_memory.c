// tier 1; threads
// With what will be under way reserved, calls allocate nothing, whatever the lengths of their lists; the memory that is
// reserved is there at once. mallinfo2 sees nothing under a sanitizer.
#include "base/error.h"
#include "base/memory_usage.h"
#include "comm/comm.h"
#include "ranks.h"
#include "draw.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 90, BUFFERS = 3000, ROUNDS = 40, RANKS_MOST = 3 };

static size_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static void fill(PlaitBuffer *list, float *x, size_t n) {
  for (size_t i = 0; i < n; i++) list[i] = (PlaitBuffer){x + i, x + i, 1};
}

typedef struct Turn {
  PlaitComm *comm, *pair;
  PlaitStream *stream;
  float *x;
  PlaitBuffer *list;
  PlaitEvent *event;
  int rank, ranks, borrows;
  uint64_t state;
} Turn;

// As many calls as may be, with lists of one buffer to all that are left.
static int collectives(Turn *t) {
  size_t left = BUFFERS, calls = 1 + draw_below(&t->state, CALLS), at = 0;
  int code = 0;
  for (size_t c = 0; c < calls && !code; c++) {
    size_t spare = left - (calls - c),
           n = 1 + (draw_below(&t->state, 4) ? draw_below(&t->state, spare / 8 + 1) : draw_below(&t->state, spare + 1));
    fill(t->list + at, t->x + at, n);
    code = plait_all_reduce(t->comm, t->list + at, n, PLAIT_FP32, PLAIT_SUM, t->stream, &t->event[c]);
    if (!t->borrows) memset(t->list + at, 0, n * sizeof *t->list);
    left -= n;
    at += n;
  }
  return code ? code : plait_event_wait(t->event[calls - 1]);
}

// As many exchanges with counts of their own as may be; rank p sends (c + p · r) % 7 numbers to rank r in call c.
static int exchanges(Turn *t) {
  size_t calls = 1 + draw_below(&t->state, CALLS);
  int code = 0;
  for (size_t c = 0; c < calls && !code; c++) {
    size_t sent[RANKS_MOST], received[RANKS_MOST];
    for (size_t r = 0; r < (size_t)t->ranks; r++) {
      sent[r] = (c + (size_t)t->rank * r) % 7;
      received[r] = (c + r * (size_t)t->rank) % 7;
    }
    code = plait_all_to_all_v(t->comm, t->x, sent, NULL, t->x + BUFFERS, received, NULL, PLAIT_FP32, t->stream,
                              &t->event[c]);
  }
  return code ? code : plait_event_wait(t->event[calls - 1]);
}

// Around a ring, all sends before the first receive.
static int messages(Turn *t) {
  size_t left = BUFFERS, sends = 1 + draw_below(&t->state, CALLS), count[CALLS], at = 0;
  int code = 0, next = (t->rank + 1) % t->ranks, previous = (t->rank + t->ranks - 1) % t->ranks;
  for (size_t m = 0; m < sends && !code; m++) {
    size_t n = 1 + draw_below(&t->state, left - (sends - m) + 1);
    fill(t->list, t->x + at, n);
    code = plait_send(t->comm, t->list, n, PLAIT_FP32, next, NULL, &t->event[m]);
    count[m] = n;
    left -= n;
    at += n;
  }
  for (size_t m = 0; m < sends && !code; m++)
    code = plait_recv(t->comm, &(PlaitBuffer){NULL, t->x + BUFFERS, count[m]}, 1, PLAIT_FP32, previous, NULL, NULL);
  for (size_t m = 0; m < sends && !code; m++) code = plait_event_wait(t->event[m]);
  return code;
}

// All ranks are between two barriers when rank 0 looks.
static int look(PlaitComm *comm, size_t *bytes) {
  int code = plait_barrier(comm, NULL, NULL);
  *bytes = allocated();
  return code ? code : plait_barrier(comm, NULL, NULL);
}

static int steady(Ranks *ranks, PlaitComm *comm, int rank) {
  size_t before, after;
  Turn t = {
      .comm = comm, .rank = rank, .ranks = ranks->n, .borrows = *(int *)ranks->context, .state = DRAW_SEED};
  t.x = xcalloc(2 * BUFFERS, sizeof *t.x);
  t.list = xcalloc(BUFFERS, sizeof *t.list);
  t.event = xcalloc(CALLS, sizeof *t.event);
  int code = plait_stream_create(comm, &t.stream, NULL);
  if (code) return code;
  if (t.borrows) stream_borrow_lists(t.stream);
  stream_reserve(t.stream, CALLS, t.borrows ? CALLS * (1 + 2 * (size_t)ranks->n) : BUFFERS);
  comm_reserve_messages(comm, (rank + 1) % ranks->n, CALLS, BUFFERS);
  code = look(comm, &before);
  for (int round = 0; round < ROUNDS && !code; round++) {
    code = collectives(&t);
    if (!code) code = exchanges(&t);
    if (!code) code = messages(&t);
  }
  if (!code) code = look(comm, &after);
  plait_stream_destroy(t.stream);
  free(t.x);
  free(t.list);
  free(t.event);
  if (!code && after != before) return ranks_fail(ranks, rank, "allocated: %zu bytes, and later %zu", before, after);
  return code;
}

static void test_steady(void **state) {
  Ranks ranks;
  for (int borrows = 0; borrows < 2; borrows++)
    for (int n = 1; n <= 3; n++) assert_int_equal(ranks_run(&ranks, n, steady, &borrows, 0), 0);
}

// Pages that nobody has written to would come one by one with the calls.
static int touched(Ranks *ranks, PlaitComm *comm, int rank) {
  enum { MANY = 200000 };
  PlaitStream *stream;
  int code = plait_stream_create(comm, &stream, NULL);
  if (code) return code;
  int64_t before = memory_usage_anonymous();
  stream_reserve(stream, 1, MANY);
  int64_t queued = memory_usage_anonymous();
  comm_reserve_messages(comm, 0, 1, MANY);
  int64_t sent = memory_usage_anonymous(), least = MANY * (int64_t)sizeof(PlaitBuffer);
  plait_stream_destroy(stream);
  EXPECT(queued - before >= least && sent - queued >= least);
  return 0;
}

static void test_touched(void **state) {
  Ranks ranks;
  assert_int_equal(ranks_run(&ranks, 1, touched, NULL, 0), 0);
}

int main(void) {
  mallopt(M_ARENA_MAX, 1); // mallinfo2 counts the main one
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steady), cmocka_unit_test(test_touched)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
