// The table of ops, operand access for reference kernels, and helpers that op files share.
#include "op/op.h"
#include <stdarg.h>

const OpDef *op_def(Op op) {
  static const OpDef *const table[OP_COUNT] = {
#define OP(id, name) &op_def_##name,
#include "ir/ops.def"
#undef OP
  };
  CHECK((int)op >= 0 && op < OP_COUNT);
  return table[op];
}

const CommTraits *op_comm(const OpDef *op) {
  static const CommTraits none;
  return op->communicates ? &comm_traits[op->comm] : &none;
}

int64_t operand_extent(const Operand *x, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; i++) n *= x->size[i];
  return n;
}

int64_t operand_elements(const Operand *x) { return operand_extent(x, 0, x->rank); }

double operand_bytes(const Operand *x) {
  return x->rank ? (double)operand_elements(x) * (double)dtype_size(x->dtype) : 0;
}

OpWork op_work(const OpDef *op, const Operand *input, int ninput, const Operand *output, int noutput,
               const void *attr) {
  OpWork work = {0};
  for (int k = 0; k < ninput + noutput; k++) {
    const Operand *x = k < ninput ? &input[k] : &output[k - ninput];
    double elements = x->rank ? (double)operand_elements(x) : 0;
    if (elements > work.vector) work.vector = elements;
    if (k < ninput) work.read += operand_bytes(x);
    else if (FAULT(update_counts_once, 1, k - ninput >= op->in_place)) work.written += operand_bytes(x);
  }
  if (op->work) op->work(input, output, attr, &work);
  return work;
}

int operand_valid(const Operand *x, int64_t i) {
  for (int d = x->rank - 1; d >= 0; d--) {
    if (i % x->size[d] >= x->map[d].valid) return 0;
    i /= x->size[d];
  }
  return 1;
}

int64_t operand_place(const Operand *x, int64_t i) {
  return panels_place(x->panels, operand_extent(x, 0, x->panels.lead), operand_extent(x, x->panels.lead, x->rank), i);
}

double *operand_doubles(const Operand *x) {
  if (!x->data || (x->dtype == DTYPE_F64 && !x->panels.rows)) return x->data;
  int64_t n = operand_elements(x);
  double *doubles = xcalloc((size_t)n + 1, sizeof *doubles);
  for (int64_t i = 0; i < n; i++) doubles[i] = operand_load(x, i);
  return doubles;
}

void operand_doubles_free(const Operand *x, double *doubles) {
  if ((void *)doubles != x->data) free(doubles);
}

int op_same_sizes(const Graph *g, int a, int b) {
  const Shape *x = &graph_tensor(g, a)->shape, *y = &graph_tensor(g, b)->shape;
  if (x->rank != y->rank) return 0;
  for (int i = 0; i < x->rank; i++)
    if (x->size[i] != y->size[i]) return 0;
  return 1;
}

Dtype op_statistics_dtype(Dtype dtype) { return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }

const char *op_derived_name(Graph *g, const Node *node, const char *suffix) {
  size_t n = strlen(g->scope), length = strlen(node->name);
  const char *name = node->name;
  if (n >= length && !strcmp(g->scope + n - length, name)) return suffix; // the scope says already whose it is
  if (n && !strncmp(name, g->scope, n) && name[n] == '.') name += n + 1;
  return arena_join(&g->arena, name, suffix);
}

void op_update(Graph *g, int node, int k, int i) {
  const Tensor old = *graph_tensor(g, g->node.data[node].input[i]);
  Tensor *new = graph_tensor(g, g->node.data[node].output[k]);
  CHECK(old.variable >= 0, "in-place update of %s, which is not bound to a Variable", old.name);
  graph_bind(g, new->id, old.variable, old.copy);
  new->role = old.role;
  new->parameter = old.parameter;
}

int op_accumulator(const Graph *g, const Node *n) {
  const OpDef *op = op_def(n->op);
  int i = op->role == ROLE_ACCUMULATE ? 0 : op->accumulate ? n->ninput - 1 : -1, x = i < 0 ? -1 : n->input[i];
  if (x < 0 || graph_tensor(g, x)->variable < 0 || graph_tensor(g, x)->copy >= 0) return -1;
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *y = graph_tensor(g, n->output[k]);
    if (y->variable == graph_tensor(g, x)->variable && y->copy < 0) return i;
  }
  return -1;
}

