// Strategies side by side: settings of foresight/strategies.def on top of a recipe, each compiled and simulated.
#include "foresight/compare.h"
#include "base/fault.h"
#include "program/program.h"
#include "setup/setup.h"
#include "machine/devices.h"
#include "foresight/search.h"
#include "foresight/search_extend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum Need {
#define STRATEGY_NEED(id, ...) NEED_##id,
#define STRATEGY(...)
#define STRATEGY_NOT_BUILT(...)
#define CHANGE(...)
#include "foresight/strategies.def"
#undef STRATEGY_NEED
#undef STRATEGY
  NEEDS
} Need;

typedef struct StrategyTraits { Need need; const char *settings; } StrategyTraits;
#define STRATEGY_NEED(...)
#define STRATEGY(id, name, need, settings) [STRATEGY_##id] = {NEED_##need, settings},
static const StrategyTraits traits[STRATEGIES] = {
#include "foresight/strategies.def"
};
#undef STRATEGY
#define STRATEGY(id, name, ...) [STRATEGY_##id] = name,
const char *const strategy_names[STRATEGIES] = {
#include "foresight/strategies.def"
};
#undef STRATEGY
#undef STRATEGY_NOT_BUILT
#define STRATEGY(...)
#define STRATEGY_NOT_BUILT(name, what) {name, what},
const NotBuilt strategies_not_built[] = {
#include "foresight/strategies.def"
    {NULL, NULL}};
#undef STRATEGY_NOT_BUILT
#undef CHANGE
#define STRATEGY_NOT_BUILT(...)

enum { AIM_MEMORY = 1, AIM_TIME = 2, AIM_BOTH = AIM_MEMORY | AIM_TIME };
typedef struct ChangeTraits {
  const char *name;
  int aim;
  int (*holds)(const Recipe *r, const CompareSizes *s);
  const char *settings;
} ChangeTraits;
#define CHANGE(id, name, aim, condition, settings)                                                                     \
  static int change_##id(const Recipe *r, const CompareSizes *s) {                                                     \
    (void)r, (void)s;                                                                                                  \
    return condition;                                                                                                  \
  }
#include "foresight/strategies.def"
#undef CHANGE
#define CHANGE(id, name, aim, condition, settings) {name, AIM_##aim, change_##id, settings},
static const ChangeTraits changes[] = {
#include "foresight/strategies.def"
};
#undef CHANGE
#define CHANGE(...)

// Says what the strategy needs and the ranks do not have; "": nothing.
static const char *need_lacks(Need need, const CompareSizes *s) {
  switch (need) {
#undef STRATEGY_NEED
#define STRATEGY_NEED(id, condition, why)                                                                              \
  case NEED_##id: return (condition) ? "" : why;
#include "foresight/strategies.def"
  case NEEDS: break;
  }
  return "";
}

// Keys that strategies change, or that would stand in their way, without any parallelism.
static const char plain[] =
    "mesh.pp=1 mesh.dp=1 mesh.cp=1 mesh.tp=1 parallel.zero=0 parallel.reshard=true parallel.gather=block "
    "parallel.shard_group=0 parallel.unsplit_tensors=false parallel.sequence=false parallel.tensor=1d "
    "parallel.rows=auto parallel.depth=auto parallel.summa=false parallel.stages_per_rank=auto "
    "parallel.accumulate=reduced parallel.context=auto parallel.ulysses=auto parallel.ep=1";

// ---- sizes ----------------------------------------------------------------------------------------------------------

static int least_factor(int n) {
  for (int f = 2; f * f <= n; f++)
    if (n % f == 0) return f;
  return n;
}

