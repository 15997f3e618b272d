// MATMUL: y = x wᵀ with groups of dims, and its two gradients, all one op of three kinds.
#include "base/fault.h"
#include "op/build.h"

// The three groups of dims and where they lie: operand 0 is (a…, b…), operand 1 (c…, d…), the output (e…, f…).
typedef struct Groups { int a, b, c, d; int first[2], second[2]; } Groups; // output groups: {operand, half}

static Groups groups_of(const MatmulAttr *attr) {
  int m = attr->m, n = attr->n, k = attr->k;
  switch (attr->kind) {
  case MATMUL_NT: return (Groups){m, k, n, k, {0, 0}, {1, 0}};
  case MATMUL_NN: return (Groups){m, n, n, k, {0, 0}, {1, 1}};
  default: return (Groups){m, n, m, k, {0, 1}, {1, 1}};
  }
}

// Appends dims [from, from + n) of a shape.
static void append_dims(Shape *s, const Shape *x, int from, int n) {
  for (int i = from; i < from + n; i++, s->rank++) {
    CHECK(s->rank < MAX_RANK);
    s->size[s->rank] = x->size[i];
    s->dim[s->rank] = x->dim[i];
  }
}

static void append_group(Shape *s, const Shape operand[2], const Groups *q, const int group[2]) {
  int left = group[0] ? q->c : q->a, right = group[0] ? q->d : q->b;
  append_dims(s, &operand[group[0]], group[1] ? left : 0, group[1] ? right : left);
}

static void shape(Graph *g, Node *node) {
  const MatmulAttr *attr = node_attr(node, MatmulAttr);
  CHECK(node->ninput == 2 + !!attr->accumulate + !!attr->bias);
  CHECK((!attr->accumulate || attr->kind != MATMUL_NT) && (!attr->bias || attr->kind == MATMUL_NT));
  Groups q = groups_of(attr);
  Shape operand[2] = {graph_tensor(g, node->input[0])->shape, graph_tensor(g, node->input[1])->shape}, out = {0};
  CHECK(operand[0].rank == q.a + q.b && operand[1].rank == q.c + q.d,
        "matmul %s: ranks %d and %d do not fit its groups", node->name, operand[0].rank, operand[1].rank);
  int lead = attr->kind == MATMUL_NT ? q.b : attr->kind == MATMUL_NN ? q.b : q.a; // the contracted dims
  for (int i = 0; i < lead; i++) {
    int64_t left = operand[0].size[attr->kind == MATMUL_TN ? i : q.a + i];
    int64_t right = operand[1].size[attr->kind == MATMUL_NT ? q.c + i : i];
    CHECK(left == right, "matmul %s: contracted sizes %lld and %lld", node->name, (long long)left, (long long)right);
  }
  append_group(&out, operand, &q, q.first);
  append_group(&out, operand, &q, q.second);
  // Products that are gradients of weights keep their sums wide.
  Dtype dtype = graph_tensor(g, node->input[0])->dtype;
  if (attr->accumulate) dtype = graph_tensor(g, node->input[2])->dtype;
  else if (attr->kind == MATMUL_TN) dtype = op_statistics_dtype(dtype);
  graph_output(g, node, "", dtype, out);
}

