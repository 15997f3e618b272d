// Packing: many orders of first fit; insertion (pack_insert.c); a tree search (pack_search.c); and what lies too high
// moved forward in the order.
#include "program/pack.h"
#include "program/pack_search.h"
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

int64_t pack_bound(const PackProblem *p, int *at) {
  EdgeList edges = find_edges(p);
  OwnedList owned = {0};
  int64_t live = 0, most = 0;
  if (at) *at = 0;
  for (int i = 0; i < edges.count; i++) {
    const PackItem *item = &p->item.data[edges.data[i].item];
    int64_t *sum = item->owners ? &owned_of(&owned, item)->live : &live, largest = 0;
    *sum += edges.data[i].begins ? item->size : -item->size;
    for (int k = 0; k < owned.count; k++)
      if (owned.data[k].live > largest) largest = owned.data[k].live;
    if (live + largest > most) {
      most = live + largest;
      if (at) *at = edges.data[i].time;
    }
  }
  vec_free(&edges);
  vec_free(&owned);
  return most;
}

// ---- who meets whom -------------------------------------------------------------------------------------------------

// Along the edges in time: what begins meets what is needed already.
PackMeets pack_find_meets(const PackProblem *p) {
  int n = p->item.count;
  PackMeets m = {.words = ((size_t)n + 63) / 64};
  m.bits = xcalloc((size_t)n * m.words + 1, sizeof *m.bits);
  uint64_t *now = xcalloc(m.words + 1, sizeof *now);
  EdgeList edges = find_edges(p);
  for (int i = 0; i < edges.count; i++) {
    const Edge *e = &edges.data[i];
    uint64_t bit = (uint64_t)1 << (e->item % 64), *row = m.bits + (size_t)e->item * m.words;
    for (size_t w = 0; w < m.words && e->begins; w++) row[w] |= now[w];
    now[e->item / 64] ^= bit;
  }
  for (int a = 0; a < n; a++)
    for (size_t w = 0; w < m.words; w++)
      for (uint64_t left = m.bits[(size_t)a * m.words + w]; left; left &= left - 1) {
        int b = (int)(64 * w) + __builtin_ctzll(left);
        uint64_t *there = &m.bits[(size_t)b * m.words + (size_t)a / 64];
        if (!apart(p, &p->item.data[a], &p->item.data[b]))
          *there |= (uint64_t)FAULT(meetings_are_one_sided, 1, 0) << (a % 64);
        else {
          m.bits[(size_t)a * m.words + w] &= ~((uint64_t)1 << (b % 64));
          *there &= ~((uint64_t)1 << (a % 64));
        }
      }
  vec_free(&edges);
  free(now);
  return m;
}

// ---- first fit in an order ------------------------------------------------------------------------------------------

enum { PERIODS = 64 }; // that time is cut into

typedef struct Placed { int64_t from, to; int item; } Placed;
typedef Vec(Placed) Shelf; // by rising offset

typedef struct Packer {
  PackProblem *p;
  PackMeets meets;
  int64_t *duration;   // (items) how long each is needed in all
  PackTime *span;      // (items) from the first to the last time
  int begin, end_time; // of all
  Shelf shelf[PERIODS + 1]; // what has been placed and is needed in a period; the last: at any time
  int64_t *offset, *best, end, bound, looked, effort;
  int n;
} Packer;

static int period(const Packer *k, int time) {
  return (int)((int64_t)(time - k->begin) * PERIODS / (k->end_time - k->begin));
}

// What an item may meet: short ones look at what is placed in their period alone.
static const Shelf *shelf_of(const Packer *k, int item) {
  int from = period(k, k->span[item].lower), to = period(k, k->span[item].upper - 1);
  return &k->shelf[from == to ? from : PERIODS];
}

static void add_to_shelf(Shelf *shelf, Placed x) {
  int low = 0, count = shelf->count;
  while (count > 0) {
    int half = count / 2;
    if (shelf->data[low + half].from <= x.from) low += half + 1, count -= half + 1;
    else count = half;
  }
  vec_push(shelf, x);
  memmove(&shelf->data[low + 1], &shelf->data[low], sizeof x * (size_t)(shelf->count - 1 - low));
  shelf->data[low] = x;
}

static int meet(const Packer *k, int a, int b) {
  if (k->meets.bits) return pack_meets(&k->meets, a, b);
  return pack_meet(k->p, &k->p->item.data[a], &k->p->item.data[b]);
}