static int common_divisor(int a, int b) {
  while (b) {
    int rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// Pipeline ranks that leave at least two for data parallelism; from `after` on the next more. 0: none.
static int next_depth(const CompareSizes *s, int ranks, int after) {
  for (int d = after + 1; d <= s->layers && 2 * d <= ranks; d++)
    if (ranks % d == 0 && d > 1) return d;
  return 0;
}

static CompareSizes sizes_of(int ranks, int64_t layers, const Cluster *cluster) {
  CompareSizes s = {.ranks = ranks, .layers = (int)layers};
  s.node = cluster->levels > 1 ? common_divisor(ranks, cluster->level[0].count) : ranks;
  s.nodes = ranks / s.node;
  s.across = s.node * least_factor(s.nodes);
  for (int d = 1; d <= ranks && d <= layers; d++)
    if (ranks % d == 0) s.stages = d;
  s.inner = s.nodes > 1 ? s.node : least_factor(ranks);
  for (int d = next_depth(&s, ranks, 0); d; d = next_depth(&s, ranks, d)) s.depths++;
  for (int d = next_depth(&s, ranks / s.inner, 0); d && s.inner > 1; d = next_depth(&s, ranks / s.inner, d))
    s.inner_depths++;
  return s;
}

// ---- settings -------------------------------------------------------------------------------------------------------

typedef struct Placeholder { const char *name; int value; } Placeholder;

// Writes `text` with numbers in place of {words}. r: of the row that is changed, or NULL.
static void expand(const char *text, const CompareSizes *s, const Recipe *r, char *out, size_t size) {
  const Placeholder words[] = {{"{ranks}", s->ranks}, {"{node}", s->node}, {"{across}", s->across},
                               {"{stages}", s->stages}, {"{depth}", s->depth}, {"{same}", s->depth},
                               {"{inner}", s->inner}, {"{half}", r ? (r->batch.micro + 1) / 2 : 0},
                               {"{double}", r ? 2 * r->batch.micro : 0}, {"{zero}", r ? r->parallel.zero + 1 : 0},
                               {"{replicas}", r ? r->mesh.dp / s->node : 0}};
  int product = 1; // of mesh.* so far
  size_t n = 0;
  for (const char *at = text; *at;) {
    CHECK(n + 32 < size, "no room for the settings %s", text); // more than a key or a number takes
    const char *mesh = strncmp(at, "mesh.", 5) ? NULL : strchr(at, '=');
    if (mesh) n += (size_t)snprintf(out + n, size - n, "%.*s", (int)(mesh + 1 - at), at), at = mesh + 1;
    int value = *at >= '0' && *at <= '9' ? atoi(at) : 0, found = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && !found; i++)
      if (!strncmp(at, words[i].name, strlen(words[i].name)))
        found = (int)strlen(words[i].name), value = words[i].value;
    if (!found && !strncmp(at, "{rest}", 6)) found = 6, value = s->ranks / product;
    if (mesh && value) product *= value;
    if (found) n += (size_t)snprintf(out + n, size - n, "%d", value), at += found;
    else out[n++] = *at++;
  }
  out[n] = 0;
}

// ---- one prediction -------------------------------------------------------------------------------------------------

typedef struct Comparing {
  const CompareOptions *options;
  ModelConfig config;
  Comparison *out;
  Space space; // of which an estimate reads the model alone
  Extension extension;
} Comparing;

// A recipe and what it takes; the prediction borrows the recipe.
typedef struct Tried { Recipe recipe; Prediction prediction; } Tried;

static void tried_free(Tried *t) {
  prediction_free(&t->prediction);
  recipe_free(&t->recipe);
}

enum { MOST_WORDS = 64 };

// The user's keys, then `first`, then the settings. Words lie in `text`.
static int load_after(const Comparing *c, const char *first, const char *settings, Recipe *recipe, Error *error) {
  int count = c->options->override_count, most = count + MOST_WORDS;
  char **words = xcalloc((size_t)most, sizeof *words), *text = xformat("%s %s", first, settings), *rest = text;
  if (count) memcpy(words, c->options->overrides, sizeof *words * (size_t)count);
  for (char *word; count < most && (word = strsep(&rest, " "));)
    if (*word) words[count++] = word;
  int code = recipe_load(c->options->path, count, words, recipe, error);
  free(text);
  free(words);
  return code;
}

static int load(const Comparing *c, const char *settings, Recipe *recipe, Error *error) {
  return load_after(c, plain, settings, recipe, error);
}

// Without `time` it is compiled, and not simulated.
static int try_settings(const Comparing *c, const char *settings, int time, Tried *t, Error *error) {
  SimulateOptions simulated = {.cluster = c->options->cluster};
  *t = (Tried){.prediction = {.job = NULL}};
  int code = load(c, settings, &t->recipe, error);
  if (!code && time) code = predict(&t->recipe, &c->config, &simulated, &t->prediction, error);
  else if (!code) code = predict_memory(&t->recipe, &c->config, simulated.cluster, &t->prediction, error);
  if (code) tried_free(t);
  return code;
}

// Which of several to compile: what is printed is always compiled whole. 0: cannot be.
static int estimate(Comparing *c, const char *settings, Estimated *out) {
  Recipe recipe, adapted = {0};
  Error ignored = {0};
  if (load(c, settings, &recipe, &ignored)) return 0;
  int code = predict_adapt(&recipe, c->options->cluster, "", &adapted, &ignored);
  if (!code) code = extension_estimate(&c->extension, &adapted, out, &ignored);
  recipe_free(&adapted);
  recipe_free(&recipe);
  return !code;
}

// The tensor axes of a mesh, as bits.
static uint32_t tensor_axes(const Mesh *mesh) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].role == AXIS_TENSOR) axes |= 1u << a;
  return axes;
}

