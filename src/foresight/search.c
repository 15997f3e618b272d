// The search: a queue of plans, the one with the least bound first.
#include "foresight/search.h"
#include "base/fault.h"
#include "base/units.h"
#include "machine/devices.h"
#include "setup/setup.h"
#include "foresight/search_bounds.h"
#include "foresight/search_extend.h"
#include "foresight/search_progress.h"
#include "foresight/search_queue.h"
#include <math.h>
#include <string.h>
#include <time.h>

typedef enum Stage { STAGE_ARITHMETIC, STAGE_LAYERS, STAGE_ESTIMATED, STAGE_NEIGHBOURS } Stage;

// Plans whose bounds are off alike: schedule, ZeRO stage, tensor layout, whether there is a pipeline or a context.
enum { PLAN_KINDS = SCHEDULES * 4 * LAYOUT_TENSORS * 4 };

// An estimate may be this much too slow, and is taken to be that much faster.
static const double estimate_slack = 0.02;
enum { MOST_ESTIMATED = 100, MOST_LAYER_TIMES = 600, NEAREST = 8, FEW_PLANS = 256, FEW_LAYERS = 8 };

// beside: it is a neighbour of one of the best.
typedef struct FoundPlan { Candidate candidate; bool beside; } FoundPlan;

typedef struct Searching {
  const SearchOptions *options;
  Space space;
  Bounds bounds;
  Extension extension;
  double room;
  PlanQueue queue;
  Vec(FoundPlan) plans;  // by QueuedPlan.plan
  Vec(QueuedPlan) left;  // that were not looked at
  Vec(Candidate) beside; // that were tried beside good plans
  int fitting;           // of the estimated ones, those that fit
  double doubt[PLAN_KINDS]; // 0: none; see doubt_of
  SearchProgress progress;
  QueuedPlan smallest[NEAREST]; // among those too large: the least memory by what is known of it
  int smallest_count;
  bool any_will_do; // the first plan that fits ends the search
  Search *out;
} Searching;

// The order of plans ------------------------------------------------------------------------------------------------

static int kind_of(const Recipe *r) {
  int kind = r->mesh.pp > 1 ? r->parallel.pipeline : 0;
  kind = kind * 4 + r->parallel.zero;
  kind = kind * LAYOUT_TENSORS + r->parallel.tensor;
  return kind * 4 + 2 * (r->mesh.pp > 1) + (r->mesh.cp > 1);
}

// A search that may not look at everything should not spend its estimates on plans of one kind, whose bounds are all
// far too low, as when they hold much that a bound does not know. So what an estimate finds too slow or too large makes
// its kind wait. That changes the order alone: what is left out is decided by bounds.
static double doubt_of(const Searching *s, const QueuedPlan *e, const Recipe *r) {
  return e->stage == STAGE_ESTIMATED || e->stage == STAGE_NEIGHBOURS ? 0 : s->doubt[kind_of(r)];
}

static void doubt(Searching *s, const Recipe *r, double slower, bool fits) {
  double *d = &s->doubt[kind_of(r)], more = fmax(sqrt(fmax(1, slower)), fits ? 1 : 1.3);
  *d = fmin(100, (1 + *d) * more - 1);
}

static void queue(Searching *s, QueuedPlan e, const Recipe *r) {
  e.doubt = doubt_of(s, &e, r);
  queue_push(&s->queue, e);
}

// Results -----------------------------------------------------------------------------------------------------------

static double worst(const Searching *s) {
  return s->out->plans < s->options->top ? INFINITY : s->out->plan[s->out->plans - 1].seconds;
}

bool search_twins(const SearchPlan *a, const SearchPlan *b) { return a->seconds == b->seconds && a->bytes == b->bytes; }

// r: the recipe of the plan.
static void keep(Searching *s, const Recipe *r, const SearchPlan *plan) {
  Search *out = s->out;
  int at = out->plans;
  for (int i = 0; i < FAULT(search_shows_twins, out->plans, 0); i++)
    if (search_twins(&out->plan[i], plan)) return;
  while (at && plan->seconds < out->plan[at - 1].seconds) at--;
  if (at == s->options->top) return;
  if (out->plans < s->options->top) out->plans++;
  else free(out->plan[out->plans - 1].keys);
  memmove(&out->plan[at + 1], &out->plan[at], sizeof *plan * (size_t)(out->plans - 1 - at));
  out->plan[at] = *plan;
  out->plan[at].keys = recipe_differences(&s->space.base, r);
}

