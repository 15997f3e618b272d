// Search: items are placed by rising offset, each at the lowest one that what has been placed before allows. Every
// packing can be pushed down into this form. Of items that could be placed in any order only one order is tried, and no
// gap is left in which another item would fit (canonical solutions and dominance: MiniMalloc, Moffitt, 2023;
// TelaMalloc, Maas et al., 2022). A branch ends where at some time what is left does not fit between the lowest of its
// offsets and the capacity. What nothing connects any more is searched part by part. With jumps, a failure goes back to
// the last item that it depends on (conflict-directed backjumping, Prosser, 1993): most lie at other times. An order of
// the items decides what is tried first; most often hardly anything has to be taken back, or too much for any order to
// wait for.
#include "program/pack_search.h"
#include "base/error.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

typedef struct Change { int rank, by; int64_t low; } Change;
typedef struct Cell { int64_t low, size; } Cell; // low: the lowest offset that what is placed allows

// Times between two edges, at which the same items are needed, are sections: numbered.
typedef struct Search {
  const PackProblem *p;
  const PackMeets *meets;
  int n, sections, tights;
  PackTime *time;           // as the problem's, in sections
  int *tight, *first_tight; // sections that are looked at, rising; (sections + 1) how many of these are before each
  int *needed, *begin;      // (begin[x + 1] … begin[x + 2]) items that are needed in section x
  int *cut;                 // (sections) items left that are needed before x and from x on
  int64_t *left;            // (sections) bytes of what is not placed
  int *witness;             // (sections) one of what is left that lay low enough when last looked at
  uint64_t *open;           // bits of items that are left
  Cell *cell;               // (ranks) of items in the order
  int *rank, *at;           // (items) in the order, and (ranks) the other way round
  int64_t *offset;          // (items) where each was placed last
  Vec(Change) change;       // of `low`, to be taken back
  int64_t capacity, looked, stop, nodes;
  int *by;                  // (ranks) the item that raised `low` last, -1: none
  int failed;               // the section in which what is left did not fit
  uint64_t *why, *tried; // with jumps, (items) bits: what the last failure depends on; (levels, items) and those that
                         // came before it
  int jump, level;          // level: how many items are placed, of the parts that are being searched
} Search;

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void find_sections(Search *s) {
  const PackProblem *p = s->p;
  int *edge = xcalloc((size_t)p->time.count * 2 + 1, sizeof *edge), count = 0;
  for (int i = 0; i < p->time.count; i++) edge[2 * i] = p->time.data[i].lower, edge[2 * i + 1] = p->time.data[i].upper;
  qsort(edge, (size_t)p->time.count * 2, sizeof *edge, by_number);
  for (int i = 0; i < 2 * p->time.count; i++)
    if (!i || edge[i] != edge[i - 1]) edge[count++] = edge[i];
  s->sections = count;
  s->time = xcalloc((size_t)p->time.count + 1, sizeof *s->time);
  for (int i = 0; i < p->time.count; i++) {
    const int *lower = bsearch(&p->time.data[i].lower, edge, (size_t)count, sizeof *edge, by_number),
              *upper = bsearch(&p->time.data[i].upper, edge, (size_t)count, sizeof *edge, by_number);
    s->time[i] = (PackTime){(int)(lower - edge), (int)(upper - edge)};
  }
  free(edge);
}

#define EACH_SECTION(x, s, number)                                                                                     \
  for (const PackTime *time_ = (s)->time + (s)->p->item.data[number].first,                                            \
                      *end_ = time_ + (s)->p->item.data[number].count;                                                 \
       time_ < end_; time_++)                                                                                          \
    for (int x = time_->lower; x < time_->upper; x++)

static PackTime span_of(const Search *s, int i) {
  const PackItem *item = &s->p->item.data[i];
  return (PackTime){s->time[item->first].lower, s->time[item->first + item->count - 1].upper};
}

static int is_open(const Search *s, int i) { return s->open[i / 64] >> (i % 64) & 1; }

// Of what single ranks own, a time has several sums: bounds do without it.
static int64_t counted(const Search *s, int i) {
  return s->p->item.data[i].owners ? 0 : s->p->item.data[i].size;
}

// Whether at all times that are looked at what is left fits from `offset` on.
static int fits(Search *s, PackTime span, int64_t offset) {
  int from = s->first_tight[span.lower], to = s->first_tight[span.upper];
  s->looked += to - from + 4;
  for (int k = from; k < to; k++) {
    int x = s->tight[k];
    int64_t room = s->capacity - s->left[x];
    if (!s->left[x]) continue;
    if (offset > room) return s->failed = x, 0;
    if (is_open(s, s->witness[x]) && s->cell[s->rank[s->witness[x]]].low <= room) continue;
    int j = s->begin[x + 1];
    while (j < s->begin[x + 2] && (!is_open(s, s->needed[j]) || s->cell[s->rank[s->needed[j]]].low > room)) j++;
    s->looked += j - s->begin[x + 1];
    if (j == s->begin[x + 2]) return s->failed = x, 0;
    s->witness[x] = s->needed[j];
  }
  return 1;
}

