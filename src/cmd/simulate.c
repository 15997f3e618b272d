// plait simulate: how long a step of a recipe takes on a cluster, and where the time goes.
#include "base/nearest.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cmd/simulate_timeline.h"
#include "setup/setup.h"
#include "foresight/against.h"
#include "foresight/auto_plan.h"
#include "foresight/predict.h"
#include <jansson.h>
#include <limits.h>
#include <string.h>

typedef struct Asked {
  const char *cluster, *timeline, *against;
  Texts changes;
  int64_t top;
  bool constants, limits, json, all_ranks;
} Asked;

// An unknown key of the cluster may be a misspelt constant: the message suggests one.
static int change_cluster(Cluster *cluster, const char *what, Error *error) {
  const char *names[CONSTANTS], *nearest;
  char name[64] = "";
  int code = cluster_change(cluster, what, error);
  sscanf(what, "%63[^=]", name);
  if (!code || !strchr(what, '=') || cluster_can_change(cluster, name)) return code;
  for (int i = 0; i < CONSTANTS; i++) names[i] = constant_name((ConstantId)i);
  nearest = nearest_word(name, names, CONSTANTS);
  if (nearest) return error_append(error, "; or the constant %s, times a factor, as in %s=1.1x", nearest, nearest);
  return error_append(error, "; or a constant of the models, which plait simulate --constants lists");
}

// "tile.k0=1.1x" changes a constant of the models, anything else the cluster.
static int change(Cluster *cluster, Constants *constants, const char *what, Error *error) {
  char name[64] = "";
  double factor = 0;
  int end = 0;
  sscanf(what, "%63[^=]=%lfx%n", name, &factor, &end);
  if (constant_by_name(name) < 0) return change_cluster(cluster, what, error);
  if (!end || what[end] || !(factor > 0 && factor < 1e6))
    return error_set(error, PLAIT_BAD_INPUT, "--what-if %s: %s is a constant; give a factor above 0, as in %s=1.1x",
                     what, name, name);
  constants_scale(constants, name, factor);
  cluster->constants = constants;
  return PLAIT_OK;
}

static int change_all(Cluster *cluster, Constants *constants, const Texts *changes, Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; i < changes->count && !code; i++) {
    int measured = cluster->measured.count;
    code = change(cluster, constants, changes->text[i], error);
    if (!code && measured && !cluster->measured.count)
      fprintf(stderr, "note: with %s the cluster's %d measurements of collectives no longer count; formulas do\n",
              changes->text[i], measured);
  }
  return code;
}

static void print_limits(const Prediction *p, const Cluster *cluster) {
  Limit limit[LIMITS_MOST];
  int n = predict_limits(p, cluster, limit);
  printf("\nwhat a tenth more of each resource would save%s\n",
         cluster->measured.count ? " (links that were measured stay as they are)" : "");
  for (int i = 0; i < n; i++)
    if (limit[i].gain > 0.0005) printf("  %-44s %5.1f %%\n", limit[i].resource, 100 * limit[i].gain);
}

// The prediction and, where they are asked for, "limits" and "against".
static int print_json(const Asked *asked, const Prediction *p, const Cluster *cluster, Against *against, Error *error) {
  Limit limit[LIMITS_MOST];
  json_t *object = prediction_json(p, cluster);
  if (asked->limits) json_object_set_new(object, "limits", limits_json(limit, predict_limits(p, cluster, limit)));
  if (asked->against) json_object_set_new(object, "against", against_json(against, p));
  int failed = !object || json_dumpf(object, stdout, JSON_INDENT(2)) || fputs("\n", stdout) == EOF;
  json_decref(object);
  return failed ? error_set(error, PLAIT_FAILED, "the prediction cannot be written as JSON") : PLAIT_OK;
}

static void print_text(const Asked *asked, const Prediction *p, const Cluster *cluster) {
  prediction_print(p, cluster, stdout);
  if (asked->limits) print_limits(p, cluster);
}

// Both may look.
typedef struct Looking { SimulatedTimeline *timeline; Against *against; } Looking;

