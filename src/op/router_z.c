// ROUTER_Z: the loss that keeps a router's logits small (Zoph et al., "ST-MoE", 2022): of a sequence the mean over its
// positions of the squared logsumexp. Its gradient is made in the same node, since the seed is known before.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

// logits (b, s, x), seed () → loss_sum () fp64, dlogits (b, s, x)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2 && node->input[1] >= 0);
  Tensor logits = *graph_tensor(g, node->input[0]);
  CHECK(logits.shape.rank == 3, "%s", node->name);
  graph_output(g, node, "loss_sum", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "dlogits", logits.dtype, logits.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  dinput[0] = g->node.data[id].output[1];
  dinput[1] = -1;
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", ""}, 2, (const char *[]){"", "bsx"}, 2, "; whole x");
}

// Divided by the positions of a whole sequence, of which this rank may have a part.
static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t rows = x->size[0] * x->size[1], n = x->size[2];
  double *logits = operand_doubles(x), total = 0, seed = operand_load(&call->input[1], 0);
  double positions = (double)FAULT(z_loss_of_a_local_sequence, x->map[1].global, x->size[1]);
  for (int64_t r = 0; r < rows; r++) {
    const double *logit = logits + r * n;
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, logit[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(logit[i] - most);
    double logsumexp = most + log(sum);
    total += logsumexp * logsumexp;
    for (int64_t i = 0; i < n; i++)
      operand_store(&call->output[1], r * n + i, seed * 2 * logsumexp / positions * exp(logit[i] - logsumexp));
  }
  operand_store(&call->output[0], 0, total / positions);
  operand_doubles_free(x, logits);
}

const OpDef op_def_router_z = {
    .name = "router_z",
    .meaning = "logits (b, s, x), seed () → loss_sum () = Σ over b of the mean over s of logsumexp(logits)²; dlogits "
               "(b, s, x) = seed · its gradient",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
};