static void find_limit(const Searching *s, const Prediction *p, SearchPlan *plan) {
  Limit limit[LIMITS_MOST];
  if (s->options->limits && predict_limits(p, s->options->cluster, limit) && limit[0].gain > 0.0005)
    plan->limit = limit[0];
}

static int compile_whole(Searching *s, const Recipe *r, SearchPlan *plan, Prediction *p, Error *error) {
  SimulateOptions options = {.cluster = s->options->cluster};
  s->out->count.compiled++;
  int code = predict(r, s->space.config, &options, p, error);
  if (code) return code;
  *plan = (SearchPlan){NULL, p->simulation->step, p->tokens_per_s, p->mfu, p->bytes, {.gain = 0}};
  return PLAIT_OK;
}

// Stages ------------------------------------------------------------------------------------------------------------

static void too_large(Searching *s, const QueuedPlan *e) {
  int at = s->smallest_count;
  s->out->count.too_large++;
  while (at && e->bytes < s->smallest[at - 1].bytes) at--;
  if (at == NEAREST) return;
  if (s->smallest_count < NEAREST) s->smallest_count++;
  memmove(&s->smallest[at + 1], &s->smallest[at], sizeof *e * (size_t)(s->smallest_count - 1 - at));
  s->smallest[at] = *e;
}

static void add(void *context, const Candidate *c, const Recipe *r) {
  Searching *s = context;
  PlanBound bound = bound_by_arithmetic(&s->bounds, c, r);
  QueuedPlan e = {.seconds = bound.seconds, .bytes = bound.bytes, .plan = s->plans.count};
  s->out->count.plans++;
  vec_push(&s->plans, (FoundPlan){*c, false});
  if (s->options->exhaustive) {
    e.stage = STAGE_ESTIMATED;
    e.seconds = 0;
    queue_add(&s->queue, e);
  } else if (bound.bytes > s->room) too_large(s, &e);
  else if (bound.seconds < worst(s)) e.doubt = doubt_of(s, &e, r), queue_add(&s->queue, e);
  if (!(s->plans.count % 1024)) search_progress(&s->progress, s->out, false);
}

static void add_beside(void *context, const Candidate *c, const Recipe *r) {
  Searching *s = context;
  for (int i = 0; i < s->beside.count; i++)
    if (!memcmp(&s->beside.data[i], c, sizeof *c)) return;
  vec_push(&s->beside, *c);
  add(s, c, r);
  s->plans.data[s->plans.count - 1].beside = true;
}

static void bound_again(Searching *s, QueuedPlan e, const Recipe *r) {
  PlanBound bound = bound_by_layers(&s->bounds, &s->plans.data[e.plan].candidate, r);
  s->out->count.bounded++;
  e.seconds = bound.seconds;
  e.bytes = bound.bytes;
  e.stage = STAGE_LAYERS;
  if (bound.bytes > s->room) too_large(s, &e);
  else queue(s, e, r);
}

static void estimate(Searching *s, QueuedPlan e, const Recipe *r) {
  Estimated estimated;
  Error ignored = {0};
  s->out->count.estimated++;
  e.stage = STAGE_ESTIMATED;
  if (extension_estimate(&s->extension, r, &estimated, &ignored)) {
    queue(s, e, r); // with its bound
    return;
  }
  bool fits = estimated.bytes <= s->room * (1 + estimate_slack);
  doubt(s, r, estimated.seconds / e.seconds, fits);
  e.seconds = fmax(e.seconds, estimated.seconds * (1 - estimate_slack));
  e.bytes = estimated.bytes;
  if (!fits) too_large(s, &e);
  else s->fitting++, queue(s, e, r);
}

static void finish(Searching *s, QueuedPlan e, const Recipe *r) {
  SearchPlan plan;
  Prediction p;
  Error ignored = {0};
  if (compile_whole(s, r, &plan, &p, &ignored)) return;
  e.bytes = plan.bytes;
  if (plan.bytes > s->room) too_large(s, &e);
  else if (plan.seconds < worst(s)) {
    find_limit(s, &p, &plan);
    keep(s, r, &plan);
    e.stage = STAGE_NEIGHBOURS;
    e.seconds = plan.seconds;
    queue(s, e, r); // its neighbours, when it turns out to be one of the best
  }
  prediction_free(&p);
}

