// Guided ejection search (Nagata and Bräysy, 2009, there for routes of vehicles): items that do not fit below a
// capacity wait in the ejection pool. Each is put where the penalties of the items that it ejects add up to the least,
// and these wait in its place. The penalty of an item that finds no free place rises, so that hard items come to stay
// and easy ones go round them.
#include "program/pack/pack_search.h"
#include "base/error.h"
#include "base/fault.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Near { int64_t at, penalty; } Near; // of those that one item meets; penalty: of it and all before

// The state of one search: a partial packing below a capacity, and the pool of items that are not in it.
typedef struct EjectionSearch {
  const PackProblem *p;
  const PackMeets *meets;
  const int64_t *load; // (items) pack_loads
  int n, placed, waiting;   // items: all, in the packing, in the pool
  PackShelves shelves;      // what is placed, by where it begins
  Near *first, *last;       // (of those that an item meets) by where they begin, and by where they end
  int64_t *offset;          // (items) -1: it waits in the pool
  int64_t *size, *penalty;  // (items) penalty: 1 and how often the item has found no free place
  int *pool;                // (waiting) the ejection pool; the last is taken first
  int64_t capacity, most, looked; // most: the greatest load
  uint64_t random;
} EjectionSearch;

static void put(EjectionSearch *s, int item, int64_t at) {
  s->looked += pack_shelves_put(&s->shelves, (PackMark){at, item});
  s->placed++;
  s->offset[item] = at;
}

static void eject(EjectionSearch *s, int item) {
  s->looked += pack_shelves_take(&s->shelves, (PackMark){s->offset[item], item});
  s->placed--;
  s->offset[item] = -1;
  s->pool[s->waiting++] = item;
}

// The placed items that this one meets, by where they begin and by where they end. Returns how many. Items that are
// needed at one time lie in the same order either way, so that little is left to sort.
static int gather(EjectionSearch *s, int item) {
  const PackShelf *shelf = pack_shelf_of(&s->shelves, item);
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  const int64_t *size = s->size, *penalty = s->penalty;
  Near *first = s->first, *last = s->last;
  int64_t before_first = 0, before_last = 0;
  int count = 0, moved = 0;
  for (int k = 0; k < shelf->count; k++) { // without branches: which items meet is hard to foresee
    PackMark m = shelf->data[k];
    first[count] = (Near){m.at, penalty[m.item]};
    last[count] = (Near){m.at + size[m.item], penalty[m.item]};
    count += row[m.item >> 6] >> (m.item & 63) & 1;
  }
  for (int k = 1; k < count; k++) {
    Near x = last[k];
    int j = k;
    for (; j && last[j - 1].at > x.at; j--) last[j] = last[j - 1];
    last[j] = x;
    moved += k - j;
  }
  for (int k = 0; k < count; k++) {
    before_first = first[k].penalty += before_first;
    before_last = last[k].penalty += before_last;
  }
  s->looked += shelf->count / 2 + moved + 2 * count + 32;
  return count;
}

// The lowest place where nothing must go, found without all that the item meets; -1: there is none.
static int64_t find_free(EjectionSearch *s, int item) {
  const PackShelf *shelf = pack_shelf_of(&s->shelves, item);
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  int64_t size = s->size[item], at = 0;
  int k = 0;
  for (; k < shelf->count; k++) {
    PackMark m = shelf->data[k];
    int64_t to = m.at + s->size[m.item];
    if (to <= at || !(row[m.item >> 6] >> (m.item & 63) & 1)) continue;
    if (m.at - at >= FAULT(free_places_are_too_small, size, 1)) break;
    at = to;
  }
  s->looked += k + 8;
  return at + size <= s->capacity ? at : -1;
}

// One of `equal` is taken with equal chances, as they come.
static int takes_another(EjectionSearch *s, int *equal) {
  uint64_t count = (uint64_t)++*equal;
  return !((pack_draw(&s->random) >> 32) * count >> 32);
}

