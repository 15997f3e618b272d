// Packing: many orders of first fit; beyond a plan's effort a tree search that jumps back (pack_jumps.c); a tree search
// (pack_search.c) and guided ejection search (pack_ejection.c); and what lies too high moved forward in the order.
#include "program/pack/pack.h"
#include "program/pack/pack_search.h"
#include "base/error.h"
#include "base/fault.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void pack_free(PackProblem *p) {
  vec_free(&p->item);
  vec_free(&p->time);
}

static int apart(const PackProblem *p, const PackItem *a, const PackItem *b) {
  if (!a->owners || !b->owners) return 0;
  return p->apart ? p->apart(p->context, a, b) : a->owners == b->owners && a->owner != b->owner;
}

int pack_meet(const PackProblem *p, const PackItem *a, const PackItem *b) {
  const PackTime *x = p->time.data + a->first, *y = p->time.data + b->first, *x_end = x + a->count,
                 *y_end = y + b->count;
  while (x < x_end && y < y_end) {
    if (x->lower < y->upper && y->lower < x->upper) return !apart(p, a, b);
    if (x->upper <= y->upper) x++;
    else y++;
  }
  return 0;
}

// ---- the bound ------------------------------------------------------------------------------------------------------

typedef struct Edge { int time, item, begins; } Edge;
typedef Vec(Edge) EdgeList;

static int by_time(const void *a, const void *b) {
  const Edge *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return x->begins != y->begins ? x->begins - y->begins : x->item - y->item; // what ends gives way to what begins
}

static EdgeList find_edges(const PackProblem *p) {
  EdgeList edges = {0};
  vec_reserve(&edges, 2 * p->time.count + 1);
  for (int i = 0; i < p->item.count; i++)
    for (int k = 0; k < p->item.data[i].count; k++) {
      PackTime t = p->time.data[p->item.data[i].first + k];
      vec_push(&edges, (Edge){t.lower, i, 1});
      vec_push(&edges, (Edge){t.upper, i, 0});
    }
  if (edges.count) qsort(edges.data, (size_t)edges.count, sizeof *edges.data, by_time);
  return edges;
}

typedef struct Owned { uint32_t owners; int owner; int64_t live; } Owned;
typedef Vec(Owned) OwnedList;

static Owned *owned_of(OwnedList *list, const PackItem *item) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].owners == item->owners && list->data[i].owner == item->owner) return &list->data[i];
  vec_push(list, (Owned){item->owners, item->owner, 0});
  return &list->data[list->count - 1];
}

// Bytes needed from `time` on until the next step, on the rank that needs the most.
typedef struct LiveStep { int time; int64_t live; } LiveStep;
typedef Vec(LiveStep) LiveSteps;

static LiveSteps find_steps(const PackProblem *p) {
  EdgeList edges = find_edges(p);
  OwnedList owned = {0};
  LiveSteps steps = {0};
  int64_t live = 0;
  vec_reserve(&steps, edges.count + 1);
  for (int i = 0; i < edges.count; i++) {
    const PackItem *item = &p->item.data[edges.data[i].item];
    int64_t *sum = item->owners ? &owned_of(&owned, item)->live : &live, largest = 0;
    *sum += edges.data[i].begins ? item->size : -item->size;
    if (i + 1 < edges.count && edges.data[i + 1].time == edges.data[i].time) continue;
    for (int k = 0; k < owned.count; k++)
      if (owned.data[k].live > largest) largest = owned.data[k].live;
    vec_push(&steps, (LiveStep){edges.data[i].time, live + largest});
  }
  vec_free(&edges);
  vec_free(&owned);
  return steps;
}

int64_t pack_bound(const PackProblem *p, int *at) {
  LiveSteps steps = find_steps(p);
  int64_t most = 0;
  if (at) *at = 0;
  for (int i = 0; i < steps.count; i++)
    if (steps.data[i].live > most) {
      most = steps.data[i].live;
      if (at) *at = steps.data[i].time;
    }
  vec_free(&steps);
  return most;
}

static int step_at(const LiveSteps *steps, int time) {
  int low = 0, count = steps->count;
  while (count > 0) {
    int half = count / 2;
    if (steps->data[low + half].time < time) low += half + 1, count -= half + 1;
    else count = half;
  }
  return low;
}

