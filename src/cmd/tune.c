// plait tune: runs the best plans of a search on this machine, and says which is the fastest.
#include "train/tune.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cmd/plan_search.h"
#include "comm/launcher.h"
#include "recipe/recipe_device.h"
#include "setup/setup.h"
#include "foresight/search.h"
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Asked {
  const char *cluster, *write;
  int64_t top, steps, ranks;
  bool json;
} Asked;

typedef struct Tune {
  const Asked *asked;
  const Recipe *recipe;
  const Search *search;
  const char *folder; // a temporary one
  FILE *progress;     // stderr where stdout is JSON
  int ranks, runs;    // runs so far
  TunePlan *plans;    // (search->plans)
} Tune;

// Checks before anything is searched ----------------------------------------------------------------------------------

static int check(const Recipe *r, Error *error) {
  Launcher launcher = launcher_find();
  if (launcher.tasks > 1)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "plait tune runs ranks as threads of one process, but it was started as one of %d tasks (%s); start it alone",
        launcher.tasks, launcher.variable);
  if (recipe_has_processes(r))
    return error_set(error, PLAIT_BAD_INPUT,
                     "%srun.comm is %s, but ranks are threads of one process here; add run.comm=local",
                     recipe_where(r, "run.comm"), r->run.comm == RECIPE_COMM_MPI ? "mpi" : "net");
  return recipe_check_runs(r, error);
}

// Those of the recipe's mesh; else those of the cluster, of which this machine should have a core for each.
static int ranks_of(const Asked *asked, const Recipe *r, const Cluster *c) {
  int64_t devices = cluster_devices(c), cores = cores_available();
  if (asked->ranks) return (int)asked->ranks;
  if (recipe_rank_count(r) > 1) return recipe_rank_count(r);
  return (int)(devices < cores ? devices : cores);
}

// Measuring -----------------------------------------------------------------------------------------------------------

static double off(const Tune *t, const TunePlan *p) { return t->search->plan[p->plan].seconds / p->seconds - 1; }

static int measure(void *context, int plan, int steps, double *seconds, Error *error) {
  Tune *t = context;
  const SearchPlan *p = &t->search->plan[plan];
  char *folder = xformat("%s/%d", t->folder, t->runs++);
  fprintf(t->progress, "plan %d, %d steps: %s\n", plan + 1, steps, *p->keys ? p->keys : "the recipe as it is");
  fflush(t->progress);
  Recipe planned = {0};
  Error ignored = {0};
  int code = recipe_variant(t->recipe, p->keys, &planned, error);
  if (!code) code = tune_run(&planned, steps, folder, seconds, error);
  recipe_free(&planned);
  folder_remove(folder, &ignored);
  if (!code) fprintf(t->progress, "  %s a step\n", units_seconds(*seconds).s);
  else if (code != PLAIT_INTERRUPTED) fprintf(t->progress, "  cannot be run: %s\n", error->message);
  free(folder);
  return code;
}

// Results -------------------------------------------------------------------------------------------------------------

static void print_plan(const Tune *t, const TunePlan *p, int at) {
  const SearchPlan *plan = &t->search->plan[p->plan];
  const char *shown = *plan->keys ? plan->keys : "the recipe as it is";
  UnitText predicted = units_seconds(plan->seconds);
  if (p->failed)
    printf("%4s %10s %10s %9s %6s  %s\n       cannot be run: %s\n", "-", "-", predicted.s, "-", "-", shown,
           p->why.message);
  else if (!p->seconds) printf("%4s %10s %10s %9s %6s  %s\n", "-", "-", predicted.s, "-", "-", shown);
  else
    printf("%4d %10s %10s %+7.1f %% %6d  %s\n", at, units_seconds(p->seconds).s, predicted.s, 100 * off(t, p),
           p->steps - 1, shown);
}

static void print_table(const Tune *t, int code) {
  if (code == PLAIT_INTERRUPTED) printf("\ninterrupted; what was measured so far:\n");
  printf("\n%4s %10s %10s %9s %6s  %s\n", "", "measured", "predicted", "error", "steps",
         "what differs from the recipe");
  for (int i = 0; i < t->search->plans; i++) print_plan(t, &t->plans[i], i + 1);
}

static json_t *table_json(const Tune *t, int code) {
  json_t *list = json_array();
  for (int i = 0; i < t->search->plans; i++) {
    const TunePlan *p = &t->plans[i];
    const SearchPlan *plan = &t->search->plan[p->plan];
    bool known = p->seconds > 0;
    json_array_append_new(list, json_pack("{s:o, s:f, s:o, s:i, s:o, s:o}", "measured_seconds",
                                          known ? json_real(p->seconds) : json_null(), "predicted_seconds",
                                          plan->seconds, "error", known ? json_real(off(t, p)) : json_null(),
                                          "measured_steps", known ? p->steps - 1 : 0, "failed",
                                          p->failed ? json_string(p->why.message) : json_null(), "settings",
                                          plan_settings_json(t->recipe, plan->keys)));
  }
  return json_pack("{s:i, s:b, s:o}", "ranks", t->ranks, "interrupted", code == PLAIT_INTERRUPTED, "plans", list);
}

static void tell(const Tune *t, int code) {
  if (!t->asked->json) {
    print_table(t, code);
    return;
  }
  json_t *json = table_json(t, code);
  json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
  putchar('\n');
  json_decref(json);
}

