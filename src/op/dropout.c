// DROPOUT: zeroes elements and scales the rest. The mask belongs to the element's place in the global batch.
#include "op/build.h"
#include "op/formula.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  CHECK(x.shape.rank >= 2, "dropout of %s needs (batch, seq, …)", node->name);
  graph_output(g, node, "", x.dtype, x.shape);
}

// The same mask on dy: the same op with the same stream.
static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = -1;
  if (doutput[0] < 0) return;
  int n = graph_node(g, OP_DROPOUT, op_derived_name(g, &node, "dx"), doutput, 1, node.attr, sizeof(DropoutAttr));
  dinput[0] = g->node.data[n].output[0];
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

// Global linear index over the dims after batch and seq of local element i of these dims.
static int64_t feature_of(const Operand *x, int64_t i) {
  int64_t feature = 0, stride = 1;
  for (int d = x->rank - 1; d >= 2; d--) {
    feature += stride * index_map(&x->map[d], i % x->size[d]);
    stride *= x->map[d].global;
    i /= x->size[d];
  }
  return feature;
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0];
  const DropoutAttr *attr = call->attr;
  const CallParameters *parameters = call->parameters;
  PhiloxKey key = philox_key(parameters->seed, parameters->step, attr->stream);
  int64_t width = operand_extent(x, 2, x->rank);
  for (int64_t b = 0, i = 0; b < x->size[0]; b++)
    for (int64_t s = 0; s < x->size[1]; s++)
      for (int64_t f = 0; f < width; f++, i++) {
        int keep = dropout_keep(key, parameters->sample_base + index_map(&x->map[0], b), index_map(&x->map[1], s),
                                feature_of(x, f), attr->probability);
        operand_store(&call->output[0], i, keep ? operand_load(x, i) / (1 - attr->probability) : 0);
      }
}

static void evaluate(Node *node) {
  node->op = OP_IDENTITY;
  memset(node->attr, 0, sizeof node->attr);
}

const OpDef op_def_dropout = {
    .name = "dropout",
    .meaning = "x (b, s, f…) → x / (1 - p) where kept, else 0; Philox at (sample, position, feature); in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .evaluate = evaluate,
    .in_place = 1,
};

int op_dropout(Graph *g, const char *name, int x, double probability) {
  CHECK(probability >= 0 && probability < 1);
  if (probability == 0) return x;
  DropoutAttr attr = {.probability = probability};
  int n = graph_node(g, OP_DROPOUT, name, &x, 1, &attr, sizeof attr);
  Node *node = &g->node.data[n];
  node_attr(node, DropoutAttr)->stream = philox_name(node->name);
  return node->output[0];
}
