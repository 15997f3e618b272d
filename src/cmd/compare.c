// plait compare: what each parallel strategy would take of memory, links and time for a recipe on a cluster.
#include "foresight/compare.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cli/wrap.h"
#include "foresight/advice.h"
#include "foresight/predict.h"
#include <limits.h>
#include <stdlib.h>

static void print_advice(const Comparison *comparison) {
  Advice advice[ADVICES];
  int n = advice_of(comparison, advice), columns = wrap_columns(stdout);
  printf("\nadvice\n");
  for (int i = 0; i < n; i++) {
    static const char *const mark[] = {[ADVICE_OPEN] = "", [ADVICE_CONFIRMED] = "confirmed: ",
                                       [ADVICE_CONTRADICTED] = "contradicted: "};
    char *line = xformat("%s (%s). %s%s.", advice_told[advice[i].rule], advice_names[advice[i].rule],
                         mark[advice[i].verdict], advice[i].text);
    printf("  - ");
    wrap_text(stdout, line, 4, 4, columns);
    free(line);
  }
}

int cmd_compare(int argc, char **argv) {
  const char *name = NULL;
  int64_t ranks = 0;
  bool quick = false, json = false;
  const Option options[] = {
      {"cluster", OPTION_TEXT, &name, "NAME",
       "a shipped cluster (plait cluster lists them), or a file; else run.cluster of the recipe"},
      {"ranks", OPTION_INTEGER, &ranks, "N", "ranks to compare on", .least = 1, .most = 1 << 20,
       .shown = "those of the recipe's mesh"},
      {.name = "quick",
       .kind = OPTION_FLAG,
       .value = &quick,
       .help = "without what limits each strategy, the changes that would help it, and the search's best plan, which "
               "take most of the time"},
      {.name = "json", .kind = OPTION_FLAG, .value = &json, .help = "print the table and the advice as JSON"}};
  const CommandHelp help = {
      "compare", "[options] RECIPE [key=value …]",
      "Compares parallel strategies for a recipe on a cluster that need not be there, a line for each: memory by "
      "category, what goes over each link, step time, bubble, whether it fits, what limits it first, and the smallest "
      "single change that helps. Each strategy is the recipe with other keys, compiled as for a run and simulated "
      "(docs/foresight.md). The advice below the table says which widely told rules apply, and whether the table bears "
      "them out.\n"
      "Batch, precision, recomputation and schedule are the recipe's; with --ranks the global batch stays as it is.",
      "  plait compare recipes/7b.yaml --cluster dgx-a100-superpod\n"
      "  plait compare recipes/gpt-175b.yaml --cluster aws-p4d\n"
      "  plait compare recipes/demo.yaml --cluster pcie-10g --ranks 16 batch.global=256\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Cluster *cluster = NULL;
  Comparison comparison;
  Recipe recipe = {0};
  int code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = predict_cluster(&recipe, name, &cluster, &error);
  CompareOptions asked = {.path = operands.words[0],
                          .override_count = operands.count - 1,
                          .overrides = operands.words + 1,
                          .ranks = (int)ranks,
                          .cluster = cluster,
                          .limits = !quick,
                          .changes = !quick,
                          .search = !quick};
  if (!code) code = compare(&asked, &comparison, &error);
  if (!code && json) code = comparison_json(&comparison, stdout, &error);
  else if (!code) comparison_print(&comparison, stdout), print_advice(&comparison);
  cluster_free(cluster);
  recipe_free(&recipe);
  return code ? command_fail("compare", &error) : 0;
}
