// How far the outputs of a kernel are from those of the reference, and how far rounding may bring them.
#pragma once
#include "op/op.h"
#include <stddef.h>

typedef struct OpBound {
  double least; // an output's largest element counts as more by this: inputs are about 1, and where all cancels, their
                // rounding stays
  double factor;  // of the bounds: 2 where both sides round
  int real;       // operands of a run: padding is not compared, and a sum over rows, which may cancel, is relative to
                  // its largest term too
} OpBound;

// The dtype for which a kernel is chosen: of the first floating-point operand.
Dtype op_kernel_dtype(const Operand *input, int ninput, const Operand *output);
// The largest share of its bound that an error has, over all outputs; at most 1: equal to rounding. Above it `text`
// names the first number that differs. fast, slow: (noutput), of the same call.
double op_error(Op op, const Operand *input, int ninput, const Operand *fast, const Operand *slow, int noutput,
                const OpBound *bound, char *text, size_t size);
