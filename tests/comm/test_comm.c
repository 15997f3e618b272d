// tier 1 2; rooms device; threads numbers
// Every collective × dtype × 1 to 8 ranks × odd sizes × buffer lists × in place or not, bit for bit against plain
// loops.
#include "base/dtype.h"
#include "base/error.h"
#include "ranks.h"
#include "../tier.h" // programs of processes have tests/comm alone in their path
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 8, LARGEST = 4097, ELEMENTS = RANKS * LARGEST + 64, BUFFERS = 3 };
static const size_t sizes[] = {0, 1, 3, 17, 1000, LARGEST};

// What rank r sends begins at data[dtype][r] + 13 · buffer, so that every rank knows what it must receive.
typedef struct Data {
  int n;
  char *data[PLAIT_DTYPE_COUNT][RANKS];
  char *reduced[PLAIT_DTYPE_COUNT][PLAIT_OP_COUNT]; // over ranks 0 … n-1
} Data;

static uint64_t hash(uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return x ^ x >> 32;
}

static void make_data(Data *d) {
  for (int t = 0; t < PLAIT_DTYPE_COUNT; t++)
    for (int r = 0; r < RANKS; r++) {
      d->data[t][r] = xcalloc(ELEMENTS, 8);
      for (int i = 0; i < ELEMENTS; i++) {
        int32_t x = (int32_t)hash((uint64_t)(t * RANKS + r) * ELEMENTS + (uint64_t)i);
        double value = dtype_is_float((Dtype)t) ? x / 65536.0 / (1 + (i & 1023))
                       : t == PLAIT_UINT8       ? x & 255
                                                : x & 65535;
        if (t == PLAIT_INT64 || t == PLAIT_INT32) value = x; // sums of int32 wrap around
        dtype_store(d->data[t][r], (Dtype)t, i, value);
      }
    }
  for (int t = 0; t < PLAIT_DTYPE_COUNT; t++)
    for (int op = 0; op < PLAIT_OP_COUNT; op++) d->reduced[t][op] = xcalloc(ELEMENTS, 8);
}

static void free_data(Data *d) {
  for (int t = 0; t < PLAIT_DTYPE_COUNT; t++) {
    for (int r = 0; r < RANKS; r++) free(d->data[t][r]);
    for (int op = 0; op < PLAIT_OP_COUNT; op++) free(d->reduced[t][op]);
  }
}

static double combine(PlaitOp op, double a, double b, int is_double) {
  if (op == PLAIT_MAX) return a > b ? a : b;
  if (op == PLAIT_MIN) return a < b ? a : b;
  return is_double ? a + b : (double)((float)a + (float)b);
}

static void reduce_floats(Data *d, int t, PlaitOp op, int i) {
  double sum = dtype_load(d->data[t][0], (Dtype)t, i);
  for (int r = 1; r < d->n; r++) sum = combine(op, sum, dtype_load(d->data[t][r], (Dtype)t, i), t == PLAIT_FP64);
  if (op == PLAIT_MEAN) sum = t == PLAIT_FP64 ? sum / d->n : (double)((float)sum / (float)d->n);
  dtype_store(d->reduced[t][op], (Dtype)t, i, sum);
}

static void reduce_integers(Data *d, int t, PlaitOp op, int i) {
  int64_t sum = (int64_t)dtype_load(d->data[t][0], (Dtype)t, i); // exact: all values have 32 bits
  for (int r = 1; r < d->n; r++) {
    int64_t x = (int64_t)dtype_load(d->data[t][r], (Dtype)t, i);
    sum = op == PLAIT_MAX ? (x > sum ? x : sum) : op == PLAIT_MIN ? (x < sum ? x : sum) : x + sum;
  }
  memcpy(d->reduced[t][op] + (size_t)i * dtype_size((Dtype)t), &sum,
         dtype_size((Dtype)t)); // little endian: the low bytes
}

static void reduce_data(Data *d, int n) {
  d->n = n;
  for (int t = 0; t < PLAIT_DTYPE_COUNT; t++)
    for (int op = 0; op < PLAIT_OP_COUNT; op++)
      for (int i = 0; i < ELEMENTS; i++) {
        if (dtype_is_float((Dtype)t))
          reduce_floats(d, t, (PlaitOp)op, i);
        else if (op != PLAIT_MEAN)
          reduce_integers(d, t, (PlaitOp)op, i);
      }
}

