// Precision: retypes the model's floating-point values. fp32 and fp64 so far; narrower types will add Copies and casts here.
#include "pass/pass.h"

int pass_precision(Graph *g, Dtype compute, Error *error) {
  if (compute != DTYPE_F32 && compute != DTYPE_F64)
    return error_set(error, PLAIT_BAD_INPUT, "precision: %s is not built yet; fp32 and fp64 are", dtype_name(compute));
  // Scalars keep the fp64 that they were made with: counts, norms and learning rates.
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    if (t->shape.rank > 0 && t->dtype == DTYPE_F32) t->dtype = compute;
  }
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->shape.rank > 0 && v->dtype == DTYPE_F32) v->dtype = compute;
  }
  return PLAIT_OK;
}
