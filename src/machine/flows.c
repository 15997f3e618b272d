// Max-min shares of links, from event to event.
#include "machine/flows.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/vec.h"
#include <math.h>
#include <stdlib.h>

// Who goes through each link, and what is left of it.
typedef struct Links {
  double *left;   // bytes/s
  int *users;     // flows that have no rate yet
  int *first;     // of link l: flow[first[l]] … flow[first[l + 1] - 1]
  int *flow;
} Links;

static Links links_create(const Flow *const *flow, int flows, const double *capacity, int links) {
  Links k = {.left = xcalloc((size_t)links + 1, sizeof *k.left), .users = xcalloc((size_t)links + 1, sizeof *k.users),
             .first = xcalloc((size_t)links + 2, sizeof *k.first)};
  for (int f = 0; f < flows; f++)
    for (int i = 0; i < flow[f]->links; i++) k.users[flow[f]->link[i]]++;
  for (int l = 0; l < links; l++) k.left[l] = capacity[l], k.first[l + 2] = k.first[l + 1] + k.users[l];
  k.flow = xcalloc((size_t)k.first[links + 1] + 1, sizeof *k.flow);
  for (int f = 0; f < flows; f++)
    for (int i = 0; i < flow[f]->links; i++) k.flow[k.first[flow[f]->link[i] + 1]++] = f;
  return k;
}

// Gives all flows that have no rate yet and go through `link` the share, and takes it from their links.
static void fix(Links *k, const Flow *const *flow, int link, double share, double *rate) {
  for (int u = k->first[link]; u < k->first[link + 1]; u++) {
    const Flow *f = flow[k->flow[u]];
    if (rate[k->flow[u]] >= 0) continue;
    rate[k->flow[u]] = share;
    for (int i = 0; i < f->links; i++) {
      k->left[f->link[i]] -= share;
      k->users[f->link[i]]--;
    }
  }
}

void flows_rates(const Flow *const *flow, int flows, const double *capacity, int links, double *rate) {
  Links k = links_create(flow, flows, capacity, links);
  for (int f = 0; f < flows; f++) rate[f] = flow[f]->links ? -1 : INFINITY;
  for (;;) { // the link whose users get least is full first
    int tightest = -1;
    double least = INFINITY;
    for (int l = 0; l < links; l++) {
      double share = k.users[l] ? FAULT(flows_not_shared, fmax(k.left[l], 0) / k.users[l], capacity[l]) : INFINITY;
      if (share < least) least = share, tightest = l;
    }
    if (tightest < 0) break;
    fix(&k, flow, tightest, least, rate);
  }
  free(k.left), free(k.users), free(k.first), free(k.flow);
}

// Flows under way ---------------------------------------------------------------------------------------------------

typedef enum FlowState { FLOW_WAITS, FLOW_MOVES, FLOW_ENDED } FlowState;
// rate: since `since`, when `left` bytes were left. version: of its rate, so that an end that was foreseen with another
// one is known to be old. seen: by the search with this number.
typedef struct Moving {
  Flow flow;
  FlowState state;
  double left, rate, since;
  int version, seen;
} Moving;
typedef struct Moment { double time; int flow, version; } Moment; // when it begins to move, or ends

struct Flows {
  const double *capacity;
  int links;
  Vec(Moving) flow;
  Vec(int) *on;        // (links) flows that move through each
  int *local;          // (links) 1 + its number among those of `together`
  Vec(Moment) moments; // a heap, the next one first
  Vec(int) changed;    // flows whose rate may be another one now
  Vec(int) together;   // one of them, with all that it shares links with, and those with theirs, and so on
  int search;          // the last one
};

static int is_before(const Moment *a, const Moment *b) {
  return a->time != b->time ? a->time < b->time : a->flow < b->flow;
}

static void push_moment(Flows *r, Moment moment) {
  vec_push(&r->moments, moment);
  Moment *heap = r->moments.data;
  for (int i = r->moments.count - 1; i && is_before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2) {
    Moment t = heap[i];
    heap[i] = heap[(i - 1) / 2], heap[(i - 1) / 2] = t;
  }
}

static void pop_moment(Flows *r) {
  Moment *heap = r->moments.data;
  int n = --r->moments.count;
  heap[0] = heap[n];
  for (int i = 0, child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&heap[child + 1], &heap[child])) child++;
    if (!is_before(&heap[child], &heap[i])) break;
    Moment t = heap[i];
    heap[i] = heap[child], heap[child] = t;
  }
}

static void begin(Flows *r, int f) {
  Moving *m = &r->flow.data[f];
  m->state = FLOW_MOVES;
  m->since = m->flow.start + m->flow.latency;
  for (int i = 0; i < m->flow.links; i++) vec_push(&r->on[m->flow.link[i]], f);
  vec_push(&r->changed, f);
}

static void end(Flows *r, int f, double now) {
  Moving *m = &r->flow.data[f];
  m->state = FLOW_ENDED;
  m->flow.end = now;
  m->version++;
  for (int i = 0; i < m->flow.links; i++) {
    int link = m->flow.link[i], at = 0;
    while (r->on[link].data[at] != f) at++;
    r->on[link].data[at] = r->on[link].data[--r->on[link].count];
    for (int k = 0; k < r->on[link].count; k++) vec_push(&r->changed, r->on[link].data[k]);
  }
}