static void place(Search *s, int item, int64_t offset) {
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  int64_t top = offset + s->p->item.data[item].size;
  int was = s->change.count;
  s->open[item / 64] &= ~((uint64_t)1 << (item % 64));
  s->offset[item] = offset;
  for (size_t w = 0; w < s->meets->words; w++)
    for (uint64_t bits = row[w] & s->open[w]; bits; bits &= bits - 1) {
      int other = s->rank[64 * w + (size_t)__builtin_ctzll(bits)];
      if (s->cell[other].low >= top) continue;
      vec_push(&s->change, (Change){other, s->by[other], s->cell[other].low});
      s->by[other] = item;
      s->cell[other].low = FAULT(search_lifts_nothing, top, s->cell[other].low);
    }
  EACH_SECTION(x, s, item) s->left[x] -= counted(s, item);
  PackTime span = span_of(s, item);
  s->looked += (int64_t)s->meets->words / 2 + 2 * (s->change.count - was) + (span.upper - span.lower) / 2;
}

static void take_back(Search *s, int item, int changes) {
  while (s->change.count > changes) {
    Change c = s->change.data[--s->change.count];
    s->cell[c.rank].low = c.low;
    s->by[c.rank] = c.by;
  }
  EACH_SECTION(x, s, item) s->left[x] += counted(s, item);
  s->open[item / 64] |= (uint64_t)1 << (item % 64);
}

static void add_bit(uint64_t *set, int i) { set[i / 64] |= (uint64_t)1 << (i % 64); }

// Why an item that has just been placed leaves no room: what has been placed at the time at which there is none, what
// raised the items left there, and the item itself where its own offset is too high for these.
static void explain(Search *s, int item, int64_t low) {
  memset(s->why, 0, s->meets->words * sizeof *s->why);
  if (low + s->p->item.data[item].size > s->capacity) {
    if (s->by[s->rank[item]] >= 0) add_bit(s->why, s->by[s->rank[item]]);
    return;
  }
  int x = s->failed;
  for (int j = s->begin[x + 1]; j < s->begin[x + 2]; j++) {
    int i = s->needed[j], by = is_open(s, i) ? s->by[s->rank[i]] : i;
    if (by >= 0) add_bit(s->why, by);
  }
  s->looked += s->begin[x + 2] - s->begin[x + 1];
  if (low > s->capacity - s->left[x]) add_bit(s->why, item);
}

// Whether, after an item failed, no other instead of it can help: the failure does not depend on it, or it was in
// nobody's way. Otherwise what the failure depends on is added to what those tried before depend on.
static int is_beyond(Search *s, uint64_t *tried, int item, int lifted) {
  int depends = s->why[item / 64] >> (item % 64) & 1;
  if (FAULT(search_jumps_too_far, FAULT(search_jumps_never, !depends, 0), 1)) return 1;
  for (size_t w = 0; w < s->meets->words; w++) tried[w] |= s->why[w];
  tried[item / 64] &= ~((uint64_t)1 << (item % 64));
  s->looked += (int64_t)s->meets->words;
  if (!lifted) memcpy(s->why, tried, s->meets->words * sizeof *tried);
  return !lifted;
}

typedef struct Last { int64_t low; int rank; } Last; // what has been placed last

static int search(Search *s, int *rank, int count, PackTime span, Last last);

// Items (by rank) of a span, each part that nothing connects with others by itself.
static int search_parts(Search *s, int *rank, int count, PackTime span, Last last) {
  for (int from = span.lower, x = from + 1; x <= span.upper; x++) {
    if (x < span.upper && s->cut[x]) continue;
    int in = 0;
    for (int k = 0; k < count; k++) {
      int now = rank[k];
      if (span_of(s, s->at[now]).lower >= x) continue;
      rank[k] = rank[in], rank[in++] = now;
    }
    s->looked += count;
    if (in && !search(s, rank, in, (PackTime){from, x}, last)) return 0;
    rank += in, count -= in, from = x;
  }
  return 1;
}

