// The search: a queue of plans, the one with the least bound first.
#include "train/search.h"
#include "base/units.h"
#include "recipe/setup.h"
#include "train/search_bounds.h"
#include "train/search_extend.h"
#include <math.h>
#include <string.h>
#include <time.h>

typedef enum Stage { STAGE_ARITHMETIC, STAGE_LAYERS, STAGE_ESTIMATED, STAGE_BESIDE } Stage;

typedef struct Entry {
  double seconds, bytes;
  int stage, tie; // of equal times, the plan that was found first
  Candidate candidate;
} Entry;

// An estimate may be this much too slow, and is taken to be that much faster.
static const double estimate_slack = 0.02;
enum { MOST_ESTIMATED = 150, MOST_LAYER_TIMES = 600 };

typedef struct Searching {
  const SearchOptions *options;
  Space space;
  Bounds bounds;
  Extension extension;
  double room;
  Vec(Entry) heap; // the least first
  Vec(Candidate) beside; // that were tried beside good plans
  int found, fitting;   // plans so far; of the estimated ones, those that fit
  Entry smallest; // of all: the least memory by arithmetic, among those too large
  bool any;
  Search *out;
} Searching;

// The queue ---------------------------------------------------------------------------------------------------------

static bool is_before(const Entry *a, const Entry *b) {
  return a->seconds != b->seconds ? a->seconds < b->seconds : a->tie < b->tie;
}

static void push(Searching *s, const Entry *e) {
  vec_push(&s->heap, *e);
  Entry *heap = s->heap.data;
  for (int i = s->heap.count - 1; i && is_before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2) {
    Entry t = heap[i];
    heap[i] = heap[(i - 1) / 2], heap[(i - 1) / 2] = t;
  }
}

static Entry pop(Searching *s) {
  Entry *heap = s->heap.data, first = heap[0];
  int n = --s->heap.count;
  heap[0] = heap[n];
  for (int i = 0, child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&heap[child + 1], &heap[child])) child++;
    if (!is_before(&heap[child], &heap[i])) break;
    Entry t = heap[i];
    heap[i] = heap[child], heap[child] = t;
  }
  return first;
}

// Results -----------------------------------------------------------------------------------------------------------

static double worst(const Searching *s) {
  return s->out->plans < s->options->top ? INFINITY : s->out->plan[s->out->plans - 1].seconds;
}

static void keep(Searching *s, const SearchPlan *plan) {
  Search *out = s->out;
  int at = out->plans;
  while (at && plan->seconds < out->plan[at - 1].seconds) at--;
  if (at == s->options->top) return;
  if (out->plans < s->options->top) out->plans++;
  memmove(&out->plan[at + 1], &out->plan[at], sizeof *plan * (size_t)(out->plans - 1 - at));
  out->plan[at] = *plan;
}

// The plan as the user would write it: what the cluster decides, and what a step does not see, is as it was.
static Recipe plan_recipe(const Searching *s, const Recipe *r) {
  Recipe plan = *r;
  const Recipe *asked = s->space.asked;
  plan.run.backend = asked->run.backend;
  plan.precision = asked->precision;
  plan.loss_scale = asked->loss_scale;
  plan.data = asked->data;
  plan.notes = asked->notes;
  return plan;
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
  *plan = (SearchPlan){plan_recipe(s, r), p->simulation->step, p->tokens_per_s, p->mfu, p->bytes, {.gain = 0}};
  return PLAIT_OK;
}

// Stages ------------------------------------------------------------------------------------------------------------

static void too_large(Searching *s, const Entry *e) {
  s->out->count.too_large++;
  if (!s->any || e->bytes < s->smallest.bytes) s->smallest = *e;
  s->any = true;
}

static void add(void *context, const Candidate *c, const Recipe *r) {
  Searching *s = context;
  PlanBound bound = bound_by_arithmetic(&s->bounds, c, r);
  Entry e = {.seconds = bound.seconds, .bytes = bound.bytes, .tie = s->found++, .candidate = *c};
  s->out->count.plans++;
  if (s->options->exhaustive) {
    e.stage = STAGE_ESTIMATED;
    e.seconds = 0;
    push(s, &e);
  } else if (bound.bytes > s->room) too_large(s, &e);
  else if (bound.seconds < worst(s)) push(s, &e);
}

