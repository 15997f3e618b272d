// plait explain: the graph of a training step after any pass, and the Programs that ranks run.
#include "base/nearest.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "train/setup.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int check_pass(const char *after, Error *error) {
  const char *const *passes = compile_passes();
  char list[256] = "";
  int count = 0;
  for (; passes[count]; count++) {
    if (!strcmp(passes[count], after)) return PLAIT_OK;
    size_t n = strlen(list);
    snprintf(list + n, sizeof list - n, "%s%s", count ? ", " : "", passes[count]);
  }
  const char *nearest = nearest_word(after, passes, count);
  return error_set(error, PLAIT_BAD_INPUT, "--after %.100s: there is no such pass%s%s%s; the passes are %s", after,
                   nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "", list);
}

static int explain_graph(const Recipe *recipe, const ModelConfig *config, const char *after, Error *error) {
  CompileOptions options;
  const ScheduleGenerator *schedule;
  Graph *graph = NULL;
  int code = setup_compile_options(recipe, config, &options, &schedule, error);
  options.after = after;
  if (!code) code = compile_graph(config, &options, &graph, NULL, error);
  if (code) return code;
  printf("# after %s, mesh pp=%d dp=%d cp=%d tp=%d. name:type(dim=extent …)@Variable<input>{dim:axes partial:axes}\n",
         after, recipe->mesh.pp, recipe->mesh.dp, recipe->mesh.cp, recipe->mesh.tp);
  graph_print(graph, stdout, placement_printer, &options.mesh);
  graph_destroy(graph);
  return PLAIT_OK;
}

// coordinate -1: the Programs of all pipeline ranks.
static int explain_programs(const Recipe *recipe, const ModelConfig *config, int coordinate, Error *error) {
  Job *job = NULL;
  if (coordinate >= recipe->mesh.pp)
    return error_set(error, PLAIT_BAD_INPUT, "--rank-coordinate is %d, but with mesh.pp %d it must be from 0 to %d",
                     coordinate, recipe->mesh.pp, recipe->mesh.pp - 1);
  int code = setup_job(recipe, config, &job, error);
  if (code) return code;
  for (int c = 0; c < recipe->mesh.pp; c++)
    if (coordinate < 0 || c == coordinate) program_print(job->program[c], stdout);
  job_destroy(job);
  return PLAIT_OK;
}

int cmd_explain(int argc, char **argv) {
  const char *after = NULL;
  int64_t coordinate = -1;
  bool coordinate_given = false;
  const Option options[] = {
      {.name = "after",
       .kind = OPTION_TEXT,
       .value = &after,
       .argument = "PASS",
       .help = "the graph as this pass leaves it: autodiff, stage, …, in their order"},
      {.name = "rank-coordinate",
       .kind = OPTION_INTEGER,
       .value = &coordinate,
       .argument = "N",
       .help = "only the Program of this pipeline rank; -1: of all",
       .least = -1,
       .most = MAX_STAGES - 1,
       .given = &coordinate_given},
  };
  const CommandHelp help = {"explain", "[options] RECIPE [key=value …]",
                            "Prints the training step that a recipe compiles to: with --after the graph as that pass "
                            "leaves it, without it the final "
                            "Program of each pipeline rank. Nothing is allocated and no data is read.",
                            "  plait explain recipes/demo.yaml --after autodiff\n"
                            "  plait explain recipes/demo.yaml mesh.tp=3 --after partition | grep all_reduce\n"
                            "  plait explain recipes/demo.yaml mesh.pp=2 --rank-coordinate 1\n"};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Recipe recipe = {0};
  ModelConfig config = {0};
  int code = after ? check_pass(after, &error) : PLAIT_OK;
  if (!code && after && coordinate_given)
    code = error_set(&error, PLAIT_BAD_INPUT,
                     "--rank-coordinate is for the final Program; --after shows the graph of all ranks");
  if (!code) code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = model_config_load(&config, recipe.model.config, &error);
  if (!code)
    code = after ? explain_graph(&recipe, &config, after, &error)
                 : explain_programs(&recipe, &config, (int)coordinate, &error);
  model_config_free(&config);
  recipe_free(&recipe);
  return code ? command_fail("explain", &error) : 0;
}
