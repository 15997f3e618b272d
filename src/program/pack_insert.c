// Insertion: items that do not fit below a capacity wait in a pool. Each is put where what it must push out is worth
// least, and what it has pushed out waits in its place. What finds no free place is worth more from then on, so that
// hard items come to stay and easy ones go round them (guided ejection search, Nagata and Bräysy, 2009, there for
// vehicles; here for bytes).
#include "program/pack_search.h"
#include "base/error.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

typedef struct Mark { int64_t at; int item; } Mark;   // where a placed item begins or ends
typedef struct Near { int64_t at, worth; } Near; // of those that one item meets; worth: of it and all before

typedef struct Pool {
  const PackProblem *p;
  const PackMeets *meets;
  int n, placed, waiting;
  Mark *begin, *end;   // (placed) by rising address
  Near *first, *last; // (of those that an item meets) the same
  int64_t *offset;     // -1: it waits
  int64_t *worth;
  int *wait;           // (waiting) the last is taken first
  int64_t capacity, looked, effort;
  uint64_t random;
} Pool;

static uint64_t draw(Pool *s) {
  s->random ^= s->random << 13, s->random ^= s->random >> 7, s->random ^= s->random << 17;
  return s->random;
}

static int64_t size_of(const Pool *s, int item) { return s->p->item.data[item].size; }

// How many marks are below an address.
static int below(const Mark *mark, int count, int64_t at) {
  int low = 0;
  while (count > 0) {
    int half = count / 2;
    if (mark[low + half].at < at) low += half + 1, count -= half + 1;
    else count = half;
  }
  return low;
}

static void add_mark(Mark *mark, int count, Mark m) {
  int k = below(mark, count, m.at);
  memmove(mark + k + 1, mark + k, sizeof *mark * (size_t)(count - k));
  mark[k] = m;
}

static void remove_mark(Mark *mark, int count, Mark m) {
  int k = below(mark, count, m.at);
  while (mark[k].item != m.item) k++;
  memmove(mark + k, mark + k + 1, sizeof *mark * (size_t)(count - k - 1));
}

static void put(Pool *s, int item, int64_t at) {
  add_mark(s->begin, s->placed, (Mark){at, item});
  add_mark(s->end, s->placed, (Mark){at + size_of(s, item), item});
  s->placed++;
  s->offset[item] = at;
}

static void push_out(Pool *s, int item) {
  int64_t at = s->offset[item];
  remove_mark(s->begin, s->placed, (Mark){at, item});
  remove_mark(s->end, s->placed, (Mark){at + size_of(s, item), item});
  s->placed--;
  s->offset[item] = -1;
  s->wait[s->waiting++] = item;
}

// Of the placed items that this one meets. Returns how many.
static int gather(Pool *s, int item, const Mark *mark, Near *near) {
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  int64_t worth = 0;
  int count = 0;
  for (int k = 0; k < s->placed; k++) {
    int other = mark[k].item;
    if (!(row[other >> 6] >> (other & 63) & 1)) continue;
    worth += s->worth[other];
    near[count++] = (Near){mark[k].at, worth};
  }
  s->looked += s->placed + 16;
  return count;
}

// Where what must go is worth least: on another item's end, or below another's begin. *cost: what that is worth.
static int64_t find_place(Pool *s, int item, int64_t *cost) {
  int64_t size = size_of(s, item), best = 0, least = INT64_MAX;
  int count = gather(s, item, s->begin, s->first), equal = 0;
  gather(s, item, s->end, s->last);
  for (int k = -1, j = 0; k < count; k++) { // on an end, or at 0
    int64_t at = k < 0 ? 0 : s->last[k].at;
    if (at + size > s->capacity) break;
    if (k >= 0 && k + 1 < count && s->last[k + 1].at == at) continue;
    while (j < count && s->first[j].at < at + size) j++;
    int64_t out = (j ? s->first[j - 1].worth : 0) - (k < 0 ? 0 : s->last[k].worth);
    if (out > least || (out == least && draw(s) % (uint64_t)++equal)) continue;
    if (out < least) equal = 1;
    least = out, best = at;
    if (!out) break;
  }
  for (int k = 0, j = 0; k <= count && least; k++) { // below a begin, or below the capacity
    int64_t at = (k < count ? s->first[k].at : s->capacity) - size;
    if (at < 0 || (k && k < count && s->first[k - 1].at == s->first[k].at)) continue;
    if (at + size > s->capacity) break;
    while (j < count && s->last[j].at <= at) j++;
    int64_t out = (k ? s->first[k - 1].worth : 0) - (j ? s->last[j - 1].worth : 0);
    if (out > least || (out == least && draw(s) % (uint64_t)++equal)) continue;
    if (out < least) equal = 1;
    least = out, best = at;
  }
  *cost = least;
  return best;
}

