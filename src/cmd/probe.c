// plait probe: measures this machine and writes a cluster file.
#include "base/file.h"
#include "base/signals.h"
#include "cmd/cmd.h"
#include "cmd/launched.h"
#include "cli/options.h"
#include "foresight/probe.h"
#include <string.h>
#include <unistd.h>

enum { MOST_KEYS = 256 };

int cmd_probe(int argc, char **argv) {
  bool quick = false;
  const char *path = NULL, *recipe = NULL;
  const Option options[] = {
      {.name = "out", .kind = OPTION_TEXT, .value = &path, .argument = "FILE", .help = "the cluster file to write"},
      {.name = "for", .kind = OPTION_TEXT, .value = &recipe, .argument = "RECIPE",
       .help = "measure the shapes of this recipe's model too, with the keys that follow"},
      {.name = "quick", .value = &quick, .help = "about 15 seconds instead of 60: fewer shapes, and less often"}};
  const CommandHelp help = {
      "probe", "[--quick] [--for RECIPE [KEY=VALUE …]] [--out FILE]",
      "Measures this machine, in about a minute, and writes what it finds as a cluster file for plait simulate, plan "
      "--search, compare and tune: what the kernels of training steps take, in several shapes, precisions and numbers "
      "of "
      "threads, and what collectives and messages between ranks take.\n"
      "Without --out it is kept for this machine, where these commands look when no cluster is named. Nothing else "
      "should "
      "run meanwhile. Under mpirun or srun it measures the processes that were started, as ranks. The file is written "
      "whole or not at all.",
      "  plait probe\n"
      "  plait probe --out here.yaml\n"
      "  plait probe --for my.yaml\n"
      "  plait probe --quick --out here.yaml\n"
      "  mpirun -n 4 plait probe --out four.yaml\n"
      "  plait simulate my.yaml --cluster here.yaml\n"};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, MOST_KEYS, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Cluster *cluster = NULL;
  Launch launch;
  int code = launch_begin(&launch, (LaunchWish){0}, &error);
  signals_install(launch.rank ? NULL : "stopping; nothing will be written");
  for (int i = 0; i < operands.count && !code; i++)
    if (!recipe || !strchr(operands.words[i], '='))
      code = error_set(&error, PLAIT_BAD_INPUT,
                       "%.100s: the only words beside options are keys of a recipe, as in --for my.yaml batch.micro=2",
                       operands.words[i]);
  const ProbeOptions probing = {quick ? 15 : 60, quick, recipe, operands.count, operands.words, &launch,
                                isatty(2) && !launch.rank ? stderr : NULL};
  if (!code && path && !launch.rank) code = file_check_writable(path, &error);
  code = launch_agree(&launch, code, &error);
  if (!code) code = path || launch.rank ? probe(&probing, &cluster, &error) : probe_keep(&probing, &cluster, &error);
  if (!code && path && !launch.rank) code = cluster_write(cluster, NULL, path, &error);
  if (!code && !launch.rank) cluster_print(cluster, stdout);
  if (!code && !launch.rank && cluster->spread > 0.1)
    fprintf(stderr,
            "note: ranks differed in speed by %.0f %%, so the machine was busy; measure again when it is idle\n",
            100 * cluster->spread);
  cluster_free(cluster);
  return command_end("probe", code, &launch, &error);
}
