// plait plan --search: the fastest plans of a recipe on a cluster, as a table or as JSON.
#include "cmd/plan_search.h"
#include "base/file.h"
#include "base/units.h"
#include "machine/cluster.h"
#include "setup/setup.h"
#include "foresight/search.h"
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Ranks { int from, to; } Ranks;

// "64", "64:512"; not given: the mesh of the recipe where it has more than one rank, else the whole cluster.
static int read_ranks(const char *text, const Recipe *r, const Cluster *c, Ranks *out, Error *error) {
  int64_t devices = cluster_devices(c);
  *out = (Ranks){recipe_rank_count(r), recipe_rank_count(r)};
  if (!text) {
    if (out->from == 1) *out = (Ranks){(int)devices, (int)devices};
    return PLAIT_OK;
  }
  char end = 0;
  int n = sscanf(text, "%9d:%9d%c", &out->from, &out->to, &end);
  if (n == 1 && !strchr(text, ':') && strspn(text, "0123456789") == strlen(text)) out->to = out->from;
  else if (n != 2 || end) out->from = 0;
  if (out->from >= 1 && out->to >= out->from) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--ranks %s: give a number of ranks, as in 64, or a range, as in 64:512; the cluster has %lld",
                   text, (long long)devices);
}

// "76GB", "76e9", "500 MB"
static int read_memory(const char *text, double *bytes, Error *error) {
  static const struct { const char *name; double factor; } units[] = {
      {"", 1}, {"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"GiB", 1073741824.0}};
  char *end = NULL;
  *bytes = 0;
  if (!text) return PLAIT_OK;
  double value = strtod(text, &end);
  end += strspn(end, " ");
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end > text && !strcmp(end, units[i].name) && isfinite(value) && value * units[i].factor >= 1e3)
      return *bytes = value * units[i].factor, PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--memory %s: give a size of at least 1 kB, in B, kB, MB, GB, TB or GiB, as in 76GB", text);
}

// Text ----------------------------------------------------------------------------------------------------------------

static void print_count(const SearchCount *c) {
  printf("%lld plans, of %lld combinations; %lld are too large, %lld were bounded by times of layers, %lld estimated, "
         "%lld compiled whole; %.3g s of processor time, %s plans a second\n",
         (long long)c->plans, (long long)c->judged, (long long)c->too_large, (long long)c->bounded,
         (long long)c->estimated, (long long)c->compiled, c->seconds,
         units_count((double)c->plans / fmax(c->seconds, 1e-3)).s);
  char *left = search_left(c);
  if (left) printf("%s\n", left);
  free(left);
}

static void print_plan(const SearchPlan *p, int at, double room) {
  char mfu[32] = "-";
  if (isfinite(p->mfu)) snprintf(mfu, sizeof mfu, "%.1f %%", 100 * p->mfu);
  printf("%4d %10s %9s %7s %10s %5.0f %%  %-28s %s\n", at, units_seconds(p->seconds).s,
         units_count(p->tokens_per_s).s, mfu, units_bytes(p->bytes).s, 100 * p->bytes / room,
         p->limit.resource[0] ? p->limit.resource : "-", *p->keys ? p->keys : "the recipe as it is");
}

static void print_search(const Cluster *cluster, const Search *s, int ranks) {
  printf("%d ranks of %s (%s), %s of memory each\n", ranks, cluster->device.name, cluster->name,
         units_bytes(s->room).s);
  print_count(&s->count);
  printf("\n%4s %10s %9s %7s %10s %7s  %-28s %s\n", "", "a step", "tokens/s", "MFU", "memory", "of it",
         "limited first by", "what differs from the recipe");
  for (int i = 0; i < s->plans; i++) print_plan(&s->plan[i], i + 1, s->room);
}

// JSON ----------------------------------------------------------------------------------------------------------------

json_t *plan_settings_json(const Recipe *recipe, const char *keys) {
  json_t *settings = json_object();
  Recipe plan = {0};
  Error ignored = {0};
  for (int i = 0, code = recipe_variant(recipe, keys, &plan, &ignored); i < recipe_key_count && !code; i++) {
    if (recipe_value_equal(&recipe_keys[i], recipe, &plan)) continue;
    char *value = recipe_value_text(&plan, recipe_keys[i].path);
    json_object_set_new(settings, recipe_keys[i].path, json_string(value));
    free(value);
  }
  recipe_free(&plan);
  return settings;
}

static json_t *plan_json(const Recipe *recipe, const SearchPlan *p) {
  json_t *settings = plan_settings_json(recipe, p->keys);
  return json_pack("{s:f, s:f, s:o, s:f, s:s, s:f, s:o}", "step_seconds", p->seconds, "tokens_per_second",
                   p->tokens_per_s, "mfu", isfinite(p->mfu) ? json_real(p->mfu) : json_null(), "memory_bytes", p->bytes,
                   "limit", p->limit.resource, "limit_gain", p->limit.gain, "settings", settings);
}

static json_t *search_json(const Recipe *recipe, const Search *s, int ranks) {
  json_t *plans = json_array();
  const SearchCount *c = &s->count;
  for (int i = 0; i < s->plans; i++) json_array_append_new(plans, plan_json(recipe, &s->plan[i]));
  return json_pack("{s:i, s:f, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}, s:o}", "ranks", ranks, "room_bytes", s->room,
                   "search", "judged", (json_int_t)c->judged, "plans", (json_int_t)c->plans, "too_large",
                   (json_int_t)c->too_large, "bounded", (json_int_t)c->bounded, "estimated", (json_int_t)c->estimated,
                   "compiled", (json_int_t)c->compiled, "not_looked_at", (json_int_t)c->left, "processor_seconds",
                   c->seconds, "plans", plans);
}

static void print_json(json_t *json) {
  json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
  putchar('\n');
  json_decref(json);
}

// Runs ----------------------------------------------------------------------------------------------------------------

int plan_write(const Recipe *recipe, const char *keys, const char *by, const char *path, Error *error) {
  AtomicFile file;
  Recipe plan = {0};
  int code = recipe_variant(recipe, keys, &plan, error);
  if (!code) code = file_begin(&file, path, error);
  if (code) return recipe_free(&plan), code;
  fprintf(file.stream,
          "# Written by plait %s: the recipe with the keys of the fastest plan, every default filled in, all paths\n"
          "# absolute.\n", by);
  recipe_print(&plan, file.stream);
  recipe_free(&plan);
  return file_commit(&file, error);
}

static int search_once(const Recipe *recipe, const ModelConfig *config, const Cluster *cluster,
                       const SearchAsked *asked, double room, int ranks, Error *error) {
  SearchOptions options = {cluster, ranks, (int)asked->top, room, asked->exhaustive, true, stderr};
  Search search;
  int code = search_plans(recipe, config, &options, &search, error);
  if (!code && asked->json) print_json(search_json(recipe, &search, ranks));
  else if (!code) print_search(cluster, &search, ranks);
  if (!code && asked->write) code = plan_write(recipe, search.plan[0].keys, "plan --search", asked->write, error);
  search_free(&search);
  return code;
}

enum { MOST_FRONT = 32 };
typedef struct Front {
  int ranks;
  int64_t steps;
  SearchPlan plan;
} Front; // steps of the run; owns the keys of its plan

static double device_hours(const Front *f) { return f->plan.seconds * (double)f->steps * f->ranks / 3600; }

static int by_time(const void *a, const void *b) {
  const Front *x = a, *y = b;
  return (x->plan.seconds > y->plan.seconds) - (x->plan.seconds < y->plan.seconds);
}

// Moves plans than which no other one is both faster and cheaper to the beginning, sorted by time. Returns how many.
static int front_of(Front *front, int n) {
  int kept = 0;
  double least = INFINITY;
  qsort(front, (size_t)n, sizeof *front, by_time);
  for (int i = 0; i < n; i++)
    if (device_hours(&front[i]) < least) {
      Front better = front[i];
      least = device_hours(&better);
      front[i] = front[kept];
      front[kept++] = better;
    }
  return kept;
}

static void print_front(const Recipe *recipe, const Front *front, int n) {
  printf("the fastest plans that no other plan beats in time and in device-hours\n\n%6s %10s %12s %14s  %s\n", "ranks",
         "a step", "the run", "device-hours", "what differs from the recipe");
  for (int i = 0; i < n; i++) {
    printf("%6d %10s %12s %14.4g  %s\n", front[i].ranks, units_seconds(front[i].plan.seconds).s,
           units_duration(front[i].plan.seconds * (double)recipe->schedule.steps).s, device_hours(&front[i]),
           front[i].plan.keys);
  }
}

static json_t *front_json(const Recipe *recipe, const Front *front, int n) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++) {
    json_t *plan = plan_json(recipe, &front[i].plan);
    json_object_set_new(plan, "ranks", json_integer(front[i].ranks));
    json_object_set_new(plan, "device_hours", json_real(device_hours(&front[i])));
    json_array_append_new(list, plan);
  }
  return json_pack("{s:o}", "front", list);
}