// Where the penalties of what must go are least: on another item's end, or below another's begin. *cost: their sum.
static int64_t find_place(EjectionSearch *s, int item, int64_t *cost) {
  int64_t size = s->size[item], least = INT64_MAX;
  int64_t best = s->penalty[item] == 1 ? find_free(s, item) : -1; // most of these find one
  if (best >= 0) return *cost = 0, best;
  int count = gather(s, item), equal = 0;
  for (int k = -1, j = 0; k < count; k++) { // on an end, or at 0
    int64_t at = k < 0 ? 0 : s->last[k].at;
    if (at + size > s->capacity) break;
    if (k >= 0 && k + 1 < count && s->last[k + 1].at == at) continue;
    while (j < count && s->first[j].at < at + size) j++;
    int64_t out = (j ? s->first[j - 1].penalty : 0) - (k < 0 ? 0 : s->last[k].penalty);
    if (out > least || (out == least && !takes_another(s, &equal))) continue;
    if (out < least) equal = 1;
    least = out, best = at;
    if (!out) break;
  }
  for (int k = 0, j = 0; k <= count && least; k++) { // below a begin, or below the capacity
    int64_t at = (k < count ? s->first[k].at : s->capacity) - size;
    if (at < 0 || (k && k < count && s->first[k - 1].at == s->first[k].at)) continue;
    if (at + size > s->capacity) break;
    while (j < count && s->last[j].at <= at) j++;
    int64_t out = (k ? s->first[k - 1].penalty : 0) - (j ? s->last[j - 1].penalty : 0);
    if (out > least || (out == least && !takes_another(s, &equal))) continue;
    if (out < least) equal = 1;
    least = out, best = at;
  }
  *cost = least;
  return best;
}

// Removes the items that are in the way of this one at `at`.
static void clear(EjectionSearch *s, int item, int64_t at) {
  const PackShelf *shelf = pack_shelf_of(&s->shelves, item);
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  s->looked += shelf->count;
  for (int k = shelf->count - 1; k >= 0; k--) {
    int other = shelf->data[k].item;
    if (s->offset[other] >= at + s->size[item] || !(row[other >> 6] >> (other & 63) & 1)) continue;
    if (FAULT(ejection_ejects_nothing, s->offset[other] + s->size[other] > at, 0)) eject(s, other);
  }
}

// Everything sinks as far as what lies below lets it.
static void sink(EjectionSearch *s) {
  const PackShelf *all = &s->shelves.shelf[PACK_PERIODS];
  int count = all->count;
  PackMark *was = xcalloc((size_t)count + 1, sizeof *was);
  memcpy(was, all->data, sizeof *was * (size_t)count);
  s->placed = 0;
  pack_shelves_clear(&s->shelves);
  for (int i = 0; i < count; i++) {
    int64_t cost, at = find_place(s, was[i].item, &cost);
    put(s, was[i].item, at);
  }
  free(was);
}

// Places waiting items until none waits, until `effort` is spent, or until their number has not fallen for `patience`.
// Returns whether the pool is empty.
static int empty_pool(EjectionSearch *s, int64_t effort, int64_t patience) {
  int64_t stop = s->looked + effort, stuck = s->looked + patience;
  int rounds = 0, least = s->waiting;
  while (s->waiting && s->looked < stop && s->looked < stuck) {
    int item = s->pool[--s->waiting];
    int64_t cost, at = find_place(s, item, &cost);
    if (cost) {
      s->penalty[item]++;
      clear(s, item, at);
    }
    put(s, item, at);
    if (s->waiting < least) least = s->waiting, stuck = s->looked + patience;
    if (++rounds % (4 * s->n) == 0) sink(s);
  }
  return !s->waiting;
}

// Makes the packing that was found the result. Returns its end.
static int64_t keep(const EjectionSearch *s, int64_t *offset) {
  memcpy(offset, s->offset, sizeof *offset * (size_t)s->n);
  return pack_end(s->p, offset);
}

// Below a lower capacity: what ends too high waits; what begins lowest of it is tried first.
static void lower(EjectionSearch *s, int64_t capacity) {
  s->capacity = capacity;
  const PackShelf *all = &s->shelves.shelf[PACK_PERIODS];
  for (int k = all->count - 1; k >= 0; k--)
    if (all->data[k].at + s->size[all->data[k].item] > capacity) eject(s, all->data[k].item);
}

