// plait train RECIPE [key=value …]
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cmd/options.h"
#include "recipe/setup.h"
#include "train/train.h"
#include <limits.h>
#include <stdio.h>

static void describe(char *text, size_t size) {
  char stop[80], repeat[80];
  signals_list(SIGNAL_STOP, stop, sizeof stop);
  signals_list(SIGNAL_REPEAT, repeat, sizeof repeat);
  snprintf(
      text, size,
      "Trains a model as the recipe says, from the last checkpoint of its run folder where there is one. Keys\n"
      "given after the recipe override it; docs/recipes.md lists them all.\n"
      "Ctrl-C and other signals (%s, %s)\n"
      "stop a run in order: it finishes the step, saves a checkpoint and ends with exit status 128 + the signal's\n"
      "number. The same command then resumes from there, and prints each key that is not what it was. A second signal "
      "ends the run at once, unless it is one\n"
      "that the system repeats (%s).",
      stop, repeat, repeat);
}

int cmd_train(int argc, char **argv) {
  bool force = false;
  const Option options[] = {{.name = "force",
                             .value = &force,
                             .help = "resume although seed, data, tokenizer or model are not what they were"}};
  char summary[1000];
  describe(summary, sizeof summary);
  const CommandHelp help = {"train", "[options] RECIPE [key=value …]", summary,
                            "  plait train recipes/demo.yaml\n"
                            "  plait train recipes/demo.yaml mesh.dp=4 schedule.steps=100 run.dir=/tmp/try\n"
                            "  plait train runs/demo/recipe.yaml            # repeats a run\n"};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  setvbuf(stdout, NULL, _IOLBF, 0); // to a pipe, too, each line comes when it is true
  Error error = {0};
  Recipe recipe = {0};
  Launch launch;
  int code = launch_begin(&launch, &error);
  if (!code)
    code = launch_agree(
        &launch, recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error), &error);
  if (!code) code = launch_agree(&launch, setup_launch(&launch, &recipe, &error), &error);
  if (!code) code = train_run_launched(&recipe, &launch, force, stdout, &error);
  recipe_free(&recipe);
  return command_end("train", code, &launch, &error);
}
