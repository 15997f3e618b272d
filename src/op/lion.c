// LION (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): every element moves by the learning rate,
// in the direction of an average of gradients in which the newest counts more than in the one that is kept.
#include "op/optimizer.h"

// w, m, g, lr, factor, skip, step → w, m
static void reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  const OptimizerAttr *attr = call->attr;
  const OptimizerScalars s = optimizer_scalars(call);
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = optimizer_load(call, i), m = operand_load(&in[1], i);
    if (!s.skip) {
      double g = operand_load(&in[2], i) * s.factor, direction = attr->beta1 * m + (1 - attr->beta1) * g;
      w -= s.lr * ((direction > 0) - (direction < 0) + attr->decay * w); // the sign of 0 is 0
      m = attr->beta2 * m + (1 - attr->beta2) * g;
    }
    optimizer_store(call, i, w);
    operand_store(&out[1], i, m);
  }
}

static const OptimizerDef optimizer = {
    .meaning = "the sign of an average of gradients, with decoupled weight decay (Chen et al., 2023); its learning "
               "rate is 3 to 10 times "
               "smaller than adamw's, its weight decay as many times larger",
    .state = {"momentum"},
    .reads = "betas",
    .betas = {0.9, 0.99},
    .discontinuous = 1,
};

const OpDef op_def_lion = {
    .name = "lion",
    .meaning = "w, m, g, lr (), factor (), skip (), step () → w - lr (sign(beta1 m + (1 - beta1) factor g) + decay w), "
               "beta2 m + (1 - beta2) factor g; unchanged when skip; in place",
    .shape = optimizer_shape,
    .rule = optimizer_rule,
    .reference = reference,
    .in_place = 2,
    .writes_copy = optimizer_writes_copy,
    .optimizer = &optimizer,
};