// most[level * steps + i]: of the steps i … i + 2^level − 1. Two of these cover any stretch.
int64_t *pack_loads(const PackProblem *p) {
  LiveSteps steps = find_steps(p);
  size_t n = (size_t)steps.count;
  int levels = 1;
  while (n >> levels) levels++;
  int64_t *load = xcalloc((size_t)p->item.count + 1, sizeof *load),
          *most = xcalloc((size_t)levels * n + 1, sizeof *most);
  for (size_t i = 0; i < n; i++) most[i] = steps.data[i].live;
  for (int level = 1; level < levels; level++)
    for (size_t i = 0, half = (size_t)1 << (level - 1); i + 2 * half <= n; i++) {
      const int64_t *below = most + (size_t)(level - 1) * n;
      most[(size_t)level * n + i] = below[i] > below[i + half] ? below[i] : below[i + half];
    }
  for (int i = 0; i < p->item.count; i++)
    for (int k = 0; k < p->item.data[i].count; k++) {
      PackTime t = p->time.data[p->item.data[i].first + k];
      int from = step_at(&steps, t.lower), to = FAULT(loads_end_early, step_at(&steps, t.upper), from + 1), level = 0;
      while (2 << level <= to - from) level++;
      const int64_t *of = most + (size_t)level * n;
      int64_t high = of[from] > of[to - (1 << level)] ? of[from] : of[to - (1 << level)];
      if (high > load[i]) load[i] = high;
    }
  vec_free(&steps);
  free(most);
  return load;
}

int64_t pack_unit(const PackProblem *p) {
  int64_t unit = 0;
  for (int i = 0; i < p->item.count; i++)
    for (int64_t a = p->item.data[i].size; a;) {
      int64_t rest = unit % a;
      unit = a, a = rest;
    }
  return FAULT(capacities_lie_anywhere, unit ? unit : 1, 1);
}

// ---- who meets whom -------------------------------------------------------------------------------------------------

// A block of 64 × 64 bits, its columns as rows (Warren, Hacker's Delight, 7-3).
static void transpose(uint64_t block[64]) {
  uint64_t mask = 0x00000000ffffffff;
  for (int j = 32; j; j >>= 1, mask ^= mask << j)
    for (int k = 0; k < 64; k = (k + j + 1) & ~j) {
      uint64_t t = ((block[k] >> j) ^ block[k + j]) & mask;
      block[k] ^= t << j, block[k + j] ^= t;
    }
}

// Two blocks that mirror each other: each gets the bits of both.
static void mirror(PackMeets *m, int n, size_t a, size_t b) {
  uint64_t here[64] = {0}, there[64] = {0}, any = 0;
  for (size_t k = 0; k < 64; k++) {
    if (64 * a + k < (size_t)n) any |= here[k] = m->bits[(64 * a + k) * m->words + b];
    if (64 * b + k < (size_t)n) any |= there[k] = m->bits[(64 * b + k) * m->words + a];
  }
  if (!any) return;
  transpose(here);
  transpose(there);
  for (size_t k = 0; k < 64; k++) {
    if (64 * a + k < (size_t)n) m->bits[(64 * a + k) * m->words + b] |= there[k];
    if (64 * b + k < (size_t)n) m->bits[(64 * b + k) * m->words + a] |= FAULT(meetings_are_one_sided, here[k], 0);
  }
}

// Items on different ranks do not meet.
static void part_owners(const PackProblem *p, PackMeets *m) {
  uint64_t *owned = xcalloc(m->words + 1, sizeof *owned);
  for (int i = 0; i < p->item.count; i++) owned[i / 64] |= (uint64_t)!!p->item.data[i].owners << (i % 64);
  for (int a = 0; a < p->item.count; a++)
    for (size_t w = 0; w < m->words && p->item.data[a].owners; w++) {
      uint64_t *row = &m->bits[(size_t)a * m->words + w];
      for (uint64_t left = *row & owned[w]; left; left &= left - 1) {
        int bit = __builtin_ctzll(left);
        if (apart(p, &p->item.data[a], &p->item.data[64 * w + (size_t)bit])) *row &= ~((uint64_t)1 << bit);
      }
    }
  free(owned);
}

// Along the edges in time: what begins meets what is needed already. Then the other way round.
PackMeets pack_find_meets(const PackProblem *p) {
  int n = p->item.count;
  PackMeets m = {.words = ((size_t)n + 63) / 64};
  m.bits = xcalloc((size_t)n * m.words + 1, sizeof *m.bits);
  uint64_t *now = xcalloc(m.words + 1, sizeof *now);
  EdgeList edges = find_edges(p);
  for (int i = 0; i < edges.count; i++) {
    const Edge *e = &edges.data[i];
    uint64_t *row = m.bits + (size_t)e->item * m.words;
    for (size_t w = 0; w < m.words && e->begins; w++) row[w] |= now[w];
    now[e->item / 64] ^= (uint64_t)1 << (e->item % 64);
  }
  for (size_t a = 0; a < m.words; a++)
    for (size_t b = a; b < m.words; b++) mirror(&m, n, a, b);
  part_owners(p, &m);
  vec_free(&edges);
  free(now);
  return m;
}

