#include "chains.h"
#include "base/dtype.h"
#include "base/error.h"
#include "comm/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 << 18, BUFFERS = 5 }; // elements; buffers of a list

typedef struct Check {
  PlaitWorld *world;
  PlaitComm *comm;
  int rank, ranks;
  char *input, *direct, *chained; // (MOST) of 8 bytes
  char *text;
  size_t size;
} Check;

static uint64_t hash(uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return x ^ x >> 32;
}

static void fill(const Check *c, PlaitDtype dtype) {
  for (size_t i = 0; i < MOST; i++) {
    int32_t x = (int32_t)hash((uint64_t)(c->rank + 1) * MOST + i);
    double value = dtype_is_float((Dtype)dtype) ? x / 65536.0 / (double)(1 + (i & 1023)) : x & 255;
    dtype_store(c->input, (Dtype)dtype, (int64_t)i, value);
  }
}

// Buffers of unequal lengths.
static void cut(PlaitBuffer *list, size_t buffers, char *send, char *recv, size_t total, size_t bytes) {
  size_t at = 0;
  for (size_t b = 0; b < buffers; b++) {
    size_t count = b == buffers - 1 ? total - at : total / buffers / 2 * b;
    list[b] = (PlaitBuffer){send + at * bytes, recv + at * bytes, count};
    at += count;
  }
}

static int reduce(const Check *c, int group, PlaitDtype dtype, PlaitOp op, size_t total, size_t buffers, int in_place,
                  char *result) {
  PlaitBuffer list[BUFFERS];
  size_t bytes = dtype_size((Dtype)dtype);
  memset(result, 0x5a, total * bytes + 8);
  if (in_place) memcpy(result, c->input, total * bytes);
  cut(list, buffers, in_place ? result : c->input, result, total, bytes);
  process_set_chain(c->world, group);
  return plait_all_reduce(c->comm, list, buffers, dtype, op, NULL, NULL);
}

static int compare(const Check *c, PlaitDtype dtype, PlaitOp op, size_t total, size_t buffers) {
  size_t bytes = total * dtype_size((Dtype)dtype) + 8;
  int code = reduce(c, -1, dtype, op, total, buffers, 0, c->direct);
  for (int group = 1; group < c->ranks && !code; group++)
    for (int in_place = 0; in_place < 2 && !code && c->ranks % group == 0; in_place++) {
      code = reduce(c, group, dtype, op, total, buffers, in_place, c->chained);
      if (code) break;
      if (in_place) memset(c->chained + bytes - 8, 0x5a, 8);
      if (!memcmp(c->direct, c->chained, bytes)) continue;
      snprintf(c->text, c->size, "%s, op %d, %zu elements in %zu buffers, %d ranks in groups of %d, in place %d",
               dtype_name((Dtype)dtype), op, total, buffers, c->ranks, group, in_place);
      return 1;
    }
  if (code) snprintf(c->text, c->size, "%s", plait_comm_error(c->comm));
  return code;
}

// reduce_scatter of two buffers.
static int scatter(const Check *c, int group, PlaitDtype dtype, PlaitOp op, size_t count, int in_place, char *memory,
                   char *result) {
  size_t n = (size_t)c->ranks, bytes = count * dtype_size((Dtype)dtype);
  PlaitBuffer list[2];
  memcpy(memory, c->input, 2 * n * bytes);
  memset(result, 0x5a, 2 * bytes + 8);
  for (size_t b = 0; b < 2; b++) {
    char *all = memory + b * n * bytes;
    list[b] = (PlaitBuffer){all, in_place ? all + (size_t)c->rank * bytes : result + b * bytes, count};
  }
  process_set_chain(c->world, group);
  int code = plait_reduce_scatter(c->comm, list, 2, dtype, op, NULL, NULL);
  for (size_t b = 0; b < 2 && in_place; b++) memcpy(result + b * bytes, list[b].recv, bytes);
  return code;
}

