// TAKE: some positions of each sequence, e.g. the last ones when text is generated. Not differentiable.
#include "op/build.h"

// x (b, s, e…), index (b, l) → (b, l, e…)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]), index = *graph_tensor(g, node->input[1]);
  CHECK(x.shape.rank >= 2 && index.shape.rank == 2 && index.shape.size[0] == x.shape.size[0]);
  Shape s = x.shape;
  s.size[1] = index.shape.size[1];
  s.dim[1] = index.shape.dim[1];
  graph_output(g, node, "", x.dtype, s);
}

// A rank without the position gives 0, so sharded positions are summed.
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS], index[RULE_LETTERS], out[2 * RULE_LETTERS];
  op_letters(g, node->input[0], &used, x);
  op_letters(g, node->input[1], &used, index);
  index[0] = x[0];
  snprintf(out, sizeof out, "%s%s", index, x + 2);
  op_rule(text, size, (const char *[]){x, index}, 2, (const char *[]){out}, 1, "; linear 0");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t width = operand_extent(x, 2, x->rank), wanted = call->input[1].size[1];
  for (int64_t i = 0; i < x->size[0] * wanted; i++) {
    int64_t s = index_local(&x->map[1], (int64_t)operand_load(&call->input[1], i)), from = i / wanted * x->size[1] + s;
    for (int64_t e = 0; e < width; e++)
      operand_store(&call->output[0], i * width + e, s < 0 ? 0 : operand_load(x, from * width + e));
  }
}

// The positions that are taken.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = operand_bytes(&input[1]) + operand_bytes(&output[0]);
  work->vector = 0;
}

const OpDef op_def_take = {
    .name = "take",
    .meaning = "x (b, s, e…), index (b, l) → x[b, index[b, l], :] (b, l, e…); 0 where the index is negative or another "
               "rank holds the position",
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