// Ways of starting from an empty packing. classes: first the items that are needed when at least 97% of the most is,
// then 93%, 87% and 75%; else by the load alone. Then the largest size times duration to a power in halves; LONGEST: by
// duration alone.
enum { LONGEST = -1 };
typedef struct Way { int classes, power; } Way;
static const Way ways[] = {{1, 1}, {1, LONGEST}, {1, 2}, {0, 1}, {0, 0}, {0, LONGEST}, {1, 0}, {0, 2}};
enum { WAYS = sizeof ways / sizeof *ways };

static PackKey key_in(const EjectionSearch *s, const Way *way, int i) {
  double part = (double)s->load[i] / (double)s->most, worth = (double)s->size[i],
         duration = (double)pack_duration(s->p, &s->p->item.data[i]);
  for (int q = 0; q < way->power; q++) worth *= sqrt(duration);
  if (way->power == LONGEST) worth = duration;
  int class = part >= 0.97 ? 0 : part >= 0.93 ? 1 : part >= 0.87 ? 2 : part >= 0.75 ? 3 : 4;
  if (FAULT(ejection_forgets_the_peak, 0, 1)) return (PackKey){0, -worth, 0, i};
  return (PackKey){way->classes ? class : -(int)(part * 1e6), worth, 0, i};
}

// Places only items that have an offset (NULL: none has). Items that are needed when most is needed come first, while
// there is room to choose from, and items that would fit in many places come last.
static void start_empty(EjectionSearch *s, int number, const int64_t *offset) {
  PackKey *key = xcalloc((size_t)s->n + 1, sizeof *key);
  s->placed = s->waiting = 0;
  pack_shelves_clear(&s->shelves);
  for (int i = 0; i < s->n; i++) key[i] = key_in(s, &ways[number % WAYS], i);
  pack_sort(key, s->n);
  for (int k = s->n - 1; k >= 0; k--) {
    int i = key[k].item, needed = s->p->item.data[i].count > 0;
    s->offset[i] = needed ? -1 : 0;
    s->penalty[i] = 1;
    if (needed && offset && offset[i] >= 0) put(s, i, offset[i]);
    else if (needed) s->pool[s->waiting++] = i;
  }
  s->looked += 16 * s->n;
  free(key);
}

static void start_from(EjectionSearch *s, const int64_t *offset) {
  s->placed = s->waiting = 0;
  pack_shelves_clear(&s->shelves);
  for (int i = 0; i < s->n; i++) {
    s->offset[i] = -1;
    s->penalty[i] = 1;
    if (s->p->item.data[i].count) put(s, i, offset[i]);
    else s->offset[i] = 0;
  }
}

// Whether the items of less than `small` bytes, at the time when they need most, fit into the bytes that the capacity
// has above the greatest load.
static int smalls_fit(const EjectionSearch *s, int64_t small) {
  PackProblem some = {0};
  for (int i = 0; i < s->n; i++)
    if (s->size[i] < small) vec_push(&some.item, s->p->item.data[i]);
  some.time.data = s->p->time.data, some.time.count = s->p->time.count; // borrowed
  int64_t bytes = pack_bound(&some, NULL);
  vec_free(&some.item);
  return bytes <= s->capacity - s->most;
}

// Ways of searching: items that are needed when at least this share of the most is, in an order, without items of less
// than the capacity / small. From the second round on only all, and by random orders, too.
typedef struct Part { double least; int order, small; } Part;
static const Part parts[] = {{0, 1, 1000},   {0.9, 0, 300}, {0.95, 0, 300}, {0.9, 1, 300},
                             {0.985, 2, 300}, {0.6, 1, 1000}, {0, 2, 1000},  {0, 2, 300},
                             {0.4, 0, 300},  {0, 0, 300},   {0, 3, 300},    {0, 4, 300},
                             {0, 5, 300}};
enum { PARTS = sizeof parts / sizeof *parts, FIRST_ROUND = 9 };

// Whether less than all items are needed when at least `least` bytes are.
static int is_part(const EjectionSearch *s, int64_t least) {
  int less = 0;
  for (int i = 0; i < s->n && !less; i++) less = s->p->item.data[i].count && s->load[i] < least;
  return less;
}