static void count_memory(const Job *job, CompareNumbers *n) {
  for (int c = 0; c < job_pipeline_ranks(job); c++) {
    const MemoryPlan *m = &job_train(job)->program[c]->memory;
    if ((double)m->total <= n->bytes) continue;
    n->bytes = (double)m->total;
    n->memory[MEMORY_PARAMETERS] = (double)m->parameters;
    n->memory[MEMORY_GRADIENTS] = (double)m->gradients;
    n->memory[MEMORY_OPTIMIZER] = (double)m->optimizer;
    n->memory[MEMORY_ACTIVATIONS] = (double)m->activations;
    n->memory[MEMORY_REST] = (double)(m->total - m->parameters - m->gradients - m->optimizer - m->activations);
  }
}

static CompareNumbers numbers_of(const Prediction *p) {
  const Simulation *s = p->simulation;
  uint32_t tensor = tensor_axes(&p->job->options.parallel.mesh);
  CompareNumbers n = {.room = p->room};
  count_memory(p->job, &n);
  n.fits = FAULT(compare_all_fit, n.bytes <= n.room, 1);
  if (!s) return n;
  const RankTime *busiest = &s->rank[s->busiest];
  n.step = s->step;
  n.tokens_per_s = p->tokens_per_s;
  for (int c = 0; c < s->ranks; c++)
    n.bubble += (s->rank[c].part[TIME_BUBBLE] + s->rank[c].part[TIME_IDLE]) / s->step / s->ranks;
  n.exposed = (busiest->part[TIME_COLLECTIVE] + busiest->part[TIME_TRANSFER]) / s->step;
  for (int i = 0; i < busiest->link.count; i++) {
    const LinkTime *l = &busiest->link.data[i];
    if (l->level >= 0) n.sent[l->level] += l->bytes;
    if (l->axes & tensor && !(l->axes & ~tensor)) n.tp_exposed += l->exposed / s->step;
  }
  return n;
}

// Bytes of a layer's parameters and gradients, of the layer that has the most. Parameters outside of layers count
// alone.
static double largest_layer(const Graph *g) {
  double most = 0, *layer = xcalloc((size_t)g->layers + 1, sizeof *layer);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    int at, gradient = v->kind == VARIABLE_GRADIENT;
    if (!variable_is_counted(v) && !gradient) continue;
    const Variable *parameter = gradient && v->parameter >= 0 ? &g->variable.data[v->parameter] : v;
    Dtype dtype = v->dtype;
    for (int k = 0; k < v->copies && !gradient; k++)
      if (dtype_size(v->copy[k].dtype) < dtype_size(dtype)) dtype = v->copy[k].dtype;
    double bytes = (double)shape_elements(&v->shape) * (double)dtype_size(dtype);
    if (sscanf(parameter->name, "layer.%d.", &at) != 1 || at < 0 || at >= g->layers) at = -1;
    double *sum = at < 0 ? &bytes : &layer[at];
    if (at >= 0) *sum += bytes;
    most = fmax(most, *sum);
  }
  free(layer);
  return most;
}

// ---- changes --------------------------------------------------------------------------------------------------------

static void take_change(CompareRow *row, const char *name, const char *settings, const CompareNumbers *numbers) {
  snprintf(row->change, sizeof row->change, "%s", name);
  snprintf(row->change_settings, sizeof row->change_settings, "%s", settings);
  row->changed = *numbers;
}

// Is it better than the row, and than the change before it?
static int helps(const CompareRow *row, const CompareNumbers *n) {
  const CompareNumbers *best = *row->change ? &row->changed : &row->number;
  if (row->number.fits) return n->fits && n->step < best->step * 0.999;
  return n->fits || n->bytes < best->bytes * 0.99;
}

enum { CHANGES = sizeof changes / sizeof *changes };
// An estimate may be this far off (tests/foresight/test_search.c).
static const double estimate_slack = 0.02;

typedef struct PossibleChange { char name[64], settings[256]; Estimated by; } PossibleChange;

