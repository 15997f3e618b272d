// How large memory plans are beside the most bytes that are needed at one time, and how long they take:
//   bench_plans [--all] [--problems FOLDER] RECIPE [key=value …]   every Program of a recipe
//   bench_plans [--all] [--problems FOLDER] --parity [COUNT]       those of COUNT layouts of the parity matrix (all)
// Lists the plans that are more than 1% above their bound, with --all every one. FOLDER gets the packing problems as
// files for bench_pack. Figures of size are the same everywhere; times are not, and nothing tests them.
#include "matrix.h"
#include "plan_sizes.h"
#include "setup/setup.h"
#include <stdlib.h>
#include <string.h>

static int fail(const Error *error) {
  fprintf(stderr, "bench_plans: %s\n", error->message);
  return 1;
}

static int of_recipe(int argc, char **argv, int all, const char *folder, PlanSizes *sizes) {
  Recipe recipe = {0};
  ModelConfig config = {0};
  Job *job = NULL;
  Error error = {0};
  if (recipe_load(argv[0], argc - 1, argv + 1, &recipe, &error)) return fail(&error);
  if (setup_model_config(&recipe, &config, &error)) return fail(&error);
  if (setup_job(&recipe, &config, &job, &error)) return fail(&error);
  plan_sizes_of_job(job, argv[0], all, folder, stdout, sizes);
  job_destroy(job);
  model_config_free(&config);
  recipe_free(&recipe);
  return 0;
}

// Each layout with one model in turn, in single precision and in bf16.
static int of_parity(int wanted, int all, const char *folder, PlanSizes *sizes) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout);
  if (wanted > 0) count = matrix_sample(layout, count, wanted, 1);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) {
      MatrixLeg leg = k ? MATRIX_BF16 : MATRIX_FP32;
      int model = matrix_model(&layout[i], i % MATRIX_MODELS);
      MatrixLayout l = matrix_fitted(&layout[i], model, leg);
      ParityCase c = matrix_case(&l, model, leg);
      char name[512];
      Error error = {0};
      Job *job;
      if (parity_job(&c, &job, &error)) return fail(&error);
      snprintf(name, sizeof name, "%s, %s, %s", matrix_leg_names[leg], c.model, l.name);
      plan_sizes_of_job(job, name, all, folder, stdout, sizes);
      job_destroy(job);
    }
  free(layout);
  return 0;
}

int main(int argc, char **argv) {
  int at = 1, all = 0;
  const char *folder = NULL;
  PlanSizes sizes = {0};
  for (; at < argc && !strncmp(argv[at], "--", 2) && strcmp(argv[at], "--parity"); at++) {
    if (!strcmp(argv[at], "--all")) all = 1;
    else if (!strcmp(argv[at], "--problems") && at + 1 < argc) folder = argv[++at];
    else break;
  }
  if (at >= argc || (argv[at][0] == '-' && strcmp(argv[at], "--parity")))
    return fprintf(stderr, "usage: bench_plans [--all] [--problems FOLDER] RECIPE [key=value …] | --parity [COUNT]\n"),
           2;
  int code = !strcmp(argv[at], "--parity") ? of_parity(at + 1 < argc ? atoi(argv[at + 1]) : 0, all, folder, &sizes)
                                          : of_recipe(argc - at, argv + at, all, folder, &sizes);
  if (!code) plan_sizes_print(&sizes, stdout);
  return code;
}