// Places one after another of these lowest, and searches what is left. Leaves all open that was.
static int search(Search *s, int *rank, int count, PackTime span, Last last) {
  int found = !count, skipped = 0;
  uint64_t *tried = s->jump ? s->tried + (size_t)s->level * s->meets->words : NULL;
  if (tried) memset(tried, 0, s->meets->words * sizeof *tried);
  while (!found && s->looked <= s->stop && s->nodes-- > 0) {
    int64_t least = INT64_MAX, low = INT64_MAX; // the lowest end of any, and the lowest offset that has not been tried
    int best = -1;
    for (int k = 0; k < count; k++) {
      Cell c = s->cell[rank[k]];
      least = c.low + c.size < least ? c.low + c.size : least;
      if (c.low > low || c.low < last.low ||
          (c.low == last.low && FAULT(search_skips_equal_offsets, rank[k] <= last.rank, last.rank >= 0))) {
        if (c.low <= last.low) skipped = 1;
        continue;
      }
      if (c.low == low && rank[k] > rank[best]) continue;
      low = c.low, best = k;
    }
    s->looked += count / 2;
    if (low >= least) { // none is left, or a gap would stay in which another one fits
      if (tried) memcpy(s->why, tried, s->meets->words * sizeof *tried);
      if (tried && skipped && last.rank >= 0) add_bit(s->why, s->at[last.rank]);
      return 0;
    }
    int now = rank[best], item = s->at[now], changes = s->change.count, parts = 0;
    PackTime own = span_of(s, item);
    rank[best] = rank[count - 1], rank[count - 1] = now;
    last = (Last){low, now};
    place(s, item, low);
    for (int x = own.lower + 1; x < own.upper; x++) parts += !--s->cut[x];
    s->level++;
    if (low + s->p->item.data[item].size > s->capacity || !fits(s, span, low)) {
      if (tried) explain(s, item, low);
    } else
      found = parts ? search_parts(s, rank, count - 1, span, last) : search(s, rank, count - 1, span, last);
    for (int x = own.lower + 1; x < own.upper; x++) ++s->cut[x];
    int lifted = s->change.count > changes;
    s->level--;
    take_back(s, item, changes);
    if (tried && !found && is_beyond(s, tried, item, lifted)) return 0;
  }
  return found;
}

// How many of the sections that are looked at an item is needed in.
static int width_of(const Search *s, int i) {
  const PackItem *item = &s->p->item.data[i];
  int width = 0;
  for (const PackTime *t = s->time + item->first; t < s->time + item->first + item->count; t++)
    width += s->first_tight[t->upper] - s->first_tight[t->lower];
  return width;
}

// Orders: the greatest first, by one value, among equals by the next. In the last three the first value is times a
// random number.
enum { WIDTH, AREA, LOAD, SIZE, VALUES, KEYS = 3 };
static const int orders[PACK_ORDERS][KEYS] = {{WIDTH, AREA, LOAD}, {LOAD, AREA, WIDTH}, {LOAD, WIDTH, AREA},
                                              {AREA, LOAD, WIDTH}, {SIZE, LOAD, WIDTH}, {WIDTH, LOAD, SIZE}};

typedef struct Key { double value[KEYS]; int item; } Key; // areas times random numbers pass 2^63

static int by_values(const void *a, const void *b) {
  const Key *x = a, *y = b;
  for (int k = 0; k < KEYS; k++)
    if (x->value[k] != y->value[k]) return x->value[k] < y->value[k] ? 1 : -1;
  return x->item - y->item;
}

static void rank_by(Search *s, int order, uint64_t random, const int64_t *load, const int *item, int count) {
  Key *key = xcalloc((size_t)count + 1, sizeof *key);
  for (int k = 0; k < count; k++) {
    int i = item[k];
    double width = width_of(s, i), size = (double)s->p->item.data[i].size,
           of[VALUES] = {[WIDTH] = width, [AREA] = width * size, [LOAD] = (double)load[i], [SIZE] = size};
    int64_t chance = order < PACK_RANDOM_ORDER ? 1024 : 512 + (int64_t)(pack_draw(&random) % 1024);
    for (int q = 0; q < KEYS; q++) key[k].value[q] = of[orders[order][q]] * (q ? 1 : (double)chance);
    key[k].item = i;
  }
  qsort(key, (size_t)count, sizeof *key, by_values);
  for (int k = 0; k < count; k++) {
    s->rank[key[k].item] = k, s->at[k] = key[k].item;
    s->cell[k] = (Cell){0, s->p->item.data[key[k].item].size};
  }
  s->looked += 12 * count;
  free(key);
}

// Sections in which at least `least` bytes are needed are looked at. Returns the most that items of less than `small`
// bytes take in any section.
static int64_t find_tight(Search *s, int64_t least, int64_t small) {
  int64_t *bytes = xcalloc((size_t)s->sections + 1, sizeof *bytes), most = 0;
  for (int i = 0; i < s->n; i++)
    EACH_SECTION(x, s, i) bytes[x] += s->p->item.data[i].size, s->looked++;
  for (int x = 0; x <= s->sections; x++) {
    s->first_tight[x] = s->tights;
    if (bytes[x] && bytes[x] >= least) s->tight[s->tights++] = x;
    bytes[x] = 0;
  }
  for (int i = 0; i < s->n; i++)
    if (s->p->item.data[i].size < small)
      EACH_SECTION(x, s, i) bytes[x] += s->p->item.data[i].size;
  for (int x = 0; x < s->sections; x++) most = bytes[x] > most ? bytes[x] : most;
  free(bytes);
  return most;
}

