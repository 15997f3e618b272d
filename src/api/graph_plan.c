// Fully automatic: plans of a user's graph, found by the search and to be run as they are. See plait/graph.h.
#include "api/graph_search.h"
#include "base/arena.h"
#include "base/units.h"
#include <ctype.h>
#include <string.h>

// This machine, with all of its cores and its memory.
static const PlaitPlanOptions anywhere;

// The memory of a PlaitGraphPlan, which is its first member.
typedef struct OwnPlan { PlaitGraphPlan plan; Arena arena; } OwnPlan;

static const char *limit_of(const Prediction *p, const Cluster *cluster, Arena *arena) {
  Limit limit[LIMITS_MOST];
  return predict_limits(p, cluster, limit) && limit[0].gain > 0.0005 ? arena_strdup(arena, limit[0].resource) : NULL;
}

// An independent copy of a plan: the texts and placements of `from`, and what is predicted.
static PlaitGraphPlan *plan_create(const PlaitGraphPlan *from, const GraphPrediction *p, const Cluster *cluster) {
  OwnPlan *own = xcalloc(1, sizeof *own);
  PlaitPlacement *placement = arena_array(&own->arena, PlaitPlacement, from->placements + 1);
  for (int i = 0; i < from->placements; i++)
    placement[i] = (PlaitPlacement){arena_strdup(&own->arena, from->placement[i].parameter), from->placement[i].dim,
                                    arena_strdup(&own->arena, from->placement[i].axis)};
  own->plan = *from;
  own->plan.mesh = arena_strdup(&own->arena, from->mesh);
  own->plan.schedule = arena_strdup(&own->arena, from->schedule);
  own->plan.placement = placement;
  own->plan.step_seconds = p->by.simulation->step;
  own->plan.memory_bytes = p->by.bytes;
  own->plan.limit = limit_of(&p->by, cluster, &own->arena);
  return &own->plan;
}

void plait_graph_plan_destroy(PlaitGraphPlan *plan) {
  OwnPlan *own = (OwnPlan *)(void *)plan;
  if (!own) return;
  arena_free(&own->arena);
  free(own);
}

// The best that a search has found, simulated once more for what the user reads of it.
static int describe(GraphSearch *s, PlaitGraphPlan **plan, Error *error) {
  GraphChoicePlan best;
  GraphPrediction p;
  PlaitTrainingOptions o = graph_search_options(s, &s->best, s->best_pattern, &best);
  int code = graph_predict(s->graph, &o, s->cluster, &p, error);
  best.plan.room_bytes = s->room;
  best.plan.plans = s->choice.count;
  best.plan.too_large = s->too_large;
  best.plan.simulated = s->simulated;
  best.plan.left = s->left;
  if (!code) *plan = plan_create(&best.plan, &p, s->cluster);
  graph_prediction_free(&p);
  return code;
}

int plait_graph_plan(const PlaitGraph *h, const PlaitTrainingOptions *options, const PlaitPlanOptions *where,
                     PlaitGraphPlan **plan, PlaitError *error) {
  Error own = {0};
  Cluster *cluster = NULL;
  GraphSearch search = {.graph = NULL};
  *plan = NULL;
  if (!where) where = &anywhere;
  int code = predict_load_cluster(where->cluster, &cluster, &own);
  if (!code) code = graph_search_create(h, options, where, cluster, &search, &own);
  if (!code) code = graph_search_run(&search, &own);
  if (!code) code = describe(&search, plan, &own);
  graph_search_free(&search);
  cluster_free(cluster);
  return api_graph_report(error, code, &own);
}

// The options as a plan, with the names and numbers that they leave out.
static PlaitGraphPlan plan_of(const PlaitTrainingOptions *o, const PlaitPlanOptions *where,
                              double room) {
  PlaitGraphPlan p = {.mesh = o->mesh ? o->mesh : "dp=1",
                      .microbatches = o->microbatches ? o->microbatches : 1,
                      .schedule = o->schedule ? o->schedule : "1f1b",
                      .zero = o->zero};
  if (o->plan) p = *o->plan;
  p.room_bytes = where->memory_bytes > 0 ? where->memory_bytes : room;
  p.plans = p.simulated = 1;
  p.too_large = 0;
  return p;
}

