// The search for the fastest plan of a user's graph.
#include "api/graph_patterns.h"
#include "machine/devices.h"
#include "machine/machine_times.h"
#include "foresight/search_mesh.h"
#include "base/fault.h"
#include "sharding/zero_table.h"
#include <math.h>
#include <string.h>

// After MOST_SIMULATED choices that wait are left.
enum { MOST_EXHAUSTIVE = 50000, MOST_SIMULATED = 2500 };

static void consider(GraphSearch *s, const GraphChoice *c, const signed char *pattern, Simulated found) {
  if (!isfinite(found.seconds)) return;
  if (FAULT(graph_plan_need_not_fit, found.bytes <= s->room, 1)) {
    if (!(found.seconds < s->best_seconds)) return;
    s->best = *c, s->best_pattern = pattern, s->best_seconds = found.seconds;
  } else {
    s->too_large++;
    if (found.bytes < s->smallest_bytes)
      s->smallest = *c, s->smallest_pattern = pattern, s->smallest_bytes = found.bytes;
  }
}

// Choices -------------------------------------------------------------------------------------------------------------

// Stages that work at the same time, at most, however the layers' work is spread: if stage i works w_i of the whole,
// the step takes at least w_i + chain / m · (w_0 + … + w_(i-1)), since the first microbatch comes through all stages
// before it and its gradient goes back through them. The spread that makes the most of that small is geometric.
static double stages_at_once(const GraphChoice *c) {
  double chain = schedules[c->schedule].splits ? 0.5 : 1; // of a microbatch's work; gradients of weights may come later
  double m = c->microbatches / chain;
  return m * (1 - pow(1 - 1 / m, c->pp));
}

static void add_choice(GraphSearch *s, GraphChoice c) {
  double parts = (double)c.pp * c.tp * (zero_cuts(c.zero, 1, 0).storage ? c.dp : 1);
  double at_once = devices_share_cores(s->cluster) ? devices_at_once(s->cluster, s->ranks)
                                                   : stages_at_once(&c) * s->ranks / c.pp;
  QueuedPlan e = {.seconds = s->rate > 0 ? s->flops / (s->rate * at_once) : 0,
                  .bytes = s->states / parts,
                  .plan = s->choice.count};
  vec_push(&s->choice, c);
  queue_add(&s->queue, e);
}

static void each_microbatches(GraphSearch *s, GraphChoice c) {
  int64_t most = (s->graph->samples + c.dp - 1) / c.dp;
  c.microbatches = s->asked.microbatches;
  if (c.microbatches) add_choice(s, c);
  else
    for (c.microbatches = 1; c.microbatches <= most; c.microbatches *= 2) add_choice(s, c);
}

static void each_zero(GraphSearch *s, GraphChoice c) {
  c.zero = s->asked.zero;
  if (c.zero || c.dp == 1) each_microbatches(s, c);
  else
    for (; c.zero <= 3; c.zero++) each_microbatches(s, c);
}

static void each_choice(void *search, const int *size) {
  GraphSearch *s = search;
  GraphChoice c = {.pp = size[0], .tp = size[1], .dp = size[2], .schedule = SCHEDULE_1F1B};
  const ScheduleGenerator *given = s->asked.schedule ? schedule_by_name(s->asked.schedule) : NULL;
  if (c.tp > 1 && !graph_may_cut(s, c.tp)) return;
  if (given || c.pp == 1) {
    if (given) c.schedule = (int)(given - schedules);
    each_zero(s, c);
    return;
  }
  for (c.schedule = 0; c.schedule < SCHEDULES; c.schedule++)
    if (schedule_can_run(&schedules[c.schedule], 1) && !schedules[c.schedule].streams) each_zero(s, c);
}