static void add_beside(void *context, const Candidate *c, const Recipe *r) {
  Searching *s = context;
  for (int i = 0; i < s->beside.count; i++)
    if (!memcmp(&s->beside.data[i], c, sizeof *c)) return;
  vec_push(&s->beside, *c);
  add(s, c, r);
}

static void bound_again(Searching *s, Entry e, const Recipe *r) {
  PlanBound bound = bound_by_layers(&s->bounds, &e.candidate, r);
  s->out->count.bounded++;
  e.seconds = bound.seconds;
  e.bytes = bound.bytes;
  e.stage = STAGE_LAYERS;
  if (bound.bytes > s->room) too_large(s, &e);
  else push(s, &e);
}

static void estimate(Searching *s, Entry e, const Recipe *r) {
  Estimated estimated;
  Error ignored = {0};
  s->out->count.estimated++;
  e.stage = STAGE_ESTIMATED;
  if (extension_estimate(&s->extension, r, &estimated, &ignored)) {
    push(s, &e); // with its bound
    return;
  }
  e.seconds = fmax(e.seconds, estimated.seconds * (1 - estimate_slack));
  e.bytes = estimated.bytes;
  if (estimated.bytes > s->room * (1 + estimate_slack)) too_large(s, &e);
  else s->fitting++, push(s, &e);
}

static void finish(Searching *s, Entry e, const Recipe *r) {
  SearchPlan plan;
  Prediction p;
  Error ignored = {0};
  if (compile_whole(s, r, &plan, &p, &ignored)) return;
  e.bytes = plan.bytes;
  if (plan.bytes > s->room) too_large(s, &e);
  else if (plan.seconds < worst(s)) {
    find_limit(s, &p, &plan);
    keep(s, &plan);
    e.stage = STAGE_BESIDE;
    e.seconds = plan.seconds;
    push(s, &e); // its neighbours, when it turns out to be one of the best
  }
  prediction_free(&p);
}

static void step(Searching *s) {
  Entry e = pop(s);
  Recipe r;
  space_recipe(&s->space, &e.candidate, &r);
  switch ((Stage)e.stage) {
  case STAGE_ARITHMETIC: bound_again(s, e, &r); break;
  case STAGE_LAYERS: estimate(s, e, &r); break;
  case STAGE_ESTIMATED: finish(s, e, &r); break;
  case STAGE_BESIDE: space_beside(&s->space, &e.candidate, add_beside, s); break;
  }
}

// Whether a plan may still be one of the best; of those that are, their neighbours may.
static bool is_open(const Searching *s, const Entry *e) {
  return e->stage == STAGE_BESIDE ? e->seconds <= worst(s) : e->seconds < worst(s);
}

// The search has a most of its own: then what has an estimate is compiled, and the rest is left.
static bool is_over(const Searching *s, const Entry *e) {
  if (e->stage == STAGE_ARITHMETIC) return s->bounds.layers.count >= MOST_LAYER_TIMES;
  int most = s->fitting ? MOST_ESTIMATED : 4 * MOST_ESTIMATED; // where nothing fits yet, longer
  return e->stage == STAGE_LAYERS && s->out->count.estimated >= most;
}

static void run(Searching *s) {
  s->out->count.judged = space_each(&s->space, add, s);
  while (s->heap.count && is_open(s, &s->heap.data[0])) {
    if (is_over(s, &s->heap.data[0])) s->out->count.left++, pop(s);
    else step(s);
  }
}

// Nothing fits ------------------------------------------------------------------------------------------------------

