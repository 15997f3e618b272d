// Patterns of cuts for the plan of a user's graph: one plan is tried, and a good pattern is found for a choice.
#include "api/graph_patterns.h"
#include <math.h>
#include <string.h>

enum { FEW_PATTERNS = 100, FEW_KINDS = 16 }; // that are all tried; that have several beginnings

// One plan -----------------------------------------------------------------------------------------------------------

PlaitTrainingOptions graph_search_options(const GraphSearch *s, const GraphChoice *c, const signed char *pattern,
                                          GraphChoicePlan *p) {
  PlaitTrainingOptions o = s->asked;
  snprintf(p->mesh, sizeof p->mesh, "pp=%d dp=%d tp=%d", c->pp, c->dp, c->tp);
  p->plan = (PlaitGraphPlan){.mesh = s->asked.mesh ? s->asked.mesh : p->mesh,
                             .microbatches = c->microbatches,
                             .schedule = schedules[c->schedule].name,
                             .zero = c->zero,
                             .placement = s->placement};
  if (pattern) p->plan.placements = cuts_placements(&s->cuts, s->graph, pattern, s->placement);
  o.mesh = o.schedule = NULL;
  o.microbatches = o.zero = 0;
  o.plan = &p->plan;
  return o;
}

static const Simulated impossible = {INFINITY, INFINITY};

static int names_tp(const PlaitGraph *h) {
  for (int i = 0; i < h->annotation.count; i++)
    if (h->annotation.data[i].dim >= 0 && axis_by_name(h->annotation.data[i].axis) == AXIS_TP) return 1;
  return 0;
}

// Compiles and simulates a choice.
Simulated graph_try(GraphSearch *s, const GraphChoice *c, const signed char *pattern) {
  GraphChoicePlan p;
  GraphPrediction prediction;
  Error error = {0};
  PlaitTrainingOptions o = graph_search_options(s, c, pattern, &p);
  if (c->tp > 1 && !p.plan.placements && !names_tp(s->graph)) return impossible;
  s->simulated++;
  int code = graph_predict(s->graph, &o, s->cluster, &prediction, &error);
  Simulated result = impossible;
  if (!code) result = (Simulated){prediction.by.simulation->step, prediction.by.bytes};
  else if (code != PLAIT_INFEASIBLE && !s->refused.code) s->refused = error;
  graph_prediction_free(&prediction);
  return result;
}

static int is_better(const GraphSearch *s, Simulated a, Simulated b) {
  int fits = a.bytes <= s->room, other = b.bytes <= s->room;
  if (fits != other) return fits;
  return fits ? a.seconds < b.seconds : a.bytes < b.bytes;
}

// Cuts over tp --------------------------------------------------------------------------------------------------------

int graph_may_cut(const GraphSearch *s, int tp) {
  int may = names_tp(s->graph);
  for (int k = 0; k < s->cuts.kind.count; k++)
    for (int d = 0; d < s->cuts.kind.data[k].dims; d++) may |= cuts_divide(&s->cuts, k, d, tp);
  return may;
}

// The best dim of one kind, with those of the others as they are.
static int turn_kind(GraphSearch *s, const GraphChoice *c, int kind, signed char *pattern, Simulated *best) {
  signed char was = pattern[kind], chosen = was;
  for (int d = -1; d < s->cuts.kind.data[kind].dims; d++) {
    if (d == was || (d >= 0 && !cuts_divide(&s->cuts, kind, d, c->tp))) continue;
    pattern[kind] = (signed char)d;
    Simulated found = graph_try(s, c, pattern);
    if (is_better(s, found, *best)) *best = found, chosen = (signed char)d;
  }
  pattern[kind] = chosen;
  return chosen != was;
}

// Changes the pattern kind by kind until no single change is better.
static Simulated descend(GraphSearch *s, const GraphChoice *c, signed char *pattern) {
  Simulated best = graph_try(s, c, pattern);
  for (int changed = 1; changed;) {
    changed = 0;
    for (int k = 0; k < s->cuts.kind.count; k++) changed |= turn_kind(s, c, k, pattern, &best);
  }
  return best;
}