static void find_choices(GraphSearch *s) {
  int64_t samples = s->graph->samples;
  SearchAxis axis[] = {{.most = s->graph->g->layers}, {.fixed = 0}, {.most = samples < s->ranks ? (int)samples : 0}};
  int ranks = s->ranks;
  if (s->asked.mesh) { // axes beside these three stay as they are given
    const AxisId names[] = {AXIS_PP, AXIS_TP, AXIS_DP};
    ranks = 1;
    for (int i = 0; i < 3; i++) ranks *= axis[i].fixed = mesh_axis_size(&s->given.mesh, names[i]), axis[i].most = 0;
  }
  search_meshes(ranks, 3, axis, each_choice, s);
}

// The search ----------------------------------------------------------------------------------------------------------

static void simulate_next(GraphSearch *s) {
  QueuedPlan e = queue_pop(&s->queue);
  GraphChoice c = s->choice.data[e.plan];
  const signed char *pattern = c.tp > 1 ? graph_pattern_for(s, &c) : NULL;
  if (c.tp > 1 && !pattern) return;
  Simulated found = graph_try(s, &c, pattern);
  // Its cuts were found for another choice with as many ranks of tp. Where they would make it the fastest but take too
  // much memory, others may fit.
  if (pattern && found.bytes > s->room && found.seconds < s->best_seconds) {
    signed char *smaller = graph_new_pattern(s, pattern);
    Simulated own = graph_find_pattern(s, &c, smaller);
    if (FAULT(graph_plan_keeps_large_cuts, own.bytes < found.bytes, 0)) found = own, pattern = smaller;
  }
  consider(s, &c, pattern, found);
}

// Looks for better cuts with the settings of the best; what it finds is tried with those of others too.
static void improve_cuts(GraphSearch *s) {
  for (int better = 1; better && isfinite(s->best_seconds) && s->best.tp > 1;) {
    GraphChoice c = s->best;
    signed char *pattern = graph_new_pattern(s, s->best_pattern);
    Simulated found = graph_find_pattern(s, &c, pattern);
    better = found.seconds < s->best_seconds;
    if (better) consider(s, &c, pattern, found);
    for (int i = 0; i < s->choice.count && better; i++)
      if (s->choice.data[i].tp == c.tp)
        consider(s, &s->choice.data[i], pattern, graph_try(s, &s->choice.data[i], pattern));
  }
}

static double count_all(const GraphSearch *s) {
  double patterns = graph_count_patterns(s), n = 0;
  for (int i = 0; i < s->choice.count; i++) n += s->choice.data[i].tp > 1 ? patterns : 1;
  return n;
}

static void try_all(GraphSearch *s) {
  signed char *pattern = graph_new_pattern(s, NULL);
  for (int i = 0; i < s->choice.count; i++) {
    const GraphChoice *c = &s->choice.data[i];
    if (c->tp == 1) consider(s, c, NULL, graph_try(s, c, NULL));
    else do {
        Simulated found = graph_try(s, c, pattern);
        if (found.bytes <= s->room ? found.seconds < s->best_seconds : found.bytes < s->smallest_bytes)
          consider(s, c, graph_new_pattern(s, pattern), found);
      } while (graph_next_pattern(s, pattern));
  }
}

// The first choice in the queue. A choice that is too large is simulated only while nothing fits, for the sentence that
// says so; then the search ends later.
static void take_next(GraphSearch *s) {
  int found = isfinite(s->best_seconds), too_large = s->queue.heap.data[0].bytes > s->room;
  if (found && too_large) queue_pop(&s->queue), s->too_large++;
  else if (s->simulated >= (found ? MOST_SIMULATED : 4 * MOST_SIMULATED)) queue_pop(&s->queue), s->left++;
  else simulate_next(s);
}

static int is_open(const GraphSearch *s) {
  if (s->any_will_do && isfinite(s->best_seconds)) return 0;
  return s->queue.heap.count && s->queue.heap.data[0].seconds < s->best_seconds;
}

static void find_best(GraphSearch *s) {
  find_choices(s);
  if (s->exhaustive) {
    try_all(s);
    return;
  }
  while (is_open(s)) take_next(s);
  if (!s->any_will_do) improve_cuts(s);
}

