// Search: items are placed by rising offset, each at the lowest one that what has been placed before allows. Every
// packing can be pushed down into this form. Of items that could be placed in any order only one order is tried, and no
// gap is left in which another item would fit (canonical solutions and dominance: MiniMalloc, Moffitt, 2023;
// TelaMalloc, Maas et al., 2022). A branch ends where at some time what is left does not fit between the lowest of its
// offsets and the capacity. Parts that nothing connects any more are searched one by one. With jumps, a failure goes
// back to the last item that it depends on (conflict-directed backjumping, Prosser, 1993): most lie at other times. An
// order of the items decides what is tried first; most often hardly anything has to be taken back, or too much for any
// order to wait for.
#include "program/pack/pack_search.h"
#include "base/error.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

typedef struct Change { int item, by; int64_t key; } Change;
typedef struct Watch { int section, witness; } Watch; // the witness that a section had

// Items lie by when they are needed first (seats), so that those of a part lie side by side. Of each block of seats the
// least is kept: the lowest item is found without a look at each.
enum { BLOCK = 64, BLOCKS = (PACK_MOST_SEARCHED + BLOCK - 1) / BLOCK, RANK_BITS = 12, RANKS = (1 << RANK_BITS) - 1 };
_Static_assert(PACK_MOST_SEARCHED <= RANKS + 1 && BLOCKS <= 64, "a key has the rank's bits, a word all blocks");

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
  uint64_t *open;           // bits of items that are left
  int64_t *key, *end; // (seats) of items left: the lowest offset that what is placed allows, shifted by RANK_BITS,
                      // and the rank in the order, which decides among equals; and where the item would end.
                      // INT64_MAX: of items placed
  int64_t least_key[BLOCKS], least_end[BLOCKS]; // of the seats of a block
  uint64_t stale;           // bits of blocks whose least must be found again
  int *seat, *at;           // (items) seats; (ranks) items
  int *first_seat;          // (sections + 1) seats of items that begin before
  int64_t *size;            // (items)
  int64_t *offset;          // (items) where each was placed last
  int *witness;             // (sections) one of what is left that lies low enough, as a number of `needed`; -1: none
  int *watched, *next,
      *before;              // (items, sections, sections) list of sections of which an item is the witness; -1: ends
  Vec(Change) change;       // of keys, to be taken back
  Vec(Watch) watch;         // of witnesses, to be taken back
  int64_t capacity, looked, stop;
  int64_t nodes, least_nodes, patience; // nodes: left; patience: until it goes deeper
  int *by;                  // (items) the item that raised the lowest offset last, -1: none
  int failed;               // the section in which what is left did not fit
  uint64_t *why, *tried; // with jumps, (items) bits: what the last failure depends on; (levels, items) and those that
                         // came before it
  int jump, deepest, level; // level: how many items are placed, of the parts that are being searched
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
static int64_t counted(const Search *s, int i) { return s->p->item.data[i].owners ? 0 : s->size[i]; }

static void set_key(Search *s, int i, int64_t key) {
  int seat = s->seat[i];
  s->key[seat] = key;
  s->end[seat] = (key >> RANK_BITS) + s->size[i];
  s->stale |= FAULT(search_trusts_stale_blocks, (uint64_t)1 << (seat / BLOCK), 0);
}

// ---- what is left must fit ------------------------------------------------------------------------------------------

// number: of `needed`, or -1.
static void set_witness(Search *s, int x, int number) {
  int *watched = s->witness[x] < 0 ? NULL : &s->watched[s->needed[s->witness[x]]];
  if (watched) {
    if (s->before[x] < 0) *watched = s->next[x];
    else s->next[s->before[x]] = s->next[x];
    if (s->next[x] >= 0) s->before[s->next[x]] = s->before[x];
  }
  s->witness[x] = number;
  if (number < 0) return;
  watched = &s->watched[s->needed[number]];
  s->next[x] = *watched, s->before[x] = -1;
  if (s->next[x] >= 0) s->before[s->next[x]] = x;
  *watched = x;
}

// Whether in a section something that is left lies low enough for all that is left: its witness. Where that does not do
// any more, another one, from there on: most of what comes before has been one.
static int has_witness(Search *s, int x) {
  int64_t limit = (s->capacity - s->left[x] + FAULT(search_wants_lower_witnesses, 1, 0))
                  * (RANKS + 1); // of keys; what is placed has a greater one
  int was = s->witness[x], from = s->begin[x + 1], to = s->begin[x + 2], j = was < 0 ? from : was;
  if (!s->left[x] || (was >= 0 && s->key[s->seat[s->needed[was]]] < limit)) return 1;
  for (int left = to - from; left; left--, j = j + 1 < to ? j + 1 : from) {
    s->looked++;
    if (s->key[s->seat[s->needed[j]]] >= limit) continue;
    vec_push(&s->watch, (Watch){x, was});
    set_witness(s, x, j);
    return 1;
  }
  return s->failed = x, 0;
}

