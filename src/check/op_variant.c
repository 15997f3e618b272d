// Makes variants of a case, and compares outputs.
#include "check/op_variant.h"
#include "check/evaluate.h"
#include "check/op_error.h"
#include <stdlib.h>
#include <string.h>

const char *const op_variant_name[VARIANTS] = {
    "", " sharded", " empty", " empty sharded", " empty of no rows", " spare rows", " in place", " sum in place"};

// ---- variants of a case

static void zero_tail(Operand *x, int64_t valid) {
  int64_t row = operand_extent(x, 1, x->rank);
  for (int64_t i = valid * row; i < x->size[0] * row; i++) operand_store(x, i, 0);
}

// The table of an embedding or head as one shard of a larger, padded one.
static void shard_rows(Operand *x, int zero) {
  int64_t n = x->size[0];
  x->map[0] = (IndexMap){.local = n, .valid = n - 2, .global = 2 * n, .runs = 1, .run = {{0, 3}}};
  if (zero) zero_tail(x, n - 2);
}

// A sequence dim as one of two shards in zigzag order.
static void zigzag(Operand *x, int dim) {
  int64_t n = x->size[dim];
  x->map[dim] =
      (IndexMap){.local = n, .valid = n, .global = 2 * n, .runs = n > 1 ? 2 : 1, .run = {{0, n}, {n / 2, 2 * n + 3}}};
}

// What a gradient reads of the forward pass, by the maps that its operands have now.
static void attention_again(OpCase *c) {
  KernelCall call = op_case_call(c);
  call.ninput = 5;
  call.noutput = 2;
  call.output = &c->input[5];
  op_def(OP_ATTENTION)->reference(&call);
}

// 0: the op has no such variant.
static int make_sharded(OpCase *c) {
  switch (c->op) {
  case OP_EMBEDDING: shard_rows(&c->input[0], 1); return 1;
  case OP_EMBEDDING_GRAD: shard_rows(&c->output[0], 0); return 1;
  case OP_LOGITS:
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: shard_rows(&c->input[1], 1); return 1;
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD:
    for (int k = 0; k < 3; k++) zigzag(&c->input[k], 1);
    c->input[0].map[2].run[0].global = 5;
    c->input[0].map[2].global = 9;
    if (c->op == OP_ATTENTION_GRAD) attention_again(c);
    return 1;
  case OP_DROPOUT:
    zigzag(&c->input[0], 1);
    if (c->input[0].rank > 2) {
      c->input[0].map[2].run[0].global = 3;
      c->input[0].map[2].global = c->input[0].size[2] + 9;
    }
    return 1;
  case OP_NORM_SUM: // the mean is that of the whole row
    c->input[0].map[c->input[0].rank - 1].global += 3;
    return 1;
  case OP_SQUARED_ERROR: // padding in the middle of memory, too
    c->input[0].map[0].valid--;
    c->input[0].map[c->input[0].rank - 1].valid -= c->input[0].rank > 1;
    return 1;
  case OP_FILL:
  case OP_SUM_SQUARES:
    c->input[0].map[0].valid = c->output[0].map[0].valid =
        c->input[0].size[0] - 1; // the garbage after them must not count
    return 1;
  default: return 0;
  }
}

static void drop_rows(Operand *x) { x->size[0] = 0; }