// One case: buffer b has counts[b] elements; `send` and `recv` have room for n parts each.
typedef struct Case {
  Ranks *ranks;
  PlaitComm *comm;
  const Data *data;
  int rank, n, root, in_place;
  PlaitDtype dtype;
  PlaitOp op;
  size_t size, nbuffers, counts[BUFFERS];
  char *send[BUFFERS], *recv[BUFFERS];
  PlaitBuffer list[BUFFERS];
} Case;

enum { PATTERN = 0xa5 };

static const char *sent_by(const Case *c, int rank, size_t b, size_t element) {
  return c->data->data[c->dtype][rank] + (13 * b + element) * c->size;
}
static const char *reduced(const Case *c, size_t b, size_t element) {
  return c->data->reduced[c->dtype][c->op] + (13 * b + element) * c->size;
}

// Fills send with send_parts parts and recv with a pattern. In place one is put inside the other.
static void prepare(Case *c, int send_parts, int recv_parts, int in_place) {
  for (size_t b = 0; b < c->nbuffers; b++) {
    size_t part = c->counts[b] * c->size;
    memset(c->recv[b], PATTERN, part * (size_t)c->n + 8);
    memcpy(c->send[b], sent_by(c, c->rank, b, 0), part * (size_t)(send_parts ? c->n : 1));
    c->list[b] = (PlaitBuffer){c->send[b], c->recv[b], c->counts[b]};
    if (!in_place) continue;
    char *place = c->recv[b] + (recv_parts ? part * (size_t)c->rank : 0);
    if (send_parts) {
      c->list[b].recv = c->send[b] + part * (size_t)c->rank;
    } else {
      memcpy(place, c->send[b], part);
      c->list[b].send = place;
    }
  }
}

static int differs(const Case *c, const char *call, size_t b, const void *expected, const void *got, size_t count) {
  if (!memcmp(expected, got, count * c->size)) return 0;
  return ranks_fail(c->ranks, c->rank, "%s: %d ranks, %s, op %d, root %d, buffer %zu of %zu, %zu elements, in place %d",
                    call, c->n, dtype_name((Dtype)c->dtype), c->op, c->root, b, c->nbuffers, c->counts[b], c->in_place);
}

static int untouched(const Case *c, const char *call, size_t b, size_t from, size_t bytes) {
  for (size_t i = from; i < from + bytes; i++)
    if ((unsigned char)c->recv[b][i] != PATTERN)
      return ranks_fail(c->ranks, c->rank, "%s wrote where it must not, %d ranks, buffer %zu", call, c->n, b);
  return 0;
}

