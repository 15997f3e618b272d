// EINSUM: a product of one or two operands summed over some of their dims, said by one letter a dim: "bsd, df -> bsf".
// Sums over dims, transposes and broadcasts are einsums of one operand, and gradients of einsums are einsums.
#include "base/fault.h"
#include "op/build.h"

enum { LETTERS = 26 };
_Static_assert((int)EINSUM_RANK == (int)MAX_RANK && sizeof(EinsumAttr) <= (size_t)NODE_ATTR_BYTES,
               "attributes of EINSUM");

// Operand 0 and 1 of the attribute are the inputs, operand 2 is the output.
enum { OUTPUT = 2 };

// Where a letter stands in an operand, or -1.
static int find(const EinsumAttr *a, int operand, int letter) {
  for (int d = 0; d < a->rank[operand]; d++)
    if (a->letter[operand][d] == letter) return d;
  return -1;
}

// The size and the name of a letter, from an input that has it or, for a broadcast, from the attribute.
static int64_t size_of(const Graph *g, const Node *node, int letter, DimName *dim) {
  const EinsumAttr *a = node_attr(node, EinsumAttr);
  for (int k = 0; k < node->ninput; k++) {
    int d = find(a, k, letter);
    if (d < 0) continue;
    const Shape *s = &graph_tensor(g, node->input[k])->shape;
    *dim = s->dim[d];
    return s->size[d];
  }
  int d = find(a, OUTPUT, letter);
  *dim = (DimName)a->dim[d];
  return a->size[d];
}

// Every letter once in an operand, and of one size everywhere.
static void check(const Graph *g, const Node *node) {
  const EinsumAttr *a = node_attr(node, EinsumAttr);
  CHECK(node->ninput == 1 || node->ninput == 2);
  for (int k = 0; k <= OUTPUT; k++) {
    if (k < OUTPUT && k >= node->ninput) continue;
    for (int d = 0; d < a->rank[k]; d++) {
      DimName dim;
      int letter = a->letter[k][d];
      CHECK(letter >= 0 && letter < LETTERS && find(a, k, letter) == d, "%s: letter %d", node->name, letter);
      int64_t size = size_of(g, node, letter, &dim);
      CHECK(size > 0 && (k == OUTPUT || graph_tensor(g, node->input[k])->shape.size[d] == size), "%s: sizes of %c",
            node->name, 'a' + letter);
    }
    CHECK(k == OUTPUT || graph_tensor(g, node->input[k])->shape.rank == a->rank[k], "%s: rank of operand %d",
          node->name, k);
  }
}

// The result is as narrow as the narrowest operand. Gradients of parameters keep their sums wide.
static void shape(Graph *g, Node *node) {
  check(g, node);
  const EinsumAttr *a = node_attr(node, EinsumAttr);
  Shape out = {.rank = a->rank[OUTPUT]};
  for (int d = 0; d < out.rank; d++) out.size[d] = size_of(g, node, a->letter[OUTPUT][d], &out.dim[d]);
  Dtype dtype = graph_tensor(g, node->input[0])->dtype;
  for (int k = 1; k < node->ninput; k++) {
    Dtype other = graph_tensor(g, node->input[k])->dtype;
    if (dtype_size(other) < dtype_size(dtype)) dtype = other;
  }
  graph_output(g, node, "", a->wide ? op_statistics_dtype(dtype) : dtype, out);
}

static void set_operand(EinsumAttr *to, int operand, const EinsumAttr *from, int like) {
  to->rank[operand] = from->rank[like];
  memcpy(to->letter[operand], from->letter[like], sizeof to->letter[operand]);
}

