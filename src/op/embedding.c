// EMBEDDING: rows of a table by id; its gradient sums the rows of dy by id. Also the learned positions of GPT-2.
#include "op/build.h"

// table (v, e…), ids (b, s) → (b, s, e…)
static void embedding_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor table = *graph_tensor(g, node->input[0]), ids = *graph_tensor(g, node->input[1]);
  CHECK(table.shape.rank >= 1 && ids.shape.rank + table.shape.rank - 1 <= MAX_RANK && !dtype_is_float(ids.dtype));
  Shape s = ids.shape;
  for (int i = 1; i < table.shape.rank; i++, s.rank++) {
    s.size[s.rank] = table.shape.size[i];
    s.dim[s.rank] = table.shape.dim[i];
  }
  graph_output(g, node, "", table.dtype, s);
}

static void embedding_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = -1;
  if (doutput[0] < 0) return;
  const Shape *table = &graph_tensor(g, node.input[0])->shape;
  EmbeddingAttr attr = {.rows = table->size[0], .dim = table->dim[0]};
  int input[] = {node.input[1], doutput[0]};
  int n = graph_node(g, OP_EMBEDDING_GRAD, op_derived_name(g, &node, "dtable"), input, 2, &attr, sizeof attr);
  dinput[0] = g->node.data[n].output[0];
}

// The letters of ids, of the features, and of both.
static void letters_of(const Graph *g, int ids, int rows, uint32_t *used, char *table, char *index, char *both) {
  op_letters(g, ids, used, index);
  int n = graph_tensor(g, ids)->shape.rank, rank = graph_tensor(g, rows)->shape.rank; // rows (b, s, e…)
  memcpy(both, index, (size_t)n);
  for (int i = n; i < rank; i++) table[1 + i - n] = both[i] = op_letter(used, graph_tensor(g, rows)->shape.dim[i]);
  table[1 + rank - n] = both[rank] = 0;
}

static void embedding_rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char table[RULE_LETTERS + 1], ids[RULE_LETTERS], out[RULE_LETTERS];
  table[0] = op_letter(&used, graph_tensor(g, node->input[0])->shape.dim[0]);
  letters_of(g, node->input[1], node->output[0], &used, table, ids, out);
  op_rule(text, size, (const char *[]){table, ids}, 2, (const char *[]){out}, 1, "; linear 0");
}

static void embedding_reference(const KernelCall *call) {
  const Operand *table = &call->input[0], *ids = &call->input[1], *out = &call->output[0];
  int64_t n = operand_elements(ids), width = operand_extent(table, 1, table->rank);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = index_local(&table->map[0], (int64_t)operand_load(ids, i)); // -1: another shard's row
    for (int64_t e = 0; e < width; e++)
      operand_store(out, i * width + e, row < 0 ? 0 : operand_load(table, row * width + e));
  }
}

// Elements of the rows of a table that a call looks up: of the ids those that this shard has, if all words occur as
// often, and each row of the table once.
static double rows_looked_up(const Operand *table, const Operand *ids) {
  const IndexMap *map = &table->map[0];
  double share = map->global > 0 ? (double)map->valid / (double)map->global : 1, rows = (double)table->size[0],
         looked_up = share * (double)operand_elements(ids);
  return FAULT(lookup_reads_the_table, looked_up < rows ? looked_up : rows, rows) *
         (double)operand_extent(table, 1, table->rank);
}

// Of the table only those rows are read.
static void embedding_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = operand_bytes(&input[1]) + rows_looked_up(&input[0], &input[1]) * (double)dtype_size(input[0].dtype);
  work->vector = 0;
}

static int embedding_panels(const Node *node, int k) { return k == 0; }

const OpDef op_def_embedding = {
    .name = "embedding",
    .meaning = "table (v, e…), ids (b, s) → y[b, s, :] = table[ids[b, s], :]; rows of other shards and ids < 0 give 0",
    .shape = embedding_shape,
    .gradient = embedding_gradient,
    .rule = embedding_rule,
    .reference = embedding_reference,
    .work = embedding_work,
    .panels = embedding_panels,
    .looks_up = 1,
};

// ids (b, s), dy (b, s, e…) → (v, e…) with v = attr.rows
static void embedding_grad_shape(Graph *g, Node *node) {
  const EmbeddingAttr *attr = node_attr(node, EmbeddingAttr);
  CHECK(node->ninput == 2 + !!attr->accumulate);
  Tensor ids = *graph_tensor(g, node->input[0]), dy = *graph_tensor(g, node->input[1]);
  Shape s = {.rank = 1, .size = {attr->rows}, .dim = {(DimName)attr->dim}};
  for (int i = ids.shape.rank; i < dy.shape.rank; i++, s.rank++) {
    s.size[s.rank] = dy.shape.size[i];
    s.dim[s.rank] = dy.shape.dim[i];
  }
  graph_output(g, node, "", op_statistics_dtype(dy.dtype), s);
}

static void embedding_grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char table[RULE_LETTERS + 1], ids[RULE_LETTERS], dy[RULE_LETTERS];
  table[0] = op_letter(&used, (DimName)node_attr(node, EmbeddingAttr)->dim);
  letters_of(g, node->input[0], node->input[1], &used, table, ids, dy);
  op_rule(text, size, (const char *[]){ids, dy}, 2, (const char *[]){table}, 1, "; linear 1");
}

static void embedding_grad_reference(const KernelCall *call) {
  const Operand *ids = &call->input[0], *dy = &call->input[1], *out = &call->output[0];
  int64_t n = operand_elements(ids), width = operand_extent(out, 1, out->rank), rows = out->size[0];
  double *sum = xcalloc((size_t)(rows * width) + 1, sizeof *sum);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = index_local(&out->map[0], (int64_t)operand_load(ids, i));
    for (int64_t e = 0; row >= 0 && e < width; e++) sum[row * width + e] += operand_load(dy, i * width + e);
  }
  int add = call_adds(call, ((const EmbeddingAttr *)call->attr)->accumulate);
  for (int64_t i = 0; i < rows * width; i++)
    operand_store(out, i, sum[i] + (add ? operand_load(&call->input[2], i) : 0));
  free(sum);
}

static int embedding_grad_accumulate(Node *node) {
  EmbeddingAttr *attr = node_attr(node, EmbeddingAttr);
  if (attr->accumulate) return -1;
  attr->accumulate = 1;
  return 0;
}

// Rows of the table are read, added to and written; without an accumulator the whole table is set to zero first.
static void embedding_grad_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  const Operand *ids = &input[0], *dy = &input[1], *table = &output[0];
  double rows = rows_looked_up(table, ids) * (double)dtype_size(table->dtype);
  int add = ((const EmbeddingAttr *)attr)->accumulate && input[2].rank;
  work->read = operand_bytes(ids) + operand_bytes(dy) + rows;
  work->written = rows + (add ? 0 : operand_bytes(table));
  work->vector = (double)operand_elements(dy);
}

const OpDef op_def_embedding_grad = {
    .name = "embedding_grad",
    .meaning = "ids (b, s), dy (b, s, e…) → dtable (v, e…)[i, :] = sum of dy[b, s, :] over ids[b, s] = i; the output's "
               "map gives its rows",
    .shape = embedding_grad_shape,
    .rule = embedding_grad_rule,
    .reference = embedding_grad_reference,
    .work = embedding_grad_work,
    .accumulate = embedding_grad_accumulate,
};

int op_embedding(Graph *g, const char *name, int table, int ids) {
  int n = graph_node(g, OP_EMBEDDING, name, (int[]){table, ids}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
