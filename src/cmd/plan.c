// plait plan: memory by category and FLOPs of a recipe, before anything is allocated.
#include "cmd/cmd.h"
#include "cli/options.h"
#include "base/file.h"
#include "cmd/plan_generation.h"
#include "cmd/plan_ranks.h"
#include "cmd/plan_search.h"
#include "setup/setup.h"
#include "foresight/auto_plan.h"
#include "train/plan_json.h"
#include "train/plan_print.h"
#include "foresight/predict.h"
#include <limits.h>
#include <stdlib.h>

// Of a model and not a recipe: what its generation needs.
static int plan_model(const Operands *operands, const SearchAsked *asked, bool exact, bool alone) {
  Error error = {0};
  int code = !alone ? error_set(&error, PLAIT_BAD_INPUT,
                                "%s is a folder, whose generation is planned; only --bytes and --json are for that",
                                operands->words[0])
                    : plan_generation(operands->words[0], operands->count - 1, operands->words + 1, exact, asked->json,
                                      stdout, &error);
  return code ? command_fail("plan", &error) : 0;
}

int cmd_plan(int argc, char **argv) {
  bool exact = false, search = false;
  SearchAsked asked = {.top = 10};
  const char *nodes = NULL;
  int64_t processes = 0;
  const Option options[] = {
      {.name = "bytes", .kind = OPTION_FLAG, .value = &exact, .help = "print memory in bytes instead of kB, MB and GB"},
      {.name = "search",
       .kind = OPTION_FLAG,
       .value = &search,
       .help =
           "find the fastest plans on a cluster: keys that the recipe gives stay as they are, and those that do not "
           "change what is learned are chosen (key=null leaves one open, mesh=null all of a section)"},
      {"cluster", OPTION_TEXT, &asked.cluster, "NAME",
       "where time is simulated, and --search searches: a shipped cluster (plait cluster lists them), or a file",
       .shown = "run.cluster"},
      {"ranks", OPTION_TEXT, &asked.ranks, "N[:M]",
       "with --search: how many ranks; of a range, doubling, the front of time against device-hours",
       .shown = "the recipe's mesh, else all devices"},
      {"top", OPTION_INTEGER, &asked.top, "K", "with --search: how many plans", .least = 1, .most = 1000},
      {"memory", OPTION_TEXT, &asked.memory, "SIZE", "with --search: what a rank may use, as 76GB",
       .shown = "what the device has"},
      {.name = "exhaustive",
       .kind = OPTION_FLAG,
       .value = &asked.exhaustive,
       .help = "with --search: compile every plan whole, without bounds and estimates"},
      {"write", OPTION_TEXT, &asked.write, "FILE", "with --search: write the recipe with the keys of the fastest plan"},
      {.name = "json", .kind = OPTION_FLAG, .value = &asked.json, .help = "print JSON"},
      {"nnodes", OPTION_TEXT, &nodes, "N|MIN:MAX",
       "with mesh.dp auto: a line for each number of machines, with idle ranks, microbatches and memory",
       .shown = "the recipe's mesh"},
      {"nproc-per-node", OPTION_INTEGER, &processes, "N", "with --nnodes: processes on each machine", .least = 0,
       .most = 4096, .shown = "1"}};
  const CommandHelp help = {
      "plan", "[options] RECIPE|MODEL [key=value …]",
      "Prints what a training run of the recipe will need: each rank's memory by category, FLOPs, time "
      "and communication. The time is simulated on the cluster that --cluster or run.cluster names, or on this machine "
      "where plait probe has measured it, and is else an estimate from the speed of one product. It reads no data and "
      "allocates nothing of that size, so it works before the corpus exists.\n"
      "Of a model (a checkpoint, a run or a Hugging Face folder) it prints what plait generate and plait serve will "
      "need: memory, how many requests of which length fit, and tokens/s.",
      "  plait plan recipes/demo.yaml\n"
      "  plait plan recipes/demo.yaml mesh.dp=1 mesh.tp=3 batch.micro=8\n"
      "  plait plan recipes/7b.yaml --cluster dgx-a100-superpod\n"
      "  plait plan SmolLM-135M mesh.tp=3 infer.requests=32 infer.context=2048\n"
      "  plait plan recipes/demo.yaml mesh.dp=auto --nnodes 1:4 --nproc-per-node 2\n"
      "  plait plan recipes/demo.yaml --search --cluster h200-node mesh=null batch.micro=null\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  if (file_is_folder(operands.words[0]))
    return plan_model(&operands, &asked, exact,
                      !search && !asked.cluster && !asked.ranks && !asked.memory && !asked.write && !asked.exhaustive &&
                          !nodes && !processes);
  Error error = {0};
  Recipe given = {0}, named = {0}, ranked = {0};
  const Recipe *recipe = &named;
  const char *alone = search ? NULL
                      : asked.ranks ? "ranks" : asked.memory ? "memory"
                      : asked.write ? "write" : asked.exhaustive ? "exhaustive" : NULL;
  int code = alone ? error_set(&error, PLAIT_BAD_INPUT, "--%s says how to search for plans; add --search", alone) : 0;
  if (!code) code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &given, &error);
  if (!code && nodes && asked.json)
    code = error_set(&error, PLAIT_BAD_INPUT, "--nnodes prints a table for people; leave it out, or --json");
  if (!code && nodes && search)
    code = error_set(&error, PLAIT_BAD_INPUT, "--nnodes plans the recipe as it is; leave it out, or --search");
  if (!code && processes && !nodes)
    code = error_set(&error, PLAIT_BAD_INPUT, "--nproc-per-node says how many processes a machine has; add --nnodes");
  if (!code) code = predict_name_cluster(&given, search ? NULL : asked.cluster, &named, &error);
  if (!code && nodes) code = plan_ranks(&named, nodes, processes ? (int)processes : 1, stdout, &error);
  else if (!code && !search) code = recipe_with_ranks(&named, 0, &ranked, &error), recipe = &ranked;
  if (!code && !nodes)
    code = search       ? plan_search(recipe, &asked, &error)
           : asked.json ? plan_json(recipe, stdout, &error)
                        : plan_print(recipe, exact, stdout, &error);
  fflush(stdout); // notes come after what was printed, where both go to one file
  if (!code && recipe->notes) fputs(recipe->notes, stderr);
  if (!code && !search) auto_plan_note(recipe, stderr);
  ModelConfig config = {0};
  if (!code) code = setup_model_config(recipe, &config, &error);
  if (!code) setup_note_model(recipe, &config, stderr);
  model_config_free(&config);
  recipe_free(&ranked);
  recipe_free(&named);
  recipe_free(&given);
  return code ? command_fail("plan", &error) : 0;
}