// Of y[O] = Σ a[A] b[B] the gradient of a is Σ dy[O] b[B] over all letters that A lacks, as [A]; letters of A that were
// summed alone are broadcast.
static int gradient_of(Graph *g, const Node *node, int k, int dy) {
  const EinsumAttr *a = node_attr(node, EinsumAttr);
  const Tensor x = *graph_tensor(g, node->input[k]);
  int input[] = {dy, -1}, n = 1, other = 1 - k;
  EinsumAttr attr = {.wide = x.variable >= 0};
  set_operand(&attr, 0, a, OUTPUT);
  set_operand(&attr, OUTPUT, a, k);
  if (node->ninput == 2) {
    input[n++] = node->input[other];
    set_operand(&attr, 1, a, other);
  }
  for (int d = 0; d < x.shape.rank; d++) attr.size[d] = (int32_t)x.shape.size[d], attr.dim[d] = (int8_t)x.shape.dim[d];
  int id = graph_node(g, OP_EINSUM, op_derived_name(g, node, k ? "db" : "da"), input, n, &attr, sizeof attr);
  int dx = g->node.data[id].output[0];
  return x.variable >= 0 ? dx : op_cast(g, op_derived_name(g, node, k ? "db.cast" : "da.cast"), dx, x.dtype);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  for (int k = 0; k < node.ninput; k++) dinput[k] = doutput[0] < 0 ? -1 : gradient_of(g, &node, k, doutput[0]);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  const EinsumAttr *a = node_attr(node, EinsumAttr);
  char operand[3][RULE_LETTERS] = {"", "", ""};
  for (int k = 0; k <= OUTPUT; k++)
    for (int d = 0; d < a->rank[k]; d++) operand[k][d] = (char)('a' + a->letter[k][d]), operand[k][d + 1] = 0;
  op_rule(text, size, (const char *[]){operand[0], operand[1]}, node->ninput, (const char *[]){operand[OUTPUT]}, 1,
          node->ninput == 2 ? "; linear 0 1" : "; linear 0");
}

// The letters as nested loops: first those of the output, then those that are summed. step: elements by which each
// operand moves.
typedef struct Loops { int n, outer; int64_t size[LETTERS], step[2][LETTERS], product; } Loops;

static void add_loop(Loops *l, const KernelCall *call, int letter, int64_t size) {
  const EinsumAttr *a = call->attr;
  for (int k = 0; k < 2; k++) {
    int d = k < call->ninput ? find(a, k, letter) : -1;
    l->step[k][l->n] = d < 0 ? 0 : operand_extent(&call->input[k], d + 1, a->rank[k]);
  }
  l->size[l->n++] = size;
}

static Loops loops_of(const KernelCall *call) {
  const EinsumAttr *a = call->attr;
  Loops l = {.product = 1};
  for (int d = 0; d < a->rank[OUTPUT]; d++) add_loop(&l, call, a->letter[OUTPUT][d], call->output[0].size[d]);
  l.outer = l.n;
  for (int k = 0; k < call->ninput; k++)
    for (int d = 0; d < a->rank[k]; d++) {
      int letter = a->letter[k][d];
      if (find(a, OUTPUT, letter) >= 0 || FAULT(einsum_sums_twice, k && find(a, 0, letter) >= 0, 0)) continue;
      add_loop(&l, call, letter, call->input[k].size[d]);
      l.product *= call->input[k].size[d];
    }
  return l;
}

// Moves `index` of loops [from, to) on by one, and the operands with it; 0: they are through.
static int next(const Loops *l, int from, int to, int64_t *index, int64_t at[2]) {
  for (int i = to - 1; i >= from; i--) {
    for (int k = 0; k < 2; k++) at[k] += l->step[k][i];
    if (++index[i] < l->size[i]) return 1;
    for (int k = 0; k < 2; k++) at[k] -= l->step[k][i] * l->size[i];
    index[i] = 0;
  }
  return 0;
}

// Σ x w over the loops that are summed, from `at` on; the last of them by itself.
static double sum_of(const Loops *l, const double *x, const double *w, const int64_t from[2]) {
  int last = l->n - 1;
  int64_t index[LETTERS] = {0}, at[2] = {from[0], from[1]};
  double sum = 0;
  if (last < l->outer) return x[at[0]] * w[at[1]];
  if (l->product)
    do {
      const double *a = x + at[0], *b = w + at[1];
      for (int64_t i = 0; i < l->size[last]; i++) sum += a[i * l->step[0][last]] * b[i * l->step[1][last]];
    } while (next(l, l->outer, last, index, at));
  return sum;
}

