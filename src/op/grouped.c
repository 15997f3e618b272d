// GROUPED: each expert's rows times its matrix, and GROUPED_WEIGHT, the gradient of the matrices. Only rows that are
// there are multiplied (Gale et al., "MegaBlocks", 2022).
#include "base/fault.h"
#include "op/build.h"
#include "op/expert_rows.h"

// NT: rows (b, s, x, k), w (x, n, k) → (b, s, x, n); NN, its gradient: rows (b, s, x, n), w → (b, s, x, k).
static void shape(Graph *g, Node *node) {
  int nt = node_attr(node, GroupedAttr)->kind == MATMUL_NT;
  CHECK(node->ninput == 3);
  Tensor rows = *graph_tensor(g, node->input[0]), w = *graph_tensor(g, node->input[1]);
  CHECK(tensor_is_compact(&rows) && rows.shape.rank == 4, "%s: %s is not compact", node->name, rows.name);
  CHECK(w.shape.rank == 3 && rows.shape.size[2] == w.shape.size[0] && rows.shape.size[3] == w.shape.size[nt ? 2 : 1],
        "%s: rows of %lld for %lld matrices of %lld × %lld", node->name, (long long)rows.shape.size[3],
        (long long)w.shape.size[0], (long long)w.shape.size[1], (long long)w.shape.size[2]);
  Shape out = rows.shape;
  out.size[3] = w.shape.size[nt ? 1 : 2];
  out.dim[3] = w.shape.dim[nt ? 1 : 2];
  graph_output(g, node, "", rows.dtype, out);
  graph_compact(g, node->output[0], node->input[2], rows.choices);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  GroupedAttr attr = {.kind = MATMUL_NN}, weight = {0};
  CHECK(node_attr(&node, GroupedAttr)->kind == MATMUL_NT, "%s: the gradient of a gradient", node.name);
  dinput[0] = dinput[1] = dinput[2] = -1;
  if (doutput[0] < 0) return;
  int rows[] = {doutput[0], node.input[1], node.input[2]}, matrix[] = {doutput[0], node.input[0], node.input[2]};
  // dw comes first, as matmul's does.
  int n = graph_node(g, OP_GROUPED_WEIGHT, op_derived_name(g, &node, "dw"), matrix, 3, &weight, sizeof weight);
  dinput[1] = g->node.data[n].output[0];
  n = graph_node(g, OP_GROUPED, op_derived_name(g, &node, "dx"), rows, 3, &attr, sizeof attr);
  dinput[0] = g->node.data[n].output[0];
}

// Letters of n and k; the dims may have any names.
static void letters(const Graph *g, int tensor, int a, int b, char *of_a, char *of_b) {
  uint32_t used = 1u << ('b' - 'a') | 1u << ('s' - 'a') | 1u << ('x' - 'a');
  *of_a = op_letter(&used, graph_tensor(g, tensor)->shape.dim[a]);
  *of_b = op_letter(&used, graph_tensor(g, tensor)->shape.dim[b]);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  int nt = node_attr(node, GroupedAttr)->kind == MATMUL_NT;
  char n, k;
  letters(g, node->input[1], 1, 2, &n, &k);
  snprintf(text, size, "b s x %c, x %c %c, b s x -> b s x %c ; linear 0 1", nt ? k : n, n, k, nt ? n : k);
}

static void reference(const KernelCall *call) {
  int nt = ((const GroupedAttr *)call->attr)->kind == MATMUL_NT;
  const Operand *out = &call->output[0], *w = &call->input[1];
  ExpertRows m = expert_rows(&call->input[2]);
  double *x = operand_doubles(&call->input[0]), *matrix = operand_doubles(w);
  int64_t columns = w->size[nt ? 1 : 2], depth = w->size[nt ? 2 : 1], by_column = nt ? depth : 1,
          by_depth = nt ? 1 : columns, count = 0;
  for (ExpertRow r = expert_row_first(); expert_row_next(&m, &r); count++)
    for (int64_t j = 0; j < columns; j++) {
      double sum = 0;
      for (int64_t i = 0; i < depth; i++)
        sum += x[r.index * depth + i] * matrix[r.expert * columns * depth + j * by_column + i * by_depth];
      operand_store(out, r.index * columns + j, sum);
    }
  expert_rows_clear(out, count);
  operand_doubles_free(&call->input[0], x);
  operand_doubles_free(w, matrix);
}

