// plait simulate: how long a step of a recipe takes on a cluster, and where the time goes.
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/simulate_timeline.h"
#include "recipe/setup.h"
#include "train/against.h"
#include "train/predict.h"
#include <limits.h>

typedef struct Asked {
  const char *cluster, *change, *timeline, *against;
  int64_t top;
  bool constants, limits, json;
} Asked;

// "tile.k0=1.1x" changes a constant of the models, anything else the cluster.
static int change(Cluster *cluster, Constants *constants, const char *what, Error *error) {
  char name[64] = "";
  double factor = 0;
  int end = 0;
  sscanf(what, "%63[^=]=%lfx%n", name, &factor, &end);
  if (constant_by_name(name) < 0) return cluster_change(cluster, what, error);
  if (!end || what[end] || !(factor > 0 && factor < 1e6))
    return error_set(error, PLAIT_BAD_INPUT, "--what-if %s: %s is a constant; give a factor above 0, as in %s=1.1x",
                     what, name, name);
  constants_scale(constants, name, factor);
  cluster->constants = constants;
  return PLAIT_OK;
}

static void print_limits(const Prediction *p, const Cluster *cluster) {
  Limit limit[LIMITS_MOST];
  int n = predict_limits(p, cluster, limit);
  printf("\nwhat a tenth more of each resource would save%s\n",
         cluster->measured.count ? " (links that were measured stay as they are)" : "");
  for (int i = 0; i < n; i++)
    if (limit[i].gain > 0.0005) printf("  %-44s %5.1f %%\n", limit[i].resource, 100 * limit[i].gain);
}

// Both may look.
typedef struct Looking { SimulatedTimeline *timeline; Against *against; } Looking;

static void look(void *context, int coordinate, const char *name, const Action *action, double begin, double end,
                 int in_flight) {
  Looking *l = context;
  if (l->timeline) simulated_timeline_see(l->timeline, coordinate, name, action, begin, end, in_flight);
  if (l->against) against_see(l->against, coordinate, name, action, begin, end, in_flight);
}

static int run(const Asked *asked, const Recipe *recipe, Cluster *cluster, Constants *constants, Error *error) {
  ModelConfig config = {0};
  Prediction prediction = {.job = NULL};
  SimulatedTimeline timeline = {.path = asked->timeline};
  Against against = {.path = NULL};
  int measured = cluster->measured.count, code = PLAIT_OK;
  if (asked->json && (asked->limits || asked->against))
    code = error_set(error, PLAIT_BAD_INPUT, "--json has no %s yet; leave one of both out",
                     asked->limits ? "--limits" : "--against");
  if (!code && asked->change) code = change(cluster, constants, asked->change, error);
  if (!code && measured && !cluster->measured.count)
    fprintf(stderr, "note: with %s the cluster's %d measurements of collectives no longer count; formulas do\n",
            asked->change, measured);
  if (!code && asked->timeline) code = simulated_timeline_begin(&timeline, error);
  if (!code && asked->against) code = against_read(asked->against, &against, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  SimulateOptions options = {.cluster = cluster, .critical = (int)asked->top};
  Looking looking = {asked->timeline ? &timeline : NULL, asked->against ? &against : NULL};
  if (asked->timeline || asked->against) options.see = look, options.context = &looking;
  if (!code) code = predict(recipe, &config, &options, &prediction, error);
  if (!code && asked->against) code = against_check(&against, &prediction, error);
  if (!code && asked->json) code = prediction_json(&prediction, cluster, stdout, error);
  else if (!code) prediction_print(&prediction, cluster, stdout);
  if (!code && asked->limits) print_limits(&prediction, cluster);
  if (!code && asked->timeline) code = simulated_timeline_end(&timeline, &prediction, error);
  if (!code && asked->against) against_print(&against, &prediction, stdout);
  against_free(&against);
  simulated_timeline_free(&timeline);
  prediction_free(&prediction);
  model_config_free(&config);
  return code;
}

int cmd_simulate(int argc, char **argv) {
  Asked asked = {.top = 10};
  const Option options[] = {
      {"cluster", OPTION_TEXT, &asked.cluster, "NAME", "a shipped cluster (plait cluster lists them), or a file",
       .shown = "run.cluster"},
      {"what-if", OPTION_TEXT, &asked.change, "KEY=VALUE",
       "with another value of the cluster (nvlink.bandwidth=2x, device.memory=40e9) or a constant times a factor "
       "(tile.k0=1.1x)"},
      {"timeline", OPTION_TEXT, &asked.timeline, "FILE",
       "write what runs when: a picture (.svg), or a trace (.json) as run.trace writes it"},
      {"against", OPTION_TEXT, &asked.against, "TRACE",
       "print the simulated step beside a measured one, op by op: a trace that run.trace of the same recipe wrote"},
      {"top", OPTION_INTEGER, &asked.top, "N", "instructions of the critical path to print", .least = 0, .most = 1000},
      {.name = "limits",
       .kind = OPTION_FLAG,
       .value = &asked.limits,
       .help = "simulate again with each resource a tenth better, and print what that saves"},
      {.name = "json", .kind = OPTION_FLAG, .value = &asked.json, .help = "print the prediction as JSON"},
      {.name = "constants",
       .kind = OPTION_FLAG,
       .value = &asked.constants,
       .help = "print the constants of the models with their sources, and nothing else"}};
  const CommandHelp help = {
      "simulate", "[options] RECIPE [key=value …]",
      "Predicts how long a training step of the recipe takes on a cluster that need not be there: the Programs that a "
      "run "
      "would execute are compiled, and walked along with the times of kernels and links in place of the kernels.\n"
      "docs/foresight.md explains the models, their constants, what they leave out, and how far they were off.",
      "  plait simulate recipes/mt-nlg-530b.yaml --cluster dgx-a100-superpod\n"
      "  plait simulate recipes/demo.yaml --cluster h200-node mesh.dp=8 --limits\n"
      "  plait simulate recipes/demo.yaml --cluster pcie-10g mesh.dp=16 --what-if ethernet.bandwidth=10x\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  if (asked.constants) return constants_print(NULL, stdout), 0;
  Error error = {0};
  Recipe recipe = {0};
  Cluster *cluster = NULL;
  Constants constants = constants_default();
  int code = PLAIT_OK;
  if (!operands.count)
    code =
        error_set(&error, PLAIT_BAD_INPUT, "give a recipe, as in plait simulate recipes/demo.yaml --cluster h200-node");
  if (!code) code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = predict_cluster(&recipe, asked.cluster, &cluster, &error);
  if (!code) code = run(&asked, &recipe, cluster, &constants, &error);
  if (!code && recipe.notes) fputs(recipe.notes, stderr);
  cluster_free(cluster);
  recipe_free(&recipe);
  return code ? command_fail("simulate", &error) : 0;
}