// The error where there is none ---------------------------------------------------------------------------------------

// Called for each mesh that could cut the graph.
static void see_any(void *any, const int *size) {
  (void)size;
  *(int *)any = 1;
}

static int could_cut(const GraphSearch *s, int ranks) {
  int64_t samples = s->graph->samples;
  for (int tp = 1; tp <= ranks; tp++) {
    SearchAxis axis[] = {{.most = s->graph->g->layers}, {.most = samples < ranks ? (int)samples : 0}};
    int any = 0;
    if (ranks % tp || (tp > 1 && !graph_may_cut(s, tp))) continue;
    search_meshes(ranks / tp, 2, axis, see_any, &any);
    if (any) return 1;
  }
  return 0;
}

static int say_nothing_cuts(const GraphSearch *s, Error *error) {
  int nearest = s->ranks - 1;
  while (nearest > 1 && !could_cut(s, nearest)) nearest--;
  return error_set(error, PLAIT_INFEASIBLE,
                   "no mesh of %d ranks cuts the graph: dp can be at most %lld, its samples, pp at most %d, its layers "
                   "(plait_graph_layer), and tp must divide a dim of a parameter; the nearest number of ranks is %d",
                   s->ranks, (long long)s->graph->samples, s->graph->g->layers, nearest);
}

static int ranks_that_do(const GraphSearch *s) {
  PlaitPlanOptions where = {.memory_bytes = s->room};
  for (int n = s->ranks; !s->asked.mesh && (n = nearest_more_ranks(s->cluster, n));) {
    GraphSearch more;
    Error ignored = {0};
    Cluster cluster = nearest_enlarged(s->cluster, n);
    where.ranks = n;
    int code = graph_search_create(s->graph, &s->asked, &where, &cluster, &more, &ignored);
    more.any_will_do = 1;
    if (!code) find_best(&more);
    int fits = !code && isfinite(more.best_seconds);
    graph_search_free(&more);
    if (fits) return n;
  }
  return 0;
}

static int say_nothing_fits(GraphSearch *s, Error *error) {
  GraphChoicePlan p;
  GraphPrediction prediction;
  Nearest nearest;
  char text[256];
  PlaitTrainingOptions o = graph_search_options(s, &s->smallest, s->smallest_pattern, &p);
  int code = graph_predict(s->graph, &o, s->cluster, &prediction, error);
  if (!code) {
    nearest_read(prediction.by.job, &nearest);
    nearest.ranks = ranks_that_do(s);
    snprintf(text, sizeof text, "%s, ZeRO %d, %d microbatch%s", p.plan.mesh, p.plan.zero, p.plan.microbatches,
             p.plan.microbatches > 1 ? "es" : "");
    code = nearest_say(
        &nearest,
        &(NothingFits){s->ranks, !s->left, text, "the options that are given", s->room, s->cluster, s->graph->dtype},
        error);
  }
  graph_prediction_free(&prediction);
  return code;
}

int graph_search_run(GraphSearch *s, Error *error) {
  if (s->exhaustive) {
    find_choices(s);
    double all = count_all(s);
    s->choice.count = 0;
    if (all > MOST_EXHAUSTIVE)
      return error_set(error, PLAIT_BAD_INPUT, "exhaustive is for small graphs: this one has %.3g plans; allowed: %d",
                       all, MOST_EXHAUSTIVE);
  }
  find_best(s);
  if (isfinite(s->best_seconds)) return PLAIT_OK;
  if (isfinite(s->smallest_bytes)) return say_nothing_fits(s, error);
  if (s->refused.code) return error_set(error, s->refused.code, "%s", s->refused.message);
  return say_nothing_cuts(s, error);
}

// The start of a search -----------------------------------------------------------------------------------------------

