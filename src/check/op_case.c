// Finds a case's row, and fills its operands.
#include "check/op_case.h"
#include "check/case_rows.h"
#include "check/evaluate.h"
#include "base/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int op_cases_count(void) { return case_rows_count; }
int op_cases_with_large(void) { return case_rows_count + case_large_rows_count; }
static const Row *row_at(int i) {
  return i < case_rows_count ? &case_rows[i] : &case_large_rows[i - case_rows_count];
}
const char *op_case_name(int i) { return row_at(i)->name; }
int op_case_may_be(int i, Op op) { return row_at(i)->backward || row_at(i)->op == op; }

static DimName dim_of(char letter) {
  static const char letters[] = "-bsegrdfvpxycnml"; // "-2": a dim without a name
  const char *at = strchr(letters, letter);
  CHECK(at, "dim letter %c", letter);
  return (DimName)(at - letters); // the order of dims.def
}

// Adds an input as the text says.
static int add_input(Graph *g, const char *text, int k, Dtype dtype) {
  if (*text == '-') return -1;
  Shape s = {0};
  for (const char *p = strchr(text, ' '); p; p = strchr(p + 1, ' '), s.rank++) {
    s.dim[s.rank] = dim_of(p[1]);
    s.size[s.rank] = strtol(p + 2, NULL, 10);
  }
  char name[32];
  snprintf(name, sizeof name, "input%d", k);
  Dtype of = strchr("ijptuw", *text)   ? DTYPE_I32
             : strchr("mkq", *text)  ? DTYPE_U8
             : *text == 'z'         ? DTYPE_F32
             : *text == 'h'         ? DTYPE_BF16
             : *text == 'l'         ? DTYPE_U16
             : strchr("DZO", *text) ? DTYPE_F64
             : strchr("SRMv", *text) ? op_statistics_dtype(dtype)
                                    : dtype;
  return graph_input(g, name, of, s);
}

// The experts with the largest random numbers; of several the last has none, so that somebody is idle.
static int chosen(PhiloxKey key, int64_t row, int64_t column, int64_t width, int choices) {
  uint32_t own[4], other[4];
  int before = 0;
  philox4x32(key, (uint32_t)row, (uint32_t)column, 2, 0, own);
  for (int64_t i = 0; i < width - (width > 3); i++) {
    philox4x32(key, (uint32_t)row, (uint32_t)i, 2, 0, other);
    before += other[0] > own[0];
  }
  return column < width - (width > 3) && before < choices - (row % 7 == 6);
}

static double number(const char *text, const Operand *x, PhiloxKey key, int64_t i) {
  double normal = philox_normal(key, (uint64_t)i), positive = fabs(normal) + 0.1;
  int64_t width = x->rank ? x->size[x->rank - 1] : 1, column = i % width, row = i / width;
  uint32_t r[4];
  philox4x32(key, (uint32_t)i, 0, 1, 0, r);
  switch (*text) {
  case '+': case 'R': case 'D': return positive;
  case 'M': return r[1] % 2 ? normal : -INFINITY;
  case 'l': return r[3] & 0xffff;
  case 'q': return r[1] & 0xff;
  case 'z': return ldexp(1, -(int)(r[2] % 8));
  case 'Z': return 0;
  case 'O': return 1;
  case 'i': return (double)(r[0] % (uint32_t)(strtol(text + 1, NULL, 10) + 1)) - 1;
  case 'j': return (double)(i / 32 == 1 || r[1] % 3 ? 0 : r[0] % (uint32_t)strtol(text + 1, NULL, 10) + 1) - 1;
  case 'u': return r[0] % (uint32_t)strtol(text + 1, NULL, 10);
  case 'w': return column % 4 == 3 ? -1 : (double)((column * 5 + row) % strtol(text + 1, NULL, 10));
  case 'k': return r[2] % 10 < (uint32_t)strtol(text + 1, NULL, 10);
  case 'p': return (double)(column < (row + 1) * 2 ? column : column - (row + 1) * 2); // restarts once
  case 'm': return chosen(key, row, column, width, (int)strtol(text + 1, NULL, 10));
  case 't': return (double)(column < 1 + row * 2 ? 0 : column < 1 + row * 2 + width / 2 ? 1 : 2);
  default: return normal;
  }
}

