// The public interface for recipes (include/plait/plait.h) over the training loop.
#include "plait/plait.h"
#include "train/train.h"
#include "train/plan_print.h"
#include "machine/cluster.h"
#include "setup/setup.h"
#include "foresight/search.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *plait_version(void) { return PLAIT_VERSION; }

// Uses a recipe that was loaded. Prints to `out`.
typedef int (*Use)(const Recipe *recipe, FILE *out, Error *error);

static int plan(const Recipe *recipe, FILE *out, Error *error) { return plan_print(recipe, false, out, error); }

static int print(const Recipe *recipe, FILE *out, Error *error) { return recipe_print(recipe, out), PLAIT_OK; }

static int use_recipe(Use use, const char *path, int count, const char *const *overrides, FILE *out, Error *error) {
  FILE *nowhere = out ? NULL : fopen("/dev/null", "we");
  if (!out && !nowhere) return error_set(error, PLAIT_FAILED, "/dev/null: cannot be opened: %s", strerror(errno));
  Error unread = {0};
  if (!error) error = &unread;
  Recipe recipe;
  int code = recipe_load(path, count, (char **)overrides, &recipe, error); // reads them only
  if (!code) code = use(&recipe, out ? out : nowhere, error);
  recipe_free(&recipe);
  if (nowhere) fclose(nowhere);
  return code;
}

int plait_train(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(train_run, recipe, override_count, overrides, out, error);
}

int plait_plan(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(plan, recipe, override_count, overrides, out, error);
}

int plait_recipe(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(print, recipe, override_count, overrides, out, error);
}

// Plans ---------------------------------------------------------------------------------------------------------------

// A recipe, its model and its cluster.
typedef struct Asked { Recipe recipe; ModelConfig config; Cluster *cluster; } Asked;

static int ask(const char *path, int count, const char *const *overrides, const char *cluster, Asked *a, Error *error) {
  *a = (Asked){.cluster = NULL};
  int code = recipe_load(path, count, (char **)overrides, &a->recipe, error); // reads them only
  if (!code) code = predict_cluster(&a->recipe, cluster, &a->cluster, error);
  return code ? code : setup_model_config(&a->recipe, &a->config, error);
}

static void asked_free(Asked *a) {
  model_config_free(&a->config);
  cluster_free(a->cluster);
  recipe_free(&a->recipe);
}

int plait_predict(const char *recipe, int override_count, const char *const *overrides, const char *cluster,
                  PlaitPlan *plan, PlaitError *error) {
  Asked a;
  Error unread = {0};
  if (!error) error = &unread;
  Prediction p = {.job = NULL};
  int code = ask(recipe, override_count, overrides, cluster, &a, error);
  SimulateOptions options = {.cluster = a.cluster};
  if (!code) code = predict(&a.recipe, &a.config, &options, &p, error);
  if (!code) *plan = (PlaitPlan){p.simulation->step, p.tokens_per_s, p.mfu, p.bytes, p.room, ""};
  prediction_free(&p);
  asked_free(&a);
  return code;
}

int plait_search(const char *recipe, int override_count, const char *const *overrides, const char *cluster, int ranks,
                 int most, PlaitPlan *plans, int *count, PlaitError *error) {
  Asked a;
  Error unread = {0};
  if (!error) error = &unread;
  Search s = {0};
  *count = 0;
  if (ranks < 1 || most < 1)
    return error_set(error, PLAIT_BAD_INPUT, "plait_search: ranks is %d and most is %d; both must be at least 1", ranks,
                     most);
  int code = ask(recipe, override_count, overrides, cluster, &a, error);
  SearchOptions options = {.cluster = a.cluster, .ranks = ranks, .top = most};
  if (!code) code = search_plans(&a.recipe, &a.config, &options, &s, error);
  for (int i = 0; !code && i < s.plans; i++) {
    const SearchPlan *p = &s.plan[i];
    plans[i] = (PlaitPlan){p->seconds, p->tokens_per_s, p->mfu, p->bytes, s.room, ""};
    snprintf(plans[i].settings, sizeof plans[i].settings, "%s", p->keys);
    *count = i + 1;
  }
  search_free(&s);
  asked_free(&a);
  return code;
}