static void look(void *context, int coordinate, const char *name, const Node *node, const Action *action,
                 double begin, double end, int in_flight) {
  Looking *l = context;
  if (l->timeline) simulated_timeline_see(l->timeline, coordinate, name, node, action, begin, end, in_flight);
  if (l->against) against_see(l->against, coordinate, name, node, action, begin, end, in_flight);
}

// Refuses, with --all-ranks, options that show pipeline ranks.
static int check_all_ranks(const Asked *asked, Error *error) {
  size_t n = asked->timeline ? strlen(asked->timeline) : 0;
  if (asked->against)
    return error_set(error, PLAIT_BAD_INPUT, "--against compares pipeline ranks; leave --all-ranks out");
  if (n > 4 && !strcmp(asked->timeline + n - 4, ".svg"))
    return error_set(error, PLAIT_BAD_INPUT,
                     "--timeline %s: a picture has a row for each pipeline rank; with --all-ranks give a .json, or "
                     "leave --all-ranks out",
                     asked->timeline);
  return PLAIT_OK;
}

static int run(const Asked *asked, const Recipe *recipe, Cluster *cluster, Constants *constants, Error *error) {
  ModelConfig config = {0};
  Prediction prediction = {.job = NULL};
  SimulatedTimeline timeline = {.path = asked->timeline};
  Against against = {.path = NULL};
  int code = PLAIT_OK;
  if (asked->all_ranks) code = check_all_ranks(asked, error);
  if (!code) code = change_all(cluster, constants, &asked->changes, error);
  if (!code && asked->timeline) code = simulated_timeline_begin(&timeline, error);
  if (!code && asked->against) code = against_read(asked->against, &against, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  SimulateOptions options = {.cluster = cluster, .critical = (int)asked->top, .all_ranks = asked->all_ranks};
  Looking looking = {asked->timeline ? &timeline : NULL, asked->against ? &against : NULL};
  if (asked->timeline || asked->against) options.see = look, options.context = &looking;
  if (!code) code = predict(recipe, &config, &options, &prediction, error);
  if (!code && asked->against) code = against_check(&against, &prediction, error);
  if (!code && asked->json) code = print_json(asked, &prediction, cluster, &against, error);
  else if (!code) print_text(asked, &prediction, cluster);
  if (!code && asked->timeline) code = simulated_timeline_end(&timeline, &prediction, error);
  if (!code && asked->against && !asked->json) against_print(&against, &prediction, stdout);
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
      {"what-if", OPTION_TEXTS, &asked.changes, "KEY=VALUE",
       "with another value of the cluster (nvlink.bandwidth=2x, device.memory=40e9) or a constant times a factor "
       "(tile.k0=1.1x); may be given several times"},
      {"timeline", OPTION_TEXT, &asked.timeline, "FILE",
       "write what runs when: a picture (.svg), or a trace (.json) as run.trace writes it"},
      {"against", OPTION_TEXT, &asked.against, "TRACE",
       "print the simulated step beside a measured one, op by op: a trace that run.trace of the same recipe wrote"},
      {"top", OPTION_INTEGER, &asked.top, "N", "instructions of the critical path to print", .least = 0, .most = 1000},
      {.name = "all-ranks",
       .kind = OPTION_FLAG,
       .value = &asked.all_ranks,
       .help = "simulate each rank of the mesh, not one for all ranks of a pipeline rank: where their links or devices "
               "differ"},
      {.name = "limits",
       .kind = OPTION_FLAG,
       .value = &asked.limits,
       .help = "simulate again with each resource a tenth better, and print what that saves"},
      {.name = "json",
       .kind = OPTION_FLAG,
       .value = &asked.json,
       .help = "print the prediction as JSON, with what --limits and --against add"},
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
  fflush(stdout); // notes come after what was printed, where both go to one file
  if (!code && recipe.notes) fputs(recipe.notes, stderr);
  if (!code) auto_plan_note(&recipe, stderr);
  cluster_free(cluster);
  recipe_free(&recipe);
  return code ? command_fail("simulate", &error) : 0;
}