static void fill(const Row *row, uint64_t seed, int k, Operand *x) {
  char name[96];
  snprintf(name, sizeof name, "%s %d", row->input[k] ? row->name : "doutput", k);
  PhiloxKey key = philox_key(seed, 0, philox_name(name));
  int64_t n = operand_elements(x);
  for (int64_t i = 0; i < n; i++) operand_store(x, i, number(row->input[k] ? row->input[k] : "f", x, key, i));
}

static Operand copy_of(const Operand *x) {
  Operand y = *x;
  if (!x->data) return y;
  operand_allocate(&y);
  memcpy(y.data, x->data, (size_t)operand_elements(x) * dtype_size(x->dtype));
  return y;
}

// Appends the gradient of the forward node and finds the node that it is about; computes what that node reads.
static int backward_node(const Row *row, uint64_t seed, Graph *g, Values *v, const CallParameters *parameters) {
  Node forward = op_node(g, 0);
  int doutput[CASE_OUTPUTS], dinput[CASE_INPUTS];
  for (int k = 0; k < CASE_OUTPUTS; k++) doutput[k] = -1;
  const Tensor y = *graph_tensor(g, forward.output[0]);
  doutput[0] = graph_input(g, "doutput", y.dtype, y.shape);
  if (tensor_is_compact(&y)) graph_compact(g, doutput[0], y.mask, y.choices);
  values_run(v, 0, 1, parameters);
  v->tensor[doutput[0]] = values_create(v, doutput[0]);
  fill(row, seed, 7, &v->tensor[doutput[0]]);
  op_def(row->op)->gradient(g, 0, doutput, dinput);
  return g->node.count - 1;
}

// The input that output k of an update is the memory of; -1: none.
static int updated_input(const Graph *g, const Node *n, int k) {
  Dtype dtype = graph_tensor(g, n->output[k])->dtype;
  if (dtype == DTYPE_U16) return n->ninput - 1; // of split weights
  if (op_def(n->op)->writes_copy && k && (dtype == DTYPE_BF16 || dtype == DTYPE_F16)) return -1; // a Copy of w
  switch (n->op) {
  case OP_MATMUL:
  case OP_EMBEDDING_GRAD: return 2;
  case OP_GROUPED_WEIGHT: return 3;
  case OP_MUON_MOMENTUM: return k ? -1 : 0;
  case OP_STATE_UPDATE: {
    const StateAttr *attr = node_attr(n, StateAttr);
    if (k >= attr->noutput) return attr->ninput + k - attr->noutput;
    return attr->op == OP_MUON_MOMENTUM && k ? -1 : k;
  }
  case OP_LINEAR_CROSS_ENTROPY: return k == 2 ? 4 : -1;
  case OP_CROSS_ENTROPY_APPLY: return k == 2 ? 7 : -1;
  case OP_CROSS_ENTROPY_WEIGHT: return 6;
  default: return k;
  }
}

void op_case_get(int i, Dtype dtype, OpCase *c) { op_case_seeded(i, dtype, 1, c); }