static void step(Searching *s, QueuedPlan e) {
  Recipe r;
  Candidate c = s->plans.data[e.plan].candidate; // a copy: more plans may come
  space_recipe(&s->space, &c, &r);
  if (1 + doubt_of(s, &e, &r) > (1 + e.doubt) * 1.001) { // its kind has come into doubt since
    queue(s, e, &r);
    return;
  }
  switch ((Stage)e.stage) {
  case STAGE_ARITHMETIC: bound_again(s, e, &r); break;
  case STAGE_LAYERS: estimate(s, e, &r); break;
  case STAGE_ESTIMATED: finish(s, e, &r); break;
  case STAGE_NEIGHBOURS: s->out->count.judged += space_beside(&s->space, &c, add_beside, s); break;
  }
  search_progress(&s->progress, s->out, false);
}

// Whether a plan may still be one of the best; of those that are, their neighbours may.
static bool is_open(const Searching *s, const QueuedPlan *e) {
  return e->stage == STAGE_NEIGHBOURS ? e->seconds <= worst(s) : e->seconds < worst(s);
}

// With a limit for the search, plans with an estimate are compiled, neighbours of the best are looked at, and the rest
// is left.
static bool is_over(const Searching *s, const QueuedPlan *e) {
  if (s->plans.data[e->plan].beside) return false;
  if (e->stage == STAGE_ARITHMETIC) return s->bounds.layers.count >= MOST_LAYER_TIMES;
  int most = s->fitting ? MOST_ESTIMATED : 4 * MOST_ESTIMATED; // where nothing fits yet, longer
  return e->stage == STAGE_LAYERS && s->out->count.estimated >= most;
}

// A few plans of a model with few layers: to compile a plan takes about as long as to bound and estimate it, and says
// more. Times that were measured in a noisy minute may contradict each other, which leaves bounds loose.
static void compile_all_of_few(Searching *s) {
  if (s->queue.heap.count > FEW_PLANS || s->space.config->layers > FEW_LAYERS) return;
  for (int i = 0; i < s->queue.heap.count; i++) {
    s->queue.heap.data[i].stage = STAGE_ESTIMATED;
    s->queue.heap.data[i].seconds = 0;
  }
}

static void run(Searching *s) {
  s->out->count.judged = space_each(&s->space, add, s);
  compile_all_of_few(s);
  while (s->queue.heap.count && !(s->any_will_do && s->out->plans)) {
    QueuedPlan e = queue_pop(&s->queue);
    if (!is_open(s, &e)) continue;
    if (is_over(s, &e)) vec_push(&s->left, e);
    else step(s, e);
  }
  for (int i = 0; i < s->left.count; i++) s->out->count.left += is_open(s, &s->left.data[i]);
  vec_free(&s->left);
  s->out->count.layers = s->bounds.layers.count;
  search_progress(&s->progress, s->out, true);
}

static void free_plans(Searching *s) {
  queue_free(&s->queue);
  vec_free(&s->plans);
  vec_free(&s->beside);
}

// Nothing fits ------------------------------------------------------------------------------------------------------

// Bounds may be far from what a plan takes, so several are compiled.
static void find_nearest(Searching *s) {
  SearchNearest *n = &s->out->nearest;
  for (int i = 0; i < s->smallest_count; i++) {
    Recipe r;
    SearchPlan plan;
    Prediction p;
    Error ignored = {0};
    space_recipe(&s->space, &s->plans.data[s->smallest[i].plan].candidate, &r);
    if (compile_whole(s, &r, &plan, &p, &ignored)) continue;
    if (!n->found || plan.bytes < n->plan.bytes) {
      free(n->plan.keys);
      n->plan = plan;
      n->plan.keys = recipe_differences(&s->space.base, &r);
      nearest_read(p.job, &n->by);
    }
    n->found = true;
    prediction_free(&p);
  }
}