// What lies there must go.
static void clear(Pool *s, int item, int64_t at) {
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  int64_t end = at + size_of(s, item);
  for (int k = s->placed - 1; k >= 0; k--) {
    int other = s->begin[k].item;
    if (s->begin[k].at >= end || !(row[other >> 6] >> (other & 63) & 1)) continue;
    if (FAULT(insertion_pushes_nothing_out, s->begin[k].at + size_of(s, other) > at, 0)) push_out(s, other);
  }
}

// Everything sinks as far as what lies below lets it.
static void sink(Pool *s) {
  int count = s->placed;
  Mark *was = xcalloc((size_t)count + 1, sizeof *was);
  memcpy(was, s->begin, sizeof *was * (size_t)count);
  s->placed = 0;
  for (int i = 0; i < count; i++) {
    int64_t cost;
    s->offset[was[i].item] = -1;
    put(s, was[i].item, find_place(s, was[i].item, &cost));
  }
  free(was);
}

static int settle(Pool *s) {
  int64_t stop = s->looked + s->effort;
  int rounds = 0;
  while (s->waiting && s->looked < stop) {
    int item = s->wait[--s->waiting];
    int64_t cost, at = find_place(s, item, &cost);
    if (cost) {
      s->worth[item]++;
      clear(s, item, at);
    }
    put(s, item, at);
    if (++rounds % (4 * s->n) == 0) sink(s);
  }
  return !s->waiting;
}

// Below a lower capacity: what ends too high waits; what ends lowest of it is tried first.
static void lower(Pool *s, int64_t capacity) {
  s->capacity = capacity;
  for (int k = s->placed - 1; k >= 0; k--)
    if (s->end[k].at > capacity) push_out(s, s->end[k].item);
    else break;
}

// What all sizes are multiples of. Then so are all ends of items, and a capacity has to be: items are placed below it.
static int64_t unit_of(const PackProblem *p) {
  int64_t unit = 0;
  for (int i = 0; i < p->item.count; i++)
    for (int64_t a = p->item.data[i].size; a;) {
      int64_t rest = unit % a;
      unit = a, a = rest;
    }
  return FAULT(capacities_lie_anywhere, unit ? unit : 1, 1);
}

int64_t pack_insert(const PackProblem *p, const PackMeets *meets, int64_t bound, int64_t end, int64_t effort,
                    int64_t *offset) {
  int n = p->item.count;
  Pool s = {.p = p, .meets = meets, .n = n, .random = 88172645463325252};
  s.begin = xcalloc((size_t)n + 1, sizeof *s.begin);
  s.end = xcalloc((size_t)n + 1, sizeof *s.end);
  s.first = xcalloc((size_t)n + 1, sizeof *s.first);
  s.last = xcalloc((size_t)n + 1, sizeof *s.last);
  s.offset = xcalloc((size_t)n + 1, sizeof *s.offset);
  s.worth = xcalloc((size_t)n + 1, sizeof *s.worth);
  s.wait = xcalloc((size_t)n + 1, sizeof *s.wait);
  for (int i = 0; i < n; i++) s.worth[i] = 1;
  int failed = 0;
  int64_t all = effort, unit = unit_of(p);
  while (end > bound && s.looked < all) {
    int64_t capacity = (bound + (end - bound) * failed / 4) / unit * unit;
    if (failed > 3) break;
    s.placed = s.waiting = 0;
    for (int i = 0; i < n; i++) {
      s.offset[i] = -1;
      if (p->item.data[i].count) put(&s, i, offset[i]);
      else s.offset[i] = 0;
    }
    s.effort = failed ? (all - s.looked) / 2 : all / 2;
    lower(&s, capacity);
    if (!settle(&s)) {
      failed++;
      continue;
    }
    end = 0;
    for (int i = 0; i < n; i++) {
      offset[i] = s.offset[i];
      if (p->item.data[i].count && offset[i] + p->item.data[i].size > end) end = offset[i] + p->item.data[i].size;
    }
  }
  free(s.begin), free(s.end), free(s.first), free(s.last), free(s.offset), free(s.worth), free(s.wait);
  return end;
}