void op_case_seeded(int i, Dtype dtype, uint64_t seed, OpCase *c) {
  const Row *row = row_at(i);
  *c = (OpCase){.name = row->name, .graph = graph_create(), .storage = row->storage};
  c->parameters = (CallParameters){.seed = 5, .step = 3, .microbatch = 1, .sample_base = 8};
  Graph *g = c->graph;
  int input[CASE_INPUTS], n = 0;
  for (; n < CASE_INPUTS && row->input[n]; n++) input[n] = add_input(g, row->input[n], n, dtype);
  for (int k = 0; k < n; k++)
    if (row->input[k][0] == 'c') {
      int mask = (int)strtol(row->input[k] + 1, NULL, 10);
      graph_compact(g, input[k], input[mask], (int)strtol(row->input[mask] + 1, NULL, 10));
    }
  _Alignas(8) char attr[NODE_ATTR_BYTES] = {0};
  if (row->attr_size) memcpy(attr, row->attr, row->attr_size);
  if ((row->op == OP_STATE_UPDATE || row->op == OP_STATE_SCALES) && dtype == DTYPE_F64)
    ((StateAttr *)(void *)attr)->dtype = DTYPE_F64; // moments are as wide as the rest
  c->node = graph_node(g, row->op, row->name, input, n, attr, row->attr_size);
  Values v;
  values_start(&v, g);
  for (int compact = 0; compact < 2; compact++) // their masks first
    for (int k = 0; k < n; k++) {
      if (input[k] < 0 || tensor_is_compact(graph_tensor(g, input[k])) != compact) continue;
      v.tensor[input[k]] = values_create(&v, input[k]);
      fill(row, seed, k, &v.tensor[input[k]]);
    }
  if (row->backward) c->node = backward_node(row, seed, g, &v, &c->parameters);
  const Node *node = &g->node.data[c->node];
  c->op = node->op;
  c->ninput = node->ninput;
  c->noutput = node->noutput;
  for (int k = 0; k < node->ninput; k++)
    if (node->input[k] >= 0) c->input[k] = copy_of(&v.tensor[node->input[k]]);
  for (int k = 0; k < node->noutput; k++) {
    int updated = row->update ? updated_input(g, node, k) : -1;
    if (updated >= 0) {
      c->output[k] = c->input[updated];
      continue;
    }
    const Tensor *t = graph_tensor(g, node->output[k]);
    c->output[k] = values_create(&v, t->id);
    for (int64_t e = operand_elements(&c->output[k]) - 1; e >= 0; e--)
      operand_store(&c->output[k], e, dtype_is_float(t->dtype) ? NAN : 99);
  }
  values_free(&v);
}

void op_case_copy(const OpCase *from, OpCase *to) {
  *to = *from;
  to->copied = 1;
  for (int k = 0; k < from->ninput; k++) to->input[k] = copy_of(&from->input[k]);
  for (int k = 0; k < from->noutput; k++) {
    const void *data = from->output[k].data;
    int i = 0;
    while (i < from->ninput && from->input[i].data != data) i++;
    to->output[k] = data && i == from->ninput ? copy_of(&from->output[k]) : from->output[k];
    if (data && i < from->ninput) to->output[k].data = to->input[i].data;
  }
}

OpCase op_case_named(const char *name) {
  OpCase c;
  int i = 0;
  while (i < case_rows_count && strcmp(case_rows[i].name, name)) i++;
  CHECK(i < case_rows_count, "no case %s", name);
  op_case_get(i, DTYPE_F64, &c);
  return c;
}

void op_case_free(OpCase *c) {
  for (int k = 0; k < c->noutput; k++) {
    int shared = 0;
    for (int i = 0; i < c->ninput; i++) shared |= c->output[k].data == c->input[i].data;
    if (!shared) free(c->output[k].data);
  }
  for (int k = 0; k < c->ninput; k++) free(c->input[k].data);
  if (!c->copied) graph_destroy(c->graph);
  *c = (OpCase){0};
}

int op_case_empty(OpCase *c) {
  const OpDef *op = op_def(c->op);
  int i = op->role == ROLE_ACCUMULATE ? 0 : c->ninput - 1;
  if (op->role != ROLE_ACCUMULATE && !(op->accumulate && strstr(c->name, " accumulate"))) return 0;
  int shared = 0;
  for (int k = 0; k < c->noutput; k++) shared |= c->output[k].data == c->input[i].data;
  if (!shared) free(c->input[i].data);
  c->input[i].data = NULL;
  return 1;
}

KernelCall op_case_call(const OpCase *c) {
  const Node *node = &c->graph->node.data[c->node];
  return (KernelCall){.ninput = c->ninput,
                      .noutput = c->noutput,
                      .input = c->input,
                      .output = c->output,
                      .attr = node->attr,
                      .name = philox_name(node->name),
                      .parameters = &c->parameters};
}

void op_case_run(const OpCase *c) {
  KernelCall call = op_case_call(c);
  op_def(c->op)->reference(&call);
}
