// Search: items are placed from the lowest offset up, each on what lies below it. Any packing can be pushed down until
// every item lies at 0 or on another one that it meets; in the order of rising offsets that is how it is found here.
// A branch ends where at some time what has been placed and what is left do not fit below the capacity.
#include "program/pack_search.h"
#include "base/error.h"
#include <stdlib.h>
#include <string.h>

// Times between two edges, at which the same items are needed: numbered.
typedef struct Search {
  const PackProblem *p;
  int n, sections;
  PackTime *time;         // as the problem's, in sections
  int64_t *floor, *left;  // (sections) end of what is placed, bytes of what is not
  int64_t *low;           // (items) where it would lie now
  char *placed;
  int *rank;              // (items) which is tried first
  int *neighbour, *begin; // (begin[i] … begin[i + 1]) items that meet item i
  int64_t capacity, looked, effort;
  int64_t *offset;
  Vec(int64_t) undo;
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

static void find_neighbours(Search *s) {
  const PackItem *item = s->p->item.data;
  Vec(int) all = {0};
  s->begin = xcalloc((size_t)s->n + 1, sizeof *s->begin);
  for (int i = 0; i < s->n; i++) {
    for (int k = 0; k < s->n; k++)
      if (k != i && pack_meet(s->p, &item[i], &item[k])) vec_push(&all, k);
    s->begin[i + 1] = all.count;
  }
  s->neighbour = all.data;
}

// Places an item; 0 where something does not fit any more.
static int place(Search *s, int i) {
  const PackItem *item = &s->p->item.data[i];
  int64_t end = s->low[i] + item->size;
  int good = end <= s->capacity;
  s->placed[i] = 1;
  s->offset[i] = s->low[i];
  for (int t = item->first; t < item->first + item->count; t++)
    for (int x = s->time[t].lower; x < s->time[t].upper; x++) {
      vec_push(&s->undo, s->floor[x]);
      s->floor[x] = end;
      s->left[x] -= item->size;
      good &= end + s->left[x] <= s->capacity;
    }
  for (int k = s->begin[i]; k < s->begin[i + 1]; k++) {
    int other = s->neighbour[k];
    vec_push(&s->undo, s->low[other]);
    if (s->placed[other] || s->low[other] >= end) continue;
    s->low[other] = end;
    good &= end + s->p->item.data[other].size <= s->capacity;
  }
  s->looked += s->begin[i + 1] - s->begin[i] + 4;
  return good;
}

static void take_back(Search *s, int i) {
  const PackItem *item = &s->p->item.data[i];
  for (int k = s->begin[i + 1] - 1; k >= s->begin[i]; k--) s->low[s->neighbour[k]] = s->undo.data[--s->undo.count];
  for (int t = item->first + item->count - 1; t >= item->first; t--)
    for (int x = s->time[t].upper - 1; x >= s->time[t].lower; x--) {
      s->floor[x] = s->undo.data[--s->undo.count];
      s->left[x] += item->size;
    }
  s->placed[i] = 0;
}

static int covers(const Search *s, int item, int section) {
  const PackItem *x = &s->p->item.data[item];
  for (int t = x->first; t < x->first + x->count; t++)
    if (s->time[t].lower <= section && section < s->time[t].upper) return 1;
  return 0;
}

// The lowest time that something is left for, among equally low ones the first: a valley's left end.
static int lowest(const Search *s) {
  int at = -1;
  for (int x = 0; x < s->sections; x++)
    if (s->left[x] && (at < 0 || s->floor[x] < s->floor[at])) at = x;
  return at;
}

// The items that can lie on the floor there, those of the lowest rank first. *higher: where the next one could begin.
static int candidates(Search *s, int section, int *list, int64_t *higher) {
  int64_t floor = s->floor[section];
  int count = 0;
  *higher = INT64_MAX;
  for (int i = 0; i < s->n; i++) {
    if (s->placed[i] || !covers(s, i, section)) continue;
    if (s->low[i] > floor) *higher = s->low[i] < *higher ? s->low[i] : *higher;
    if (s->low[i] > floor) continue;
    int at = count++;
    while (at > 0 && s->rank[i] < s->rank[list[at - 1]]) list[at] = list[at - 1], at--;
    list[at] = i;
  }
  s->looked += s->n + s->sections;
  return count;
}

static int search(Search *s, int depth);

// Nothing lies on the floor of a section: it is as if it were higher.
static int leave_hole(Search *s, int section, int64_t floor, int depth) {
  int64_t was = s->floor[section];
  int from = s->undo.count, good = 0;
  s->floor[section] = floor;
  if (floor + s->left[section] <= s->capacity) {
    for (int i = 0; i < s->n; i++) {
      vec_push(&s->undo, s->low[i]);
      if (!s->placed[i] && s->low[i] < floor && covers(s, i, section)) s->low[i] = floor;
    }
    good = search(s, depth);
    if (good) return 1;
    for (int i = s->n - 1; i >= 0; i--) s->low[i] = s->undo.data[--s->undo.count];
  }
  s->undo.count = from;
  s->floor[section] = was;
  return 0;
}

static int search(Search *s, int depth) {
  if (depth == s->n) return 1;
  int64_t higher;
  int section = lowest(s), *list = xcalloc((size_t)s->n, sizeof *list), good = 0,
      count = candidates(s, section, list, &higher);
  for (int c = 0; c < count && s->looked < s->effort && !good; c++) {
    good = place(s, list[c]) && search(s, depth + 1);
    if (!good) take_back(s, list[c]);
  }
  if (!good && s->looked < s->effort && higher < INT64_MAX) good = leave_hole(s, section, higher, depth);
  free(list);
  return good;
}

// Nothing is placed but what is never needed. Returns how many items are left.
static int start(Search *s) {
  int needed = 0;
  memset(s->floor, 0, sizeof *s->floor * (size_t)s->sections);
  memset(s->left, 0, sizeof *s->left * (size_t)s->sections);
  memset(s->low, 0, sizeof *s->low * (size_t)s->n);
  memset(s->placed, 0, (size_t)s->n);
  s->undo.count = 0;
  for (int i = 0; i < s->n; i++) {
    const PackItem *item = &s->p->item.data[i];
    s->offset[i] = 0;
    s->placed[i] = !item->count;
    needed += item->count > 0;
    for (int t = item->first; t < item->first + item->count; t++)
      for (int x = s->time[t].lower; x < s->time[t].upper; x++) s->left[x] += item->size;
  }
  return needed;
}

// Three orders of trying: by area, by size, by how long an item is needed.
static double worth(const Search *s, int order, int i) {
  const PackItem *item = &s->p->item.data[i];
  double duration = 0;
  for (int t = item->first; t < item->first + item->count; t++)
    duration += s->p->time.data[t].upper - s->p->time.data[t].lower;
  return order == 0 ? duration * (double)item->size : order == 1 ? (double)item->size : duration;
}

static void rank_by(Search *s, int order) {
  double *value = xcalloc((size_t)s->n, sizeof *value);
  for (int i = 0; i < s->n; i++) value[i] = worth(s, order, i);
  for (int i = 0; i < s->n; i++) {
    s->rank[i] = 0;
    for (int k = 0; k < s->n; k++) s->rank[i] += value[k] > value[i] || (value[k] == value[i] && k < i);
  }
  free(value);
}

int64_t pack_search(const PackProblem *p, int64_t bound, int64_t end, int64_t effort, int64_t *offset) {
  enum { MOST_ITEMS = 1000, TRIES = 12, ORDERS = 3 };
  int n = p->item.count;
  for (int i = 0; i < n; i++)
    if (p->item.data[i].owners) return end; // a time has several sums there
  if (n > MOST_ITEMS || !p->time.count) return end;
  Search s = {.p = p, .n = n};
  find_sections(&s);
  find_neighbours(&s);
  s.floor = xcalloc((size_t)s.sections, sizeof *s.floor);
  s.left = xcalloc((size_t)s.sections, sizeof *s.left);
  s.low = xcalloc((size_t)n, sizeof *s.low);
  s.offset = xcalloc((size_t)n, sizeof *s.offset);
  s.placed = xcalloc((size_t)n, 1);
  s.rank = xcalloc((size_t)n, sizeof *s.rank);
  for (int i = 0; i < TRIES && end > bound; i++) { // the bound itself, then what is left to it in ever larger parts
    int64_t capacity = bound + (end - bound) * (i / ORDERS) / (TRIES / ORDERS);
    if (capacity >= end) break;
    rank_by(&s, i % ORDERS);
    int needed = start(&s);
    s.capacity = capacity;
    s.looked = 0;
    s.effort = effort / TRIES;
    if (!search(&s, n - needed)) continue;
    memcpy(offset, s.offset, sizeof *offset * (size_t)n);
    end = 0;
    for (int k = 0; k < n; k++)
      if (offset[k] + p->item.data[k].size > end) end = offset[k] + p->item.data[k].size;
  }
  free(s.time);
  free(s.floor);
  free(s.left);
  free(s.low);
  free(s.offset);
  free(s.placed);
  free(s.rank);
  free(s.neighbour);
  free(s.begin);
  vec_free(&s.undo);
  return end;
}