// Each item at the lowest offset where it fits. Stops at the first that would end above `limit`, and returns its number
// in the order; n: none does. k->end is the end then, and k->best the offsets.
static int fit(Packer *k, const int *order, int64_t limit) {
  int64_t end = 0;
  for (int i = 0; i <= PERIODS; i++) k->shelf[i].count = 0;
  for (int i = 0; i < k->n; i++) {
    const PackItem *item = &k->p->item.data[order[i]];
    int64_t at = 0;
    if (!item->count) { // it is never needed
      k->offset[order[i]] = 0;
      continue;
    }
    const Shelf *shelf = shelf_of(k, order[i]);
    int c = 0;
    for (; c < shelf->count; c++) {
      const Placed *other = &shelf->data[c];
      if (other->to <= at || !meet(k, order[i], other->item)) continue;
      if (other->from - at >= item->size) break;
      at = other->to;
    }
    k->looked += c + 8;
    if (at + item->size > end) end = at + item->size;
    if (end > limit) return i;
    Placed placed = {at, at + item->size, order[i]};
    int last = period(k, k->span[order[i]].upper - 1);
    for (int t = period(k, k->span[order[i]].lower); t <= last; t++) add_to_shelf(&k->shelf[t], placed);
    add_to_shelf(&k->shelf[PERIODS], placed);
    k->offset[order[i]] = at;
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

typedef struct Key { int class; double major; int64_t minor; int item; } Key;

static int by_key(const void *a, const void *b) {
  const Key *x = a, *y = b;
  if (x->class != y->class) return x->class > y->class ? 1 : -1;
  if (x->major != y->major) return x->major < y->major ? 1 : -1;
  if (x->minor != y->minor) return x->minor > y->minor ? 1 : -1;
  return x->item - y->item;
}

static uint64_t scramble(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// From the second round of the orders on, each times a random number, which items of one size and duration share: these
// are one tensor's, in several microbatches. Square roots are the same on all machines; powers need not be.
static Key key_of(const Packer *k, int number, int i) {
  const Order *by = &orders[number % ORDERS];
  int64_t size = k->p->item.data[i].size, duration = k->duration[i];
  if (k->p->shuffle)
    return (Key){0, (double)(scramble(k->p->shuffle * 0x9e3779b97f4a7c15 ^ (uint64_t)i) >> 11), 0, i};
  double root = sqrt((double)duration), worth = (double)size;
  for (int q = 0; q < by->power / 2; q++) worth *= root;
  if (by->power % 2) worth *= sqrt(root);
  if (number >= ORDERS) {
    uint64_t random = scramble(scramble((uint64_t)size) + scramble((uint64_t)duration) + (uint64_t)number);
    worth *= 0.5 + (double)(random % 1024) / 1024;
  }
  return (Key){by->least > 0 ? duration >= by->least : by->least < 0 ? duration < -by->least : 0, worth,
               k->span[i].lower, i};
}

static void sort_by(const Packer *k, int number, int *order) {
  Key *key = xcalloc((size_t)k->n + 1, sizeof *key);
  for (int i = 0; i < k->n; i++) key[i] = key_of(k, number, i);
  if (k->n) qsort(key, (size_t)k->n, sizeof *key, by_key);
  for (int i = 0; i < k->n; i++) order[i] = key[i].item;
  free(key);
}

// Below a limit: the item that does not fit there comes earlier in the order, by a random number of places, again and
// again ("squeaky wheel" optimization, Joslin and Clements, 1999). Seven limits, from a little below the best end down
// to the bound; what fits below one lowers those that follow.
static void move_forward(Packer *k, int *order) {
  enum { TRIES = 6 };
  uint64_t random = 88172645463325252;
  int *now = xcalloc((size_t)k->n, sizeof *now);
  for (int part = TRIES; part >= 0 && k->end > k->bound && k->looked < k->effort; part--) {
    int64_t limit = k->bound + (k->end - k->bound) * part / (TRIES + 1), stop = k->looked + k->effort / (TRIES + 1);
    memcpy(now, order, sizeof *now * (size_t)k->n);
    for (int failed; (failed = fit(k, now, limit)) < k->n && k->looked < stop;) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      int to = (int)(random % (uint64_t)(failed ? failed : 1)), item = now[failed];
      memmove(now + to + 1, now + to, sizeof *now * (size_t)(failed - to));
      now[to] = item;
    }
    if (k->end <= limit) memcpy(order, now, sizeof *now * (size_t)k->n);
  }
  free(now);
}

static void measure(Packer *k) {
  k->begin = INT_MAX, k->end_time = INT_MIN;
  for (int i = 0; i < k->n; i++) {
    const PackItem *item = &k->p->item.data[i];
    const PackTime *time = k->p->time.data + item->first;
    if (!item->count) continue;
    k->span[i] = (PackTime){time[0].lower, time[item->count - 1].upper};
    if (k->span[i].lower < k->begin) k->begin = k->span[i].lower;
    if (k->span[i].upper > k->end_time) k->end_time = k->span[i].upper;
    for (int t = 0; t < item->count; t++) k->duration[i] += time[t].upper - time[t].lower;
  }
}

// Orders take two fifths of the effort at most, insertion half, the tree search a twentieth, move_forward a tenth. Only
// the last starts from the best order.
static void try_all(Packer *k) {
  int *order = xcalloc((size_t)k->n, sizeof *order), *start = xcalloc((size_t)k->n, sizeof *start);
  int one = k->p->shuffle || !k->effort; // one order will do
  for (int i = 0; !i || (!one && k->end > k->bound && k->looked < k->effort / 5 * 2); i++) {
    int64_t before = k->end;
    sort_by(k, i, order);
    fit(k, order, k->end - 1);
    k->looked += k->n;
    if (k->end < before) memcpy(start, order, sizeof *start * (size_t)k->n);
  }
  if (!one && k->end > k->bound)
    k->end = pack_insert(k->p, &k->meets, k->bound, k->end, k->effort / 2, k->best);
  if (!one && k->end > k->bound) k->end = pack_search(k->p, k->bound, k->end, k->effort / 20, k->best);
  k->looked = 0, k->effort /= 10;
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
  if (n <= MOST_ITEMS) k.meets = pack_find_meets(p);
  else k.effort = 0;
  k.duration = xcalloc((size_t)n, sizeof *k.duration);
  k.span = xcalloc((size_t)n, sizeof *k.span);
  k.offset = xcalloc((size_t)n, sizeof *k.offset);
  k.best = xcalloc((size_t)n, sizeof *k.best);
  measure(&k);
  try_all(&k);
  for (int i = 0; i < n; i++) p->item.data[i].offset = k.best[i];
  for (int i = 0; i <= PERIODS; i++) vec_free(&k.shelf[i]);
  free(k.duration), free(k.span), free(k.meets.bits), free(k.offset), free(k.best);
  return k.end;
}
