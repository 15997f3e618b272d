// plait cluster: lists the clusters that come with plait, or prints one; --docs prints docs/clusters.md.
#include "cmd/cmd.h"
#include "cli/options.h"
#include "machine/cluster.h"
#include "machine/cluster_find.h"

enum { MOST_NAMES = 64 };

// The cluster as --what-if changes it.
static int print_one(const char *name, const Texts *changes, Error *error) {
  Cluster *cluster;
  int code = cluster_load(name, &cluster, error);
  for (int i = 0; i < changes->count && !code; i++) code = cluster_change(cluster, changes->text[i], error);
  if (!code) cluster_print(cluster, stdout);
  cluster_free(cluster);
  return code;
}

static int run(const ClusterList *shipped, int argc, char **argv) {
  const char *names[MOST_NAMES + 1] = {0}; // for completion
  for (int i = 0; i < shipped->count && i < MOST_NAMES; i++) names[i] = shipped->names[i];
  bool docs = false;
  Texts changes = {.count = 0};
  const Option options[] = {
      {.name = "what-if", .kind = OPTION_TEXTS, .value = &changes, .argument = "KEY=VALUE",
       .help = "change a key first: to a value, or by a factor (2x); may be given several times"},
      {.name = "docs", .value = &docs, .help = "print the reference of all keys, docs/clusters.md"}};
  const CommandHelp help = {
      "cluster", "[options] [NAME | FILE]",
      "Prints what plait knows of a cluster: its devices, their memory and rates, and for each level of links the "
      "bandwidth of a port, of a unit and of all ports, and the latency of a hop. NAME is one that comes with plait, "
      "FILE "
      "a cluster file, which is checked.\n"
      "Without either, it lists those that come with plait. docs/clusters.md explains how to describe other machines.",
      "  plait cluster\n"
      "  plait cluster dgx-a100-superpod\n"
      "  plait cluster my-machines.yaml\n"
      "  plait cluster h200-node --what-if nvlink.bandwidth=2x\n"
      "  plait cluster --docs > docs/clusters.md\n",
      .takes = TAKES_FILES, .first = names};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, 1, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  int code = PLAIT_OK;
  if (docs && (operands.count || changes.count))
    code = error_set(&error, PLAIT_BAD_INPUT, "--docs goes without a cluster and without --what-if");
  else if (changes.count && !operands.count)
    code = error_set(&error, PLAIT_BAD_INPUT, "--what-if needs a cluster to change");
  else if (docs) code = cluster_print_docs(stdout, &error);
  else if (operands.count) code = print_one(operands.words[0], &changes, &error);
  else code = cluster_print_list(stdout, &error);
  return code ? command_fail("cluster", &error) : 0;
}

int cmd_cluster(int argc, char **argv) {
  ClusterList shipped = cluster_list();
  int status = run(&shipped, argc, argv);
  cluster_list_free(&shipped);
  return status;
}
