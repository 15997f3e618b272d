// `plait plan`: what 1-D, 2-D, 2.5-D and 3-D tensors would move, beside each other.
#include "train/plan_tensor.h"
#include "base/units.h"
#include "parallel/parallel_tensor.h"
#include "program/traffic.h"
#include "setup/setup.h"
#include <math.h>
#include <string.h>

// Bytes that a rank moves in a step of the model with `layers` layers, on one stage.
static int bytes_of(const Recipe *recipe, const ModelConfig *config, int layers, double *bytes, Error *error) {
  ModelConfig few = *config;
  Job *job = NULL;
  few.layers = layers;
  model_measure(&few);
  int code = setup_job(recipe, &few, &(RunSetting){.threads = 1}, &job, error);
  *bytes = 0;
  if (code) return code;
  TrafficList list = {0};
  program_traffic(job_train(job)->program[0], &list);
  for (int i = 0; i < list.count; i++) *bytes += list.data[i].bytes;
  vec_free(&list);
  job_destroy(job);
  return code;
}

// The keys of another kind of tensor parallelism, and of no pipeline. Rows and depth are the recipe's for its own kind.
static void keys_of_kind(const Recipe *recipe, LayoutTensorKind kind, char *keys, size_t size) {
  int n = snprintf(keys, size,
                   "mesh.pp=1 parallel.stages_per_rank=null parallel.layers=null "
                   "parallel.recompute_layers=null%s",
                   recipe_recompute_differs(recipe) ? " parallel.recompute=null" : "");
  if (recipe->parallel.tensor == (int)kind) return;
  snprintf(keys + n, size - (size_t)n, " parallel.tensor=%s parallel.rows=null parallel.depth=null%s",
           parallel_tensor_names[kind], kind == LAYOUT_TENSOR_1D ? "" : " parallel.sequence=false");
}

// Returns how many characters take two bytes.
static int grid_text(const Recipe *r, char *text, size_t size) {
  StepParallel o = recipe_parallel(r);
  TensorGrid g = parallel_grid(&o);
  if (o.tensor == LAYOUT_TENSOR_1D) snprintf(text, size, "1d%s", r->parallel.sequence ? " + sequence" : "");
  else if (o.tensor == LAYOUT_TENSOR_2D) snprintf(text, size, "2d, %d × %d", g.rows, g.cols);
  else snprintf(text, size, "%s, %d × %d × %d", parallel_tensor_names[o.tensor], g.depth, g.rows, g.cols);
  return o.tensor == LAYOUT_TENSOR_1D ? 0 : o.tensor == LAYOUT_TENSOR_2D ? 1 : 2;
}

// A row of the table; *bytes: what the kind moves, NAN where it is not possible.
static int print_kind(const Recipe *recipe, const ModelConfig *config, LayoutTensorKind kind, double *bytes, FILE *out,
                      Error *error) {
  char keys[256], text[64];
  Recipe other;
  ParallelProblem problem;
  double one, two;
  *bytes = NAN;
  keys_of_kind(recipe, kind, keys, sizeof keys);
  if (recipe_refuses(recipe, keys, config, &problem)) { // without the advice
    fprintf(out, "  %-22s %12s   %.*s\n", parallel_tensor_names[kind], "-", (int)strcspn(problem.text, ";"),
            problem.text);
    return PLAIT_OK;
  }
  int code = recipe_variant(recipe, keys, &other, error);
  if (code) return code;
  code = bytes_of(&other, config, 1, &one, error);
  if (!code) code = bytes_of(&other, config, 2, &two, error);
  if (!code) {
    *bytes = (one + (double)(config->layers - 1) * (two - one)) / recipe->mesh.pp;
    int wide = 22 + grid_text(&other, text, sizeof text);
    fprintf(out, "  %-*s %12s%s\n", wide, text, units_bytes(*bytes).s,
            (int)kind == recipe->parallel.tensor ? "   this recipe" : "");
  }
  recipe_free(&other);
  return code;
}

// Every layer moves as much: two small models say what the whole one does.
int plan_print_tensor(const Recipe *recipe, const ModelConfig *config, FILE *out, Error *error) {
  enum { LEAST = 4 }; // ranks of tp that have more than one row and one column
  double least = 0;
  int best = -1;
  if (recipe->mesh.tp < LEAST || recipe->layout.name) return PLAIT_OK;
  for (int row = 0; row < LAYOUT_ROWS; row++)
    if (recipe->layout.rows.row[row].count >= 0) return PLAIT_OK; // a Layout of the user's own
  fprintf(out, "\ntensor parallelism on %d ranks of tp: all collectives of a rank, per step%s\n", recipe->mesh.tp,
          recipe->mesh.pp > 1 ? " (without the pipeline, the mean of its ranks)" : "");
  for (int kind = 0; kind < LAYOUT_TENSORS; kind++) {
    double bytes;
    int code = print_kind(recipe, config, (LayoutTensorKind)kind, &bytes, out, error);
    if (code) return code;
    if (!isnan(bytes) && (best < 0 || bytes < least)) best = kind, least = bytes;
  }
  if (best >= 0) fprintf(out, "  %-22s %12s\n", "moves least", parallel_tensor_names[best]);
  return PLAIT_OK;
}
