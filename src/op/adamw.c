// ADAMW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), in the order of PyTorch's update.
#include "op/optimizer.h"
#include <math.h>

// w, m, v, g, lr, factor, skip, step → w, m, v
static void reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  const OptimizerAttr *attr = call->attr;
  const OptimizerScalars s = optimizer_scalars(call);
  double correction1 = 1 - pow(attr->beta1, s.step), correction2 = sqrt(1 - pow(attr->beta2, s.step));
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = optimizer_load(call, i), m = operand_load(&in[1], i), v = operand_load(&in[2], i);
    if (!s.skip) {
      double g = operand_load(&in[3], i) * s.factor;
      m = attr->beta1 * m + (1 - attr->beta1) * g;
      v = attr->beta2 * v + (1 - attr->beta2) * g * g;
      w -= s.lr * attr->decay * w;
      w -= s.lr / correction1 * m / (sqrt(v) / correction2 + attr->epsilon);
    }
    optimizer_store(call, i, w);
    operand_store(&out[1], i, m);
    operand_store(&out[2], i, v);
  }
}

static const OptimizerDef optimizer = {
    .meaning = "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)",
    .state = {"moment1", "moment2"},
    .squares = 1 << 1,
    .reads = "betas epsilon",
    .betas = {0.9, 0.999},
};

const OpDef op_def_adamw = {
    .name = "adamw",
    .meaning = "w, m, v, g, lr (), factor (), skip (), step () → w, m, v after one step with gradient factor g; "
               "unchanged when "
               "skip; in place",
    .shape = optimizer_shape,
    .rule = optimizer_rule,
    .reference = reference,
    .in_place = 3,
    .writes_copy = optimizer_writes_copy,
    .optimizer = &optimizer,
};