// Items that are needed in sections that are looked at, and are not small. Returns how many.
static int find_items(Search *s, int64_t small, int *item) {
  int count = 0;
  for (int i = 0; i < s->n; i++) {
    if (!s->p->item.data[i].count || s->p->item.data[i].size < small || !width_of(s, i)) continue;
    item[count++] = i;
    s->open[i / 64] |= (uint64_t)1 << (i % 64);
    PackTime span = span_of(s, i);
    for (int x = span.lower + 1; x < span.upper; x++) s->cut[x]++;
    if (counted(s, i))
      EACH_SECTION(x, s, i) s->left[x] += counted(s, i), s->begin[x + 3]++;
  }
  for (int x = 0; x < s->sections; x++) s->begin[x + 3] += s->begin[x + 2];
  s->needed = xcalloc((size_t)s->begin[s->sections + 2] + 1, sizeof *s->needed);
  for (int k = 0; k < count; k++)
    if (counted(s, item[k]))
      EACH_SECTION(x, s, item[k]) s->needed[s->begin[x + 2]++] = item[k];
  return count;
}

PackFound pack_search(const PackProblem *p, const PackMeets *meets, const int64_t *load, const PackAim *aim,
                      int64_t *looked, int64_t *offset) {
  size_t n = (size_t)p->item.count;
  Search s = {.p = p, .meets = meets, .n = p->item.count, .capacity = aim->capacity, .stop = aim->effort,
              .jump = aim->jump};
  PackFound found = PACK_GAVE_UP;
  find_sections(&s);
  size_t sections = (size_t)s.sections;
  int *item = xcalloc(n + 1, sizeof *item);
  s.open = xcalloc(meets->words + 1, sizeof *s.open);
  s.cell = xcalloc(n + 1, sizeof *s.cell);
  s.at = xcalloc(n + 1, sizeof *s.at);
  s.rank = xcalloc(n + 1, sizeof *s.rank);
  s.by = xcalloc(n + 1, sizeof *s.by);
  for (size_t i = 0; i < n; i++) s.by[i] = -1;
  if (s.jump)
    s.why = xcalloc(meets->words + 1, sizeof *s.why), s.tried = xcalloc((n + 2) * meets->words, sizeof *s.tried);
  s.offset = xcalloc(n + 1, sizeof *s.offset);
  s.tight = xcalloc(sections + 1, sizeof *s.tight);
  s.first_tight = xcalloc(sections + 1, sizeof *s.first_tight);
  s.cut = xcalloc(sections + 1, sizeof *s.cut);
  s.left = xcalloc(sections + 1, sizeof *s.left);
  s.witness = xcalloc(sections + 1, sizeof *s.witness);
  s.begin = xcalloc(sections + 3, sizeof *s.begin);
  s.capacity -= find_tight(&s, aim->least, aim->small);
  int count = find_items(&s, aim->small, item);
  s.nodes = aim->rounds * count;
  s.looked += 16 * s.n;
  uint64_t seed = PACK_SEED + (uint64_t)aim->rounds * 1000003 + (uint64_t)aim->order + (uint64_t)aim->draw * 998244353;
  rank_by(&s, aim->order, seed, load, item, count);
  int *rank = xcalloc((size_t)count + 1, sizeof *rank);
  for (int k = 0; k < count; k++) rank[k] = k;
  if (count <= PACK_MOST_SEARCHED && search_parts(&s, rank, count, (PackTime){0, s.sections}, (Last){0, -1}))
    found = PACK_FITS;
  else if (FAULT(search_proves_by_giving_up, count <= PACK_MOST_SEARCHED && s.nodes > 0 && s.looked <= s.stop, 1) &&
           !aim->small && FAULT(jumps_prove, !aim->jump, 1)) // jumps may pass over a packing
    found = PACK_NONE;
  for (size_t i = 0; i < n && found == PACK_FITS; i++) offset[i] = -1;
  for (int k = 0; k < count && found == PACK_FITS; k++) offset[item[k]] = s.offset[item[k]];
  *looked += s.looked;
  free(item), free(rank), free(s.open), free(s.cell), free(s.at), free(s.rank), free(s.offset), free(s.tight),
      free(s.first_tight), free(s.cut);
  free(s.by), free(s.why), free(s.tried), free(s.left), free(s.witness), free(s.begin), free(s.needed), free(s.time);
  vec_free(&s.change);
  return found;
}