// The next pattern, as a number whose digits are the dims of the kinds; 0 after the last.
int graph_next_pattern(const GraphSearch *s, signed char *pattern) {
  for (int k = 0; k < s->cuts.kind.count; k++) {
    if (++pattern[k] < s->cuts.kind.data[k].dims) return 1;
    pattern[k] = -1;
  }
  return 0;
}

double graph_count_patterns(const GraphSearch *s) {
  double n = 1;
  for (int k = 0; k < s->cuts.kind.count; k++) n *= s->cuts.kind.data[k].dims + 1;
  return n;
}

// A better pattern than `best` is kept in it.
static void keep_pattern(const GraphSearch *s, const signed char *pattern, Simulated found, signed char *kept,
                         Simulated *best) {
  if (!is_better(s, found, *best)) return;
  memcpy(kept, pattern, (size_t)s->cuts.kind.count);
  *best = found;
}

// A good pattern for a choice: of few the best, of many the best that changes of single kinds lead to, from what
// `pattern` has, and from all kinds cut along their first or second dim.
Simulated graph_find_pattern(GraphSearch *s, const GraphChoice *c, signed char *pattern) {
  int kinds = s->cuts.kind.count;
  signed char *at = xcalloc((size_t)kinds + 1, 1);
  Simulated best = impossible;
  memset(at, -1, (size_t)kinds);
  if (graph_count_patterns(s) <= FEW_PATTERNS)
    do keep_pattern(s, at, graph_try(s, c, at), pattern, &best);
    while (graph_next_pattern(s, at));
  else {
    best = descend(s, c, pattern);
    for (int dim = 0; dim < 2 && kinds <= FEW_KINDS; dim++) {
      for (int k = 0; k < kinds; k++) at[k] = (signed char)(cuts_divide(&s->cuts, k, dim, c->tp) ? dim : -1);
      keep_pattern(s, at, descend(s, c, at), pattern, &best);
    }
  }
  free(at);
  return best;
}

signed char *graph_new_pattern(GraphSearch *s, const signed char *from) {
  size_t n = (size_t)s->cuts.kind.count;
  signed char *pattern = xcalloc(n + 1, 1);
  if (from) memcpy(pattern, from, n);
  else memset(pattern, -1, n);
  vec_push(&s->pattern, pattern);
  return pattern;
}

// The pattern of other ranks of tp that was found last, as far as these divide; NULL: none yet.
static signed char *pattern_of_others(GraphSearch *s, int tp) {
  int from = 0;
  for (int i = 2; i <= s->ranks; i++) from = s->pattern_of[i] > from ? s->pattern_of[i] : from;
  if (!from) return NULL;
  signed char *pattern = graph_new_pattern(s, s->pattern.data[from - 1]);
  for (int k = 0; k < s->cuts.kind.count; k++)
    if (pattern[k] >= 0 && !cuts_divide(&s->cuts, k, pattern[k], tp)) pattern[k] = -1;
  return pattern;
}

// The cut for this choice's number of tp ranks, found with the first choice that has it; NULL: nothing can be cut so.
// After the first one they begin with what is known.
const signed char *graph_pattern_for(GraphSearch *s, const GraphChoice *c) {
  int *known = &s->pattern_of[c->tp];
  if (!*known) {
    signed char *pattern = pattern_of_others(s, c->tp);
    Simulated found = pattern ? descend(s, c, pattern) : impossible;
    if (!pattern) pattern = graph_new_pattern(s, NULL);
    if (!isfinite(found.bytes)) found = graph_find_pattern(s, c, pattern);
    *known = isfinite(found.bytes) ? s->pattern.count : -1;
  }
  return *known > 0 ? s->pattern.data[*known - 1] : NULL;
}