// Those that apply and can be, with their estimates; `out`: room for CHANGES.
static int possible_changes(Comparing *c, const Recipe *recipe, const CompareRow *row, PossibleChange *out) {
  CompareSizes size = c->out->size;
  int n = 0;
  size.fits = row->number.fits;
  for (size_t i = 0; i < CHANGES; i++) {
    PossibleChange *p = &out[n];
    if (!(changes[i].aim & (size.fits ? AIM_TIME : AIM_MEMORY)) || !changes[i].holds(recipe, &size)) continue;
    expand(changes[i].name, &size, recipe, p->name, sizeof p->name);
    expand(changes[i].settings, &size, recipe, p->settings, sizeof p->settings);
    char *all = xformat("%s %s", row->settings, p->settings);
    int good = estimate(c, all, &p->by);
    n += good;
    free(all);
    if (good && !size.fits && p->by.bytes <= row->number.room * (1 - estimate_slack)) break; // no later one is needed
  }
  return n;
}

static void try_change(const Comparing *c, CompareRow *row, const PossibleChange *p) {
  Tried t;
  Error ignored = {0};
  char *all = xformat("%s %s", row->settings, p->settings);
  int fits = p->by.bytes <= row->number.room * (1 + estimate_slack); // else only its memory is said
  if (!try_settings(c, all, fits, &t, &ignored)) {
    CompareNumbers n = numbers_of(&t.prediction);
    tried_free(&t);
    if (!n.fits) n.step = n.tokens_per_s = 0;
    if (helps(row, &n)) take_change(row, p->name, p->settings, &n);
  }
  free(all);
}