static int write_best(const Tune *t, Error *error) {
  char *keys = xformat("plan=fixed %s", t->search->plan[t->plans[0].plan].keys);
  int code = plan_write(t->recipe, keys, "tune", t->asked->write, error);
  free(keys);
  return code;
}

// -------------------------------------------------------------------------------------------------------------------

static int halve(Tune *t, Error *error) {
  int code = tune_halve(t->plans, t->search->plans, (int)t->asked->steps, measure, t);
  const TunePlan *best = &t->plans[0];
  tell(t, code);
  if (code) {
    if (t->asked->write) fprintf(stderr, "note: %s was not written, since not all was measured\n", t->asked->write);
    return error_set(error, code, "interrupted");
  }
  if (best->failed)
    return error_set(error, best->why.code, "none of the %d plans can be run; the first: %s", t->search->plans,
                     best->why.message);
  return t->asked->write ? write_best(t, error) : PLAIT_OK;
}

static int in_folder(Tune *t, Error *error) {
  const char *where = getenv("TMPDIR");
  char *folder = xformat("%s/plait-tune-XXXXXX", where && *where ? where : "/tmp");
  Error ignored = {0};
  int code = PLAIT_OK;
  if (!mkdtemp(folder))
    code = error_set(error, PLAIT_FAILED, "%s: no temporary folder can be made there: %s", folder, strerror(errno));
  t->folder = folder;
  t->plans = xcalloc((size_t)t->search->plans, sizeof *t->plans);
  if (!code) code = halve(t, error);
  if (t->runs) folder_remove(folder, &ignored);
  free(t->plans);
  free(folder);
  return code;
}

static int tune(const Asked *asked, const Recipe *given, Error *error) {
  Recipe named = {0}, *recipe = &named;
  Cluster *cluster = NULL;
  ModelConfig config = {0};
  Search search = {0};
  Tune t = {.asked = asked, .recipe = recipe, .search = &search, .progress = asked->json ? stderr : stdout};
  int code = predict_name_cluster(given, asked->cluster, &named, error);
  if (!code) code = check(recipe, error);
  if (!code) code = predict_cluster(recipe, asked->cluster, &cluster, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  if (!code) code = setup_check_data(recipe, &config, NULL, NULL, error);
  if (!code) t.ranks = ranks_of(asked, recipe, cluster);
  SearchOptions options = {.cluster = cluster, .ranks = t.ranks, .top = (int)asked->top, .progress = stderr};
  if (!code) code = search_plans(recipe, &config, &options, &search, error);
  if (!code) {
    fprintf(t.progress, "%d ranks, threads of one process on %d cores: the best %d of %lld plans by the times of %s\n",
            t.ranks, cores_available(), search.plans, (long long)search.count.plans, cluster->name);
    char *left = search_left(&search.count);
    if (left) fprintf(t.progress, "%s\n", left);
    free(left);
    signals_install("ending with what was measured so far; a second Ctrl-C ends at once");
    code = in_folder(&t, error);
  }
  search_free(&search);
  model_config_free(&config);
  cluster_free(cluster);
  recipe_free(&named);
  return code;
}

int cmd_tune(int argc, char **argv) {
  Asked asked = {.top = 5, .steps = 20};
  const Option options[] = {
      {"top", OPTION_INTEGER, &asked.top, "K", "how many of the best plans of the search are run", .least = 1,
       .most = 100},
      {"steps", OPTION_INTEGER, &asked.steps, "N",
       "steps of the last round, of which the first is not counted; each round before it has half as many",
       .least = 2, .most = 1000000},
      {"cluster", OPTION_TEXT, &asked.cluster, "NAME",
       "what the search predicts by: a shipped cluster (plait cluster lists them), or a file", .shown = "run.cluster"},
      {"ranks", OPTION_INTEGER, &asked.ranks, "N", "how many ranks", .least = 1, .most = RECIPE_LOCAL_RANKS,
       .shown = "the recipe's mesh, else one for each core that the cluster has a device for"},
      {"write", OPTION_TEXT, &asked.write, "FILE", "write the recipe with the keys of the fastest plan"},
      {.name = "json", .kind = OPTION_FLAG, .value = &asked.json,
       .help = "print JSON; what is being measured goes to stderr"}};
  const CommandHelp help = {
      "tune", "[options] RECIPE [key=value …]",
      "Searches for the fastest plans as plait plan --search does, runs them on this machine with the recipe's corpus, "
      "and prints predicted beside measured seconds of a step. The slower half drops out after each round, and the "
      "rest "
      "is measured with twice as many steps; the median counts.\n"
      "Each run is a process of its own, whose ranks are its threads (not under mpirun), without checkpoints and "
      "evaluations, in a temporary folder: run.dir is left alone. A plan that cannot be run is noted, and the others "
      "go "
      "on. Ctrl-C prints the best so far.",
      "  plait tune recipes/demo.yaml --cluster h200-node mesh=null batch.micro=null\n"
      "  plait tune recipes/demo.yaml --cluster h200-node --ranks 2 --top 3 mesh=null --write best.yaml\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  setvbuf(stdout, NULL, _IOLBF, 0); // to a pipe, too, each line comes when it is true
  Error error = {0};
  Recipe recipe = {0};
  int code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = tune(&asked, &recipe, &error);
  recipe_free(&recipe);
  if (code == PLAIT_INTERRUPTED) return signals_exit_status();
  return code ? command_fail("tune", &error) : 0;
}
