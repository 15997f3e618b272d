// SPLIT_POSITIONS deals the positions of each sequence to equal parts, one after the other, and JOIN_POSITIONS puts
// them back; each is the other's gradient. A cut of the positions cuts every part alike: a rank has as many of each.
#include "base/fault.h"
#include "op/build.h"
#include <string.h>

// Both ways: the letters of the whole for every part, whose positions are fewer.
static void rule_of_parts(const Graph *g, const Node *node, int parts, char *text, size_t size, const char *linear) {
  uint32_t used = 0;
  char letters[RULE_LETTERS], *clauses = xcalloc(strlen(linear) + 32, 1);
  const char **part = xcalloc((size_t)parts + 1, sizeof *part), *whole[] = {letters};
  op_letters(g, node->input[0], &used, letters);
  for (int k = 0; k < parts; k++) part[k] = letters;
  snprintf(clauses, strlen(linear) + 32, "; parts %c ; linear %s", letters[1], linear);
  int joins = node->ninput == parts && node->noutput == 1;
  op_rule(text, size, joins ? part : whole, joins ? parts : 1, joins ? whole : part, joins ? 1 : parts, clauses);
  free(part);
  free(clauses);
}

// Each row (all dims after the positions) of the whole to or from its part. parts: the operands.
static void copy_rows(const Operand *whole, const Operand *part, int parts, int joins) {
  size_t bytes = (size_t)operand_extent(whole, 2, whole->rank) * dtype_size(whole->dtype);
  int64_t positions = whole->size[1];
  CHECK(part->size[1] * parts == positions, "%lld positions in %d parts", (long long)positions, parts);
  for (int64_t t = 0; t < whole->size[0] * positions; t++) {
    int64_t at = t % positions, k = at % parts;
    if (joins) k = FAULT(parts_of_positions_are_turned, k, (k + 1) % parts);
    char *of_part = (char *)part[k].data + (size_t)(t / positions * part->size[1] + at / parts) * bytes,
         *of_whole = (char *)whole->data + (size_t)t * bytes;
    memcpy(joins ? of_whole : of_part, joins ? of_part : of_whole, bytes);
  }
}

// ---- split

static void split_shape(Graph *g, Node *node) {
  int parts = node_attr(node, PositionsAttr)->parts;
  CHECK(node->ninput == 1 && parts > 0);
  Tensor x = *graph_tensor(g, node->input[0]);
  CHECK(x.shape.rank >= 2 && !tensor_is_compact(&x) && x.shape.size[1] % parts == 0, "%s: %lld positions in %d parts",
        node->name, (long long)x.shape.size[1], parts);
  x.shape.size[1] /= parts;
  for (int k = 0; k < parts; k++) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "%d", k);
    graph_output(g, node, suffix, x.dtype, x.shape);
  }
}

// A mask has none. Of parts that nobody reads it is zero.
static void split_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  int any = -1, zero = -1, *part = xcalloc((size_t)node.noutput, sizeof *part);
  for (int k = 0; k < node.noutput; k++)
    if (doutput[k] >= 0) any = doutput[k];
  for (int k = 0; k < node.noutput && any >= 0; k++) {
    if (doutput[k] < 0 && zero < 0) zero = op_scale(g, op_derived_name(g, &node, "zero"), any, 0);
    part[k] = doutput[k] < 0 ? zero : doutput[k];
  }
  dinput[0] = any >= 0 ? op_join_positions(g, op_derived_name(g, &node, "dx"), part, node.noutput) : -1;
  free(part);
}

static void split_rule(const Graph *g, const Node *node, char *text, size_t size) {
  rule_of_parts(g, node, node_attr(node, PositionsAttr)->parts, text, size, "0");
}

static void split_reference(const KernelCall *call) { copy_rows(call->input, call->output, call->noutput, 0); }

const OpDef op_def_split_positions = {
    .name = "split_positions",
    .meaning = "x (b, s, e…) → n parts (b, s / n, e…): x[b, 0], x[b, n], …; x[b, 1], x[b, n + 1], …; …",
    .shape = split_shape,
    .gradient = split_gradient,
    .rule = split_rule,
    .reference = split_reference,
};

// ---- join

static void join_shape(Graph *g, Node *node) {
  CHECK(node->ninput >= 1);
  for (int k = 1; k < node->ninput; k++) CHECK(op_same_sizes(g, node->input[0], node->input[k]), "%s", node->name);
  Tensor x = *graph_tensor(g, node->input[0]);
  x.shape.size[1] *= node->ninput;
  graph_output(g, node, "", x.dtype, x.shape);
}

static void join_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  if (doutput[0] >= 0) op_split_positions(g, op_derived_name(g, &node, "dx"), doutput[0], node.ninput, dinput);
}

// Of rows that are elsewhere a rank may have parts of sums: all of them, as in ADD.
static void join_rule(const Graph *g, const Node *node, char *text, size_t size) {
  size_t room = 8 + 8 * (size_t)node->ninput, n = 1;
  char *linear = xcalloc(room, 1);
  linear[0] = '0';
  for (int k = 1; k < node->ninput; k++) n += (size_t)snprintf(linear + n, room - n, "+%d", k);
  rule_of_parts(g, node, node->ninput, text, size, linear);
  free(linear);
}

static void join_reference(const KernelCall *call) { copy_rows(call->output, call->input, call->ninput, 1); }

const OpDef op_def_join_positions = {
    .name = "join_positions",
    .meaning = "n parts (b, s / n, e…) → (b, s, e…), of which they are the positions as split_positions deals them",
    .shape = join_shape,
    .gradient = join_gradient,
    .rule = join_rule,
    .reference = join_reference,
};

void op_split_positions(Graph *g, const char *name, int x, int parts, int *part) {
  PositionsAttr attr = {parts};
  int n = graph_node(g, OP_SPLIT_POSITIONS, name, &x, 1, &attr, sizeof attr);
  memcpy(part, g->node.data[n].output, sizeof *part * (size_t)parts);
}

int op_join_positions(Graph *g, const char *name, const int *part, int parts) {
  int n = graph_node(g, OP_JOIN_POSITIONS, name, part, parts, NULL, 0);
  return g->node.data[n].output[0];
}