static int test_reductions(Case *c) {
  int code = 0;
  prepare(c, 0, 0, c->in_place);
  if ((code = plait_all_reduce(c->comm, c->list, c->nbuffers, c->dtype, c->op, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    if (differs(c, "all_reduce", b, reduced(c, b, 0), c->list[b].recv, c->counts[b]) ||
        untouched(c, "all_reduce", b, c->counts[b] * c->size, 8))
      return 1;
  prepare(c, 0, 0, c->in_place && c->rank == c->root);
  if ((code = plait_reduce(c->comm, c->list, c->nbuffers, c->dtype, c->op, c->root, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    if (c->rank == c->root ? differs(c, "reduce", b, reduced(c, b, 0), c->list[b].recv, c->counts[b])
                           : untouched(c, "reduce", b, 0, c->counts[b] * c->size))
      return 1;
  prepare(c, 1, 0, c->in_place);
  if ((code = plait_reduce_scatter(c->comm, c->list, c->nbuffers, c->dtype, c->op, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    if (differs(c, "reduce_scatter", b, reduced(c, b, (size_t)c->rank * c->counts[b]), c->list[b].recv, c->counts[b]))
      return 1;
  return 0;
}

// all_reduce of n · count elements = reduce_scatter, then all_gather of the parts, bit for bit.
static int test_identity(Case *c) {
  int code;
  size_t count = c->counts[0], bytes = count * c->size;
  PlaitBuffer whole = {sent_by(c, c->rank, 0, 0), c->recv[0], count * (size_t)c->n};
  if ((code = plait_all_reduce(c->comm, &whole, 1, c->dtype, c->op, NULL, NULL))) return code;
  memcpy(c->send[0], whole.send, bytes * (size_t)c->n);
  PlaitBuffer scattered = {c->send[0], c->send[0] + bytes * (size_t)c->rank, count};
  if ((code = plait_reduce_scatter(c->comm, &scattered, 1, c->dtype, c->op, NULL, NULL))) return code;
  PlaitBuffer gathered = {c->send[0] + bytes * (size_t)c->rank, c->send[0], count};
  if ((code = plait_all_gather(c->comm, &gathered, 1, c->dtype, NULL, NULL))) return code;
  return differs(c, "all_reduce = reduce_scatter + all_gather", 0, c->recv[0], c->send[0], whole.count);
}

static int test_gathers(Case *c) {
  int code, is_root = c->rank == c->root;
  prepare(c, 0, 1, c->in_place);
  if ((code = plait_all_gather(c->comm, c->list, c->nbuffers, c->dtype, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    for (int p = 0; p < c->n; p++)
      if (differs(c, "all_gather", b, sent_by(c, p, b, 0), c->recv[b] + (size_t)p * c->counts[b] * c->size,
                  c->counts[b]))
        return 1;
  prepare(c, 0, 1, c->in_place && is_root);
  if ((code = plait_gather(c->comm, c->list, c->nbuffers, c->dtype, c->root, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++) {
    size_t part = c->counts[b] * c->size;
    if (!is_root && untouched(c, "gather", b, 0, part * (size_t)c->n)) return 1;
    for (int p = 0; is_root && p < c->n; p++)
      if (differs(c, "gather", b, sent_by(c, p, b, 0), c->recv[b] + (size_t)p * part, c->counts[b])) return 1;
  }
  return 0;
}

static int test_from_root(Case *c) {
  int code, is_root = c->rank == c->root;
  prepare(c, 0, 0, c->in_place && is_root);
  for (size_t b = 0; b < c->nbuffers && !c->in_place; b++) {
    if (!is_root) c->list[b].send = NULL;
    if (is_root) c->list[b].recv = NULL;
  }
  if ((code = plait_broadcast(c->comm, c->list, c->nbuffers, c->dtype, c->root, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    if (c->list[b].recv && differs(c, "broadcast", b, sent_by(c, c->root, b, 0), c->list[b].recv, c->counts[b]))
      return 1;
  prepare(c, 1, 0, c->in_place && is_root);
  if ((code = plait_scatter(c->comm, c->list, c->nbuffers, c->dtype, c->root, NULL, NULL))) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    if (differs(c, "scatter", b, sent_by(c, c->root, b, (size_t)c->rank * c->counts[b]), c->list[b].recv, c->counts[b]))
      return 1;
  return 0;
}

static int test_all_to_all(Case *c) {
  prepare(c, 1, 1, 0);
  int code = plait_all_to_all(c->comm, c->list, c->nbuffers, c->dtype, NULL, NULL);
  if (code) return code;
  for (size_t b = 0; b < c->nbuffers; b++)
    for (int p = 0; p < c->n; p++)
      if (differs(c, "all_to_all", b, sent_by(c, p, b, (size_t)c->rank * c->counts[b]),
                  c->recv[b] + (size_t)p * c->counts[b] * c->size, c->counts[b]))
        return 1;
  return 0;
}

// By every distance, in both directions and further than once around.
static int test_shift(Case *c) {
  for (int distance = -c->n; distance <= c->n + 1; distance++) {
    int whole_turns = distance % c->n == 0;
    prepare(c, 0, 0, whole_turns && c->in_place);
    int code = plait_shift(c->comm, c->list, c->nbuffers, c->dtype, distance, NULL, NULL);
    if (code) return code;
    for (size_t b = 0; b < c->nbuffers; b++)
      if (differs(c, "shift", b, sent_by(c, (c->rank - distance + 2 * c->n) % c->n, b, 0), c->recv[b], c->counts[b]) ||
          untouched(c, "shift", b, c->counts[b] * c->size, 8))
        return 1;
  }
  return 0;
}

// Parts that lie apart, and in descending order. A rank's strides are its own affair: here they differ between ranks.
enum { GAP = 5 };

static ptrdiff_t stride_of(const Case *c, size_t b, int turn) {
  ptrdiff_t stride = (ptrdiff_t)c->counts[b];
  if ((turn + c->rank) % 3) stride += GAP;
  return (turn + c->rank) % 2 ? -stride : stride;
}

// The address of part 0 of n parts in `memory`, so that all of them lie in it.
static char *first_part(const Case *c, char *memory, ptrdiff_t stride) {
  return stride < 0 ? memory - stride * (c->n - 1) * (ptrdiff_t)c->size : memory;
}

static void prepare_strided(Case *c, int turn, int send_parts, int recv_parts) {
  for (size_t b = 0; b < c->nbuffers; b++) {
    ptrdiff_t send = send_parts ? stride_of(c, b, turn) : 0, recv = recv_parts ? stride_of(c, b, turn + 1) : 0;
    size_t part = c->counts[b] * c->size;
    memset(c->recv[b], PATTERN, (size_t)c->n * (part + GAP * c->size));
    c->list[b] = (PlaitBuffer){first_part(c, c->send[b], send), first_part(c, c->recv[b], recv), c->counts[b], send,
                               recv};
    for (int p = 0; p < (send_parts ? c->n : 1); p++)
      memcpy((char *)(uintptr_t)c->list[b].send + p * send * (ptrdiff_t)c->size,
             sent_by(c, c->rank, b, (size_t)p * c->counts[b]), part);
  }
}

// Part p of what was received must be `expected`, and what lies between the parts as it was.
static int wrong_part(const Case *c, const char *call, size_t b, int p, const void *expected) {
  ptrdiff_t stride = c->list[b].recv_stride ? c->list[b].recv_stride : (ptrdiff_t)c->counts[b];
  const char *at = (const char *)c->list[b].recv + p * stride * (ptrdiff_t)c->size;
  if (differs(c, call, b, expected, at, c->counts[b])) return 1;
  size_t gap = (size_t)(stride < 0 ? -stride : stride) - c->counts[b];
  return untouched(c, call, b, (size_t)(at - c->recv[b]) + c->counts[b] * c->size, gap * c->size);
}

static int test_strides(Case *c) {
  int code, is_root = c->rank == c->root;
  for (int turn = 0; turn < 6; turn++) {
    prepare_strided(c, turn, 1, 1);
    if ((code = plait_all_to_all(c->comm, c->list, c->nbuffers, c->dtype, NULL, NULL))) return code;
    for (size_t b = 0; b < c->nbuffers; b++)
      for (int p = 0; p < c->n; p++)
        if (wrong_part(c, "all_to_all", b, p, sent_by(c, p, b, (size_t)c->rank * c->counts[b]))) return 1;
    prepare_strided(c, turn, 0, 1);
    if ((code = plait_all_gather(c->comm, c->list, c->nbuffers, c->dtype, NULL, NULL))) return code;
    for (size_t b = 0; b < c->nbuffers; b++)
      for (int p = 0; p < c->n; p++)
        if (wrong_part(c, "all_gather", b, p, sent_by(c, p, b, 0))) return 1;
    prepare_strided(c, turn, 0, 1);
    if ((code = plait_gather(c->comm, c->list, c->nbuffers, c->dtype, c->root, NULL, NULL))) return code;
    for (size_t b = 0; b < c->nbuffers && is_root; b++)
      for (int p = 0; p < c->n; p++)
        if (wrong_part(c, "gather", b, p, sent_by(c, p, b, 0))) return 1;
    prepare_strided(c, turn, 1, 0);
    if ((code = plait_scatter(c->comm, c->list, c->nbuffers, c->dtype, c->root, NULL, NULL))) return code;
    for (size_t b = 0; b < c->nbuffers; b++)
      if (wrong_part(c, "scatter", b, 0, sent_by(c, c->root, b, (size_t)c->rank * c->counts[b]))) return 1;
    prepare_strided(c, turn, 1, 0);
    if ((code = plait_reduce_scatter(c->comm, c->list, c->nbuffers, c->dtype, PLAIT_SUM, NULL, NULL))) return code;
    c->op = PLAIT_SUM;
    for (size_t b = 0; b < c->nbuffers; b++)
      if (wrong_part(c, "reduce_scatter", b, 0, reduced(c, b, (size_t)c->rank * c->counts[b]))) return 1;
  }
  return 0;
}

// Rank p sends (p · 7 + r · 3) % (count + 1) elements to rank r.
static size_t ragged(const Case *c, int p, int r) { return (size_t)(p * 7 + r * 3) % (c->counts[0] + 1); }

static int test_v(Case *c) {
  size_t counts[RANKS], offsets[RANKS], sends[RANKS], at = 0, from[RANKS];
  prepare(c, 1, 1, 0);
  for (int p = 0; p < c->n; p++) counts[p] = ragged(c, p, 0), offsets[p] = (size_t)(c->n - 1 - p) * c->counts[0];
  int code = plait_all_gather_v(c->comm, c->send[0], counts[c->rank], c->recv[0], counts, c->in_place ? NULL : offsets,
                                c->dtype, NULL, NULL);
  for (int p = 0; p < c->n && !code; p++) {
    code = differs(c, "all_gather_v", 0, sent_by(c, p, 0, 0), c->recv[0] + (c->in_place ? at : offsets[p]) * c->size,
                   counts[p]);
    at += counts[p];
  }
  for (int p = 0; p < c->n; p++) counts[p] = ragged(c, p, c->rank), sends[p] = ragged(c, c->rank, p);
  for (int p = 0; p < c->n; p++) // where rank p has what it sends to this rank
    for (int r = from[p] = 0; r < c->rank; r++) from[p] += c->in_place ? ragged(c, p, r) : c->counts[0];
  size_t regular[RANKS];
  for (int p = 0; p < c->n; p++) regular[p] = (size_t)p * c->counts[0];
  if (!code)
    code = plait_all_to_all_v(c->comm, c->send[0], sends, c->in_place ? NULL : regular, c->recv[0], counts,
                              c->in_place ? NULL : offsets, c->dtype, NULL, NULL);
  at = 0;
  for (int p = 0; p < c->n && !code; p++) {
    code = differs(c, "all_to_all_v", 0, sent_by(c, p, 0, from[p]),
                   c->recv[0] + (c->in_place ? at : offsets[p]) * c->size, counts[p]);
    at += counts[p];
  }
  return code;
}

// Around a ring, asynchronously: the send must not wait for its receiver.
static int test_ring(Case *c) {
  PlaitEvent sent;
  int next = (c->rank + 1) % c->n, previous = (c->rank + c->n - 1) % c->n;
  prepare(c, 0, 0, 0);
  int code = plait_send(c->comm, c->list, c->nbuffers, c->dtype, next, NULL, &sent);
  if (!code) code = plait_recv(c->comm, c->list, c->nbuffers, c->dtype, previous, NULL, NULL);
  for (size_t b = 0; b < c->nbuffers && !code; b++)
    code = differs(c, "send/recv", b, sent_by(c, previous, b, 0), c->recv[b], c->counts[b]);
  int waited = plait_event_wait(sent); // before this frame's memory may go, whatever happened
  return code ? code : waited;
}

static int run_case(Case *c) {
  int code = 0;
  for (int op = 0; op < PLAIT_OP_COUNT && !code; op++) {
    if (op == PLAIT_MEAN && !dtype_is_float((Dtype)c->dtype)) continue;
    c->op = (PlaitOp)op;
    code = test_reductions(c);
    if (!code) code = test_identity(c);
  }
  if (!code) code = test_gathers(c);
  if (!code) code = test_from_root(c);
  if (!code) code = test_all_to_all(c);
  if (!code) code = test_shift(c);
  if (!code && !c->in_place) code = test_strides(c);
  if (!code) code = test_v(c);
  if (!code) code = test_ring(c);
  return code ? code : plait_barrier(c->comm, NULL, NULL);
}

static int all_cases(Ranks *ranks, PlaitComm *comm, int rank) {
  Case c = {.ranks = ranks, .comm = comm, .rank = rank, .n = ranks->n, .data = ranks->context};
  int code = 0;
  for (int b = 0; b < BUFFERS; b++) c.send[b] = xcalloc(ELEMENTS, 8), c.recv[b] = xcalloc(ELEMENTS, 8);
  for (int t = 0; t < PLAIT_DTYPE_COUNT && !code; t++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !code; s++)
      for (int variant = 0; variant < 4 && !code; variant++) {
        c.dtype = (PlaitDtype)t;
        c.size = dtype_size((Dtype)t);
        c.nbuffers = variant & 1 ? BUFFERS : 1;
        c.in_place = variant >> 1;
        c.root = (int)(s + (size_t)t) % c.n;
        memcpy(c.counts, (size_t[]){sizes[s], variant & 2 ? 5 : 0, sizes[s] / 2 + 1}, sizeof c.counts);
        code = run_case(&c);
      }
  for (int b = 0; b < BUFFERS; b++) free(c.send[b]), free(c.recv[b]);
  return code;
}

static void test_all(void **state) {
  Data data = {0};
  Ranks ranks;
  int failed = 0;
  make_data(&data);
  for (int n = 1; n <= RANKS && !failed; n++) {
    if (test_tier() == 1 && n != 2 && n != 5) continue; // a sample
    reduce_data(&data, n);
    failed = ranks_run(&ranks, n, all_cases, &data, 0);
  }
  free_data(&data);
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
