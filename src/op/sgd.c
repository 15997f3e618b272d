// SGD with optional momentum and (coupled) weight decay, in the order of PyTorch's update.
#include "op/optimizer.h"

// w, momentum or -1, g, lr, factor, skip, step → w, momentum where it is there
static void reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  const OptimizerAttr *attr = call->attr;
  const OptimizerScalars s = optimizer_scalars(call);
  int momentum = in[1].data != NULL;
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = optimizer_load(call, i), m = momentum ? operand_load(&in[1], i) : 0;
    if (!s.skip) {
      double g = operand_load(&in[2], i) * s.factor + attr->decay * w;
      m = momentum ? attr->momentum * m + g : g;
      w -= s.lr * m;
    }
    optimizer_store(call, i, w);
    if (momentum) operand_store(&out[1], i, m);
  }
}

static int keeps(const OptimizerAttr *attr, int state) { return attr->momentum != 0; }

static const OptimizerDef optimizer = {
    .meaning = "stochastic gradient descent with momentum and coupled weight decay, as in PyTorch",
    .state = {"momentum"},
    .keeps = keeps,
    .reads = "momentum",
};

const OpDef op_def_sgd = {
    .name = "sgd",
    .meaning = "w, m?, g, lr (), factor (), skip (), step () → m = momentum m + factor g + decay w, w - lr m; "
               "unchanged when skip; in place",
    .shape = optimizer_shape,
    .rule = optimizer_rule,
    .reference = reference,
    .in_place = 2,
    .writes_copy = optimizer_writes_copy,
    .optimizer = &optimizer,
};
