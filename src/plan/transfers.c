// Links of simulated ranks: flows on them, and for how long several were there at once.
#include "plan/transfers.h"
#include "base/arena.h"
#include "base/vec.h"
#include "plan/facts.h"
#include "plan/flows.h"
#include <math.h>
#include <stdlib.h>

typedef struct Interval { double begin, end; } Interval;
typedef Vec(Interval) IntervalList;
enum { TO_SEND, TO_RECEIVE, DIRECTIONS };
// Collectives are on the links of both directions, and noted once.
typedef enum Used { BY_COLLECTIVES, BY_SENDS, BY_RECEIVES, USES } Used;

struct Transfers {
  int ranks;
  Flows *flows;       // NULL: none have been moved together
  double *capacity;   // (links) 1: a unit of a flow's bytes is a second of a link that it has alone
  IntervalList *used; // (ranks, MAX_LEVELS, USES)
  IntervalList at;    // of one link
  Arena arena;        // links of flows
};

static int link_of(int rank, int level, int direction) { return (rank * MAX_LEVELS + level) * DIRECTIONS + direction; }
static IntervalList *used(Transfers *t, int rank, int level, Used by) {
  return &t->used[(rank * MAX_LEVELS + level) * USES + (int)by];
}

Transfers *transfers_create(int ranks) {
  Transfers *t = xcalloc(1, sizeof *t);
  t->ranks = ranks;
  t->used = xcalloc((size_t)ranks * MAX_LEVELS * USES, sizeof *t->used);
  return t;
}

void transfers_free(Transfers *t) {
  if (!t) return;
  for (int i = 0; i < t->ranks * MAX_LEVELS * USES; i++) vec_free(&t->used[i]);
  free(t->used);
  vec_free(&t->at);
  flows_free(t->flows);
  free(t->capacity);
  arena_free(&t->arena);
  free(t);
}

int transfers_begin(Transfers *t, const Transfer *x) {
  int links = t->ranks * MAX_LEVELS * DIRECTIONS, n = 0;
  if (!t->flows) {
    t->capacity = xcalloc((size_t)links, sizeof *t->capacity);
    for (int l = 0; l < links; l++) t->capacity[l] = 1;
    t->flows = flows_create(t->capacity, links);
  }
  int *link = arena_array(&t->arena, int, 2 * x->members);
  for (int i = 0; i < x->members && x->level >= 0; i++) {
    if (!x->message || i == 0) link[n++] = link_of(x->member[i], x->level, TO_SEND);
    if (!x->message || i == 1) link[n++] = link_of(x->member[i], x->level, TO_RECEIVE);
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
  if (x->message) vec_push(used(t, x->member[1], x->level, BY_RECEIVES), at);
}

static int by_begin(const void *a, const void *b) {
  const Interval *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static double met(Transfers *t, int rank, int level, Used messages) {
  const IntervalList *part[] = {used(t, rank, level, BY_COLLECTIVES), used(t, rank, level, messages)};
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