// from, twice as many, …, to. Returns how many ranks have a plan, or an error.
static int find_front(const Recipe *recipe, const ModelConfig *config, const Cluster *cluster, const SearchAsked *asked,
                      double room, Ranks ranks, Front *front, Error *error) {
  int n = 0;
  for (int r = ranks.from; n < MOST_FRONT; r = r * 2 > ranks.to ? ranks.to : r * 2) {
    SearchOptions options = {cluster, r, 1, room, asked->exhaustive, false, stderr};
    Search search;
    Error why = {0};
    int code = search_plans(recipe, config, &options, &search, &why);
    char *left = search_left(&search.count);
    if (left) fprintf(stderr, "note: %d ranks: %s\n", r, left);
    free(left);
    if (!code) {
      front[n] = (Front){r, recipe->schedule.steps, search.plan[0]};
      front[n++].plan.keys = xstrdup(search.plan[0].keys);
    }
    search_free(&search);
    if (code && (code != PLAIT_INFEASIBLE || (r == ranks.to && !n))) return *error = why, code;
    if (r == ranks.to) break;
  }
  return n;
}

static int search_front(const Recipe *recipe, const ModelConfig *config, const Cluster *cluster,
                        const SearchAsked *asked, double room, Ranks ranks, Error *error) {
  Front front[MOST_FRONT] = {{.ranks = 0}};
  int n = find_front(recipe, config, cluster, asked, room, ranks, front, error), code = n < 0 ? n : PLAIT_OK;
  if (!code) n = front_of(front, n);
  if (!code && asked->json) print_json(front_json(recipe, front, n));
  else if (!code) print_front(recipe, front, n);
  if (!code && asked->write) code = plan_write(recipe, front[0].plan.keys, "plan --search", asked->write, error);
  for (int i = 0; i < MOST_FRONT; i++) free(front[i].plan.keys);
  return code;
}

int plan_search(const Recipe *given, const SearchAsked *asked, Error *error) {
  Recipe named = {0}, *recipe = &named;
  Cluster *cluster = NULL;
  ModelConfig config = {0};
  Ranks ranks;
  double room = 0;
  int code = predict_name_cluster(given, asked->cluster, &named, error);
  if (!code) code = predict_cluster(recipe, asked->cluster, &cluster, error);
  if (!code && asked->write && file_check_writable(asked->write, error)) code = error_prefix(error, "--write");
  if (!code) code = read_ranks(asked->ranks, recipe, cluster, &ranks, error);
  if (!code) code = read_memory(asked->memory, &room, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  if (!code)
    code = ranks.from == ranks.to ? search_once(recipe, &config, cluster, asked, room, ranks.from, error)
                                  : search_front(recipe, &config, cluster, asked, room, ranks, error);
  model_config_free(&config);
  cluster_free(cluster);
  recipe_free(&named);
  return code;
}