char op_letter(uint32_t *used, DimName dim) {
  static const char letter[DIM_COUNT] = {
      [DIM_BATCH] = 'b',    [DIM_SEQ] = 's', [DIM_EMBED] = 'e', [DIM_KV_HEADS] = 'g', [DIM_GROUP] = 'r',
      [DIM_HEAD_DIM] = 'd', [DIM_FFN] = 'f', [DIM_VOCAB] = 'v', [DIM_POSITION] = 'p', [DIM_EXPERT] = 'x',
      [DIM_EXPERT_FFN] = 'h',
  };
  char c = letter[dim] ? letter[dim] : 'a';
  if (*used >> (c - 'a') & 1)
    for (c = 'a'; *used >> (c - 'a') & 1; c++) CHECK(c < 'z');
  *used |= 1u << (c - 'a');
  return c;
}

void op_letters(const Graph *g, int tensor, uint32_t *used, char letters[RULE_LETTERS]) {
  int n = 0;
  if (tensor >= 0)
    for (const Shape *s = &graph_tensor(g, tensor)->shape; n < s->rank; n++) letters[n] = op_letter(used, s->dim[n]);
  letters[n] = 0;
}

static size_t append(char *text, size_t size, size_t at, const char *format, ...) __attribute__((format(printf, 4, 5)));
static size_t append(char *text, size_t size, size_t at, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text + at, size - at, format, arguments);
  va_end(arguments);
  CHECK(n >= 0 && (size_t)n < size - at, "rule text too long");
  return at + (size_t)n;
}

static size_t append_operands(char *text, size_t size, size_t at, const char *const *operand, int n) {
  for (int k = 0; k < n; k++) {
    if (k) at = append(text, size, at, ", ");
    for (const char *c = operand[k]; *c; c++) at = append(text, size, at, c == operand[k] ? "%c" : " %c", *c);
  }
  return at;
}

const char *op_row_letters(const Graph *g, int x, char all[RULE_LETTERS], char rows[RULE_LETTERS]) {
  uint32_t used = 0;
  op_letters(g, x, &used, all);
  int n = graph_tensor(g, x)->shape.rank;
  memcpy(rows, all, (size_t)n);
  rows[n - 1] = 0;
  return all + n - 1;
}

void op_rule(char *text, size_t size, const char *const *inputs, int ninput, const char *const *outputs, int noutput,
             const char *clauses) {
  size_t at = append_operands(text, size, 0, inputs, ninput);
  at = append(text, size, at, " -> ");
  at = append_operands(text, size, at, outputs, noutput);
  if (clauses && *clauses) append(text, size, at, " %s", clauses);
}

void op_rule_elementwise(const Graph *g, const Node *node, char *text, size_t size, const char *clauses) {
  const char **in = xcalloc((size_t)(node->ninput + node->noutput), sizeof *in), **out = in + node->ninput;
  char letters[RULE_LETTERS];
  uint32_t used = 0;
  op_letters(g, node->input[0], &used, letters);
  int rank = graph_tensor(g, node->input[0])->shape.rank;
  for (int k = 0; k < node->ninput; k++)
    in[k] = node->input[k] >= 0 && graph_tensor(g, node->input[k])->shape.rank == rank ? letters : "";
  for (int k = 0; k < node->noutput; k++) out[k] = graph_tensor(g, node->output[k])->shape.rank == rank ? letters : "";
  op_rule(text, size, in, node->ninput, out, node->noutput, clauses);
  free(in);
}

// A tensor that is computed element by element from a compact tensor is compact in the same way.
static void inherit_masks(Graph *g, const Node *n) {
  for (int k = 0; k < n->noutput; k++)
    for (int i = 0; i < n->ninput && !tensor_is_compact(graph_tensor(g, n->output[k])); i++) {
      const Tensor *x = n->input[i] < 0 ? NULL : graph_tensor(g, n->input[i]);
      if (x && tensor_is_compact(x) && op_same_sizes(g, n->input[i], n->output[k]))
        graph_compact(g, n->output[k], x->mask, x->choices);
    }
}

int graph_node(Graph *g, Op op, const char *name, const int *input, int ninput, const void *attr, size_t attr_size) {
  CHECK(attr_size <= NODE_ATTR_BYTES);
  Node n = {.id = g->node.count,
            .op = op,
            .region = g->region,
            .phase = g->phase,
            .layer = g->layer,
            .update = g->update,
            .ninput = ninput};
  n.name = g->scope[0] ? arena_join(&g->arena, g->scope, name) : arena_strdup(&g->arena, name);
  n.input = arena_array(&g->arena, int, ninput + 1);
  if (ninput) memcpy(n.input, input, sizeof(int) * (size_t)ninput);
  if (attr) memcpy(n.attr, attr, attr_size);
  op_def(op)->shape(g, &n);
  inherit_masks(g, &n);
  vec_push(&g->node, n);
  return n.id;
}
