// LOGITS: the head's product for a sampler, with the two numbers of a row that make its logarithms of probabilities.
// Kernels make them as LINEAR_CROSS_ENTROPY does: log softmax(logits)[i] = logit[i] - maximum - log(sum) has the bits
// of the loss.
#include "op/build.h"
#include <math.h>

// x (b, e), w (v, e) → logits (b, v), maximum (b), sum (b)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]), w = *graph_tensor(g, node->input[1]);
  CHECK(x.shape.rank == 2 && w.shape.rank == 2 && x.shape.size[1] == w.shape.size[1], "%s", node->name);
  Dtype dtype = op_statistics_dtype(x.dtype);
  Shape rows = shape_of(1, x.shape.size, x.shape.dim), logits = x.shape;
  logits.size[1] = w.shape.size[0];
  logits.dim[1] = w.shape.dim[0];
  graph_output(g, node, "", dtype, logits);
  graph_output(g, node, "maximum", dtype, rows);
  graph_output(g, node, "sum", dtype, rows);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"be", "ve"}, 2, (const char *[]){"bv", "b", "b"}, 3,
          "; whole e ; lower v ; complete 1 v ; complete 2 v");
}

static void lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  int n = graph_node(g, OP_LOGITS, op_derived_name(g, like, "local"), input, 2, NULL, 0);
  for (int k = 0; k < 3; k++) output[k] = g->node.data[n].output[k];
  op_combine_sums(g, like, axes, &output[1]);
}

// Words that are padding: 0.
static void reference(const KernelCall *call) {
  const Operand *w = &call->input[1], *out = call->output;
  int64_t rows = call->input[0].size[0], e = w->size[1], words = w->size[0], vocab = w->map[0].valid;
  double *x = operand_doubles(&call->input[0]), *table = operand_doubles(w);
  for (int64_t row = 0; row < rows; row++) {
    double maximum = -INFINITY, sum = 0;
    for (int64_t v = 0; v < words; v++) {
      double dot = 0;
      for (int64_t i = 0; v < vocab && i < e; i++) dot += x[row * e + i] * table[v * e + i];
      operand_store(&out[0], row * words + v, dot);
      if (v < vocab) maximum = fmax(maximum, dot);
    }
    for (int64_t v = 0; v < vocab; v++) sum += exp(operand_load(&out[0], row * words + v) - maximum);
    operand_store(&out[1], row, maximum);
    operand_store(&out[2], row, sum);
  }
  operand_doubles_free(&call->input[0], x);
  operand_doubles_free(w, table);
}

static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  OpProduct p = {(double)input[0].size[0], (double)input[1].size[0], (double)input[1].size[1], 1, MATMUL_NT};
  work->matrix = 2.0 * p.m * p.n * p.k;
  work->vector = 4 * p.m * p.n; // the greatest, a difference, an exponential and the sum
  work->product[work->products++] = p;
}

const OpDef op_def_logits = {
    .name = "logits",
    .meaning = "x (b, e), w (v, e) → logits = x wᵀ (b, v), maximum (b) of a row's, sum (b) of exp(logit - maximum)",
    .minus_infinity = 2, // of a shard of the vocabulary that is all padding
    .shape = shape,
    .rule = rule,
    .lower = lower,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
};

int op_logits(Graph *g, const char *name, int x, int w) {
  int n = graph_node(g, OP_LOGITS, name, (int[]){x, w}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