static int append_kind(Graph *g, const Node *node, const char *suffix, int kind, int a, int b) {
  MatmulAttr attr = *node_attr(node, MatmulAttr);
  attr.kind = kind;
  int n = graph_node(g, OP_MATMUL, op_derived_name(g, node, suffix), (int[]){a, b}, 2, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

// NT, of which models are made: dx = dy w, dw = dyᵀ x. NN, y (m…, k…) = x (m…, n…) w (n…, k…): dx = dy wᵀ, dw = xᵀ dy.
// dw comes first: it is the last to read x, so an x that was recomputed (compile/recompute.c), such as an activation of
// a feed-forward layer, is freed before dx, which is as large, is made.
static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  int kind = node_attr(&node, MatmulAttr)->kind, dy = doutput[0];
  CHECK(kind != MATMUL_TN, "%s: the gradient of a gradient", node.name);
  dinput[0] = dinput[1] = -1;
  if (dy < 0) return;
  dinput[1] = kind == MATMUL_NT ? append_kind(g, &node, "dw", MATMUL_TN, dy, node.input[0])
                                : append_kind(g, &node, "dw", MATMUL_TN, node.input[0], dy);
  dinput[0] = append_kind(g, &node, "dx", kind == MATMUL_NT ? MATMUL_NN : MATMUL_NT, dy, node.input[1]);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  const MatmulAttr *attr = node_attr(node, MatmulAttr);
  const Shape *x = &graph_tensor(g, node->input[0])->shape, *w = &graph_tensor(g, node->input[1])->shape;
  char group[3][RULE_LETTERS] = {"", "", ""}; // letters of m, n, k
  const int count[3] = {attr->m, attr->n, attr->k};
  // Which group each half of the operands is: NT (m k)(n k), NN (m n)(n k), TN (m n)(m k).
  static const int halves[3][4] = {{0, 2, 1, 2}, {0, 1, 1, 2}, {0, 1, 0, 2}};
  static const int result[3][2] = {{0, 1}, {0, 2}, {1, 2}};
  uint32_t used = 0;
  for (int h = 0, at[2] = {0, 0}; h < 4; h++) {
    int of = halves[attr->kind][h], operand = h / 2;
    for (int i = 0; i < count[of]; i++, at[operand]++)
      if (!group[of][i]) group[of][i] = op_letter(&used, (operand ? w : x)->dim[at[operand]]);
  }
  char side[3][2 * RULE_LETTERS];
  for (int operand = 0; operand < 3; operand++) {
    const int *of = operand < 2 ? &halves[attr->kind][2 * operand] : result[attr->kind];
    snprintf(side[operand], sizeof side[operand], "%s%s", group[of[0]], group[of[1]]);
  }
  char clauses[32] = "; linear 0 1";
  if (attr->accumulate ||
      attr->bias) { // would be added once a rank; `fuse` makes these after partition, where that is right
    int at = snprintf(clauses, sizeof clauses, "; whole"), contracted[] = {2, 1, 0}; // groups, by kind
    for (const char *m = group[contracted[attr->kind]]; *m; m++)
      at += snprintf(clauses + at, sizeof clauses - (size_t)at, " %c", *m);
  }
  const char *third = attr->bias ? group[1] : side[2];
  op_rule(text, size, (const char *[]){side[0], side[1], third}, node->ninput, (const char *[]){side[2]}, 1, clauses);
}

// Rows, columns and depth of the product that the kind means, and the strides of its operands.
typedef struct Product { int64_t rows, columns, depth, x_row, x_depth, w_column, w_depth; } Product;

static Product product_of(const Operand *input, const MatmulAttr *attr) {
  const Operand *x = &input[0], *w = &input[1];
  Groups q = groups_of(attr);
  int64_t a = operand_extent(x, 0, q.a), b = operand_extent(x, q.a, x->rank), c = operand_extent(w, 0, q.c),
          d = operand_extent(w, q.c, w->rank);
  switch (attr->kind) {
  case MATMUL_NT: return (Product){a, c, b, b, 1, d, 1};
  case MATMUL_NN: return (Product){a, d, b, b, 1, 1, d};
  default: return (Product){b, d, a, 1, b, 1, d};
  }
}

static void reference(const KernelCall *call) {
  const MatmulAttr *attr = call->attr;
  const Operand *out = &call->output[0];
  Product p = product_of(call->input, attr);
  double *x = operand_doubles(&call->input[0]), *w = operand_doubles(&call->input[1]);
  int add = call_adds(call, attr->accumulate);
  for (int64_t i = 0; i < p.rows; i++)
    for (int64_t j = 0; j < p.columns; j++) {
      double sum = 0;
      for (int64_t k = 0; k < p.depth; k++) sum += x[i * p.x_row + k * p.x_depth] * w[j * p.w_column + k * p.w_depth];
      if (add) sum += operand_load(&call->input[2], i * p.columns + j);
      if (attr->bias) sum += operand_load(&call->input[2], j);
      operand_store(out, i * p.columns + j, sum);
    }
  operand_doubles_free(&call->input[0], x);
  operand_doubles_free(&call->input[1], w);
}

static int accumulate(Node *node) {
  MatmulAttr *attr = node_attr(node, MatmulAttr);
  if (attr->kind == MATMUL_NT || attr->accumulate) return -1;
  attr->accumulate = 1;
  return 0;
}

static int accumulated(const Node *node) { return node_attr(node, MatmulAttr)->accumulate ? 0 : -1; }

static int bias(Node *node, int dims) {
  MatmulAttr *attr = node_attr(node, MatmulAttr);
  if (attr->kind != MATMUL_NT || attr->bias || FAULT(bias_of_other_dims, attr->n != dims, 0)) return -1;
  attr->bias = 1;
  return 0;
}

// An accumulator is an input and the output, and so is read and written.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  const MatmulAttr *a = attr;
  Product p = product_of(input, a);
  double m = (double)p.rows, n = (double)p.columns, k = (double)p.depth;
  work->matrix = 2.0 * m * n * k;
  work->vector = a->accumulate || a->bias ? m * n : 0;
  work->product[work->products++] = (OpProduct){m, n, k, 1, a->kind};
}

static int panels(const Node *node, int k) {
  const MatmulAttr *attr = node_attr(node, MatmulAttr);
  return k == 1 && attr->kind == MATMUL_NT ? attr->n : 0;
}

const OpDef op_def_matmul = {
    .name = "matmul",
    .meaning = "nt: x (m…, k…), w (n…, k…) → x wᵀ (m…, n…), with `bias` + b (n…); nn: dy (m…, n…), w → dy w (m…, k…); "
               "tn: dy, x → dyᵀ x (n…, k…); "
               "nn and tn with `accumulate` + c, of the output's shape, in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
    .widens_weight = 1,
    .panels = panels,
    .accumulate = accumulate,
    .accumulated = accumulated,
    .accumulates_narrow = 1,
    .bias = bias,
    .defers_sum = 1,
    .role = ROLE_PRODUCT,
};

int op_matmul(Graph *g, const char *name, int x, int w, int contracted) {
  MatmulAttr attr = {.kind = MATMUL_NT, .k = contracted};
  attr.m = graph_tensor(g, x)->shape.rank - contracted;
  attr.n = graph_tensor(g, w)->shape.rank - contracted;
  CHECK(attr.m >= 0 && attr.n >= 0);
  int n = graph_node(g, OP_MATMUL, name, (int[]){x, w}, 2, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
