// Max-min shares of links, from event to event.
#include "plan/flows.h"
#include "base/error.h"
#include "base/fault.h"
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

typedef struct Moving {
  const Flow **flow; // those that move now
  int *index;        // theirs among all
  double *left;      // bytes, of all flows
  double *rate;      // of those that move
  int count;
} Moving;

// Those at `now` that have begun and not ended; the next that begins, or infinity.
static double gather(Moving *m, const Flow *flow, int flows, double now) {
  double next = INFINITY;
  m->count = 0;
  for (int f = 0; f < flows; f++) {
    double begin = flow[f].start + flow[f].latency;
    if (begin > now) next = fmin(next, begin);
    else if (m->left[f] > 0) m->flow[m->count] = &flow[f], m->index[m->count++] = f;
  }
  return next;
}

// Moves bytes until the next flow ends or begins. Those that end at the same time end exactly then.
static double advance(Moving *m, Flow *flow, double now, double next) {
  double until = next;
  for (int i = 0; i < m->count; i++) until = fmin(until, now + m->left[m->index[i]] / m->rate[i]);
  for (int i = 0; i < m->count; i++) {
    int f = m->index[i];
    double end = now + m->left[f] / m->rate[i];
    m->left[f] -= (until - now) * m->rate[i];
    if (end - until > 1e-12 * fmax(fabs(until), until - now) && end > until) continue;
    m->left[f] = 0;
    flow[f].end = until;
  }
  return until;
}

void flows_run(Flow *flow, int flows, const double *capacity, int links) {
  Moving m = {.flow = xcalloc((size_t)flows + 1, sizeof *m.flow), .index = xcalloc((size_t)flows + 1, sizeof *m.index),
              .left = xcalloc((size_t)flows + 1, sizeof *m.left), .rate = xcalloc((size_t)flows + 1, sizeof *m.rate)};
  double now = -INFINITY;
  for (int f = 0; f < flows; f++) {
    m.left[f] = flow[f].links ? flow[f].bytes : 0;
    flow[f].end = flow[f].start + flow[f].latency;
  }
  for (;;) {
    double next = gather(&m, flow, flows, now);
    if (!m.count && next == INFINITY) break;
    if (!m.count) {
      now = next;
      continue;
    }
    flows_rates(m.flow, m.count, capacity, links, m.rate);
    now = advance(&m, flow, now, next);
  }
  free(m.flow), free(m.index), free(m.left), free(m.rate);
}
