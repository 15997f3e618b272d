// Time and memory of recipe → Program, as a planner tries layouts: bench/compile RECIPE [key=value …]. Not a test.
// The recipe of a 96-layer GPT of 175 billion parameters on 2,240 ranks is bench/compile.yaml.
#include "base/clock.h"
#include "runtime/job.h"
#include "setup/setup.h"
#include <stdlib.h>
#include <sys/resource.h>

static int fail(const Error *error) {
  fprintf(stderr, "compile: %s\n", error->message);
  return 1;
}

// Microseconds of the judge's answer, from the recipe on.
static double judge(const Recipe *recipe, const ModelConfig *config) {
  enum { QUESTIONS = 10000 };
  Error error = {0};
  double start = clock_process_seconds();
  for (int i = 0; i < QUESTIONS; i++) recipe_check_parallel(recipe, config, &error);
  return 1e6 * (clock_process_seconds() - start) / QUESTIONS;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: compile RECIPE [key=value …]\n"), 2;
  double best_graph = 1e9, best_program = 1e9, best_judge = 1e9;
  Error error = {0};
  int ranks = 0, coordinates = 0;
  for (int repeat = 0; repeat < 5; repeat++) {
    Recipe recipe;
    ModelConfig config;
    RunPlan plan;
    double start = clock_process_seconds();
    if (recipe_load(argv[1], argc - 2, argv + 2, &recipe, &error)) return fail(&error);
    if (model_config_load(&config, recipe.model.config, &error)) return fail(&error);
    if (resolve(&recipe, &config, &(RunSetting){.threads = 1}, &plan, &error)) return fail(&error);
    const CompileOptions *options = &plan.options;
    double answer = judge(&recipe, &config);
    start += 1e-6 * answer * 10000;
    if (answer < best_judge) best_judge = answer;
    Graph *g = NULL;
    Shares shares =
        shares_create(options->step.batch.samples, parallel_data_ranks(&options->parallel), options->step.batch.micro);
    if (compile_graph(&config, options, &g, &error)) return fail(&error);
    double graph = clock_process_seconds() - start, slowest = 0;
    ranks = options->parallel.mesh.ranks;
    coordinates = parallel_pipeline_ranks(&options->parallel);
    int tried[] = {0, coordinates / 2, coordinates - 1}; // embedding, blocks, head
    for (int i = 0; i < 3; i++) {
      Program *p = NULL;
      ProgramOptions o = {.schedule = options->parallel.pipeline.schedule,
                          .microbatches = options->microbatches,
                          .shares = &shares,
                          .coordinate = tried[i],
                          .device = options->device,
                          .threads = 1,
                          .overlap = 1};
      start = clock_process_seconds();
      if (program_create(g, &options->parallel.mesh, &o, &p, &error)) return fail(&error);
      if (clock_process_seconds() - start > slowest) slowest = clock_process_seconds() - start;
      program_destroy(p);
    }
    graph_destroy(g);
    run_plan_free(&plan);
    recipe_free(&recipe);
    if (graph < best_graph) best_graph = graph;
    if (slowest < best_program) best_program = slowest;
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("%d ranks, %d pipeline ranks: recipe to graph %.0f ms, to a rank's Program %.0f ms more; %.0f MB; the judge "
         "answers in %.2f us\n",
         ranks, coordinates, 1e3 * best_graph, 1e3 * best_program, (double)usage.ru_maxrss / 1024, best_judge);
  return 0;
}