// Of each section that an item is the witness of.
static int have_witnesses(Search *s, int item) {
  for (int x = s->watched[item], next; x >= 0; x = next) {
    next = s->next[x];
    s->looked++;
    if (!has_witness(s, x)) return 0;
  }
  return 1;
}

// Whether at all times that are looked at what is left fits from `offset` on, after an item has been placed there and
// has raised others. *room: no more than what any section has below it where what is left would begin at the latest;
// until the offset comes to that, no section needs to be looked at.
static int fits(Search *s, PackTime span, int64_t offset, int item, int changes, int64_t *room) {
  if (offset > *room) {
    int from = s->first_tight[span.lower], to = s->first_tight[span.upper];
    *room = s->capacity;
    for (int k = from; k < to; k++) {
      int x = s->tight[k];
      int64_t own = s->capacity - s->left[x];
      if (own >= *room) continue;
      *room = own;
      if (offset > FAULT(search_leaves_room, own, own - 1)) return s->failed = x, s->looked += (k - from) / 2, 0;
    }
    s->looked += (to - from) / 2;
  }
  if (!have_witnesses(s, item)) return 0;
  for (int k = changes; k < s->change.count; k++)
    if (!have_witnesses(s, s->change.data[k].item)) return 0;
  return 1;
}

// ---- placing and taking back ----------------------------------------------------------------------------------------

static void place(Search *s, int item, int64_t offset) {
  const uint64_t *row = s->meets->bits + (size_t)item * s->meets->words;
  int64_t top = offset + s->size[item];
  int was = s->change.count, seat = s->seat[item];
  s->open[item / 64] &= ~((uint64_t)1 << (item % 64));
  s->offset[item] = offset;
  s->key[seat] = s->end[seat] = INT64_MAX;
  s->stale |= (uint64_t)1 << (seat / BLOCK);
  for (size_t w = 0; w < s->meets->words; w++)
    for (uint64_t bits = row[w] & s->open[w]; bits; bits &= bits - 1) {
      int other = 64 * (int)w + __builtin_ctzll(bits);
      int64_t key = s->key[s->seat[other]];
      if (key >> RANK_BITS >= top) continue;
      vec_push(&s->change, (Change){other, s->by[other], key});
      s->by[other] = item;
      set_key(s, other, FAULT(search_lifts_nothing, top << RANK_BITS | (key & RANKS), key));
    }
  EACH_SECTION(x, s, item) s->left[x] -= counted(s, item);
  PackTime span = span_of(s, item);
  s->looked += (int64_t)s->meets->words / 2 + 3 * (s->change.count - was) + (span.upper - span.lower) / 4;
}

typedef struct Before { int changes, watches; int64_t key; } Before; // what a place is taken back to

static void take_back(Search *s, int item, Before before) {
  while (s->watch.count > before.watches) {
    Watch w = s->watch.data[--s->watch.count];
    set_witness(s, w.section, w.witness);
  }
  while (s->change.count > before.changes) {
    Change c = s->change.data[--s->change.count];
    set_key(s, c.item, c.key);
    s->by[c.item] = c.by;
  }
  EACH_SECTION(x, s, item) s->left[x] += counted(s, item);
  s->open[item / 64] |= (uint64_t)1 << (item % 64);
  set_key(s, item, before.key);
}

static void add_bit(uint64_t *set, int i) { set[i / 64] |= (uint64_t)1 << (i % 64); }