// A tree search of what is needed when much is, in each way of a round, and ejection for the rest. Each round has twice
// as many steps.
static int64_t search_then_eject(EjectionSearch *s, int round, int64_t *bound, int64_t end, int64_t unit,
                                 int64_t effort, int64_t *offset) {
  int64_t *found = xcalloc((size_t)s->n + 1, sizeof *found);
  int64_t share = effort / 3 * 2;
  for (int q = 0; q < PARTS && end > *bound && s->looked < effort; q++) {
    int64_t least = (int64_t)(parts[q].least * (double)s->most), left = effort - s->looked;
    int64_t small = s->capacity / parts[q].small;
    if (parts[q].least > 0 ? round || !is_part(s, least) : !round && q >= FIRST_ROUND) continue;
    if (!smalls_fit(s, small)) small = 0;
    PackAim aim = {.capacity = s->capacity,
                   .least = least,
                   .small = small,
                   .order = parts[q].order,
                   .rounds = (int64_t)2 << (round < 40 ? round : 40),
                   .patience = round ? 0 : 5,
                   .effort = left < share ? left : share};
    PackFound f = pack_search(s->p, s->meets, s->load, &aim, &s->looked, found);
    if (f == PACK_NONE) {
      *bound = s->capacity + unit;
      break;
    }
    if (f != PACK_FITS) continue;
    start_empty(s, 0, found);
    if (!empty_pool(s, effort - s->looked, effort / 6)) continue;
    end = keep(s, offset);
    break;
  }
  free(found);
  return end;
}

static EjectionSearch make_search(const PackProblem *p, const PackMeets *meets, const int64_t *load) {
  size_t n = (size_t)p->item.count;
  EjectionSearch s = {.p = p, .meets = meets, .load = load, .n = p->item.count, .random = PACK_SEED, .most = 1};
  s.shelves = pack_shelves(p);
  s.size = xcalloc(n + 1, sizeof *s.size);
  s.first = xcalloc(n + 1, sizeof *s.first);
  s.last = xcalloc(n + 1, sizeof *s.last);
  s.offset = xcalloc(n + 1, sizeof *s.offset);
  s.penalty = xcalloc(n + 1, sizeof *s.penalty);
  s.pool = xcalloc(n + 1, sizeof *s.pool);
  for (size_t i = 0; i < n; i++) s.size[i] = p->item.data[i].size, s.most = load[i] > s.most ? load[i] : s.most;
  return s;
}

static void free_search(EjectionSearch *s) {
  pack_shelves_free(&s->shelves);
  free(s->size), free(s->first), free(s->last), free(s->offset), free(s->penalty), free(s->pool);
}

// The core: items, but for small ones, that are needed when much is, as a separate problem. Few items stand in the way
// of one another there, and a step takes a tenth of the time that it takes among all.
typedef struct Core {
  PackProblem p; // times are borrowed
  PackMeets meets;
  int64_t *load;
  int *item; // (items of the core) their numbers
  EjectionSearch search;
} Core;

static void make_core(EjectionSearch *s, int64_t least, int64_t small, Core *c) {
  *c = (Core){.p = {.time.data = s->p->time.data, .time.count = s->p->time.count}};
  c->item = xcalloc((size_t)s->n + 1, sizeof *c->item);
  c->load = xcalloc((size_t)s->n + 1, sizeof *c->load);
  for (int i = 0; i < s->n; i++) {
    if (!s->p->item.data[i].count || s->load[i] < least || s->size[i] < small) continue;
    c->item[c->p.item.count] = i;
    c->load[c->p.item.count] = s->load[i];
    vec_push(&c->p.item, s->p->item.data[i]);
  }
  int n = c->p.item.count;
  c->meets.words = ((size_t)n + 63) / 64;
  c->meets.bits = xcalloc((size_t)n * c->meets.words + 1, sizeof *c->meets.bits);
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++)
      c->meets.bits[(size_t)a * c->meets.words + (size_t)b / 64] |=
          (uint64_t)pack_meets(s->meets, c->item[a], c->item[b]) << (b % 64);
  s->looked += (int64_t)n * n / 2;
  c->search = make_search(&c->p, &c->meets, c->load);
  c->search.capacity = s->capacity;
}

