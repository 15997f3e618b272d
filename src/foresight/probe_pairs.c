// Finds the links of a machine from the times of messages between pairs of ranks.
#include "foresight/probe_pairs.h"
#include "base/fault.h"
#include <stdlib.h>

enum { MOST_PAIRS = 256, MOST_NAMED = 5 };
static const double outlier = 1.5; // times the median

LinkPairs link_pairs_choose(int ranks) {
  LinkPairs p = {.ranks = ranks, .all = (int64_t)ranks * (ranks - 1) / 2 <= MOST_PAIRS};
  p.host = xcalloc((size_t)ranks, sizeof *p.host);
  for (int a = 0; a < ranks; a++)
    for (int far = 1; far < ranks; far = p.all ? far + 1 : 2 * far) {
      int b = p.all ? a + far : (a + far) % ranks;
      if (b < ranks) vec_push(&p.pair, ((LinkPair){.a = a, .b = b}));
    }
  return p;
}

void link_pairs_free(LinkPairs *p) {
  vec_free(&p->pair);
  free(p->host);
  *p = (LinkPairs){0};
}

int link_hosts(const LinkPairs *p, int ranks) {
  int hosts = 0;
  for (int r = 0; r < ranks; r++) {
    int before = 0;
    while (before < r && strncmp(p->host[before], p->host[r], LINK_HOST)) before++;
    hosts += before == r;
  }
  return hosts;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Of the pairs on one machine, or on two; 0: there are none.
static double median(const LinkPairs *p, bool crosses, bool large) {
  double *x = xcalloc((size_t)p->pair.count + 1, sizeof *x);
  int n = 0;
  for (int i = 0; i < p->pair.count; i++) {
    const LinkPair *pair = &p->pair.data[i];
    if (link_pair_crosses(p, pair) == crosses) x[n++] = large ? pair->large : pair->small;
  }
  if (n) qsort(x, (size_t)n, sizeof *x, by_value);
  double middle = n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : 0;
  free(x);
  return middle;
}

void link_pairs_facts(const LinkPairs *p, double bytes, Cluster *c) {
  for (int level = 0; level < 2; level++) {
    bool crosses = FAULT(probe_mixes_levels, level == 1, link_hosts(p, p->ranks) > 1);
    double small = median(p, crosses, false), large = median(p, crosses, true);
    if (!(large > 0)) continue;
    c->level[level].latency = small;
    c->level[level].bandwidth = large > small ? bytes / (large - small) : bytes / large;
  }
}

static double slowness(const LinkPairs *p, const LinkPair *pair) {
  return pair->large / median(p, link_pair_crosses(p, pair), true);
}

// Whether every pair of a rank is slow: then the rank is named, and not its pairs. With less than three pairs nobody
// can tell which of two ranks it is.
static bool all_slow(const LinkPairs *p, const double *slow, int rank) {
  int pairs = 0;
  for (int i = 0; i < p->pair.count; i++) {
    if (p->pair.data[i].a != rank && p->pair.data[i].b != rank) continue;
    if (slow[i] < outlier) return false;
    pairs++;
  }
  return pairs > 2;
}

static void name_rank(const LinkPairs *p, const double *slow, int rank, FILE *out) {
  double least = 1e30, most = 0;
  for (int i = 0; i < p->pair.count; i++) {
    if (p->pair.data[i].a != rank && p->pair.data[i].b != rank) continue;
    if (slow[i] < least) least = slow[i];
    if (slow[i] > most) most = slow[i];
  }
  fprintf(out, "note: all messages of rank %d (%.*s) take %.1f to %.1f times as long as others\n", rank, LINK_HOST,
          p->host[rank], least, most);
}

static void name_pair(const LinkPairs *p, const LinkPair *pair, double slow, FILE *out) {
  bool crosses = link_pair_crosses(p, pair);
  fprintf(out,
          "note: messages between rank %d (%.*s) and rank %d (%.*s) take %.1f times as long as those of other %s\n",
          pair->a, LINK_HOST, p->host[pair->a], pair->b, LINK_HOST, p->host[pair->b], slow,
          crosses ? "ranks on two machines" : "ranks on one machine");
}

int link_pairs_outliers(const LinkPairs *p, FILE *out) {
  double *slow = xcalloc((size_t)p->pair.count + 1, sizeof *slow);
  bool *named = xcalloc((size_t)p->ranks, sizeof *named);
  int lines = 0, more = 0;
  for (int i = 0; i < p->pair.count; i++) slow[i] = slowness(p, &p->pair.data[i]);
  for (int r = 0; r < p->ranks; r++)
    if ((named[r] = all_slow(p, slow, r))) name_rank(p, slow, r, out), lines++;
  for (int i = 0; i < p->pair.count; i++)
    if (named[p->pair.data[i].a] || named[p->pair.data[i].b]) slow[i] = 0;
  for (;;) {
    int worst = 0;
    for (int i = 0; i < p->pair.count; i++)
      if (slow[i] > slow[worst]) worst = i;
    if (!p->pair.count || slow[worst] < outlier) break;
    if (lines < MOST_NAMED) name_pair(p, &p->pair.data[worst], slow[worst], out), lines++;
    else more++;
    slow[worst] = 0;
  }
  if (more) fprintf(out, "note: and messages of %d more pairs of ranks\n", more), lines++;
  free(slow);
  free(named);
  return lines;
}