// Why an item that has just been placed leaves no room: what has been placed at the time at which there is none, what
// raised the items left there, and the item itself where its own offset is too high for these.
static void explain(Search *s, int item, int64_t low) {
  memset(s->why, 0, s->meets->words * sizeof *s->why);
  if (low + s->size[item] > s->capacity) {
    if (s->by[item] >= 0) add_bit(s->why, s->by[item]);
    return;
  }
  int x = s->failed;
  for (int j = s->begin[x + 1]; j < s->begin[x + 2]; j++) {
    int i = s->needed[j], by = is_open(s, i) ? s->by[i] : i;
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

// ---- the lowest of what is left -------------------------------------------------------------------------------------

// Of the seats of a part: the lowest end of any item, the least key above that of the last one, and whether any lies
// below that: it has been passed over.
typedef struct Lowest { int64_t end, key; int skipped; } Lowest;

static void look_at(const Search *s, int from, int to, int64_t last, Lowest *l) {
  int64_t end = l->end, key = l->key;
  int skipped = 0;
  for (int k = from; k < to; k++) {
    int above = s->key[k] > last;
    end = s->end[k] < end ? s->end[k] : end;
    key = above && s->key[k] < key ? s->key[k] : key;
    skipped |= !above;
  }
  l->end = end, l->key = key, l->skipped |= skipped;
}

static void refresh(Search *s, int block) {
  int64_t key = INT64_MAX, end = INT64_MAX;
  for (int k = block * BLOCK; k < (block + 1) * BLOCK; k++) {
    key = s->key[k] < key ? s->key[k] : key;
    end = s->end[k] < end ? s->end[k] : end;
  }
  s->least_key[block] = key, s->least_end[block] = end;
  s->stale &= ~((uint64_t)1 << block);
}

static Lowest find_lowest(Search *s, PackTime span, int64_t last) {
  Lowest l = {INT64_MAX, INT64_MAX, 0};
  int from = s->first_seat[span.lower], to = s->first_seat[span.upper];
  int first = (from + BLOCK - 1) / BLOCK, end = to / BLOCK, stale = 0;
  if (first >= end) {
    look_at(s, from, to, last, &l);
    s->looked += (to - from) / 2;
    return l;
  }
  look_at(s, from, first * BLOCK, last, &l);
  for (int b = first; b < end; b++) {
    if (s->stale >> b & 1) refresh(s, b), stale++;
    if (s->least_key[b] <= last) {
      look_at(s, b * BLOCK, (b + 1) * BLOCK, last, &l), stale++;
      continue;
    }
    l.end = s->least_end[b] < l.end ? s->least_end[b] : l.end;
    l.key = s->least_key[b] < l.key ? s->least_key[b] : l.key;
  }
  look_at(s, end * BLOCK, to, last, &l);
  s->looked += (first * BLOCK - from + to - end * BLOCK) / 2 + stale * (BLOCK / 2) + (end - first);
  return l;
}

static int search(Search *s, PackTime span, int64_t last, int64_t room);

// Nodes are left until none goes deeper for some time.
static void go_deeper(Search *s) {
  if (++s->level <= s->deepest) return;
  s->deepest = s->level;
  s->least_nodes = FAULT(search_has_endless_patience, s->nodes > s->patience, 0) ? s->nodes - s->patience : 0;
}

// Items of a span, each part that nothing connects with others by itself.
static int search_parts(Search *s, PackTime span, int64_t last, int64_t room) {
  for (int from = span.lower, x = from + 1; x <= span.upper; x++) {
    if (x < span.upper && s->cut[x]) continue;
    s->deepest = s->level;
    if (!search(s, (PackTime){from, x}, last, room)) return 0;
    from = x;
  }
  s->looked += (span.upper - span.lower) / 2;
  return 1;
}

// Places one after another of these lowest, and searches what is left. Leaves all open that was. last: the key of what
// has been placed last, -1: nothing has; room: as of `fits`.
static int search(Search *s, PackTime span, int64_t last, int64_t room) {
  uint64_t *tried = s->jump ? s->tried + (size_t)s->level * s->meets->words : NULL;
  int found = 0;
  if (tried) memset(tried, 0, s->meets->words * sizeof *tried);
  while (!found) {
    Lowest l = find_lowest(s, span, FAULT(search_skips_equal_offsets, last, last | (last < 0 ? 0 : RANKS)));
    if (l.end == INT64_MAX) return 1; // nothing is left
    if (s->looked > s->stop || s->nodes <= s->least_nodes) return 0;
    s->nodes--;
    int64_t low = l.key >> RANK_BITS;
    if (l.key == INT64_MAX || low >= l.end) { // all have been tried, or a gap would stay in which another one fits
      if (tried) memcpy(s->why, tried, s->meets->words * sizeof *tried);
      if (tried && l.skipped) add_bit(s->why, s->at[last & RANKS]);
      return 0;
    }
    last = l.key;
    int item = s->at[last & RANKS], parts = 0;
    Before before = {s->change.count, s->watch.count, last};
    PackTime own = span_of(s, item);
    int64_t own_room = room;
    place(s, item, low);
    for (int x = own.lower + 1; x < own.upper; x++) parts += !--s->cut[x];
    go_deeper(s);
    if (low + s->size[item] > s->capacity || !fits(s, span, low, item, before.changes, &own_room)) {
      if (tried) explain(s, item, low);
    } else
      found = parts ? search_parts(s, span, last, own_room) : search(s, span, last, own_room);
    for (int x = own.lower + 1; x < own.upper; x++) ++s->cut[x];
    int lifted = s->change.count > before.changes;
    s->level--;
    take_back(s, item, before);
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
    s->at[k] = key[k].item;
    set_key(s, key[k].item, k);
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

// Seats, by when items are needed first.
static void take_seats(Search *s, const int *item, int count) {
  for (int k = 0; k < count; k++) s->first_seat[span_of(s, item[k]).lower + 1]++;
  for (int x = 0; x <= s->sections; x++) s->first_seat[x + 1] += s->first_seat[x];
  for (int k = 0; k < count; k++) s->seat[item[k]] = s->first_seat[span_of(s, item[k]).lower]++;
  memmove(s->first_seat + 1, s->first_seat, sizeof *s->first_seat * (size_t)(s->sections + 1));
  s->first_seat[0] = 0;
}

// Whether what is needed in each section that is looked at fits into it at all.
static int all_have_witnesses(Search *s) {
  int all = 1;
  for (int k = 0; k < s->tights && all; k++) all = has_witness(s, s->tight[k]);
  s->watch.count = 0; // nothing takes these back
  return all;
}

PackFound pack_search(const PackProblem *p, const PackMeets *meets, const int64_t *load, const PackAim *aim,
                      int64_t *looked, int64_t *offset) {
  size_t n = (size_t)p->item.count;
  Search s = {.p = p, .meets = meets, .n = p->item.count, .capacity = aim->capacity, .stop = aim->effort / 3 * 2,
              .jump = aim->jump};
  PackFound found = PACK_GAVE_UP;
  find_sections(&s);
  size_t sections = (size_t)s.sections, seats = (size_t)(BLOCKS + 1) * BLOCK;
  int *item = xcalloc(n + 1, sizeof *item);
  s.open = xcalloc(meets->words + 1, sizeof *s.open);
  s.key = xcalloc(seats, sizeof *s.key), s.end = xcalloc(seats, sizeof *s.end);
  for (size_t i = 0; i < seats; i++) s.key[i] = s.end[i] = INT64_MAX;
  s.at = xcalloc(n + 1, sizeof *s.at), s.seat = xcalloc(n + 1, sizeof *s.seat);
  s.first_seat = xcalloc(sections + 3, sizeof *s.first_seat);
  s.by = xcalloc(n + 1, sizeof *s.by), s.watched = xcalloc(n + 1, sizeof *s.watched);
  for (size_t i = 0; i < n; i++) s.by[i] = s.watched[i] = -1;
  s.size = xcalloc(n + 1, sizeof *s.size), s.offset = xcalloc(n + 1, sizeof *s.offset);
  for (size_t i = 0; i < n; i++) s.size[i] = p->item.data[i].size;
  if (s.jump)
    s.why = xcalloc(meets->words + 1, sizeof *s.why), s.tried = xcalloc((n + 2) * meets->words, sizeof *s.tried);
  s.tight = xcalloc(sections + 1, sizeof *s.tight);
  s.first_tight = xcalloc(sections + 1, sizeof *s.first_tight);
  s.cut = xcalloc(sections + 1, sizeof *s.cut);
  s.left = xcalloc(sections + 1, sizeof *s.left);
  s.witness = xcalloc(sections + 1, sizeof *s.witness);
  s.next = xcalloc(sections + 1, sizeof *s.next), s.before = xcalloc(sections + 1, sizeof *s.before);
  for (size_t x = 0; x < sections; x++) s.witness[x] = -1;
  s.begin = xcalloc(sections + 3, sizeof *s.begin);
  s.capacity -= find_tight(&s, aim->least, aim->small);
  int count = find_items(&s, aim->small, item);
  s.nodes = aim->rounds * count;
  s.patience = aim->patience ? count / aim->patience : s.nodes;
  s.looked += 16 * s.n;
  if (count <= PACK_MOST_SEARCHED && s.capacity < INT64_MAX >> (RANK_BITS + 1)) {
    uint64_t seed =
        PACK_SEED + (uint64_t)aim->rounds * 1000003 + (uint64_t)aim->order + (uint64_t)aim->draw * 998244353;
    take_seats(&s, item, count);
    rank_by(&s, aim->order, seed, load, item, count);
    if (all_have_witnesses(&s) && search_parts(&s, (PackTime){0, s.sections}, -1, INT64_MIN)) found = PACK_FITS;
    else if (FAULT(search_proves_by_giving_up, s.nodes > s.least_nodes && s.looked <= s.stop, 1) && !aim->small &&
             FAULT(jumps_prove, !aim->jump, 1)) // jumps may pass over a packing
      found = PACK_NONE;
  }
  for (size_t i = 0; i < n && found == PACK_FITS; i++) offset[i] = -1;
  for (int k = 0; k < count && found == PACK_FITS; k++) offset[item[k]] = s.offset[item[k]];
  *looked += s.looked / 2 * 3; // these take longer
  free(item), free(s.open), free(s.key), free(s.end), free(s.at), free(s.seat), free(s.first_seat), free(s.by);
  free(s.watched), free(s.size), free(s.offset), free(s.why), free(s.tried), free(s.tight), free(s.first_tight);
  free(s.cut), free(s.left), free(s.witness), free(s.next), free(s.before), free(s.begin), free(s.needed), free(s.time);
  vec_free(&s.change);
  vec_free(&s.watch);
  return found;
}
