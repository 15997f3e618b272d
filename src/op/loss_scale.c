// LOSS_SCALE and UNSCALE: gradients of narrow precisions are computed scaled up, so that small ones do not
// vanish (Micikevicius et al., "Mixed Precision Training", ICLR 2018). The scale is found while training: it grows
// until a step overflows. Scalars of the Program, so that no host decides inside a step.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static void same_shapes(Graph *g, Node *node, int scalars, int outputs, const char *const *suffix) {
  for (int k = node->ninput - scalars; k < node->ninput; k++) CHECK(graph_tensor(g, node->input[k])->shape.rank == 0);
  for (int k = 0; k < outputs; k++) {
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, suffix[k], x.dtype, x.shape);
  }
}

// scale (), good (), skip () → scale, good
static void scale_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  same_shapes(g, node, 3, 2, (const char *[]){"scale", "good"});
}

static void scale_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void scale_reference(const KernelCall *call) {
  const LossScaleAttr *attr = call->attr;
  double scale = operand_load(&call->input[0], 0), good = operand_load(&call->input[1], 0) + 1;
  if (!attr->interval) good = 0;
  else if (operand_load(&call->input[2], 0) != 0)
    scale = fmax(scale / FAULT(loss_scale_is_not_halved, 2, 1), LOSS_SCALE_LEAST), good = 0;
  else if (good >= (double)attr->interval + FAULT(loss_scale_grows_late, 0, 1))
    scale = fmin(scale * 2, LOSS_SCALE_MOST), good = 0;
  operand_store(&call->output[0], 0, scale);
  operand_store(&call->output[1], 0, good);
}

const OpDef op_def_loss_scale = {
    .name = "loss_scale",
    .meaning = "scale (), good (), skip () → scale / 2, 0 when skip; scale · 2, 0 after `interval` good steps; else "
               "scale, good + 1; "
               "interval 0: scale, 0; in place",
    .shape = scale_shape,
    .rule = scale_rule,
    .reference = scale_reference,
    .in_place = 2,
};

void op_loss_scale(Graph *g, const char *name, int scale, int good, int skip, int64_t interval) {
  LossScaleAttr attr = {.interval = interval};
  int n = graph_node(g, OP_LOSS_SCALE, name, (int[]){scale, good, skip}, 3, &attr, sizeof attr);
  for (int k = 0; k < 2; k++) op_update(g, n, k, k);
}

// x (…), scale () → x
static void unscale_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  same_shapes(g, node, 1, 1, (const char *[]){""});
}

static void unscale_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

static void unscale_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  double scale = operand_load(&call->input[1], 0);
  for (int64_t i = 0; i < n; i++) operand_store(&call->output[0], i, operand_load(&call->input[0], i) / scale);
}

const OpDef op_def_unscale = {
    .name = "unscale",
    .meaning = "x (…), scale () → x / scale",
    .shape = unscale_shape,
    .rule = unscale_rule,
    .reference = unscale_reference,
};

int op_unscale(Graph *g, const char *name, int x, int scale) {
  int n = graph_node(g, OP_UNSCALE, name, (int[]){x, scale}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
