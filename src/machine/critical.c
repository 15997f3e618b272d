// The critical path.
#include "machine/critical.h"
#include <stdio.h>
#include <string.h>

typedef struct Wait {
  double resumed, time;
  int from, number;
  const char *name;
  uint32_t axes;
} Wait; // number: of all, in order
typedef struct Interval { double from, to; } Interval;
typedef struct Item { char name[96]; uint32_t axes; double seconds; int calls; } Item;

struct Critical {
  int coordinates, traced, waits;
  Vec(Wait) *wait;         // (coordinates) in order of time
  double *last;            // (coordinates) when it last did something
  Vec(Interval) *interval; // (coordinates) on the path, in order of time; those before `at` are past for the second run
  int *at;
  Vec(Item) item;
};

Critical *critical_create(int coordinates) {
  Critical *k = xcalloc(1, sizeof *k);
  k->coordinates = coordinates;
  k->wait = xcalloc((size_t)coordinates, sizeof *k->wait);
  k->interval = xcalloc((size_t)coordinates, sizeof *k->interval);
  k->last = xcalloc((size_t)coordinates, sizeof *k->last);
  k->at = xcalloc((size_t)coordinates, sizeof *k->at);
  return k;
}

void critical_free(Critical *k) {
  if (!k) return;
  for (int c = 0; c < k->coordinates; c++) {
    vec_free(&k->wait[c]);
    vec_free(&k->interval[c]);
  }
  vec_free(&k->item);
  free(k->wait);
  free(k->interval);
  free(k->last);
  free(k->at);
  free(k);
}

void critical_waited(Critical *k, int c, double resumed, int from, double time, const Node *node, uint32_t axes) {
  if (k->traced) return;
  vec_push(&k->wait[c], (Wait){resumed, time, from, k->waits++, node ? node->name : "message between stages", axes});
}

void critical_name(const char *name, char *out, size_t size) {
  const char *at = strstr(name, "layer.");
  size_t digits = at ? strspn(at + 6, "0123456789") : 0;
  if (!digits) snprintf(out, size, "%s", name);
  else snprintf(out, size, "%.*s*%s", (int)(at + 6 - name), name, at + 6 + digits);
}

static void add(Critical *k, const char *full, uint32_t axes, double seconds) {
  char name[sizeof((Item *)0)->name];
  critical_name(full, name, sizeof name);
  int i = 0;
  while (i < k->item.count && (strcmp(k->item.data[i].name, name) || k->item.data[i].axes != axes)) i++;
  if (i == k->item.count) {
    vec_push(&k->item, (Item){.axes = axes});
    memcpy(k->item.data[i].name, name, sizeof name);
  }
  k->item.data[i].seconds += seconds;
  k->item.data[i].calls++;
}

void critical_spent(Critical *k, int c, double from, double to, TimePart part, const Node *node, uint32_t axes) {
  if (!k->traced) {
    if (node) k->last[c] = to;
    return;
  }
  double on = 0;
  while (k->at[c] < k->interval[c].count && k->interval[c].data[k->at[c]].to <= from) k->at[c]++;
  for (int i = k->at[c]; i < k->interval[c].count && k->interval[c].data[i].from < to; i++) {
    const Interval *v = &k->interval[c].data[i];
    double begin = v->from > from ? v->from : from, end = v->to < to ? v->to : to;
    if (end > begin) on += end - begin;
  }
  if (on > 0) add(k, part == TIME_HOST ? "launches of kernels by the host" : node ? node->name : "waiting", axes, on);
}

static void reverse(Interval *v, int n) {
  for (int i = 0; i < n / 2; i++) {
    Interval x = v[i];
    v[i] = v[n - 1 - i];
    v[n - 1 - i] = x;
  }
}

void critical_trace(Critical *k, double step) {
  int c = 0;
  for (int i = 1; i < k->coordinates; i++)
    if (k->last[i] > k->last[c]) c = i;
  int before = k->waits; // waits that end at one time are followed in the order in which they came about
  for (double now = step; now > 0;) {
    int i = k->wait[c].count - 1;
    while (i >= 0 && (k->wait[c].data[i].resumed > now || k->wait[c].data[i].number >= before)) i--;
    double since = i < 0 ? 0 : k->wait[c].data[i].resumed;
    if (now > since) vec_push(&k->interval[c], (Interval){since, now});
    if (i < 0) break;
    const Wait *w = &k->wait[c].data[i];
    if (w->resumed > w->time) add(k, w->name, w->axes, w->resumed - w->time);
    now = w->time;
    before = w->number;
    c = w->from;
  }
  for (c = 0; c < k->coordinates; c++) reverse(k->interval[c].data, k->interval[c].count);
  k->traced = 1;
}

static int by_seconds(const void *a, const void *b) {
  const Item *x = a, *y = b;
  return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void critical_items(const Critical *k, int most, Simulation *out) {
  if (k->item.count) qsort(k->item.data, (size_t)k->item.count, sizeof *k->item.data, by_seconds);
  for (int i = 0; i < k->item.count && i < most; i++) {
    const Item *item = &k->item.data[i];
    vec_push(&out->critical,
             (CriticalItem){arena_strdup(&out->arena, item->name), item->axes, item->seconds, item->calls});
  }
}
