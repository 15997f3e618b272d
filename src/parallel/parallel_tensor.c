// How 2-D, 2.5-D and 3-D tensors lay out the ranks of tp: depth · rows · columns.
#include "parallel/parallel_tensor.h"
#include "base/divisor.h"
#include "parallel/parallel_problem.h"
#include <string.h>

const char *const parallel_tensor_names[LAYOUT_TENSORS] = {
#define LAYOUT_TENSOR(id, name, ...) name,
#include "sharding/layout_rows.def"
};

static int64_t root_of(int64_t n, int power) {
  int64_t root = 1, next = 1;
  for (;; root++, next = 1) {
    for (int i = 0; i < power; i++) next *= root + 1;
    if (next > n) return root;
  }
}

// The largest divisor of n that is not above its square root.
static int rows_of_square(int n) {
  int rows = (int)root_of(n, 2);
  while (n % rows) rows--;
  return rows;
}

// The least depth above 1 that leaves a square of more than one rank and is no larger than that square's side; else 1.
static int depth_of(int tp) {
  for (int depth = 2; depth * depth * depth <= tp; depth++)
    if (tp % depth == 0 && root_of(tp / depth, 2) * root_of(tp / depth, 2) == tp / depth) return depth;
  return 1;
}

int parallel_tp_ranks(const StepParallel *o) {
  return mesh_axis_size(&o->mesh, AXIS_TP);
}

TensorGrid parallel_grid(const StepParallel *o) {
  int tp = parallel_tp_ranks(o);
  TensorGrid flat = {1, 1, tp};
  if (o->tensor == LAYOUT_TENSOR_1D) return flat;
  int side = (int)root_of(tp, 3);
  TensorGrid grid = {side, side, side};
  if (o->tensor != LAYOUT_TENSOR_3D) {
    grid.depth = o->tensor == LAYOUT_TENSOR_2D ? 1 : o->depth ? o->depth : depth_of(tp);
    grid.rows = o->rows ? o->rows : rows_of_square(tp / grid.depth > 0 ? tp / grid.depth : 1);
    grid.cols = tp / grid.depth / grid.rows;
  }
  return grid.depth * grid.rows * grid.cols == tp ? grid : flat;
}

int parallel_word_ranks(const StepParallel *o, AxisId word) {
  switch (word) {
  case AXIS_TP_DEPTH: return parallel_grid(o).depth;
  case AXIS_TP_ROW: return parallel_grid(o).rows;
  case AXIS_TP: return parallel_grid(o).cols;
  default: return mesh_axis_size(&o->mesh, word);
  }
}

const char *parallel_grid_text(const StepParallel *o, char text[80]) {
  TensorGrid g = parallel_grid(o);
  if (o->tensor == LAYOUT_TENSOR_2D) snprintf(text, 80, "%d × %d ranks (rows × columns)", g.rows, g.cols);
  else snprintf(text, 80, "%d × %d × %d ranks (depth × rows × columns)", g.depth, g.rows, g.cols);
  return text;
}

// ---- the judge -----------------------------------------------------------------------------------------------------

// Is there such a layout of tp's ranks?
static int grid_fits(const StepParallel *o) {
  int tp = parallel_tp_ranks(o);
  TensorGrid g = parallel_grid(o);
  if (o->tensor == LAYOUT_TENSOR_2D && o->depth) return 0;
  if (o->tensor == LAYOUT_TENSOR_2_5D && !o->depth && g.depth == 1) return tp == 1 && !o->rows;
  return g.depth * g.rows * g.cols == tp && (!o->rows || g.rows == o->rows) && (!o->depth || g.depth == o->depth) &&
         (o->tensor != LAYOUT_TENSOR_3D || tp == 1 || g.depth > 1);
}

int parallel_summa_fits(const StepParallel *o) {
  TensorGrid g = parallel_grid(o);
  return !o->summa || g.rows == g.cols;
}

static int fits_with(const StepParallel *o, int tp, SizesFit fits, const void *context) {
  StepParallel other = *o;
  int at = mesh_axis(&o->mesh, AXIS_TP);
  if (at >= 0) other.mesh.axis[at].size = tp;
  return grid_fits(&other) && parallel_summa_fits(&other) && fits(&other, context);
}

