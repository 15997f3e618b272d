// Links of simulated ranks: flows on them, and for how long several were there at once.
#include "machine/transfers.h"
#include "base/arena.h"
#include "base/fault.h"
#include "base/vec.h"
#include "machine/facts.h"
#include "machine/flows.h"
#include <math.h>
#include <stdlib.h>

typedef struct Interval { double begin, end; } Interval;
typedef Vec(Interval) IntervalList;
enum { TO_SEND, TO_RECEIVE, DIRECTIONS };
// Collectives are on the links of both directions, and noted once.
typedef enum Used { BY_COLLECTIVES, BY_SENDS, BY_RECEIVES, USES } Used;

struct Transfers {
  int ranks;
  int *port;          // (ranks, MAX_LEVELS) the rank whose port messages use, where several share one; else -1
  Flows *flows;       // NULL: none have been moved together
  double *capacity;   // (links) 1: a unit of a flow's bytes is a second of a link that it has alone
  IntervalList *used; // (2 ranks, MAX_LEVELS, USES) those of ranks, then those of their ports
  IntervalList at;    // of one link
  Arena arena;        // links of flows
};

// rank: of a port, the number of ranks more.
static int link_of(int rank, int level, int direction) { return (rank * MAX_LEVELS + level) * DIRECTIONS + direction; }
static IntervalList *used(Transfers *t, int rank, int level, Used by) {
  return &t->used[(rank * MAX_LEVELS + level) * USES + (int)by];
}

Transfers *transfers_create(int ranks) {
  Transfers *t = xcalloc(1, sizeof *t);
  t->ranks = ranks;
  t->port = xcalloc((size_t)ranks * MAX_LEVELS + 1, sizeof *t->port);
  for (int i = 0; i < ranks * MAX_LEVELS; i++) t->port[i] = -1;
  t->used = xcalloc(2 * (size_t)ranks * MAX_LEVELS * USES, sizeof *t->used);
  return t;
}

void transfers_share_port(Transfers *t, int level, int rank, int other) {
  t->port[rank * MAX_LEVELS + level] = t->port[other * MAX_LEVELS + level] = other;
}

// As a rank; -1: it has its port alone.
static int port_of(const Transfers *t, int rank, int level) {
  int port = FAULT(stages_have_ports_alone, t->port[rank * MAX_LEVELS + level], -1);
  return port < 0 ? -1 : t->ranks + port;
}

void transfers_free(Transfers *t) {
  if (!t) return;
  for (int i = 0; i < 2 * t->ranks * MAX_LEVELS * USES; i++) vec_free(&t->used[i]);
  free(t->used);
  free(t->port);
  vec_free(&t->at);
  flows_free(t->flows);
  free(t->capacity);
  arena_free(&t->arena);
  free(t);
}

static int add_link(const Transfers *t, const Transfer *x, int i, int direction, int *link) {
  int port = x->message ? port_of(t, x->member[i], x->level) : -1;
  link[0] = link_of(x->member[i], x->level, direction);
  if (port >= 0) link[1] = link_of(port, x->level, direction);
  return port >= 0 ? 2 : 1;
}

int transfers_begin(Transfers *t, const Transfer *x) {
  int links = 2 * t->ranks * MAX_LEVELS * DIRECTIONS, n = 0;
  if (!t->flows) {
    t->capacity = xcalloc((size_t)links, sizeof *t->capacity);
    for (int l = 0; l < links; l++) t->capacity[l] = 1;
    t->flows = flows_create(t->capacity, links);
  }
  int *link = arena_array(&t->arena, int, 2 * x->members + 2);
  for (int i = 0; i < x->members && x->level >= 0; i++) {
    if (!x->message || i == 0) n += add_link(t, x, i, TO_SEND, link + n);
    if (!x->message || i == 1) n += add_link(t, x, i, TO_RECEIVE, link + n);
  }
  double moves = fmax(0, x->seconds - x->latency);
  Flow flow = {.start = x->start, .latency = x->seconds - moves, .bytes = moves, .link = link, .links = n};
  if (!n) flow.latency = x->seconds;
  return flows_add(t->flows, &flow);
}

double transfers_end(const Transfers *t, int number) { return flows_end(t->flows, number); }
double transfers_next(Transfers *t) { return t->flows ? flows_next(t->flows) : INFINITY; }
void transfers_pass(Transfers *t) { flows_pass(t->flows); }

// Who met ------------------------------------------------------------------------------------------------------------

void transfers_note(Transfers *t, int rank, const Transfer *x, double end) {
  Interval at = {x->start, end};
  if (x->level < 0 || end <= x->start) return;
  vec_push(used(t, rank, x->level, x->message ? BY_SENDS : BY_COLLECTIVES), at);
  if (!x->message) return;
  vec_push(used(t, x->member[1], x->level, BY_RECEIVES), at);
  int from = port_of(t, rank, x->level), to = port_of(t, x->member[1], x->level);
  if (from >= 0) vec_push(used(t, from, x->level, BY_SENDS), at);
  if (to >= 0) vec_push(used(t, to, x->level, BY_RECEIVES), at);
}

static int by_begin(const void *a, const void *b) {
  const Interval *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static double met(Transfers *t, int rank, int level, Used messages) {
  int port = port_of(t, rank, level);
  const IntervalList *part[] = {used(t, rank, level, BY_COLLECTIVES), used(t, port < 0 ? rank : port, level, messages)};
  double sum = 0, until = -INFINITY;
  t->at.count = 0;
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < part[p]->count; i++) vec_push(&t->at, part[p]->data[i]);
  if (t->at.count) qsort(t->at.data, (size_t)t->at.count, sizeof *t->at.data, by_begin);
  for (int i = 0; i < t->at.count; i++) {
    sum += fmax(0, fmin(until, t->at.data[i].end) - t->at.data[i].begin);
    until = fmax(until, t->at.data[i].end);
  }
  return sum;
}

double transfers_met(Transfers *t, int rank) {
  double sum = 0;
  for (int level = 0; level < MAX_LEVELS; level++) sum += met(t, rank, level, BY_SENDS);
  return sum;
}

double transfers_met_most(Transfers *t) {
  double most = 0;
  for (int rank = 0; rank < t->ranks; rank++)
    for (int level = 0; level < MAX_LEVELS; level++)
      most = fmax(most, fmax(met(t, rank, level, BY_SENDS), met(t, rank, level, BY_RECEIVES)));
  return most;
}
