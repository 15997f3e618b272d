// `plait plan`: what 1-D, 2-D, 2.5-D and 3-D tensors would move, beside each other.
#include "train/plan_tensor.h"
#include "base/units.h"
#include "parallel/parallel_tensor.h"
#include "program/traffic.h"
#include "setup/setup.h"
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

// The recipe with another kind of tensor parallelism, and no pipeline. Rows and depth are its own for its own kind.
static Recipe with_kind(const Recipe *recipe, LayoutTensorKind kind) {
  Recipe other = *recipe; // shares the arena
  other.mesh.pp = 1;
  other.parallel.stages_per_rank = 0;
  other.parallel.layers.count = 0;
  if (recipe_recompute_differs(recipe)) other.parallel.recompute = (RecipeWordOrList){0};
  other.parallel.recompute_layers = 0;
  if (recipe->parallel.tensor == (int)kind) return other;
  other.parallel.tensor = (int)kind;
  other.parallel.rows = other.parallel.depth = 0;
  if (kind != LAYOUT_TENSOR_1D) other.parallel.sequence = false;
  return other;
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

// The obstacle to a kind, without the advice after it; "" where it is possible.
static void obstacle(const Recipe *recipe, const ModelConfig *config, char *text, size_t size) {
  StepModel model;
  Step step;
  ParallelProblem problem = {0};
  step_model_of(config, &model);
  recipe_step(recipe, &model, &step);
  if (parallel_check(&step, &model, &problem)) snprintf(text, size, "%s", problem.text);
  else text[0] = 0;
  text[strcspn(text, ";")] = 0;
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
    Recipe other = with_kind(recipe, (LayoutTensorKind)kind);
    double one, two;
    char text[64], why[sizeof(ParallelProblem)];
    obstacle(&other, config, why, sizeof why);
    if (*why) {
      fprintf(out, "  %-22s %12s   %s\n", parallel_tensor_names[kind], "-", why);
      continue;
    }
    int code = bytes_of(&other, config, 1, &one, error);
    if (!code) code = bytes_of(&other, config, 2, &two, error);
    if (code) return code;
    double bytes = (one + (double)(config->layers - 1) * (two - one)) / recipe->mesh.pp;
    int wide = 22 + grid_text(&other, text, sizeof text);
    fprintf(out, "  %-*s %12s%s\n", wide, text, units_bytes(bytes).s,
            kind == recipe->parallel.tensor ? "   this recipe" : "");
    if (best < 0 || bytes < least) best = kind, least = bytes;
  }
  if (best >= 0) fprintf(out, "  %-22s %12s\n", "moves least", parallel_tensor_names[best]);
  return PLAIT_OK;
}
