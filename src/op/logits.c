// LOGITS: the head's product for a sampler, with the two numbers of a row that make its logarithms of probabilities.
// Kernels make them as LINEAR_CROSS_ENTROPY does: log softmax(logits)[i] = logit[i] - maximum - log(sum) has the bits
// of the loss.
#include "op/build.h"
#include <math.h>

// x (b, l, e), w (v, e), index (b, l) → logits (b, l, v), maximum (b, l), sum (b, l)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor x = *graph_tensor(g, node->input[0]), w = *graph_tensor(g, node->input[1]);
  const Shape *index = &graph_tensor(g, node->input[2])->shape;
  CHECK(x.shape.rank == 3 && w.shape.rank == 2 && x.shape.size[2] == w.shape.size[1], "%s", node->name);
  CHECK(index->rank == 2 && index->size[0] == x.shape.size[0] && index->size[1] == x.shape.size[1], "%s", node->name);
  Dtype dtype = op_statistics_dtype(x.dtype);
  Shape rows = shape_of(2, x.shape.size, x.shape.dim), logits = x.shape;
  logits.size[2] = w.shape.size[0];
  logits.dim[2] = w.shape.dim[0];
  graph_output(g, node, "", dtype, logits);
  graph_output(g, node, "maximum", dtype, rows);
  graph_output(g, node, "sum", dtype, rows);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"ble", "ve", "bl"}, 3, (const char *[]){"blv", "bl", "bl"}, 3,
          "; whole e ; lower v ; complete 1 v ; complete 2 v");
}

static void lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  int n = graph_node(g, OP_LOGITS, op_derived_name(g, like, "local"), input, 3, NULL, 0);
  for (int k = 0; k < 3; k++) output[k] = g->node.data[n].output[k];
  op_combine_sums(g, like, axes, &output[1]);
}

// Words that are padding, and rows that nobody wants: 0.
static void reference(const KernelCall *call) {
  const Operand *w = &call->input[1], *out = call->output;
  int64_t rows = operand_extent(&call->input[0], 0, 2), e = w->size[1], words = w->size[0], vocab = w->map[0].valid;
  double *x = operand_doubles(&call->input[0]), *table = operand_doubles(w);
  for (int64_t row = 0; row < rows; row++) {
    int wanted = operand_load(&call->input[2], row) >= 0;
    double maximum = wanted ? -INFINITY : 0, sum = 0;
    for (int64_t v = 0; v < words; v++) {
      double dot = 0;
      for (int64_t i = 0; wanted && v < vocab && i < e; i++) dot += x[row * e + i] * table[v * e + i];
      operand_store(&out[0], row * words + v, dot);
      if (v < vocab) maximum = fmax(maximum, dot);
    }
    for (int64_t v = 0; wanted && v < vocab; v++) sum += exp(operand_load(&out[0], row * words + v) - maximum);
    operand_store(&out[1], row, maximum);
    operand_store(&out[2], row, sum);
  }
  operand_doubles_free(&call->input[0], x);
  operand_doubles_free(w, table);
}

static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  OpProduct p = {(double)operand_extent(&input[0], 0, 2), (double)input[1].size[0], (double)input[1].size[1], 1,
                 MATMUL_NT};
  work->matrix = 2.0 * p.m * p.n * p.k;
  work->vector = 4 * p.m * p.n; // the greatest, a difference, an exponential and the sum
  work->product[work->products++] = p;
}

static int panels(const Node *node, int k) { return k == 1; }

const OpDef op_def_logits = {
    .name = "logits",
    .meaning =
        "x (b, l, e), w (v, e), index (b, l) → logits = x wᵀ (b, l, v), maximum (b, l) of a row's, sum (b, l) of "
        "exp(logit - maximum); 0 where the index is negative",
    .minus_infinity = 2, // of a shard of the vocabulary that is all padding
    .shape = shape,
    .rule = rule,
    .lower = lower,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
    .widens_weight = 1,
    .panels = panels,
};

void op_logits(Graph *g, const char *name, int x, int w, int index, int output[3]) {
  int n = graph_node(g, OP_LOGITS, name, (int[]){x, w, index}, 3, NULL, 0);
  memcpy(output, g->node.data[n].output, 3 * sizeof *output);
}