// Rows of the operand times both sizes of a matrix: a product an expert, all with as many rows.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  (void)attr;
  double experts = (double)input[1].size[0], n = (double)output[0].size[3], k = (double)input[0].size[3],
         all = (double)operand_elements(&input[0]);
  work->matrix = 2.0 * all * n;
  work->vector = 0;
  work->product[work->products++] = (OpProduct){all / k / experts, n, k, experts};
}

const OpDef op_def_grouped = {
    .name = "grouped",
    .meaning = "nt: rows (b, s, x, k), w (x, n, k), mask (b, s, x) → each expert's rows times its wᵀ (b, s, x, n); "
               "nn: rows (b, s, x, n) → times its w (b, s, x, k)",
    .shape = shape,
    .widens_weight = 1,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
    .defers_sum = 1,
};

// drows (b, s, x, n), rows (b, s, x, k), mask (b, s, x) → dw (x, n, k); with `accumulate` a further input (x, n, k)
static void weight_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 + !!node_attr(node, GroupedAttr)->accumulate);
  Tensor drows = *graph_tensor(g, node->input[0]), rows = *graph_tensor(g, node->input[1]);
  CHECK(tensor_is_compact(&drows) && tensor_is_compact(&rows), "%s", node->name);
  Shape dw = {.rank = 3,
              .size = {rows.shape.size[2], drows.shape.size[3], rows.shape.size[3]},
              .dim = {rows.shape.dim[2], drows.shape.dim[3], rows.shape.dim[3]}};
  graph_output(g, node, "", op_statistics_dtype(rows.dtype), dw);
}

static void weight_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char n, k;
  letters(g, node->output[0], 1, 2, &n, &k);
  // An accumulator would be added once a rank; `fuse` makes these after partition, where that is right.
  if (node_attr(node, GroupedAttr)->accumulate)
    snprintf(text, size, "b s x %c, b s x %c, b s x, x %c %c -> x %c %c ; whole b s", n, k, n, k, n, k);
  else snprintf(text, size, "b s x %c, b s x %c, b s x -> x %c %c ; linear 0 1", n, k, n, k);
}

static void weight_reference(const KernelCall *call) {
  const Operand *dw = &call->output[0];
  ExpertRows m = expert_rows(&call->input[2]);
  double *dy = operand_doubles(&call->input[0]), *x = operand_doubles(&call->input[1]);
  int64_t n = dw->size[1], k = dw->size[2], first = 0;
  int add = call_adds(call, ((const GroupedAttr *)call->attr)->accumulate);
  for (int64_t e = 0; e < m.experts; e++) {
    int64_t rows = expert_rows_of(&m, e);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < k; j++) {
        double sum = add ? operand_load(&call->input[3], (e * n + i) * k + j) : 0;
        for (int64_t r = first; r < first + rows; r++) sum += dy[r * n + i] * x[r * k + j];
        operand_store(dw, (e * n + i) * k + j, sum);
      }
    first += rows;
  }
  operand_doubles_free(&call->input[0], dy);
  operand_doubles_free(&call->input[1], x);
}

static int accumulate(Node *node) {
  GroupedAttr *attr = node_attr(node, GroupedAttr);
  if (attr->accumulate) return -1;
  attr->accumulate = 1;
  return 0;
}

// Of each expert dw (n, k), summed over its rows.
static void weight_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  double experts = (double)output[0].size[0], n = (double)output[0].size[1], k = (double)output[0].size[2],
         all = (double)operand_elements(&input[0]);
  work->matrix = 2.0 * all * k;
  work->vector = ((const GroupedAttr *)attr)->accumulate ? experts * n * k : 0;
  work->product[work->products++] = (OpProduct){n, k, all / n / experts, experts, MATMUL_TN};
}

const OpDef op_def_grouped_weight = {
    .name = "grouped_weight",
    .meaning = "drows (b, s, x, n), rows (b, s, x, k), mask (b, s, x) → each expert's drowsᵀ rows (x, n, k), with "
               "`accumulate` + c (x, n, k) in place",
    .shape = weight_shape,
    .rule = weight_rule,
    .reference = weight_reference,
    .work = weight_work,
    .expensive = 1,
    .accumulate = accumulate,
    .defers_sum = 1,
};

int op_grouped(Graph *g, const char *name, int rows, int w) {
  GroupedAttr attr = {.kind = MATMUL_NT};
  int n = graph_node(g, OP_GROUPED, name, (int[]){rows, w, graph_tensor(g, rows)->mask}, 3, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
