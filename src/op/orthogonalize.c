// ORTHOGONALIZE: the nearest orthogonal matrix, nearly, by five steps of a Newton-Schulz iteration whose coefficients
// bring singular values of u/‖u‖ quickly near 1 and no further (Jordan et al., "Muon", 2024). Rounding of u/‖u‖ is
// amplified by at most 3.4445⁵ ≈ 485, where a singular value is near 0.
#include "op/orthogonalize.h"
#include "op/build.h"
#include <math.h>

static void shape(Graph *g, Node *node) {
  const OrthogonalizeAttr *attr = node_attr(node, OrthogonalizeAttr);
  Tensor u = *graph_tensor(g, node->input[0]);
  CHECK(attr->rows > 0 && attr->matrices >= 0 && u.shape.rank > attr->matrices + attr->rows, "%s", node->name);
  graph_output(g, node, "", u.dtype, u.shape);
}

// "x a b -> x a b ; whole a b"
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char u[RULE_LETTERS], clause[16 + 2 * MAX_RANK] = "; whole";
  op_letters(g, node->input[0], &used, u);
  for (int d = node_attr(node, OrthogonalizeAttr)->matrices; u[d]; d++) {
    size_t n = strlen(clause);
    snprintf(clause + n, sizeof clause - n, " %c", u[d]);
  }
  op_rule(text, size, (const char *[]){u}, 1, (const char *[]){u}, 1,
          FAULT(matrix_orthogonalized_per_shard, clause, ""));
}

OrthogonalizeShape orthogonalize_shape(const Operand *u, const OrthogonalizeAttr *attr) {
  int first = attr->matrices + attr->rows;
  OrthogonalizeShape s = {operand_extent(u, 0, attr->matrices), operand_extent(u, attr->matrices, first),
                          operand_extent(u, first, u->rank)};
  s.is_wide = s.rows <= s.columns;
  s.shorter = s.is_wide ? s.rows : s.columns;
  s.longer = s.is_wide ? s.columns : s.rows;
  return s;
}

// y (m, n) = a y + x (m, k) · z (k, n), where x and z may be read by columns
static void multiply(double a, double *y, const double *x, const double *z, int64_t m, int64_t n, int64_t k,
                     int64_t x_row, int64_t x_column, int64_t z_row, int64_t z_column) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < k; l++) sum += x[i * x_row + l * x_column] * z[l * z_row + j * z_column];
      y[i * n + j] = a * y[i * n + j] + sum;
    }
}

// x (rows, columns), in place; a and b (shorter, shorter), next (rows, columns)
static void iterate(double *x, double *a, double *b, double *next, const OrthogonalizeShape *s) {
  int64_t r = s->rows, c = s->columns, n = s->shorter, elements = r * c, squares = n * n;
  for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
    if (s->is_wide) multiply(0, a, x, x, r, r, c, c, 1, 1, c); // x xᵀ
    else multiply(0, a, x, x, c, c, r, 1, c, c, 1);            // xᵀ x
    for (int64_t i = 0; i < squares; i++) b[i] = ORTHOGONALIZE_B / ORTHOGONALIZE_C * a[i];
    multiply(1, b, a, a, n, n, n, n, 1, n, 1);
    for (int64_t i = 0; i < squares; i++) b[i] *= ORTHOGONALIZE_C;
    memcpy(next, x, sizeof *x * (size_t)elements);
    if (s->is_wide) multiply(ORTHOGONALIZE_A, next, b, x, r, c, r, r, 1, c, 1);
    else multiply(ORTHOGONALIZE_A, next, x, b, r, c, c, c, 1, c, 1);
    memcpy(x, next, sizeof *x * (size_t)elements);
  }
}

// u → o
static void reference(const KernelCall *call) {
  const Operand *in = &call->input[0], *out = &call->output[0];
  OrthogonalizeShape s = orthogonalize_shape(in, call->attr);
  int64_t elements = s.rows * s.columns, squares = s.shorter * s.shorter;
  double *x = xcalloc((size_t)(2 * elements + 2 * squares) + 1, sizeof *x), *next = x + elements, *a = next + elements;
  for (int64_t k = 0; k < s.matrices; k++) {
    double sum = 0;
    for (int64_t i = 0; i < elements; i++) {
      x[i] = operand_load(in, k * elements + i);
      sum += x[i] * x[i];
    }
    for (int64_t i = 0; i < elements; i++) x[i] = sum > 0 ? x[i] / sqrt(sum) : 0;
    iterate(x, a, a + squares, next, &s);
    for (int64_t i = 0; i < elements; i++) operand_store(out, k * elements + i, x[i]);
  }
  free(x);
}

// Three products a step. In memory the norm reads u; x = u / ‖u‖ reads it and is written; a step reads x twice and both
// squares once, and writes both squares and the next x, if its sums are made inside of the products.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  OrthogonalizeShape s = orthogonalize_shape(&input[0], attr);
  double m = (double)s.shorter, n = (double)s.longer, matrices = (double)s.matrices, steps = ORTHOGONALIZE_STEPS,
         c = matrices * steps, size = (double)dtype_size(input[0].dtype);
  work->matrix = matrices * orthogonalize_flops(m, n);
  work->vector = matrices * (3 * m * n + steps * (2 * m * m + m * n)); // the norm and its quotient, sums of a step
  work->read = size * matrices * (2 * m * n + steps * (2 * m * n + 2 * m * m));
  work->written = size * matrices * (m * n + steps * (2 * m * m + m * n));
  work->product[work->products++] = (OpProduct){m, m, n, c};
  work->product[work->products++] = (OpProduct){m, m, m, c};
  work->product[work->products++] = (OpProduct){m, n, m, c};
}

const OpDef op_def_orthogonalize = {
    .name = "orthogonalize",
    .meaning = "u → of each of its matrices x = u / ‖u‖, and 5 times x = 3.4445 x - 4.775 x xᵀ x + 2.0315 x xᵀ x xᵀ x",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
    .role = ROLE_WHOLE_MATRIX,
};

int op_orthogonalize(Graph *g, const char *name, int u, int matrices, int rows) {
  OrthogonalizeAttr attr = {matrices, rows};
  int node = graph_node(g, OP_ORTHOGONALIZE, name, &u, 1, &attr, sizeof attr);
  return g->node.data[node].output[0];
}