// The step on one rank, from which bounds are computed.
static int read_one_rank(GraphSearch *s, Error *error) {
  PlaitTrainingOptions o = s->asked;
  GraphPrediction one;
  o.mesh = o.schedule = NULL;
  o.microbatches = o.zero = 0;
  int code = graph_predict(s->graph, &o, s->cluster, &one, error);
  if (!code) {
    const MemoryPlan *m = &job_train(one.by.job)->program[0]->memory;
    s->states = (double)(m->parameters + m->optimizer);
    s->flops = one.by.simulation->rank[0].flops;
    const MachineTimes times = machine_times(s->cluster, NULL);
    double rate = machine_rate(&times, s->graph->dtype);
    s->rate = FAULT(graph_bound_is_no_bound, rate, rate / 1e6);
  }
  graph_prediction_free(&one);
  return code;
}

// Checks the options other than the mesh, which need not be complete yet.
static int check_options(const GraphSearch *s, Error *error) {
  ApiGraphMesh one;
  ApiGraphSetup setup;
  PlaitTrainingOptions o = s->asked;
  o.mesh = NULL;
  int code = api_graph_setup(s->graph, &o, &one, &setup, error);
  if (!code) api_graph_setup_free(&setup);
  return code;
}

// How many ranks: those that are asked for, those of the mesh, or all.
static int count_ranks(GraphSearch *s, const PlaitPlanOptions *where, Error *error) {
  const char *mesh = s->asked.mesh;
  int64_t all = cluster_devices(s->cluster);
  s->ranks = where->ranks ? where->ranks : all < 1 << 20 ? (int)all : 1 << 20;
  if (where->ranks < 0 || where->ranks > 1 << 20)
    return error_set(error, PLAIT_BAD_INPUT, "ranks is %d; allowed: 1 to %d, or 0 for all of the cluster", where->ranks,
                     1 << 20);
  int code = mesh ? api_graph_read_mesh(&s->given, mesh, error) : PLAIT_OK;
  if (!code && mesh && where->ranks && where->ranks != s->given.mesh.ranks)
    return error_set(error, PLAIT_BAD_INPUT, "ranks is %d, but the mesh \"%s\" has %d; leave one of both out",
                     where->ranks, mesh, s->given.mesh.ranks);
  if (mesh) s->ranks = s->given.mesh.ranks;
  return code ? code : cluster_check_ranks(s->cluster, s->ranks, error);
}

int graph_search_create(const PlaitGraph *h, const PlaitTrainingOptions *options, const PlaitPlanOptions *where,
                        const Cluster *cluster, GraphSearch *s, Error *error) {
  *s = (GraphSearch){.graph = h, .cluster = cluster, .exhaustive = where->exhaustive, .best_seconds = INFINITY,
                     .smallest_bytes = INFINITY};
  if (options) s->asked = *options;
  s->asked.plan = NULL;
  s->asked.comm = NULL;
  int code = check_options(s, error);
  if (!code && !(where->memory_bytes >= 0))
    code = error_set(error, PLAIT_BAD_INPUT, "memory_bytes is %g; allowed: 0 (what a device has) and more",
                     where->memory_bytes);
  if (!code) code = cluster_check_dtype(cluster, h->dtype, error);
  if (!code) code = count_ranks(s, where, error);
  if (!code) code = read_one_rank(s, error);
  if (code) return code;
  s->room = where->memory_bytes > 0 ? where->memory_bytes : devices_room(cluster, s->ranks, NULL, 0);
  cuts_create(h, &s->cuts);
  s->pattern_of = xcalloc((size_t)s->ranks + 1, sizeof *s->pattern_of);
  s->placement = xcalloc((size_t)h->g->variable.count + 1, sizeof *s->placement);
  return PLAIT_OK;
}

void graph_search_free(GraphSearch *s) {
  for (int i = 0; i < s->pattern.count; i++) free(s->pattern.data[i]);
  vec_free(&s->pattern);
  vec_free(&s->choice);
  queue_free(&s->queue);
  cuts_free(&s->cuts);
  free(s->pattern_of);
  free(s->placement);
}