static void largest_category(const Job *job, SearchNearest *n) {
  const MemoryPlan *most = NULL;
  for (int c = 0; c < job_pipeline_ranks(job); c++)
    if (!most || job->train.program[c]->memory.total > most->total) most = &job->train.program[c]->memory;
  const struct { const char *name; int64_t bytes; } parts[] = {
      {"parameters", most->parameters},   {"gradients", most->gradients}, {"optimizer state", most->optimizer},
      {"activations", most->activations}, {"workspace", most->workspace}, {"communication", most->communication}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if ((double)parts[i].bytes > n->largest_bytes) {
      n->largest_bytes = (double)parts[i].bytes;
      snprintf(n->largest, sizeof n->largest, "%s", parts[i].name);
    }
}

static void find_nearest(Searching *s) {
  SearchNearest *n = &s->out->nearest;
  Recipe r;
  Prediction p;
  Error ignored = {0};
  if (!s->any) return;
  space_recipe(&s->space, &s->smallest.candidate, &r);
  if (compile_whole(s, &r, &n->plan, &p, &ignored)) return;
  n->found = true;
  largest_category(p.job, n);
  prediction_free(&p);
}

// The fewest ranks, doubling, on which something fits. The mesh that was given may stand in the way of all.
static int ranks_that_do(const Searching *s) {
  SearchOptions more = *s->options;
  more.top = 1;
  more.limits = false;
  for (int64_t n = 2 * (int64_t)more.ranks; n <= cluster_devices(more.cluster); n *= 2) {
    Search found;
    Error ignored = {0};
    more.ranks = (int)n;
    more.exhaustive = false;
    Searching inner = {.options = &more, .room = s->room, .out = &found};
    found = (Search){.plan = xcalloc(2, sizeof(SearchPlan))};
    int fits = 0;
    if (!space_create(s->space.asked, s->space.config, more.cluster, more.ranks, &inner.space, &ignored)) {
      bounds_create(&inner.space, more.cluster, &inner.bounds);
      extension_create(&inner.space, more.cluster, &inner.extension);
      run(&inner);
      fits = found.plans;
      bounds_free(&inner.bounds);
      extension_free(&inner.extension);
      space_free(&inner.space);
    }
    vec_free(&inner.heap);
    vec_free(&inner.beside);
    free(found.plan);
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
  char ranks[160], *differences = search_differences(s->space.asked, &n->plan.recipe);
  if (n->ranks) snprintf(ranks, sizeof ranks, "%d ranks of this cluster would do", n->ranks);
  else snprintf(ranks, sizeof ranks, "no number of ranks of this cluster would do with the keys that are given");
  int code = error_set(error, PLAIT_INFEASIBLE,
                       "%s on %d ranks: the nearest plan (%s) takes %s of %s, %s too much, most of it %s (%s); %s",
                       s->out->count.left ? "nothing that was looked at fits" : "nothing fits", s->options->ranks,
                       *differences ? differences : "the recipe as it is",
                       units_bytes(n->plan.bytes).s, units_bytes(s->room).s, units_bytes(n->plan.bytes - s->room).s,
                       n->largest, units_bytes(n->largest_bytes).s, ranks);
  free(differences);
  return code;
}

// -------------------------------------------------------------------------------------------------------------------

static int check(const Recipe *r, const Searching *s, Error *error) {
  const Cluster *c = s->options->cluster;
  int code = cluster_check_ranks(c, s->options->ranks, error);
  Recipe adapted = *r;
  predict_adapt(&adapted, c);
  return code ? code : cluster_check_dtype(c, (Dtype)adapted.precision, error);
}

int search_plans(const Recipe *recipe, const ModelConfig *config, const SearchOptions *options, Search *out,
                 Error *error) {
  clock_t begin = clock();
  const DeviceFacts *device = &options->cluster->device;
  double room = options->room > 0 ? options->room : device->memory - device->reserved;
  *out = (Search){.plan = xcalloc((size_t)options->top + 1, sizeof(SearchPlan)), .room = room};
  Searching s = {.options = options, .room = room, .out = out};
  int code = check(recipe, &s, error);
  if (!code) code = space_create(recipe, config, options->cluster, options->ranks, &s.space, error);
  if (code) return code;
  bounds_create(&s.space, options->cluster, &s.bounds);
  extension_create(&s.space, options->cluster, &s.extension);
  run(&s);
  if (!out->plans) {
    find_nearest(&s);
    if (out->nearest.found) out->nearest.ranks = ranks_that_do(&s);
    code = say_nothing_fits(&s, error);
  }
  out->count.layers = s.bounds.layers.count;
  out->count.seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  bounds_free(&s.bounds);
  extension_free(&s.extension);
  space_free(&s.space);
  vec_free(&s.heap);
  vec_free(&s.beside);
  return code;
}

void search_free(Search *s) {
  free(s->plan);
  *s = (Search){0};
}

char *search_differences(const Recipe *recipe, const Recipe *plan) {
  char *text = xstrdup("");
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    if (recipe_value_equal(key, recipe, plan)) continue;
    char *value = recipe_value_text(plan, key->path), *longer;
    for (char *from = value, *to = value;; from++) { // "[dp, tp]" is one word of a command line
      if (*from != ' ') *to++ = *from;
      if (!*from) break;
    }
    longer = xformat("%s%s%s=%s", text, *text ? " " : "", key->path, value);
    free(text);
    free(value);
    text = longer;
  }
  return text;
}