// The fewest ranks, doubling, on which something fits. The mesh that was given may stand in the way of all. Where so
// many combinations were judged that it takes as long as a large search, no more are tried.
static int ranks_that_do(const Searching *s) {
  const int64_t most_judged = 10 * 1000 * 1000;
  int64_t judged = s->out->count.judged;
  SearchOptions more = *s->options;
  more.top = 1;
  more.limits = false;
  more.exhaustive = false;
  more.progress = NULL;
  while (judged < most_judged && (more.ranks = nearest_more_ranks(s->options->cluster, more.ranks))) {
    Search found;
    Error ignored = {0};
    Cluster cluster = nearest_enlarged(s->options->cluster, more.ranks);
    more.cluster = &cluster;
    Searching inner = {.options = &more, .room = s->room, .out = &found, .any_will_do = true};
    found = (Search){.plan = xcalloc(2, sizeof(SearchPlan))};
    int fits = 0;
    if (!space_create(s->space.asked, s->space.config, more.cluster, more.ranks, &inner.space, &ignored)) {
      bounds_create(&inner.space, more.cluster, &inner.bounds);
      extension_create(&inner.space, more.cluster, &inner.extension);
      run(&inner);
      fits = found.plans;
      judged += found.count.judged;
      bounds_free(&inner.bounds);
      extension_free(&inner.extension);
      space_free(&inner.space);
    }
    free_plans(&inner);
    search_free(&found);
    if (fits) return more.ranks;
  }
  return 0;
}

static int say_nothing_fits(const Searching *s, Error *error) {
  const SearchNearest *n = &s->out->nearest;
  if (!s->out->count.plans || !n->found)
    return error_set(error, PLAIT_INFEASIBLE,
                     "no plan for %d ranks: of %lld combinations of what is left open none is possible with the keys "
                     "that the recipe gives; leave more of them open, as with mesh.dp=null",
                     s->options->ranks, (long long)s->out->count.judged);
  NothingFits where = {s->options->ranks, !s->out->count.left, *n->plan.keys ? n->plan.keys : "the recipe as it is",
                       "the keys that are given", s->room,
                       s->options->cluster, (Dtype)s->space.base.precision};
  return nearest_say(&n->by, &where, error);
}

// -------------------------------------------------------------------------------------------------------------------

static int check(const Recipe *r, const Searching *s, Error *error) {
  const Cluster *c = s->options->cluster;
  int code = cluster_check_ranks(c, s->options->ranks, error);
  Recipe adapted = {0};
  if (!code) code = predict_adapt(r, c, "", &adapted, error);
  if (!code) code = cluster_check_dtype(c, (Dtype)adapted.precision, error);
  recipe_free(&adapted);
  return code;
}

int search_plans(const Recipe *recipe, const ModelConfig *config, const SearchOptions *options, Search *out,
                 Error *error) {
  clock_t begin = clock();
  double room = options->room > 0 ? options->room : devices_room(options->cluster, options->ranks, NULL, 0);
  *out = (Search){.plan = xcalloc((size_t)options->top + 1, sizeof(SearchPlan)), .room = room};
  Searching s = {.options = options, .room = room, .out = out};
  search_progress_begin(&s.progress, options->progress);
  int code = check(recipe, &s, error);
  if (!code) code = space_create(recipe, config, options->cluster, options->ranks, &s.space, error);
  if (code) return code;
  bounds_create(&s.space, options->cluster, &s.bounds);
  extension_create(&s.space, options->cluster, &s.extension);
  run(&s);
  if (!out->plans) {
    find_nearest(&s);
    if (out->nearest.found) out->nearest.by.ranks = ranks_that_do(&s);
    code = say_nothing_fits(&s, error);
  }
  out->count.seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  bounds_free(&s.bounds);
  extension_free(&s.extension);
  space_free(&s.space);
  free_plans(&s);
  return code;
}

void search_free(Search *s) {
  for (int i = 0; i < s->plans; i++) free(s->plan[i].keys);
  free(s->nearest.plan.keys);
  free(s->plan);
  *s = (Search){0};
}

char *search_left(const SearchCount *c) {
  if (!c->left) return NULL;
  return xformat(
      "the search stopped early: %lld plans that might be faster than the last one shown were not looked at, "
      "since it takes at most %d times of layers (here %lld) and %d estimates (%lld); with more keys given, "
      "as mesh.tp=8, fewer plans are left",
      (long long)c->left, MOST_LAYER_TIMES, (long long)c->layers, MOST_ESTIMATED, (long long)c->estimated);
}