int plait_graph_predict(const PlaitGraph *h, const PlaitTrainingOptions *options, const PlaitPlanOptions *where,
                        PlaitGraphPlan **plan, PlaitError *error) {
  Error own = {0};
  Cluster *cluster = NULL;
  GraphPrediction p = {.by = {.job = NULL}};
  PlaitTrainingOptions o = options ? *options : (PlaitTrainingOptions){0};
  *plan = NULL;
  if (!where) where = &anywhere;
  int code = predict_load_cluster(where->cluster, &cluster, &own);
  if (!code) code = graph_predict(h, &o, cluster, &p, &own);
  if (!code && where->ranks && where->ranks != p.at.mesh.ranks)
    code = error_set(&own, PLAIT_BAD_INPUT, "ranks is %d, but the mesh has %d; leave ranks out", where->ranks,
                     p.at.mesh.ranks);
  PlaitGraphPlan asked = code ? (PlaitGraphPlan){0} : plan_of(&o, where, p.by.room);
  if (!code) asked.too_large = p.by.bytes > asked.room_bytes, *plan = plan_create(&asked, &p, cluster);
  graph_prediction_free(&p);
  cluster_free(cluster);
  return api_graph_report(error, code, &own);
}

// Names that differ in digits alone, as of the same matrix in all blocks.
static int differ_in_digits(const char *a, const char *b) {
  for (;;) {
    while (isdigit((unsigned char)*a)) a++;
    while (isdigit((unsigned char)*b)) b++;
    if (*a != *b) return 0;
    if (!*a) return 1;
    a++, b++;
  }
}

static int said_alike(const PlaitPlacement *a, const PlaitPlacement *b) {
  return a->dim == b->dim && !strcmp(a->axis, b->axis);
}

// "q0 … q23" for names that differ in digits, where there are more than two. Marks them in `done`.
static void print_names(const PlaitGraphPlan *p, int at, char *done, FILE *out) {
  const char *first = p->placement[at].parameter, *last = first;
  int n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = at; i < p->placements; i++) {
      const PlaitPlacement *other = &p->placement[i];
      if (!said_alike(&p->placement[at], other) || !differ_in_digits(first, other->parameter)) continue;
      if (!pass) n++, last = other->parameter;
      else if (n > 2 || i == at) done[i] = 1;
    }
  if (n > 2) fprintf(out, " %s … %s", first, last);
  else fprintf(out, " %s", first);
}

// Placements with the same dim and axis, as "dim 0 of w1, w2".
static void print_placements(const PlaitGraphPlan *p, FILE *out) {
  char *done = xcalloc((size_t)p->placements + 1, 1);
  for (int i = 0; i < p->placements; i++) {
    const PlaitPlacement *first = &p->placement[i];
    if (done[i]) continue;
    fprintf(out, "  cut over %s: dim %d of", first->axis, first->dim);
    const char *comma = "";
    for (int k = i; k < p->placements; k++) {
      if (done[k] || !said_alike(first, &p->placement[k])) continue;
      fputs(comma, out);
      print_names(p, k, done, out);
      comma = ",";
    }
    fputc('\n', out);
  }
  free(done);
}

void plait_graph_plan_print(const PlaitGraphPlan *p, FILE *out) {
  fprintf(out, "mesh %s, %d microbatch%s, ZeRO %d, schedule %s\n", p->mesh, p->microbatches,
          p->microbatches > 1 ? "es" : "", p->zero, p->schedule);
  print_placements(p, out);
  fprintf(out, "  a step takes %s, the rank with the most %s of %s%s\n", units_seconds(p->step_seconds).s,
          units_bytes(p->memory_bytes).s, units_bytes(p->room_bytes).s,
          p->memory_bytes > p->room_bytes ? ", which does not fit" : "");
  if (p->limit) fprintf(out, "  what limits it first is %s\n", p->limit);
  if (p->simulated > 1)
    fprintf(out, "  the fastest of %lld plans, %lld of them too large; %lld simulations, with different cuts\n",
            (long long)p->plans, (long long)p->too_large, (long long)p->simulated);
  if (p->left)
    fprintf(out, "  %lld plans that might be faster were not looked at\n", (long long)p->left);
}
