// plait train RECIPE [key=value …]
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cmd/options.h"
#include "train/setup.h"
#include "train/train.h"
#include <limits.h>

int cmd_train(int argc, char **argv) {
  const CommandHelp help = {
      "train", "RECIPE [key=value …]",
      "Trains a model as the recipe says, from the last checkpoint of its run folder where there is one. Keys given behind the "
      "recipe override it. docs/recipes.md lists them all. Ctrl-C (SIGINT) or SIGTERM ends the step, saves a checkpoint and "
      "stops with exit status 130 or 143; the same command then goes on from there. A second signal ends it at once.",
      "  plait train recipes/demo.yaml\n"
      "  plait train recipes/demo.yaml mesh.dp=4 schedule.steps=100 run.dir=/tmp/try\n"
      "  plait train runs/demo/recipe.yaml            # repeats a run\n"};
  Operands operands;
  int status = options_parse(&help, NULL, 0, 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Recipe recipe = {0};
  Launch launch;
  int code = launch_begin(&launch, &error);
  if (!code) code = launch_agree(&launch, recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error), &error);
  if (!code) code = launch_agree(&launch, setup_launch(&launch, &recipe, &error), &error);
  if (!code) code = train_run_launched(&recipe, &launch, stdout, &error);
  recipe_free(&recipe);
  return command_end("train", code, &launch, &error);
}
