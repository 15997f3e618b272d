// MERGE: attention to some keys and attention to others, into attention to all of them (Rabe and Staats,
// "Self-attention Does Not Need O(n²) Memory", 2021): each part counts by the exponential of its logsumexp.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

// out_a (b, s, g, r, d), logsumexp_a (b, g, r, s), out_b and logsumexp_b likewise → out, logsumexp
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 4);
  Tensor out = *graph_tensor(g, node->input[0]), rows = *graph_tensor(g, node->input[1]);
  CHECK(op_same_sizes(g, node->input[0], node->input[2]) && op_same_sizes(g, node->input[1], node->input[3]));
  const int64_t *n = out.shape.size, *m = rows.shape.size;
  CHECK(out.shape.rank == 5 && rows.shape.rank == 4);
  CHECK(m[0] == n[0] && m[1] == n[2] && m[2] == n[3] && m[3] == n[1]);
  graph_output(g, node, "", out.dtype, out.shape);
  graph_output(g, node, "logsumexp", rows.dtype, rows.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsgrd", "bgrs", "bsgrd", "bgrs"}, 4, (const char *[]){"bsgrd", "bgrs"}, 2,
          "; complete 1 d");
}

// A part that saw no key (logsumexp -inf) has weight 0; where neither part saw one, out is 0 and logsumexp -inf.
static void reference(const KernelCall *call) {
  const Operand *a = &call->input[0], *b = &call->input[2], *out = &call->output[0];
  const int64_t *n = a->size, s = n[1], heads = n[2] * n[3], d = n[4];
  for (int64_t row = 0; row < n[0] * s * heads; row++) {
    int64_t at = (row / heads / s * heads + row % heads) * s + row / heads % s; // of (b, g, r, s)
    double of_a = operand_load(&call->input[1], at), of_b = operand_load(&call->input[3], at);
    double most = fmax(of_a, of_b), none = most == -INFINITY;
    double logsumexp = none ? most : most + log(exp(of_a - most) + exp(of_b - most));
    double weight_a = none ? 0 : exp(of_a - logsumexp), weight_b = none ? 0 : exp(of_b - logsumexp);
    for (int64_t i = row * d; i < (row + 1) * d; i++)
      operand_store(out, i, FAULT(merge_reference, weight_a, 1) * operand_load(a, i) + weight_b * operand_load(b, i));
    operand_store(&call->output[1], at, logsumexp);
  }
}

const OpDef op_def_merge = {
    .name = "merge",
    .meaning = "out_a (b, s, g, r, d), logsumexp_a (b, g, r, s), out_b, logsumexp_b: attention of the same queries to "
               "different keys → out, logsumexp = log(e^a + e^b) of all these keys; in place",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .in_place = 2,
    .minus_infinity = 2, // logsumexp of a query that sees no key
};

int op_merge(Graph *g, const char *name, const int part[4], int *logsumexp) {
  int node = graph_node(g, OP_MERGE, name, part, 4, NULL, 0);
  *logsumexp = g->node.data[node].output[1];
  return g->node.data[node].output[0];
}
