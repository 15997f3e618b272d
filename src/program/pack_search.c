// Search: items are placed from the lowest offset up, each on what lies below it. Any packing can be pushed down until
// every item lies at 0 or on another one that it meets; in the order of rising offsets that is how it is found here.
// The first of the lowest times is looked at: some item that is needed then is placed there, or a hole stays. A branch
// ends where at some time what has been placed and what is left do not fit below the capacity. Only holes can do that:
// an item that is placed lies on one floor at all its times. After some steps the search begins anew, with other items
// first.
#include "program/pack_search.h"
#include "base/error.h"
#include <stdlib.h>
#include <string.h>

// Times between two edges, at which the same items are needed, are sections: numbered.
typedef struct Search {
  const PackProblem *p;
  int n, sections;
  PackTime *time;          // as the problem's, in sections
  int64_t *floor, *left;   // (sections) end of what is placed, bytes of what is not
  char *placed;
  int *needed, *begin;     // (begin[x] … begin[x + 1]) items that are needed in section x, the highest rank first
  int64_t capacity, looked, stop;
  int64_t *offset;
  uint64_t random;
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

static void count_needed(Search *s) {
  s->begin = xcalloc((size_t)s->sections + 2, sizeof *s->begin);
  for (int i = 0; i < s->n; i++)
    EACH_SECTION(x, s, i) s->begin[x + 2]++;
  for (int x = 0; x < s->sections; x++) s->begin[x + 2] += s->begin[x + 1];
  s->needed = xcalloc((size_t)s->begin[s->sections + 1] + 1, sizeof *s->needed);
}

// Items of each section by rank.
static void list_needed(Search *s, const int *order) {
  int *next = xcalloc((size_t)s->sections + 1, sizeof *next);
  memcpy(next, s->begin + 1, sizeof *next * (size_t)s->sections);
  for (int k = 0; k < s->n; k++)
    EACH_SECTION(x, s, order[k]) s->needed[next[x]++] = order[k];
  free(next);
}

// The lowest time that something is left for, among equally low ones the first: a valley's left end.
static int lowest(Search *s) {
  int at = -1;
  int64_t floor = INT64_MAX;
  for (int x = 0; x < s->sections; x++)
    if (s->floor[x] < floor && s->left[x]) floor = s->floor[x], at = x;
  s->looked += s->sections / 4 + 4;
  return at;
}

// The highest floor at the times of an item.
static int64_t floor_of(Search *s, int item) {
  int64_t most = 0;
  EACH_SECTION(x, s, item) {
    most = s->floor[x] > most ? s->floor[x] : most;
    s->looked++;
  }
  s->looked += 4;
  return most;
}

// Whether all floors at its times are at most this one.
static int lies_on(Search *s, int item, int64_t floor) {
  EACH_SECTION(x, s, item) {
    s->looked++;
    if (s->floor[x] > floor) return 0;
  }
  return 1;
}

static void set_floor(Search *s, int item, int64_t floor, int64_t left) {
  EACH_SECTION(x, s, item) {
    s->floor[x] = floor;
    s->left[x] += left;
    s->looked++;
  }
}

// The lowest floor that a hole at a section can have: where an item lies on others' floors, or on the smallest one that
// could be placed beside.
static int64_t above_hole(Search *s, int section) {
  int64_t floor = s->floor[section], next = INT64_MAX;
  for (int k = s->begin[section + 1]; k < s->begin[section + 2]; k++) {
    int item = s->needed[k];
    if (s->placed[item]) continue;
    if (s->looked > s->stop) return INT64_MAX;
    int64_t low = floor_of(s, item);
    if (low > floor) next = low < next ? low : next;
    else
      EACH_SECTION(x, s, item) { // what could be below it
        for (int j = s->begin[x + 1]; j < s->begin[x + 2] && x > section; j++) {
          int64_t end = floor + s->p->item.data[s->needed[j]].size;
          if (!s->placed[s->needed[j]] && end < next && s->needed[j] != item) next = end;
        }
        s->looked += s->begin[x + 2] - s->begin[x + 1];
        if (s->looked > s->stop) return INT64_MAX;
      }
  }
  return next;
}

static int search(Search *s, int left, int depth) {
  enum { MOST_DEPTH = 8000 }; // what has been placed, and holes that were raised: a stack is not endless
  if (!left) return 1;
  if (depth > MOST_DEPTH) return s->looked = s->stop + 1, 0;
  int section = lowest(s);
  int64_t floor = s->floor[section];
  for (int k = s->begin[section + 1]; k < s->begin[section + 2]; k++) {
    int item = s->needed[k];
    s->looked++;
    if (s->placed[item] || !lies_on(s, item, floor)) continue;
    int64_t size = s->p->item.data[item].size;
    s->placed[item] = 1;
    s->offset[item] = floor;
    set_floor(s, item, floor + size, -size);
    if (search(s, left - 1, depth + 1)) return 1;
    set_floor(s, item, floor, size);
    s->placed[item] = 0;
    if (s->looked > s->stop) return 0;
  }
  if (floor + s->left[section] >= s->capacity) return 0;
  int64_t next = above_hole(s, section);
  if (next > s->capacity - s->left[section]) return 0;
  s->floor[section] = next;
  if (search(s, left, depth + 1)) return 1;
  s->floor[section] = floor;
  return 0;
}

// Nothing is placed but what is never needed. Returns how many items are left.
static int start(Search *s) {
  int needed = 0;
  memset(s->floor, 0, sizeof *s->floor * (size_t)s->sections);
  memset(s->left, 0, sizeof *s->left * (size_t)s->sections);
  for (int i = 0; i < s->n; i++) {
    const PackItem *item = &s->p->item.data[i];
    s->offset[i] = 0;
    s->placed[i] = !item->count;
    needed += item->count > 0;
    EACH_SECTION(x, s, i) s->left[x] += item->size;
  }
  return needed;
}

// Ways of trying: by area, by size, by how long an item is needed; from the second round on each times a random number.
static void order_by(Search *s, int way) {
  PackKey *key = xcalloc((size_t)s->n + 1, sizeof *key);
  int *order = xcalloc((size_t)s->n + 1, sizeof *order);
  for (int i = 0; i < s->n; i++) {
    const PackItem *item = &s->p->item.data[i];
    double duration = (double)pack_duration(s->p, item), size = (double)item->size;
    double random = (double)(pack_draw(&s->random) % 1024) / 1024, chance = way < 3 ? 1 : 0.5 + random;
    key[i].worth = chance * (way % 3 == 0 ? duration * size : way % 3 == 1 ? size : duration);
    key[i].item = i;
  }
  pack_sort(key, s->n);
  for (int i = 0; i < s->n; i++) order[i] = key[i].item;
  list_needed(s, order);
  s->looked += 2 * s->begin[s->sections + 1] + 4 * s->n;
  free(key);
  free(order);
}

// Below a capacity, within so much effort; tries last longer and longer.
static int find_below(Search *s, int64_t capacity, int64_t effort) {
  int64_t end = s->looked + effort, length = effort / 40 + 1;
  s->capacity = capacity;
  for (int way = 0; s->looked < end; way++) {
    order_by(s, way);
    s->stop = s->looked + length < end ? s->looked + length : end;
    if (search(s, start(s), 0)) return 1;
    if (s->looked < s->stop) return 0; // all has been tried
    if (way % 3 == 2) length += length / 2;
  }
  return 0;
}

int64_t pack_search(const PackProblem *p, int64_t bound, int64_t end, int64_t effort, int64_t *offset) {
  enum { MOST_ITEMS = 1000, PARTS = 5 };
  int n = p->item.count;
  for (int i = 0; i < n; i++)
    if (p->item.data[i].owners) return end; // a time has several sums there
  if (n > MOST_ITEMS || !p->time.count) return end;
  Search s = {.p = p, .n = n, .random = PACK_SEED};
  find_sections(&s);
  count_needed(&s);
  s.floor = xcalloc((size_t)s.sections, sizeof *s.floor);
  s.left = xcalloc((size_t)s.sections, sizeof *s.left);
  s.offset = xcalloc((size_t)n, sizeof *s.offset);
  s.placed = xcalloc((size_t)n, 1);
  for (int part = 0; part < PARTS && end > bound; part++) { // the bound itself, then ever larger parts of the rest
    int64_t capacity = bound + (end - bound) * part / PARTS;
    if (capacity >= end) break;
    if (!find_below(&s, capacity, (effort - s.looked) / 2)) continue;
    memcpy(offset, s.offset, sizeof *offset * (size_t)n);
    end = pack_end(p, offset);
  }
  free(s.time), free(s.floor), free(s.left), free(s.offset), free(s.placed), free(s.needed), free(s.begin);
  return end;
}