// ---- first fit in an order ------------------------------------------------------------------------------------------

typedef struct Packer {
  PackProblem *p;
  PackMeets meets;
  PackShelves shelves;
  int64_t *duration;            // (items) how long each is needed in all
  int64_t *offset, *to, *best;  // (items) to: where it ends
  int64_t end, bound, looked, effort, jumps; // jumps: the effort of these
  int n;
} Packer;

static int meet(const Packer *k, int a, int b) {
  if (k->meets.bits) return pack_meets(&k->meets, a, b);
  return pack_meet(k->p, &k->p->item.data[a], &k->p->item.data[b]);
}

// Each item at the lowest offset where it fits. Stops at the first that would end above `limit`, and returns its number
// in the order; n: none does. k->end is the end then, and k->best the offsets.
static int fit(Packer *k, const int *order, int64_t limit) {
  int64_t end = 0;
  pack_shelves_clear(&k->shelves);
  for (int i = 0; i < k->n; i++) {
    const PackItem *item = &k->p->item.data[order[i]];
    int64_t at = 0;
    if (!item->count) { // it is never needed
      k->offset[order[i]] = 0;
      continue;
    }
    const PackShelf *shelf = pack_shelf_of(&k->shelves, order[i]);
    int c = 0;
    for (; c < shelf->count; c++) {
      int other = shelf->data[c].item;
      if (k->to[other] <= at || !meet(k, order[i], other)) continue;
      if (shelf->data[c].at - at >= item->size) break;
      at = k->to[other];
    }
    k->looked += c + 8;
    if (at + item->size > end) end = at + item->size;
    if (end > limit) return i;
    k->looked += pack_shelves_put(&k->shelves, (PackMark){at, order[i]});
    k->offset[order[i]] = at;
    k->to[order[i]] = at + item->size;
  }
  k->end = end;
  memcpy(k->best, k->offset, sizeof *k->best * (size_t)k->n);
  return k->n;
}

// An order: first what is needed for less than `least` (below 0: for at least -least) ticks, then the rest; of these
// the largest first, by size times duration to a power in fourths; among equals what begins first.
typedef struct Order { int least, power; } Order;
static const Order orders[] = {{0, 0}, {0, 4},  {0, 2}, {8, 0}, {-8, 0},    {-32, 0}, {32, 0}, {0, 1},
                               {0, 3}, {-2, 0}, {8, 2}, {-8, 2}, {-100, 0}, {32, 2},  {-32, 2}, {128, 0}};
enum { ORDERS = sizeof orders / sizeof *orders };

