// Packing: orders of first fit, and what lies too high moved forward in the order. The search is pack_search.c.
#include "program/pack.h"
#include "program/pack_search.h"
#include "base/error.h"
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

// ---- who meets whom --------------------------------------------------------------------------------------------------

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
        if (!apart(p, &p->item.data[a], &p->item.data[b])) *there |= (uint64_t)1 << (a % 64);
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

typedef struct Placed { int64_t from, to; int item; } Placed;

typedef struct Packer {
  PackProblem *p;
  PackMeets meets;
  int64_t *duration; // (items) how long each is needed in all
  int *lower;        // (items) since when
  Placed *placed;    // by rising offset
  int64_t *offset, *best, end, bound, looked, effort;
  int n;
} Packer;

// Each item at the lowest offset where it fits. Stops at the first that would end above `limit`, and returns its number
// in the order; n: none does. k->end is the end then, and k->best the offsets.
static int fit(Packer *k, const int *order, int64_t limit) {
  int64_t end = 0;
  for (int i = 0; i < k->n; i++) {
    const PackItem *item = &k->p->item.data[order[i]];
    int64_t at = 0;
    int before = i, c = item->count ? 0 : i; // what is never needed lies anywhere
    for (; c < i; c++) {
      const Placed *other = &k->placed[c];
      if (other->to <= at || !pack_meets(&k->meets, order[i], other->item)) continue;
      if (other->from - at >= item->size) break;
      at = other->to;
    }
    k->looked += c + 1;
    if (item->count && at + item->size > end) end = at + item->size;
    if (end > limit) return i;
    while (before > 0 && k->placed[before - 1].from > at) before--;
    memmove(&k->placed[before + 1], &k->placed[before], sizeof *k->placed * (size_t)(i - before));
    k->placed[before] = (Placed){at, at + item->size, order[i]};
    k->offset[order[i]] = at;
  }
  k->end = end;
  memcpy(k->best, k->offset, sizeof *k->best * (size_t)k->n);
  return k->n;
}

typedef enum Order { BY_SIZE, BY_AREA, BY_DURATION, BY_START, ORDERS } Order;
typedef struct Key { double major, minor; int item; } Key;

static int by_key(const void *a, const void *b) {
  const Key *x = a, *y = b;
  if (x->major != y->major) return x->major < y->major ? 1 : -1;
  if (x->minor != y->minor) return x->minor < y->minor ? 1 : -1;
  return x->item - y->item;
}

static Key key_of(const Packer *k, Order order, int i) {
  const PackItem *item = &k->p->item.data[i];
  double size = (double)item->size, duration = (double)k->duration[i];
  if (k->p->shuffle) {
    uint64_t seed = k->p->shuffle * 0x9e3779b97f4a7c15;
    return (Key){(double)((seed ^ (uint64_t)i) * 0xbf58476d1ce4e5b9 >> 11), 0, i};
  }
  switch (order) {
  case BY_SIZE: return (Key){size, duration, i};
  case BY_AREA: return (Key){size * duration, size, i};
  case BY_DURATION: return (Key){duration, size, i};
  default: return (Key){-(double)k->lower[i], duration, i};
  }
}

static void sort_by(const Packer *k, Order by, int *order) {
  Key *key = xcalloc((size_t)k->n + 1, sizeof *key);
  for (int i = 0; i < k->n; i++) key[i] = key_of(k, by, i);
  if (k->n) qsort(key, (size_t)k->n, sizeof *key, by_key);
  for (int i = 0; i < k->n; i++) order[i] = key[i].item;
  free(key);
}

// Below a limit: the item that does not fit there comes earlier in the order, by a random number of places, again and
// again ("squeaky wheel" optimization, Joslin and Clements, 1999). The limit is a little below the best end at first,
// and falls towards the bound as long as something is found.
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
  for (int i = 0; i < k->n; i++) {
    const PackItem *item = &k->p->item.data[i];
    if (item->count) k->lower[i] = k->p->time.data[item->first].lower;
    for (int t = 0; t < item->count; t++)
      k->duration[i] += k->p->time.data[item->first + t].upper - k->p->time.data[item->first + t].lower;
  }
}

int64_t pack(PackProblem *p, int64_t effort) {
  enum { MOST_ITEMS = 8000 };
  int n = p->item.count;
  if (!n) return 0;
  Packer k = {.p = p, .n = n, .end = INT64_MAX, .bound = pack_bound(p, NULL), .effort = effort};
  if (k.bound < p->enough) k.bound = p->enough;
  k.meets = pack_find_meets(p);
  k.duration = xcalloc((size_t)n, sizeof *k.duration);
  k.lower = xcalloc((size_t)n, sizeof *k.lower);
  k.placed = xcalloc((size_t)n, sizeof *k.placed);
  k.offset = xcalloc((size_t)n, sizeof *k.offset);
  k.best = xcalloc((size_t)n, sizeof *k.best);
  int *order = xcalloc((size_t)n, sizeof *order), *start = xcalloc((size_t)n, sizeof *start);
  measure(&k);
  // Without effort, or of very many items, one order will do.
  int orders = p->shuffle || n > MOST_ITEMS || !effort ? 1 : ORDERS;
  for (int by = 0; by < orders && k.end > k.bound; by++) {
    int64_t before = k.end;
    sort_by(&k, (Order)by, order);
    fit(&k, order, k.end - 1);
    if (k.end < before) memcpy(start, order, sizeof *start * (size_t)n);
  }
  const char *only = getenv("PACK_ONLY");
  if (k.end > k.bound && orders > 1 && (!only || strchr(only, 'i')))
    k.end = pack_insert(p, &k.meets, k.bound, k.end, effort, k.best);
  if (k.end > k.bound && orders > 1 && (!only || strchr(only, 's')))
    k.end = pack_search(p, k.bound, k.end, effort / 4, k.best);
  k.looked = 0;
  if (k.end > k.bound && orders > 1 && (!only || strchr(only, 'f'))) move_forward(&k, start);
  for (int i = 0; i < n; i++) p->item.data[i].offset = k.best[i];
  free(k.duration), free(k.lower), free(k.placed), free(k.meets.bits), free(k.offset), free(k.best);
  free(order), free(start);
  return k.end;
}