// Of a row that fits the change with the least time; of another one the first that makes it fit, else the one that
// saves the most memory. A change that fits by the estimate, but not when it is compiled, is skipped for the next.
static void find_change(Comparing *c, const Recipe *recipe, CompareRow *row) {
  PossibleChange possible[CHANGES];
  int n = possible_changes(c, recipe, row, possible), in_order = !row->number.fits;
  double room = row->number.room * (1 + estimate_slack);
  for (int i = 0; i < n && in_order; i++)
    if (possible[i].by.bytes <= room) {
      try_change(c, row, &possible[i]);
      if (row->changed.fits) return;
    }
  while (n && !*row->change) {
    int best = -1;
    for (int i = 0; i < n; i++) {
      const Estimated *e = &possible[i].by;
      if (in_order && e->bytes > row->number.bytes * (1 + estimate_slack)) continue;
      if (!in_order && (e->bytes > room || e->seconds > row->number.step * (1 + estimate_slack))) continue;
      if (best < 0 || (in_order ? e->bytes < possible[best].by.bytes : e->seconds < possible[best].by.seconds))
        best = i;
    }
    if (best < 0) return;
    try_change(c, row, &possible[best]);
    possible[best] = possible[--n];
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// The judge's sentence without the place, up to what could be done about it.
static void say_why(const char *sentence, const char *path, CompareRow *row) {
  size_t n = strlen(path);
  if (!strncmp(sentence, path, n)) {
    sentence += n;
    while (*sentence == ':' || (*sentence >= '0' && *sentence <= '9') || *sentence == ' ') sentence++;
  }
  snprintf(row->why, sizeof row->why, "%.*s", (int)strcspn(sentence, ";"), sentence);
}

static int fill_row(const Comparing *c, CompareRow *row) {
  Tried t;
  Error error = {0};
  *row->why = 0;
  if (try_settings(c, row->settings, 1, &t, &error)) return say_why(error.message, c->options->path, row), 0;
  const Recipe *r = &t.recipe;
  row->pp = r->mesh.pp, row->dp = r->mesh.dp, row->cp = r->mesh.cp, row->tp = r->mesh.tp, row->zero = r->parallel.zero;
  row->number = numbers_of(&t.prediction);
  if (c->out->layer <= 0) c->out->layer = largest_layer(job_train(t.prediction.job)->graph);
  if (c->options->limits && row->number.fits) {
    Limit limit[LIMITS_MOST];
    if (predict_limits(&t.prediction, c->options->cluster, limit) > 0 && limit[0].gain > 0) row->limit = limit[0];
  }
  tried_free(&t);
  return 1;
}

static int depth_fits(Comparing *c, const char *settings, double room) {
  Tried t;
  Estimated by;
  Error ignored = {0};
  if (estimate(c, settings, &by) && by.bytes > room * (1 + estimate_slack)) return 0;
  if (try_settings(c, settings, 0, &t, &ignored)) return 0;
  int fits = numbers_of(&t.prediction).fits;
  tried_free(&t);
  return fits;
}

// Of a row whose settings have {depth}: the least with which it fits, else the most.
static void choose_depth(Comparing *c, Strategy strategy) {
  CompareRow *row = &c->out->row[strategy];
  CompareSizes *s = &c->out->size;
  double room = devices_room(c->options->cluster, s->ranks, NULL, 0);
  int ranks = strstr(traits[strategy].settings, "{inner}") ? s->ranks / s->inner : s->ranks, fits = 0;
  for (int d = next_depth(s, ranks, 0); d && !fits; d = next_depth(s, ranks, d)) {
    s->depth = d;
    expand(traits[strategy].settings, s, NULL, row->settings, sizeof row->settings);
    fits = depth_fits(c, row->settings, room);
  }
}

// The keys that strategies change, left open: "mesh.pp=null …".
static char *open_keys(void) {
  char *open = xstrdup(""), *text = xstrdup(plain), *rest = text;
  for (char *word; (word = strsep(&rest, " "));) {
    char *longer = xformat("%s%.*s=null ", open, (int)strcspn(word, "="), word);
    free(open);
    open = longer;
  }
  free(text);
  return open;
}

// The settings of the fastest plan that the search finds; 0 where nothing fits, and why stands in the row.
static int search_settings(const Comparing *c, CompareRow *row) {
  Recipe recipe = {0};
  Search search = {0};
  Error error = {0};
  SearchOptions options = {.cluster = c->options->cluster, .ranks = c->out->size.ranks, .top = 1};
  char *open = open_keys();
  int code = load_after(c, open, "", &recipe, &error);
  if (!code) code = search_plans(&recipe, &c->config, &options, &search, &error);
  if (code) say_why(error.message, c->options->path, row);
  else if ((size_t)snprintf(row->settings, sizeof row->settings, "%s", search.plan[0].keys) >= sizeof row->settings)
    snprintf(row->why, sizeof row->why, "its settings are too long for the table"), code = PLAIT_FAILED;
  free(open);
  search_free(&search);
  recipe_free(&recipe);
  return !code;
}

static void compare_row(Comparing *c, Strategy strategy) {
  CompareRow *row = &c->out->row[strategy];
  const char *lacks = need_lacks(traits[strategy].need, &c->out->size);
  Recipe recipe;
  Error ignored = {0};
  snprintf(row->why, sizeof row->why, "%s", lacks);
  if (*lacks || (strategy == STRATEGY_SEARCH && !c->options->search)) return;
  if (strategy == STRATEGY_SEARCH) {
    if (!search_settings(c, row)) return;
  } else if (strstr(traits[strategy].settings, "{depth}")) choose_depth(c, strategy);
  else expand(traits[strategy].settings, &c->out->size, NULL, row->settings, sizeof row->settings);
  if (!fill_row(c, row) || !c->options->changes || load(c, row->settings, &recipe, &ignored)) return;
  find_change(c, &recipe, row);
  recipe_free(&recipe);
}

int compare(const CompareOptions *options, Comparison *out, Error *error) {
  Recipe recipe = {0};
  Comparing c = {.options = options, .out = out};
  *out = (Comparison){.cluster = options->cluster};
  int code = recipe_load(options->path, options->override_count, options->overrides, &recipe, error);
  if (!code) code = setup_model_config(&recipe, &c.config, error);
  int ranks = options->ranks ? options->ranks : code ? 1 : recipe_rank_count(&recipe);
  if (!code) code = cluster_check_ranks(options->cluster, ranks, error);
  if (!code && !recipe.precision_is_auto) code = cluster_check_dtype(options->cluster, (Dtype)recipe.precision, error);
  if (!code) {
    out->size = sizes_of(ranks, c.config.layers, options->cluster);
    out->parameters = (double)model_config_parameters(&c.config);
    c.space.config = &c.config;
    step_model_of(&c.config, &c.space.model);
    extension_create(&c.space, options->cluster, &c.extension);
    for (int i = 0; i < STRATEGIES; i++) compare_row(&c, (Strategy)i);
    extension_free(&c.extension);
  }
  model_config_free(&c.config);
  recipe_free(&recipe);
  return code;
}

int comparison_has(const Comparison *c, Strategy strategy) {
  return !*c->row[strategy].why && c->row[strategy].number.step > 0;
}

int comparison_best(const Comparison *c) {
  int best = -1;
  for (int i = 0; i < STRATEGIES; i++) {
    const CompareRow *row = &c->row[i];
    if (i == STRATEGY_ONE && c->size.ranks > 1) continue;
    if (!comparison_has(c, (Strategy)i) || !row->number.fits) continue;
    if (best < 0 || row->number.step < c->row[best].number.step) best = i;
  }
  return best;
}
