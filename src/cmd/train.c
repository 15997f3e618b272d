// plait train RECIPE [key=value …]
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cli/options.h"
#include "setup/setup.h"
#include "foresight/auto_plan.h"
#include "train/train.h"
#include <limits.h>
#include <stdio.h>

static void describe(char *text, size_t size) {
  char stop[80], repeat[80];
  signals_list(SIGNAL_STOP, stop, sizeof stop);
  signals_list(SIGNAL_REPEAT, repeat, sizeof repeat);
  snprintf(
      text, size,
      "Trains a model as the recipe says. If the run's folder has a checkpoint, training resumes from the "
      "newest one and prints each key that has changed since. Keys after the recipe override it; "
      "docs/recipes.md and plait-recipe(5) list them all.\n"
      "Ctrl-C stops a run, and so do other signals (%s, %s): it finishes the step, saves a checkpoint and exits with "
      "status 128 + the signal's number (75 after SIGUSR1, SIGUSR2 and SIGXCPU, which say that the time is up). The "
      "same command then resumes the run. A second %s ends the run at once; the others change nothing then.",
      stop, repeat, stop);
}

// The recipe is read again when the ranks can agree on what is wrong with it.
static LaunchWish wish(const Operands *operands) {
  Error unread = {0};
  Recipe recipe = {0};
  LaunchWish wish = {0};
  if (!recipe_load(operands->words[0], operands->count - 1, operands->words + 1, &recipe, &unread))
    wish = setup_wish(&recipe);
  recipe_free(&recipe);
  return wish;
}

int cmd_train(int argc, char **argv) {
  bool force = false, json = false;
  const Option options[] = {{.name = "force",
                             .value = &force,
                             .help =
                                 "resume although seed, data, tokenizer or model have changed; go back to an earlier "
                                 "checkpoint and move the later ones aside"},
                            {.name = "json",
                             .value = &json,
                             .help =
                                 "print each line of metrics.jsonl on stdout when it is written, and all else on "
                                 "stderr; the run stops, saved, when nobody reads stdout any more"}};
  char summary[1200];
  describe(summary, sizeof summary);
  const CommandHelp help = {
      "train", "[options] RECIPE [key=value …]",
      summary,
      "  plait train recipes/demo.yaml\n"
      "  plait train recipes/demo.yaml mesh.dp=4 schedule.steps=100 run.dir=/tmp/try\n"
      "  plait train runs/demo/recipe.yaml            # continues a run\n"
      "  plait train runs/demo/recipe.yaml run.dir=runs/again     # repeats it\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  setvbuf(stdout, NULL, _IOLBF, 0); // to a pipe, too, each line comes when it is true
  FILE *out = json ? stderr : stdout;
  Error error = {0};
  Recipe recipe = {0};
  Launch launch;
  int code = launch_begin(&launch, wish(&operands), &error);
  if (!code)
    code = launch_agree(
        &launch, recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error), &error);
  if (!code) code = train_run_joined(&recipe, &launch, force, json ? stdout : NULL, out, &error);
  recipe_free(&recipe);
  return command_end("train", code, &launch, &error);
}
