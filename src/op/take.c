// TAKE: one position of each sequence, e.g. the last one when text is generated. Not differentiable.
#include "op/build.h"

// x (b, s, e…), index (b) → (b, e…)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]), index = *graph_tensor(g, node->input[1]);
  CHECK(x.shape.rank >= 2 && index.shape.rank == 1 && index.shape.size[0] == x.shape.size[0]);
  Shape s = x.shape;
  for (int i = 1; i + 1 < s.rank; i++) {
    s.size[i] = s.size[i + 1];
    s.dim[i] = s.dim[i + 1];
  }
  s.rank--;
  graph_output(g, node, "", x.dtype, s);
}

// A rank without the position gives 0, so sharded positions are summed.
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS], out[RULE_LETTERS];
  op_letters(g, node->input[0], &used, x);
  snprintf(out, sizeof out, "%c%s", x[0], x + 2);
  op_rule(text, size, (const char *[]){x, (char[]){x[0], 0}}, 2, (const char *[]){out}, 1, "; linear 0");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t width = operand_extent(x, 2, x->rank);
  for (int64_t b = 0; b < x->size[0]; b++) {
    int64_t s = index_local(&x->map[1], (int64_t)operand_load(&call->input[1], b));
    for (int64_t e = 0; e < width; e++)
      operand_store(&call->output[0], b * width + e, s < 0 ? 0 : operand_load(x, (b * x->size[1] + s) * width + e));
  }
}

// One position of each sequence.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = operand_bytes(&input[1]) + operand_bytes(&output[0]);
  work->vector = 0;
}

const OpDef op_def_take = {
    .name = "take",
    .meaning = "x (b, s, e…), index (b) → x[b, index[b], :] (b, e…); 0 where another rank holds the position",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .looks_up = 1,
};

int op_take(Graph *g, const char *name, int x, int index) {
  int n = graph_node(g, OP_TAKE, name, (int[]){x, index}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