static void free_core(Core *c) {
  free_search(&c->search);
  vec_free(&c->p.item);
  free(c->meets.bits), free(c->load), free(c->item);
}

// Ways of starting with a core alone: which one, and in which order (`ways`). A core is the items that are needed when
// at least this share of the most is.
static const double cores[] = {0.95, 0.6};
enum { CORES = sizeof cores / sizeof *cores };
typedef struct CoreWay { int core, way; } CoreWay;
static const CoreWay core_ways[] = {{0, 2}, {1, 2}, {1, 7}, {1, 3}, {0, 3}, {1, 4}};
enum { CORE_WAYS = sizeof core_ways / sizeof *core_ways, PATIENCE = 2 * 1000 * 1000 };

// Ejection search of the core, then of all from there. Returns the lowest end found, or `end`.
static int64_t eject_core_first(EjectionSearch *s, int64_t bound, int64_t end, int64_t effort, int64_t *offset) {
  int64_t stop = s->looked + effort / 4 > effort / 100 * 60 ? s->looked + effort / 4 : effort / 100 * 60;
  int64_t *found = xcalloc((size_t)s->n + 1, sizeof *found), small = s->capacity / 1000;
  if (!smalls_fit(s, small)) small = 0;
  Core core[CORES];
  for (int c = 0; c < CORES; c++) make_core(s, (int64_t)(cores[c] * (double)s->most), small, &core[c]);
  for (int q = 0; q < 2 * CORE_WAYS && end > bound && s->looked < stop; q++) {
    Core *c = &core[core_ways[q % CORE_WAYS].core];
    int64_t before = c->search.looked;
    if (2 * c->p.item.count > s->n) continue; // it would take as long as all
    start_empty(&c->search, core_ways[q % CORE_WAYS].way, NULL);
    int fits = empty_pool(&c->search, stop - s->looked, PATIENCE);
    s->looked += c->search.looked - before;
    if (!fits) continue;
    for (int i = 0; i < s->n; i++) found[i] = -1;
    for (int i = 0; i < c->p.item.count; i++) found[FAULT(core_lies_elsewhere, c->item[i], i)] = c->search.offset[i];
    start_empty(s, 0, found);
    if (empty_pool(s, stop - s->looked, PATIENCE)) end = keep(s, offset);
  }
  for (int c = 0; c < CORES; c++) free_core(&core[c]);
  free(found);
  return end;
}

int64_t pack_ejection_search(const PackProblem *p, const PackMeets *meets, const int64_t *load, int64_t *bound,
                             int64_t end, int search, int64_t effort, int64_t *offset) {
  int failed = 0;
  EjectionSearch s = make_search(p, meets, load);
  int64_t unit = pack_unit(p);
  s.capacity = *bound / unit * unit;
  if (search) end = search_then_eject(&s, 0, bound, end, unit, effort, offset);
  s.capacity = *bound / unit * unit;
  if (search && end > *bound) end = eject_core_first(&s, *bound, end, effort, offset);
  for (int number = 0; end > *bound && s.looked < effort / 4 * 3; number++) {
    // Once all orders have failed at the bound, every other attempt takes half of what lies above it.
    s.capacity = (*bound + (number >= WAYS && number % 2 ? (end - *bound) / 2 : 0)) / unit * unit;
    start_empty(&s, number, NULL);
    if (empty_pool(&s, effort - s.looked, effort / 16)) end = keep(&s, offset);
  }
  for (int round = 1; search && end > *bound && s.looked < effort / 100 * 95; round++) {
    s.capacity = (*bound + (round % 2 ? 0 : (end - *bound) / 2)) / unit * unit;
    end = search_then_eject(&s, round, bound, end, unit, effort / 100 * 95, offset);
  }
  while (end > *bound && s.looked < effort && failed < 4) {
    start_from(&s, offset);
    lower(&s, (*bound + (end - *bound) * failed / 4) / unit * unit);
    if (empty_pool(&s, (effort - s.looked) / 2, effort)) end = keep(&s, offset);
    else failed++;
  }
  free_search(&s);
  return end;
}
