// plan: auto: the fastest plan takes the place of the keys that are open.
#include "foresight/auto_plan.h"
#include "base/fault.h"
#include "base/units.h"
#include "machine/cluster.h"
#include "recipe/recipe_device.h"
#include "setup/setup.h"
#include "foresight/search.h"
#include <math.h>
#include <stdlib.h>

static void say(const Recipe *recipe, const Search *s, const Cluster *cluster, int ranks, FILE *out) {
  const SearchPlan *p = &s->plan[0];
  const char *keys = p->keys;
  fprintf(out, "plan: auto chose %s, of %lld plans for %d ranks of %s the one with the shortest step: %s, %s of %s",
          *keys ? keys : "the recipe as it is", (long long)s->count.plans, ranks, cluster->name,
          units_duration(p->seconds).s, units_bytes(p->bytes).s, units_bytes(s->room).s);
  if (p->limit.resource[0]) fprintf(out, "; what limits it first is %s", p->limit.resource);
  if (s->plans > 1)
    fprintf(out, "; the next takes %.1f %% longer", 100 * (s->plan[1].seconds / p->seconds - 1));
  char *left = search_left(&s->count);
  fprintf(out, "%s%s\n", left ? "; " : "", left ? left : "");
  free(left);
}

// *keys: of the plan; the caller frees it.
static int search(const Recipe *recipe, int ranks, FILE *out, char **keys, Error *error) {
  Cluster *cluster = NULL;
  ModelConfig config = {0};
  Search search = {0};
  int code = predict_cluster(recipe, NULL, &cluster, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  if (!ranks && recipe_rank_count(recipe) > 1) ranks = recipe_rank_count(recipe);
  if (!code && !ranks) ranks = (int)cluster_devices(cluster);
  SearchOptions options = {
      .cluster = cluster, .ranks = ranks, .top = 2, .limits = true, .progress = out ? stderr : NULL};
  if (!code) code = search_plans(recipe, &config, &options, &search, error);
  if (!code) {
    if (out) say(recipe, &search, cluster, ranks, out);
    *keys = xstrdup(search.plan[0].keys);
  }
  search_free(&search);
  model_config_free(&config);
  cluster_free(cluster);
  return code;
}

// Rank 0 alone: machines may differ in their measurements and files, and processes that measure together disturb each
// other.
int auto_plan(const Recipe *recipe, const Launch *launch, FILE *out, Recipe *planned, Error *error) {
  if (recipe->plan != RECIPE_PLAN_AUTO) return recipe_variant(recipe, "", planned, error);
  bool first = FAULT(auto_plan_of_every_rank, !launch->rank, true);
  char *keys = NULL;
  int code = recipe_check_runs(recipe, error); // before a search that may be long
  if (!code && first) code = search(recipe, launch->world ? launch->ranks : 0, launch->rank ? NULL : out, &keys, error);
  code = launch_agree(launch, code, error);
  if (!code && FAULT(auto_plan_of_every_rank, 1, 0)) code = launch_tell(launch, &keys, error);
  char *all = xformat("plan=fixed %s", keys ? keys : "");
  if (!code) code = launch_agree(launch, recipe_variant(recipe, all, planned, error), error);
  free(all);
  free(keys);
  return code;
}

void auto_plan_note(const Recipe *recipe, FILE *out) {
  if (recipe->plan != RECIPE_PLAN_AUTO) return;
  fputs("note: the recipe says plan: auto, so plait train searches for another plan before it starts; this one has the "
        "recipe's keys as they are. plait plan RECIPE --search --write FILE finds the one that would run\n", out);
}