static uint64_t scramble(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

static int first_time(const Packer *k, int i) {
  const PackItem *item = &k->p->item.data[i];
  return item->count ? k->p->time.data[item->first].lower : 0;
}

// From the second round of the orders on, each times a random number, which items of one size and duration share: these
// are one tensor's, in several microbatches. Square roots are the same on all machines; powers need not be.
static PackKey key_of(const Packer *k, int number, int i) {
  const Order *by = &orders[number % ORDERS];
  int64_t size = k->p->item.data[i].size, duration = k->duration[i];
  if (k->p->shuffle)
    return (PackKey){0, (double)(scramble(k->p->shuffle * 0x9e3779b97f4a7c15 ^ (uint64_t)i) >> 11), 0, i};
  double root = sqrt((double)duration), worth = (double)size;
  for (int q = 0; q < by->power / 2; q++) worth *= root;
  if (by->power % 2) worth *= sqrt(root);
  if (number >= ORDERS) {
    uint64_t random = scramble(scramble((uint64_t)size) + scramble((uint64_t)duration) + (uint64_t)number);
    worth *= 0.5 + (double)(random % 1024) / 1024;
  }
  return (PackKey){by->least > 0 ? duration >= by->least : by->least < 0 ? duration < -by->least : 0, worth,
                   first_time(k, i), i};
}

enum { SORT_COST = 12 }; // of an item, as items looked at

static void sort_by(const Packer *k, int number, int *order) {
  PackKey *key = xcalloc((size_t)k->n + 1, sizeof *key);
  for (int i = 0; i < k->n; i++) key[i] = key_of(k, number, i);
  pack_sort(key, k->n);
  for (int i = 0; i < k->n; i++) order[i] = key[i].item;
  free(key);
}

// Below a limit: the item that does not fit there comes earlier in the order, by a random number of places, again and
// again ("squeaky wheel" optimization, Joslin and Clements, 1999). Seven limits, from a little below the best end down
// to the bound; what fits below one lowers those that follow.
static void move_forward(Packer *k, int *order) {
  enum { TRIES = 6 };
  uint64_t random = PACK_SEED;
  int *now = xcalloc((size_t)k->n, sizeof *now);
  for (int part = TRIES; part >= 0 && k->end > k->bound && k->looked < k->effort; part--) {
    int64_t limit = k->bound + (k->end - k->bound) * part / (TRIES + 1), stop = k->looked + k->effort / (TRIES + 1);
    memcpy(now, order, sizeof *now * (size_t)k->n);
    for (int failed; (failed = fit(k, now, limit)) < k->n && k->looked < stop;) {
      int to = (int)(pack_draw(&random) % (uint64_t)(failed ? failed : 1)), item = now[failed];
      memmove(now + to + 1, now + to, sizeof *now * (size_t)(failed - to));
      now[to] = item;
    }
    if (k->end <= limit) memcpy(order, now, sizeof *now * (size_t)k->n);
  }
  free(now);
}

// Of the effort, orders take 15% at most, or 8% of many items, for which each takes long; tree and ejection search 80%;
// move_forward 5%. Only the last starts from the best order. Jumps have their own: half of it at the bound, before all
// that takes long, as they reach it soon or not at all, and half above it where nothing else has come as low.
static void try_all(Packer *k) {
  int *order = xcalloc((size_t)k->n, sizeof *order), *start = xcalloc((size_t)k->n, sizeof *start);
  int one = k->p->shuffle || !k->effort; // one order will do
  enum { MANY = 2500 };
  int64_t orders_effort = k->effort / 100 * (k->n > MANY ? 8 : 15);
  for (int i = 0; !i || (!one && k->end > k->bound && k->looked < orders_effort); i++) {
    int64_t before = k->end;
    sort_by(k, i, order);
    fit(k, order, k->end - 1);
    k->looked += SORT_COST * k->n;
    if (k->end < before) memcpy(start, order, sizeof *start * (size_t)k->n);
  }
  if (!one && k->end > k->bound) {
    int64_t *load = pack_loads(k->p);
    int64_t near = k->bound + k->bound / 200; // the next capacity above the bound
    if (k->jumps && pack_jumps(k->p, &k->meets, load, k->bound, k->bound + 1, k->jumps / 2, k->best) <= k->bound)
      k->end = pack_end(k->p, k->best);
    if (k->end > k->bound)
      k->end = pack_ejection_search(k->p, &k->meets, load, &k->bound, k->end, 1, k->effort / 100 * 80, k->best);
    if (k->jumps && k->end > near) k->end = pack_jumps(k->p, &k->meets, load, near, k->end, k->jumps / 2, k->best);
    free(load);
  }
  k->looked = 0, k->effort = k->effort / 100 * 5;
  if (!one && k->end > k->bound) move_forward(k, start);
  free(order);
  free(start);
}

int64_t pack(PackProblem *p, int64_t effort) {
  enum { MOST_ITEMS = 10000 }; // of more, who meets whom would take too much memory: one order will do
  int n = p->item.count;
  if (!n) return 0;
  Packer k = {.p = p, .n = n, .end = INT64_MAX, .bound = pack_bound(p, NULL), .effort = effort};
  if (k.bound < p->enough) k.bound = p->enough;
  k.jumps = effort > PACK_EFFORT ? (effort - PACK_EFFORT) / 2 : FAULT(jumps_within_a_plan, 0, effort / 2);
  if (n <= MOST_ITEMS) k.meets = pack_find_meets(p);
  else k.effort = k.jumps = 0;
  int64_t pairs = (int64_t)n * n / 8; // what it costs to find these, as items looked at
  k.effort = k.effort / 2 > pairs ? k.effort - pairs : k.effort / 2;
  k.duration = xcalloc((size_t)n, sizeof *k.duration);
  k.offset = xcalloc((size_t)n, sizeof *k.offset);
  k.to = xcalloc((size_t)n, sizeof *k.to);
  k.best = xcalloc((size_t)n, sizeof *k.best);
  k.shelves = pack_shelves(p);
  for (int i = 0; i < n; i++) k.duration[i] = pack_duration(p, &p->item.data[i]);
  try_all(&k);
  for (int i = 0; i < n; i++) p->item.data[i].offset = k.best[i];
  pack_shelves_free(&k.shelves);
  free(k.duration), free(k.meets.bits), free(k.offset), free(k.to), free(k.best);
  return k.end;
}
