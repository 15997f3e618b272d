// Shared by the reference kernel of ORTHOGONALIZE and fast ones.
#pragma once
#include "op/op.h"

// The matrices of an operand, one after the other, each (rows, columns).
typedef struct OrthogonalizeShape {
  int64_t matrices, rows, columns, shorter, longer;
  int is_wide; // rows are no more than columns: products are with x xᵀ, and else with xᵀ x
} OrthogonalizeShape;
OrthogonalizeShape orthogonalize_shape(const Operand *u, const OrthogonalizeAttr *attr);
// FLOPs of one matrix: of each step x xᵀ, its square, and the square's product with x.
static inline double orthogonalize_flops(double shorter, double longer) {
  return ORTHOGONALIZE_STEPS * (4 * shorter * shorter * longer + 2 * shorter * shorter * shorter);
}