const char *parallel_nearest_tp(const StepParallel *o, SizesFit fits, const void *context, ParallelProblem *problem,
                                char text[64]) {
  int tp = parallel_tp_ranks(o), below = tp - 1, above = tp + 1, most = 8 * tp;
  if (problem->unread) return "";
  while (below > 0 && !fits_with(o, below, fits, context)) below--;
  while (above < most && !fits_with(o, above, fits, context)) above++;
  return parallel_nearest(problem, below, above < most ? above : 0, text);
}

static const char *nearest_divisor(ParallelProblem *problem, int value, int of, char text[64]) {
  int64_t near[2];
  nearest_divisors(of, value, near);
  return parallel_nearest(problem, near[0], near[1], text);
}

// Rows and depth that are given must divide tp. The depth is 1 where 2.5d finds none of its own: then tp is to blame.
static int check_given(const StepParallel *o, ParallelProblem *problem) {
  int tp = parallel_tp_ranks(o), depth = o->tensor != LAYOUT_TENSOR_2_5D ? 1 : o->depth ? o->depth : depth_of(tp);
  char text[64], deep[48] = "";
  if (tp % depth)
    return parallel_refuse(
        problem, "parallel.depth",
        "parallel.depth is %d, but mesh.tp (%d) is depth · rows · columns, which it must divide; the nearest "
        "is %s",
        o->depth, tp, nearest_divisor(problem, o->depth, tp, text));
  if (!o->rows || tp / depth % o->rows == 0 || (o->tensor == LAYOUT_TENSOR_2_5D && !o->depth && depth == 1))
    return PLAIT_OK;
  if (depth > 1) snprintf(deep, sizeof deep, " ÷ depth (%d ÷ %d)", tp, depth);
  else snprintf(deep, sizeof deep, " (%d)", tp);
  return parallel_refuse(
      problem, "parallel.rows",
      "parallel.rows is %d, but mesh.tp%s is rows · columns, which it must divide; the nearest is %s", o->rows, deep,
      nearest_divisor(problem, o->rows, tp / depth, text));
}

int parallel_check_grid(const StepParallel *o, SizesFit fits, const void *context, ParallelProblem *problem) {
  int tp = parallel_tp_ranks(o), of_rows = o->rows && o->rows != parallel_grid(o).rows;
  TensorGrid g = parallel_grid(o);
  char text[64];
  if (o->tensor == LAYOUT_TENSOR_1D || grid_fits(o)) return PLAIT_OK;
  problem->also = "parallel.tensor";
  if (o->tensor == LAYOUT_TENSOR_2D && o->depth)
    return parallel_refuse(problem, "parallel.depth",
                           "parallel.depth is %d, but parallel.tensor 2d has none; take 2.5d, or leave it out",
                           o->depth);
  if (o->tensor == LAYOUT_TENSOR_3D && tp > 1 && g.depth > 1)
    return parallel_refuse(problem, of_rows ? "parallel.rows" : "parallel.depth",
                           "parallel.%s is %d, but parallel.tensor 3d with mesh.tp %d is %d · %d · %d; leave it out",
                           of_rows ? "rows" : "depth", of_rows ? o->rows : o->depth, tp, g.depth, g.rows, g.cols);
  if (o->tensor == LAYOUT_TENSOR_3D) {
    StepParallel free = *o;
    free.rows = free.depth = 0;
    return parallel_refuse(
        problem, "mesh.tp",
        "mesh.tp is %d, but parallel.tensor 3d takes a cube of ranks, l · l · l; the nearest mesh.tp is %s", tp,
        parallel_nearest_tp(&free, fits, context, problem, text));
  }
  if (check_given(o, problem)) return PLAIT_INFEASIBLE;
  return parallel_refuse(
      problem, "mesh.tp",
      "mesh.tp is %d, but parallel.tensor 2.5d takes depth · q · q ranks with 1 < depth <= q; the nearest "
      "mesh.tp is %s, or give parallel.depth",
      tp, parallel_nearest_tp(o, fits, context, problem, text));
}
