// plait plan: memory by category and FLOPs of a recipe, before anything is allocated.
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "recipe/setup.h"
#include "train/plan_print.h"
#include <limits.h>

int cmd_plan(int argc, char **argv) {
  bool exact = false;
  const Option options[] = {{.name = "bytes",
                             .kind = OPTION_FLAG,
                             .value = &exact,
                             .help = "print memory in bytes instead of kB, MB and GB"}};
  const CommandHelp help = {
      "plan", "[options] RECIPE [key=value …]",
      "Prints what a training run of the recipe will need: each rank's memory by category, FLOPs, time "
      "and communication. The time is an estimate from the speed of one product on this machine. It reads no data and "
      "allocates nothing of that size, so it works before the corpus exists.",
      "  plait plan recipes/demo.yaml\n"
      "  plait plan recipes/demo.yaml mesh.dp=1 mesh.tp=3 batch.micro=8\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Recipe recipe;
  int code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = plan_print(&recipe, exact, stdout, &error);
  if (!code && recipe.notes) fputs(recipe.notes, stderr);
  ModelConfig config = {0};
  if (!code) code = setup_model_config(&recipe, &config, &error);
  if (!code) setup_note_model(&recipe, &config, stderr);
  model_config_free(&config);
  recipe_free(&recipe);
  return code ? command_fail("plan", &error) : 0;
}
