// The collectives of comm.h as plait bench comm calls them: in place where they can be.
#include "cmd/bench_comm.h"

static char *part(const BenchCall *c) { return c->memory + (size_t)c->rank * c->count * c->element; }

static int all_reduce(const BenchCall *c) {
  return plait_all_reduce(c->comm, &(PlaitBuffer){c->memory, c->memory, c->count}, 1, c->dtype, PLAIT_SUM, NULL, NULL);
}
static int reduce_scatter(const BenchCall *c) {
  return plait_reduce_scatter(c->comm, &(PlaitBuffer){c->memory, part(c), c->count}, 1, c->dtype, PLAIT_SUM, NULL,
                              NULL);
}
static int all_gather(const BenchCall *c) {
  return plait_all_gather(c->comm, &(PlaitBuffer){part(c), c->memory, c->count}, 1, c->dtype, NULL, NULL);
}
static int broadcast(const BenchCall *c) {
  return plait_broadcast(c->comm, &(PlaitBuffer){c->memory, c->memory, c->count}, 1, c->dtype, 0, NULL, NULL);
}
static int reduce(const BenchCall *c) {
  return plait_reduce(c->comm, &(PlaitBuffer){c->memory, c->memory, c->count}, 1, c->dtype, PLAIT_SUM, 0, NULL, NULL);
}
static int gather(const BenchCall *c) {
  return plait_gather(c->comm, &(PlaitBuffer){part(c), c->memory, c->count}, 1, c->dtype, 0, NULL, NULL);
}
static int scatter(const BenchCall *c) {
  return plait_scatter(c->comm, &(PlaitBuffer){c->memory, part(c), c->count}, 1, c->dtype, 0, NULL, NULL);
}
static int all_to_all(const BenchCall *c) {
  return plait_all_to_all(c->comm, &(PlaitBuffer){c->memory, c->other, c->count}, 1, c->dtype, NULL, NULL);
}
static int shift(const BenchCall *c) {
  return plait_shift(c->comm, &(PlaitBuffer){c->memory, c->other, c->count}, 1, c->dtype, 1, NULL, NULL);
}
static int all_gather_v(const BenchCall *c) {
  return plait_all_gather_v(c->comm, part(c), c->count, c->memory, c->counts, NULL, c->dtype, NULL, NULL);
}
static int all_to_all_v(const BenchCall *c) {
  return plait_all_to_all_v(c->comm, c->memory, c->counts, NULL, c->other, c->counts, NULL, c->dtype, NULL, NULL);
}
static int barrier(const BenchCall *c) { return plait_barrier(c->comm, NULL, NULL); }

// From the first rank to the last and back.
static int send_recv(const BenchCall *c) {
  int last = c->ranks - 1, code = 0;
  PlaitBuffer out = {c->memory, NULL, c->count}, in = {NULL, c->other, c->count};
  if (!last || (c->rank && c->rank != last)) return 0;
  if (c->rank) code = plait_recv(c->comm, &in, 1, c->dtype, 0, NULL, NULL);
  if (!code) code = plait_send(c->comm, &out, 1, c->dtype, last - c->rank, NULL, NULL);
  if (!code && !c->rank) code = plait_recv(c->comm, &in, 1, c->dtype, last, NULL, NULL);
  return code;
}

const BenchKind bench_kinds[] = {
    {"all_reduce", 0, 1, 0, all_reduce},
    {"reduce_scatter", 1, 1, 0, reduce_scatter},
    {"all_gather", 1, 0, 0, all_gather},
    {"broadcast", 0, 0, 0, broadcast},
    {"reduce", 0, 1, 0, reduce},
    {"gather", 1, 0, 0, gather},
    {"scatter", 1, 0, 0, scatter},
    {"all_to_all", 1, 0, 0, all_to_all},
    {"shift", 0, 0, 0, shift},
    {"all_gather_v", 1, 0, 0, all_gather_v},
    {"all_to_all_v", 1, 0, 0, all_to_all_v},
    {"send_recv", 0, 0, 1, send_recv},
    {"barrier", 0, 0, 0, barrier},
};
const int bench_kind_count = sizeof bench_kinds / sizeof *bench_kinds;
