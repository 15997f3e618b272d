// ROPE: rotary positions (Su et al., "RoFormer", 2021) on pairs (i, i + d/2), as Hugging Face lays out Llama's weights.
#include "op/build.h"
#include "op/formula.h"

// x (b, s, heads…, d), positions (b, s) → as x
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]), p = *graph_tensor(g, node->input[1]);
  int n = x.shape.rank;
  CHECK(n >= 3 && p.shape.rank == 2 && p.shape.size[0] == x.shape.size[0] && p.shape.size[1] == x.shape.size[1]);
  CHECK(x.shape.size[n - 1] % 2 == 0, "rope needs an even head_dim");
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = -1;
  if (doutput[0] < 0) return;
  RopeAttr attr = *node_attr(&node, RopeAttr);
  attr.inverse = !attr.inverse;
  dinput[0] = op_rope(g, op_derived_name(g, &node, "dx"), doutput[0], node.input[1], &attr);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS], clauses[] = "; linear 0 ; whole ?";
  op_letters(g, node->input[0], &used, x);
  clauses[sizeof clauses - 2] = x[strlen(x) - 1];
  op_rule(text, size, (const char *[]){x, (char[]){x[0], x[1], 0}}, 2, (const char *[]){x}, 1, clauses);
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *y = &call->output[0];
  const RopeAttr *attr = call->attr;
  int64_t d = x->size[x->rank - 1], heads = operand_extent(x, 2, x->rank - 1), tokens = operand_extent(x, 0, 2);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t i = 0; i < d / 2; i++) {
      double angle = operand_load(&call->input[1], t) * rope_frequency(attr, i, d);
      double c = cos(angle), s = attr->inverse ? -sin(angle) : sin(angle);
      for (int64_t h = 0; h < heads; h++) {
        int64_t low = (t * heads + h) * d + i, high = low + d / 2;
        double a = operand_load(x, low), b = operand_load(x, high);
        operand_store(y, low, a * c - b * s);
        operand_store(y, high, b * c + a * s);
      }
    }
}

const OpDef op_def_rope = {
    .name = "rope",
    .meaning = "x (b, s, heads…, d), positions (b, s) → pairs (i, i + d/2) turned by position · theta^(-2i/d); "
               "inverse: turned back",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
};

int op_rope(Graph *g, const char *name, int x, int positions, const RopeAttr *attr) {
  int n = graph_node(g, OP_ROPE, name, (int[]){x, positions}, 2, attr, sizeof *attr);
  return g->node.data[n].output[0];
}
