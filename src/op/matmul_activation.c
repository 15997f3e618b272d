// MATMUL_ACTIVATION and MATMUL_ACTIVATION_GRAD: a product and what is applied to it, in one node; `fuse` makes them for
// devices whose products can. A product's sums need not be rounded before their activation.
#include "op/build.h"
#include "op/formula.h"
#include "op/matmul.h"
#include <stdlib.h>

static void shape(Graph *g, Node *node) {
  op_def(OP_MATMUL)->shape(g, node);
  if (!node_attr(node, MatmulActivationAttr)->keeps) return;
  const Tensor y = *graph_tensor(g, node->output[0]);
  graph_output(g, node, "before", y.dtype, y.shape);
}

// Its third input is not the product's.
static void grad_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  node->ninput = 2;
  op_def(OP_MATMUL)->shape(g, node);
  node->ninput = 3;
  CHECK(op_same_sizes(g, node->input[2], node->output[0]), "%s", node->name);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) { matmul_rule(g, node, 0, text, size); }

// The product of the call in doubles, as one output, which the caller frees.
static Operand product_of(const KernelCall *call, int ninput) {
  Operand wide = call->output[0];
  wide.dtype = DTYPE_F64;
  wide.data = xcalloc((size_t)operand_elements(&wide) + 1, sizeof(double));
  KernelCall product = *call;
  product.ninput = ninput;
  product.noutput = 1;
  product.output = &wide;
  product.attr = &((const MatmulActivationAttr *)call->attr)->product;
  op_def(OP_MATMUL)->reference(&product);
  return wide;
}

static void reference(const KernelCall *call) {
  const MatmulActivationAttr *attr = call->attr;
  const Operand wide = product_of(call, call->ninput);
  const double *x = wide.data;
  for (int64_t i = 0, n = operand_elements(&wide); i < n; i++) {
    operand_store(&call->output[0], i, activation_value(attr->kind, x[i]));
    if (attr->keeps) operand_store(&call->output[1], i, x[i]);
  }
  free(wide.data);
}

static void grad_reference(const KernelCall *call) {
  const MatmulActivationAttr *attr = call->attr;
  const Operand wide = product_of(call, 2);
  const double *dy = wide.data;
  for (int64_t i = 0, n = operand_elements(&wide); i < n; i++)
    operand_store(&call->output[0], i, activation_slope(attr->kind, operand_load(&call->input[2], i)) * dy[i]);
  free(wide.data);
}

static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  matmul_work(input, output, attr, work);
  work->vector += work->product[0].m * work->product[0].n;
}

const OpDef op_def_matmul_activation = {
    .name = "matmul_activation",
    .meaning = "as matmul nt, x and w with `bias` + b → act(x wᵀ + b), and with `keeps` x wᵀ + b as well",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
};

const OpDef op_def_matmul_activation_grad = {
    .name = "matmul_activation_grad",
    .meaning = "as matmul nn, dy (m…, n…), w, and x (m…, k…) → act'(x) dy w",
    .shape = grad_shape,
    .rule = rule,
    .reference = grad_reference,
    .work = work_of,
    .expensive = 1,
};
