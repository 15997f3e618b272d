// Rows of experts between ranks: EXCHANGE_ROWS brings them to the ranks of their experts and back, REORDER_ROWS puts
// those of several ranks in the order of a compact tensor. Only partition inserts them. COUNT_ROWS says how many there
// are; it stands in no graph, the runtime calls it before an exchange (runtime/exchanged_rows.h).
#include "op/build.h"
#include "op/expert_rows.h"
#include <string.h>

// rows (b, s, x, …) compact, their mask (b, s, x), and that after the exchange → rows of the latter
static void exchange_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor rows = *graph_tensor(g, node->input[0]);
  CHECK(tensor_is_compact(&rows), "%s: %s is not compact", node->name, rows.name);
  graph_output(g, node, "", rows.dtype, rows.shape);
  graph_compact(g, node->output[0], node->input[2], rows.choices);
}

static void exchange_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g, (void)node;
  snprintf(text, size, "b s x e, b s x, b s x -> b s x e ; whole b s x e");
}

const OpDef op_def_exchange_rows = {
    .name = "exchange_rows",
    .meaning = "rows (b, s, x, …), their mask (b, s, x), the mask as it lies afterwards → the rows of that; those of "
               "several ranks' tokens lie rank after rank",
    .shape = exchange_shape,
    .rule = exchange_rule,
    .communicates = 1,
    .comm = COMM_ALL_TO_ALL_V,
    .counts = OP_COUNT_ROWS,
};

// rows (b, s, x, …) compact, mask (b, s, x) → the same rows
static void reorder_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor rows = *graph_tensor(g, node->input[0]);
  CHECK(tensor_is_compact(&rows), "%s: %s is not compact", node->name, rows.name);
  graph_output(g, node, "", rows.dtype, rows.shape);
  graph_compact(g, node->output[0], node->input[1], rows.choices);
}

static void reorder_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g, (void)node;
  snprintf(text, size, "b s x e, b s x -> b s x e ; whole b s x ; linear 0");
}

// A rank's rows are ordered by expert and token as well, so that each rank's next row is the next one of its tokens.
static void reorder_reference(const KernelCall *call) {
  const RowParts *parts = call->attr;
  const Operand *rows = &call->input[0], *out = &call->output[0];
  ExpertRows m = expert_rows(&call->input[1]);
  size_t bytes = (size_t)operand_extent(rows, 1, rows->rank) * dtype_size(rows->dtype);
  int64_t next[ROW_PARTS_MOST + 1] = {0}, tokens[ROW_PARTS_MOST] = {0};
  row_parts_count(parts, &call->input[1], call->parameters, -1, tokens);
  for (int p = 0; p < row_parts(parts); p++)
    next[p + 1] = next[p] + FAULT(part_of_one_row_less, tokens[p], tokens[p] > 1 ? tokens[p] - 1 : tokens[p]);
  int64_t positions = call->input[1].size[1];
  RowSamples samples = row_samples(parts, &call->input[1], call->parameters, -1);
  for (ExpertRow r = expert_row_first(); expert_row_next(&m, &r);) {
    int part = row_part(parts, &samples, r.token, positions);
    int64_t there = FAULT(rows_are_not_reordered, next[part]++, r.index), from = parts->home ? r.index : there,
            to = parts->home ? there : r.index;
    memcpy((char *)out->data + (size_t)to * bytes, (const char *)rows->data + (size_t)from * bytes, bytes);
  }
}

const OpDef op_def_reorder_rows = {
    .name = "reorder_rows",
    .meaning = "rows (b, s, x, …) rank after rank, mask (b, s, x) → by expert; attr.home: the way back",
    .shape = reorder_shape,
    .rule = reorder_rule,
    .reference = reorder_reference,
};

// masks (b, s, x) of a rank's tokens and of its experts → (2, ranks)
static void count_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  const int64_t size[] = {2, row_parts(node_attr(node, RowParts))};
  graph_output(g, node, "", DTYPE_F64, shape_of(2, size, (DimName[]){DIM_NONE, DIM_NONE})); // whole numbers
}

static void count_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g, (void)node;
  snprintf(text, size, "b s x, c t y -> a r ; whole b s x c t y a r");
}

static void count_reference(const KernelCall *call) {
  const RowParts *parts = call->attr;
  int64_t rows[2][ROW_PARTS_MOST] = {{0}};
  const int ranks = row_parts(parts);
  expert_parts_count(&call->input[0], ranks, rows[0]);
  row_parts_count(parts, &call->input[1], call->parameters, -1, rows[1]);
  for (int side = 0; side < 2; side++)
    for (int r = 0; r < ranks; r++) operand_store(&call->output[0], side * ranks + r, (double)rows[side][r]);
}

const OpDef op_def_count_rows = {
    .name = "count_rows",
    .meaning = "mask (b, s, x) of a rank's tokens, mask (b, s, x) of its experts → (2, ranks): rows of its tokens for "
               "each rank's experts; rows of each rank's tokens for its experts",
    .shape = count_shape,
    .rule = count_rule,
    .reference = count_reference,
};

int op_exchange_rows(Graph *g, const char *name, int rows, int mask, uint32_t axes, const RowParts *parts) {
  ExchangeAttr attr = {{.axes = axes, .dim = -1, .dim2 = -1}, *parts};
  int input[] = {rows, graph_tensor(g, rows)->mask, mask};
  int n = graph_node(g, OP_EXCHANGE_ROWS, name, input, 3, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

int op_reorder_rows(Graph *g, const char *name, int rows, const RowParts *parts) {
  int n = graph_node(g, OP_REORDER_ROWS, name, (int[]){rows, graph_tensor(g, rows)->mask}, 2, parts, sizeof *parts);
  return g->node.data[n].output[0];
}
