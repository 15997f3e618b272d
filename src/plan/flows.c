// Max-min shares of links, from event to event.
#include "plan/flows.h"
#include "base/error.h"
#include "base/fault.h"
#include <math.h>
#include <stdlib.h>

// Gives all flows that have no rate yet and go through `link` the share, and takes it from their links.
static void fix(const Flow *const *flow, int flows, int link, double share, double *left, int *users, double *rate) {
  for (int f = 0; f < flows; f++) {
    int here = 0;
    for (int i = 0; i < flow[f]->links; i++) here |= flow[f]->link[i] == link;
    if (!here || rate[f] >= 0) continue;
    rate[f] = share;
    for (int i = 0; i < flow[f]->links; i++) {
      left[flow[f]->link[i]] -= share;
      users[flow[f]->link[i]]--;
    }
  }
}

void flows_rates(const Flow *const *flow, int flows, const double *capacity, int links, double *rate) {
  double *left = xcalloc((size_t)links + 1, sizeof *left);
  int *users = xcalloc((size_t)links + 1, sizeof *users);
  for (int l = 0; l < links; l++) left[l] = capacity[l];
  for (int f = 0; f < flows; f++) {
    rate[f] = flow[f]->links ? -1 : INFINITY;
    for (int i = 0; i < flow[f]->links; i++) users[flow[f]->link[i]]++;
  }
  for (;;) { // the link whose users get least is full first
    int tightest = -1;
    double least = INFINITY;
    for (int l = 0; l < links; l++) {
      double share = users[l] ? FAULT(flows_not_shared, fmax(left[l], 0) / users[l], capacity[l]) : INFINITY;
      if (share < least) least = share, tightest = l;
    }
    if (tightest < 0) break;
    fix(flow, flows, tightest, least, left, users, rate);
  }
  free(users);
  free(left);
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