static int make_rowless(OpCase *c) {
  switch (c->op) {
  case OP_MATMUL:
    if (node_attr(&c->graph->node.data[c->node], MatmulAttr)->kind != MATMUL_TN) return 0;
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_EMBEDDING_GRAD:
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_GROUPED_WEIGHT:
    for (int k = 0; k < 3; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY:
    for (int k = 0; k < c->ninput - 1; k++)
      if (c->input[k].rank > 1 && k != 1) drop_rows(&c->input[k]);
    if (c->op != OP_CROSS_ENTROPY_WEIGHT) drop_rows(&c->output[1]);
    return 1;
  default: return 0;
  }
}

// Whatever the output holds, all of it is stored.
static int make_empty(OpCase *c, int sharded, int rows) {
  if (!op_case_empty(c)) return 0;
  for (int k = 0; k < c->noutput; k++)
    memset(c->output[k].data, 0xff, (size_t)operand_elements(&c->output[k]) * dtype_size(c->output[k].dtype));
  return (!sharded || make_sharded(c)) && (rows || make_rowless(c));
}

static int make_in_place(OpCase *c) {
  int pairs = op_def(c->op)->in_place;
  if (!pairs || c->op == OP_CAST) return 0;
  for (int k = 0; k < pairs && k < c->noutput; k++) {
    if (c->output[k].data == c->input[k].data || c->output[k].dtype != c->input[k].dtype) return 0;
    free(c->output[k].data);
    c->output[k].data = c->input[k].data;
  }
  return 1;
}

// What the last input is added to lies in its memory, and what else may in that of other inputs.
static int make_sum_in_place(OpCase *c) {
  const OpDef *op = op_def(c->op);
  int sum = op->accumulated ? op->accumulated(&c->graph->node.data[c->node]) : -1, last = c->ninput - 1;
  if (sum < 0 || c->output[sum].data == c->input[last].data || c->output[sum].dtype != c->input[last].dtype) return 0;
  for (int k = 0; k < c->noutput; k++) {
    int from = k == sum ? last : k < op->in_place ? k : -1;
    if (from < 0) continue;
    free(c->output[k].data);
    c->output[k].data = c->input[from].data;
  }
  return 1;
}

// Up to three more of a compact operand, as many as the mask has room for. Nobody may use what is in them.
static int add_spare_rows(const OpCase *c, int tensor, Operand *x) {
  enum { SPARE = 3 };
  const Graph *g = c->graph;
  const Node *node = &g->node.data[c->node];
  if (tensor < 0 || !x->data || !tensor_is_compact(graph_tensor(g, tensor))) return 0;
  int mask = 0;
  while (mask < node->ninput && node->input[mask] != graph_tensor(g, tensor)->mask) mask++;
  CHECK(mask < node->ninput, "%s has compact operands without their mask", c->name);
  Operand old = *x;
  const int64_t most = operand_elements(&c->input[mask]);
  const size_t size = dtype_size(x->dtype);
  x->size[0] = old.size[0] + SPARE < most ? old.size[0] + SPARE : most;
  x->map[0] = index_whole(x->size[0]);
  operand_allocate(x);
  memset(x->data, 0xff, (size_t)operand_elements(x) * size);
  memcpy(x->data, old.data, (size_t)operand_elements(&old) * size);
  free(old.data);
  return x->size[0] > old.size[0];
}

// Not where rows of several ranks are exchanged, whose numbers are always known.
static int make_spare_rows(OpCase *c) {
  const Node *node = &c->graph->node.data[c->node];
  int any = 0;
  for (int k = 0; k < c->ninput && c->op != OP_REORDER_ROWS; k++)
    any |= add_spare_rows(c, node->input[k], &c->input[k]);
  for (int k = 0; k < c->noutput && c->op != OP_REORDER_ROWS; k++)
    any |= add_spare_rows(c, node->output[k], &c->output[k]);
  return any;
}

// A copy of the case as that variant of it. 0: it has none.
int op_case_variant(const OpCase *whole, Variant variant, OpCase *c) {
  op_case_copy(whole, c);
  if (variant == WHOLE || (variant == SHARDED      ? make_sharded(c)
                           : variant < SPARE_ROWS  ? make_empty(c, variant == EMPTY_SHARDED, variant != EMPTY_NO_ROWS)
                           : variant == SPARE_ROWS ? make_spare_rows(c)
                           : variant == IN_PLACE   ? make_in_place(c)
                                                   : make_sum_in_place(c)))
    return 1;
  op_case_free(c);
  return 0;
}

// ---- comparison

double op_case_error(const OpCase *fast, const OpCase *slow, char *text, size_t size) {
  const OpBound bound = {.least = 0.1, .factor = 1};
  return op_error(slow->op, slow->input, slow->ninput, fast->output, slow->output, slow->noutput, &bound, text, size);
}

Dtype op_case_dtype(const OpCase *c) { return op_kernel_dtype(c->input, c->ninput, c->output); }

int op_case_other_bits(const OpCase *a, const OpCase *b) {
  for (int k = 0; k < a->noutput; k++)
    if (a->output[k].data && memcmp(a->output[k].data, b->output[k].data,
                                    (size_t)operand_elements(&a->output[k]) * dtype_size(a->output[k].dtype)))
      return k;
  return -1;
}