// From a flow to all that its rate may depend on.
static void find_together(Flows *r, int f) {
  r->together.count = 0;
  r->flow.data[f].seen = r->search;
  vec_push(&r->together, f);
  for (int i = 0; i < r->together.count; i++) {
    const Flow *flow = &r->flow.data[r->together.data[i]].flow;
    for (int l = 0; l < flow->links; l++)
      for (int k = 0; k < r->on[flow->link[l]].count; k++) {
        int other = r->on[flow->link[l]].data[k];
        if (r->flow.data[other].seen == r->search) continue;
        r->flow.data[other].seen = r->search;
        vec_push(&r->together, other);
      }
  }
}

// Rates of `together`, by their own links alone. rate: (together), written.
static void rates_of(Flows *r, double *rate) {
  int n = r->together.count, links = 0, uses = 0;
  if (n == 1) { // alone
    const Flow *f = &r->flow.data[r->together.data[0]].flow;
    *rate = INFINITY;
    for (int i = 0; i < f->links; i++) *rate = fmin(*rate, r->capacity[f->link[i]]);
    return;
  }
  for (int i = 0; i < n; i++) uses += r->flow.data[r->together.data[i]].flow.links;
  Flow *flow = xcalloc((size_t)n, sizeof *flow);
  const Flow **at = xcalloc((size_t)n, sizeof *at);
  int *link = xcalloc((size_t)uses, sizeof *link), *used = xcalloc((size_t)uses, sizeof *used);
  double *capacity = xcalloc((size_t)uses, sizeof *capacity);
  uses = 0;
  for (int i = 0; i < n; i++) {
    const Flow *f = &r->flow.data[r->together.data[i]].flow;
    flow[i] = (Flow){.link = link + uses, .links = f->links};
    at[i] = &flow[i];
    for (int l = 0; l < f->links; l++) {
      int *local = &r->local[f->link[l]];
      if (!*local) used[links] = f->link[l], capacity[links] = r->capacity[f->link[l]], *local = ++links;
      link[uses++] = *local - 1;
    }
  }
  flows_rates(at, n, capacity, links, rate);
  for (int l = 0; l < links; l++) r->local[used[l]] = 0;
  free(flow), free(at), free(link), free(used), free(capacity);
}

// New rates from `now` on for what has changed, and the ends that follow from them.
static void share(Flows *r, double now) {
  r->search++;
  for (int c = 0; c < r->changed.count; c++) {
    const Moving *first = &r->flow.data[r->changed.data[c]];
    if (first->state != FLOW_MOVES || first->seen == r->search) continue;
    find_together(r, r->changed.data[c]);
    double *rate = xcalloc((size_t)r->together.count, sizeof *rate);
    rates_of(r, rate);
    for (int i = 0; i < r->together.count; i++) {
      Moving *m = &r->flow.data[r->together.data[i]];
      if (rate[i] == m->rate) continue;
      m->left = fmax(0, m->left - (now - m->since) * m->rate);
      m->since = now;
      m->rate = rate[i];
      push_moment(r, (Moment){now + m->left / m->rate, r->together.data[i], ++m->version});
    }
    free(rate);
  }
  r->changed.count = 0;
}

Flows *flows_create(const double *capacity, int links) {
  Flows *r = xcalloc(1, sizeof *r);
  r->capacity = capacity;
  r->links = links;
  r->on = xcalloc((size_t)links + 1, sizeof *r->on);
  r->local = xcalloc((size_t)links + 1, sizeof *r->local);
  return r;
}

void flows_free(Flows *r) {
  if (!r) return;
  for (int l = 0; l < r->links; l++) vec_free(&r->on[l]);
  free(r->on), free(r->local);
  vec_free(&r->flow), vec_free(&r->moments), vec_free(&r->changed), vec_free(&r->together);
  free(r);
}

int flows_add(Flows *r, const Flow *flow) {
  int f = r->flow.count;
  double moves = flow->start + flow->latency;
  Moving m = {.flow = *flow, .left = flow->bytes};
  if (!flow->links || flow->bytes <= 0) m.state = FLOW_ENDED, m.flow.end = moves;
  vec_push(&r->flow, m);
  if (m.state == FLOW_WAITS) push_moment(r, (Moment){moves, f, 0});
  return f;
}

double flows_end(const Flows *r, int number) {
  const Moving *m = &r->flow.data[number];
  return m->state == FLOW_ENDED ? m->flow.end : NAN;
}

double flows_next(Flows *r) {
  while (r->moments.count && r->flow.data[r->moments.data[0].flow].version != r->moments.data[0].version) pop_moment(r);
  return r->moments.count ? r->moments.data[0].time : INFINITY;
}

// Those that end at the same time, but for rounding, end exactly then.
void flows_pass(Flows *r) {
  double now = flows_next(r);
  if (now == INFINITY) return;
  for (double until = now + 1e-12 * fabs(now); flows_next(r) <= until;) {
    int f = r->moments.data[0].flow;
    pop_moment(r);
    if (r->flow.data[f].state == FLOW_WAITS) begin(r, f);
    else end(r, f, now);
  }
  share(r, now);
}

void flows_run(Flow *flow, int flows, const double *capacity, int links) {
  Flows *r = flows_create(capacity, links);
  for (int f = 0; f < flows; f++) flows_add(r, &flow[f]);
  while (flows_next(r) < INFINITY) flows_pass(r);
  for (int f = 0; f < flows; f++) flow[f].end = flows_end(r, f);
  flows_free(r);
}