static int compare_scatters(const Check *c, PlaitDtype dtype, PlaitOp op, size_t count) {
  size_t bytes = 2 * count * dtype_size((Dtype)dtype) + 8;
  char *memory = xcalloc(2 * (size_t)c->ranks * count + 1, 8);
  int code = scatter(c, -1, dtype, op, count, 0, memory, c->direct);
  for (int group = 1; group < c->ranks && !code; group++)
    for (int in_place = 0; in_place < 2 && !code && c->ranks % group == 0; in_place++) {
      code = scatter(c, group, dtype, op, count, in_place, memory, c->chained);
      if (code || !memcmp(c->direct, c->chained, bytes)) continue;
      snprintf(c->text, c->size, "reduce_scatter of %zu %s, op %d, %d ranks in groups of %d, in place %d", count,
               dtype_name((Dtype)dtype), op, c->ranks, group, in_place);
      code = 1;
    }
  if (code < 0) snprintf(c->text, c->size, "%s", plait_comm_error(c->comm));
  free(memory);
  return code;
}

// all_gather of two buffers by groups, which moves bytes only.
static int gather(const Check *c, int group, size_t count, int in_place, char *result) {
  size_t n = (size_t)c->ranks, bytes = count * 4;
  PlaitBuffer list[2];
  memset(result, 0x5a, 2 * n * bytes + 8);
  for (size_t b = 0; b < 2; b++) {
    char *all = result + b * n * bytes, *own = all + (size_t)c->rank * bytes;
    if (in_place) memcpy(own, c->input + b * bytes, bytes);
    list[b] = (PlaitBuffer){in_place ? own : c->input + b * bytes, all, count};
  }
  process_set_chain(c->world, group);
  return plait_all_gather(c->comm, list, 2, PLAIT_FP32, NULL, NULL);
}

static int compare_gathers(const Check *c, size_t count) {
  size_t bytes = 2 * (size_t)c->ranks * count * 4 + 8;
  int code = gather(c, -1, count, 0, c->direct);
  for (int group = 1; group < c->ranks && !code; group++)
    for (int in_place = 0; in_place < 2 && !code && c->ranks % group == 0; in_place++) {
      code = gather(c, group, count, in_place, c->chained);
      if (code || !memcmp(c->direct, c->chained, bytes)) continue;
      snprintf(c->text, c->size, "all_gather of %zu elements, %d ranks in groups of %d, in place %d", count, c->ranks,
               group, in_place);
      return 1;
    }
  if (code < 0) snprintf(c->text, c->size, "%s", plait_comm_error(c->comm));
  return code;
}

int chains_check(PlaitWorld *world, PlaitComm *comm, char *text, size_t size) {
  static const size_t totals[] = {0, 1, 63, 4097, 70001, MOST - 17};
  Check c = {world, comm, plait_comm_rank(comm), plait_comm_size(comm), .text = text, .size = size};
  int code = 0;
  c.input = xcalloc(MOST + 1, 8);
  c.direct = xcalloc(MOST + 1, 8);
  c.chained = xcalloc(MOST + 1, 8);
  for (int t = 0; t < PLAIT_DTYPE_COUNT && !code; t++) {
    fill(&c, (PlaitDtype)t);
    for (size_t i = 0; i < sizeof totals / sizeof *totals && !code; i++) {
      int ops = totals[i] > 5000 ? 1 : PLAIT_OP_COUNT; // the long ones once
      for (int op = 0; op < ops && !code; op++)
        if (op != PLAIT_MEAN || dtype_is_float((Dtype)t))
          code = compare(&c, (PlaitDtype)t, (PlaitOp)op, totals[i], 1 + (i + (size_t)op) % BUFFERS);
    }
    static const size_t parts[] = {1, 777, 70001};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !code; i++)
      code = compare_scatters(&c, (PlaitDtype)t, dtype_is_float((Dtype)t) && i ? PLAIT_MEAN : PLAIT_SUM, parts[i]);
  }
  static const size_t counts[] = {0, 1, 1000, 40000};
  for (size_t i = 0; i < sizeof counts / sizeof *counts && !code; i++) code = compare_gathers(&c, counts[i]);
  process_set_chain(world, 0);
  free(c.input);
  free(c.direct);
  free(c.chained);
  return code;
}