static void reference(const KernelCall *call) {
  Loops l = loops_of(call);
  double one = 1, *x = operand_doubles(&call->input[0]),
         *w = call->ninput == 2 ? operand_doubles(&call->input[1]) : &one;
  int64_t n = operand_elements(&call->output[0]), index[LETTERS] = {0}, at[2] = {0, 0};
  for (int64_t i = 0; i < n; i++) {
    operand_store(&call->output[0], i, sum_of(&l, x, w, at));
    next(&l, 0, l.outer, index, at);
  }
  operand_doubles_free(&call->input[0], x);
  if (call->ninput == 2) operand_doubles_free(&call->input[1], w);
}

// Letters of the output that only one operand has are m or n, those of both or of none are the batch; all that is
// summed is k. With one operand nothing is multiplied; its additions count as FLOPs of products all the same.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  const EinsumAttr *a = attr;
  int two = a->rank[1] > 0;
  KernelCall call = {.ninput = two ? 2 : 1, .noutput = 1, .input = input, .output = output, .attr = attr};
  OpProduct p = {1, 1, (double)loops_of(&call).product, 1};
  for (int d = 0; d < a->rank[OUTPUT]; d++) {
    int letter = a->letter[OUTPUT][d], first = find(a, 0, letter) >= 0, second = two && find(a, 1, letter) >= 0;
    *(first == second ? &p.c : first ? &p.m : &p.n) *= (double)output[0].size[d];
  }
  work->matrix = 2.0 * (double)operand_elements(&output[0]) * p.k;
  if (!two) return;
  work->vector = 0;
  work->product[work->products++] = p;
}

const OpDef op_def_einsum = {
    .name = "einsum",
    .meaning =
        "a (A…), b (B…) or a alone → Σ a b (O…) over the letters that O lacks; letters of O that neither has are "
        "broadcast",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
};

// Does [from, from + n) of one operand have the letters of another from `at` on?
static int same(const EinsumAttr *a, int operand, int from, int n, int other, int at) {
  return from + n <= a->rank[operand] && at + n <= a->rank[other] &&
         !memcmp(a->letter[operand] + from, a->letter[other] + at, (size_t)n);
}

// A product with a parameter, x (m…, k…) with w (n…, k…) or (k…, n…) → (m…, n…), which MATMUL does fast: its attribute,
// or m 0.
static MatmulAttr product_of(const EinsumAttr *a) {
  int m = 0, k, n;
  while (m < a->rank[0] && m < a->rank[OUTPUT] && a->letter[0][m] == a->letter[OUTPUT][m] &&
         find(a, 1, a->letter[0][m]) < 0)
    m++;
  k = a->rank[0] - m, n = a->rank[OUTPUT] - m;
  if (!m || !k || !n || a->rank[1] != n + k) return (MatmulAttr){0};
  if (same(a, 0, m, k, 1, n) && same(a, OUTPUT, m, n, 1, 0))
    return (MatmulAttr){.kind = MATMUL_NT, .m = m, .n = n, .k = k};
  if (same(a, 0, m, k, 1, 0) && same(a, OUTPUT, m, n, 1, k))
    return (MatmulAttr){.kind = MATMUL_NN, .m = m, .n = k, .k = n};
  return (MatmulAttr){0};
}

static EinsumAttr swapped(const EinsumAttr *a) {
  EinsumAttr s = *a;
  set_operand(&s, 0, a, 1);
  set_operand(&s, 1, a, 0);
  return s;
}

int op_einsum(Graph *g, const char *name, const EinsumAttr *attr, int a, int b) {
  for (int swap = 0; swap < 2 && b >= 0; swap++) {
    EinsumAttr way = swap ? swapped(attr) : *attr;
    int x = swap ? b : a, w = swap ? a : b;
    MatmulAttr product = product_of(&way);
    if (!product.m || graph_tensor(g, w)->variable < 0 || graph_tensor(g, x)->variable >= 0) continue;
    int n = graph_node(g, OP_MATMUL, name, (int[]){x, w}, 2, &product, sizeof product);
    return g->node.data[n].output[0];
  }
  int n = graph_node(g, OP_EINSUM, name, (int[]){a, b}, b < 0 ? 1 : 2, attr, sizeof *attr);
  return g->node.data[n].output[0];
}
