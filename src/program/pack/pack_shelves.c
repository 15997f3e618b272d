// Shared by the packers: the placed items, by address, for each period of time, and small things.
#include "program/pack/pack_search.h"
#include <limits.h>
#include <string.h>

enum { SHELF_COST = 20 }; // of a shelf on which something is put, or from which it is taken, as items looked at

int64_t pack_duration(const PackProblem *p, const PackItem *item) {
  int64_t duration = 0;
  for (int t = item->first; t < item->first + item->count; t++)
    duration += p->time.data[t].upper - p->time.data[t].lower;
  return duration;
}

int64_t pack_end(const PackProblem *p, const int64_t *offset) {
  int64_t end = 0;
  for (int i = 0; i < p->item.count; i++)
    if (p->item.data[i].count && offset[i] + p->item.data[i].size > end) end = offset[i] + p->item.data[i].size;
  return end;
}

static int by_key(const void *a, const void *b) {
  const PackKey *x = a, *y = b;
  if (x->class != y->class) return x->class > y->class ? 1 : -1;
  if (x->worth != y->worth) return x->worth < y->worth ? 1 : -1;
  if (x->after != y->after) return x->after > y->after ? 1 : -1;
  return x->item - y->item;
}

void pack_sort(PackKey *key, int count) {
  if (count) qsort(key, (size_t)count, sizeof *key, by_key);
}

// How many marks are below an address.
static int marks_below(const PackShelf *shelf, int64_t at) {
  int low = 0, count = shelf->count;
  while (count > 0) {
    int half = count / 2;
    if (shelf->data[low + half].at < at) low += half + 1, count -= half + 1;
    else count = half;
  }
  return low;
}

static int period(const PackShelves *s, int time) {
  return (int)((int64_t)(time - s->begin) * s->periods / (s->end - s->begin));
}

PackShelves pack_shelves(const PackProblem *p) {
  enum { FEW = 400 }; // of so few items one shelf is looked through in less time than it takes to keep several
  PackShelves s = {.begin = INT_MAX, .end = INT_MIN, .periods = p->item.count > FEW ? PACK_PERIODS : 0};
  s.first = xcalloc((size_t)p->item.count + 1, sizeof *s.first);
  s.last = xcalloc((size_t)p->item.count + 1, sizeof *s.last);
  for (int i = 0; i < p->time.count; i++) {
    if (p->time.data[i].lower < s.begin) s.begin = p->time.data[i].lower;
    if (p->time.data[i].upper > s.end) s.end = p->time.data[i].upper;
  }
  for (int i = 0; i < p->item.count; i++) {
    const PackItem *item = &p->item.data[i];
    if (!item->count || !s.periods) continue;
    s.first[i] = (unsigned char)period(&s, p->time.data[item->first].lower);
    s.last[i] = (unsigned char)period(&s, p->time.data[item->first + item->count - 1].upper - 1);
  }
  return s;
}

void pack_shelves_clear(PackShelves *s) {
  for (int i = 0; i <= PACK_PERIODS; i++) s->shelf[i].count = 0;
}

void pack_shelves_free(PackShelves *s) {
  for (int i = 0; i <= PACK_PERIODS; i++) vec_free(&s->shelf[i]);
  free(s->first), free(s->last);
}

const PackShelf *pack_shelf_of(const PackShelves *s, int item) {
  return &s->shelf[s->periods && s->first[item] == s->last[item] ? s->first[item] : PACK_PERIODS];
}

static void put(PackShelf *shelf, PackMark m) {
  int k = marks_below(shelf, m.at);
  vec_reserve(shelf, shelf->count + 1);
  memmove(shelf->data + k + 1, shelf->data + k, sizeof *shelf->data * (size_t)(shelf->count++ - k));
  shelf->data[k] = m;
}

static void take(PackShelf *shelf, PackMark m) {
  int k = marks_below(shelf, m.at);
  while (shelf->data[k].item != m.item) k++;
  memmove(shelf->data + k, shelf->data + k + 1, sizeof *shelf->data * (size_t)(--shelf->count - k));
}

int pack_shelves_put(PackShelves *s, PackMark m) {
  for (int t = s->first[m.item]; s->periods && t <= s->last[m.item]; t++) put(&s->shelf[t], m);
  put(&s->shelf[PACK_PERIODS], m);
  return SHELF_COST * (s->last[m.item] - s->first[m.item] + 2) + s->shelf[PACK_PERIODS].count / 8;
}

int pack_shelves_take(PackShelves *s, PackMark m) {
  for (int t = s->first[m.item]; s->periods && t <= s->last[m.item]; t++) take(&s->shelf[t], m);
  take(&s->shelf[PACK_PERIODS], m);
  return SHELF_COST * (s->last[m.item] - s->first[m.item] + 2) + s->shelf[PACK_PERIODS].count / 8;
}
