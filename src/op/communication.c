// Communication as nodes: ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, REDUCE_TO, BROADCAST, GATHER_TO, SCATTER_FROM,
// ALL_TO_ALL, SHIFT, and SLICE,
// which is local. Only `lower` and the passes after `place` insert them. They keep the global value and change who
// holds what, so global shapes stay.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  for (int k = 0; k < node->ninput; k++) { // of a bucket many
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, "", x.dtype, x.shape);
  }
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

// Copies the box of the input that the output's maps name; what no map names (padding) becomes zero. `in` and `out` are
// the first elements of the current sub-box, `stride` the elements below dim d.
static void slice_box(const Operand *x, const Operand *y, int d, int64_t in, int64_t out) {
  size_t size = dtype_size(y->dtype);
  char *to = (char *)y->data;
  if (d == y->rank) {
    memcpy(to + (size_t)out * size, (const char *)x->data + (size_t)in * size, size);
    return;
  }
  int64_t in_stride = operand_extent(x, d + 1, x->rank), out_stride = operand_extent(y, d + 1, y->rank);
  for (int64_t i = 0, n; i < y->size[d]; i += n) {
    n = 1;
    int64_t from = i < y->map[d].valid ? index_local(&x->map[d], index_map(&y->map[d], i)) : -1;
    if (from < 0) {
      memset(to + (size_t)(out + i * out_stride) * size, 0, (size_t)out_stride * size);
    } else if (d + 1 == y->rank) { // the longest run that is contiguous on both sides
      while (i + n < y->map[d].valid && index_local(&x->map[d], index_map(&y->map[d], i + n)) == from + n) n++;
      memcpy(to + (size_t)(out + i) * size, (const char *)x->data + (size_t)(in + from) * size, (size_t)n * size);
    } else {
      slice_box(x, y, d + 1, in + from * in_stride, out + i * out_stride);
    }
  }
}

// Of its input no more than its output.
static void slice_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = operand_bytes(&output[0]);
  work->vector = 0;
}

static void slice_reference(const KernelCall *call) { slice_box(&call->input[0], &call->output[0], 0, 0, 0); }

// pairs: outputs that may have the memory of the input.
#define COLLECTIVE(id, kind, pairs, what)                                                                              \
  const OpDef op_def_##id = {.name = #id, .meaning = what, .shape = shape, .rule = rule, .communicates = 1,            \
                             .comm = COMM_##kind, .in_place = pairs}

COLLECTIVE(all_reduce, ALL_REDUCE, 1, "partial x over attr.axes → its sum, or maximum, on every rank; in place");
COLLECTIVE(all_gather, ALL_GATHER, 0, "x with attr.dim sharded over attr.axes → the whole dim on every rank");
COLLECTIVE(reduce_scatter, REDUCE_SCATTER, 0, "partial x over attr.axes → its sum, attr.dim sharded over them");
COLLECTIVE(reduce_to, REDUCE, 1, "partial x over attr.axes → its sum, on attr.root alone; in place");
COLLECTIVE(broadcast, BROADCAST, 1, "x, on attr.root of attr.axes alone → x on every rank; in place");
COLLECTIVE(gather_to, GATHER, 0, "x with attr.dim sharded over attr.axes → the whole dim, on attr.root alone");
COLLECTIVE(scatter_from, SCATTER, 0, "x, on attr.root of attr.axes alone → attr.dim sharded over them");
COLLECTIVE(all_to_all, ALL_TO_ALL, 0, "x with attr.dim2 sharded over attr.axes → attr.dim sharded instead");
COLLECTIVE(shift, SHIFT, 0,
           "x → that of the rank attr.distance before along attr.axes, as its output's placement says");

const OpDef op_def_slice = {
    .name = "slice",
    .meaning = "x → the part of it that the output's maps name, padding 0; local",
    .shape = shape,
    .rule = rule,
    .reference = slice_reference,
    .work = slice_work,
    .role = ROLE_SLICE,
};

static int append(Graph *g, Op op, const char *name, int x, CommAttr attr) {
  int id = graph_node(g, op, name, &x, 1, &attr, sizeof attr);
  return g->node.data[id].output[0];
}

int op_broadcast(Graph *g, const char *name, int x, uint32_t axes, int root) {
  return append(g, OP_BROADCAST, name, x, (CommAttr){.axes = axes, .dim = -1, .root = root});
}

int op_reduce_to(Graph *g, const char *name, int x, uint32_t axes, int root) {
  return append(g, OP_REDUCE_TO, name, x, (CommAttr){.axes = axes, .dim = -1, .root = root});
}

int op_slice(Graph *g, const char *name, int x, uint32_t axes, int dim) {
  return append(g, OP_SLICE, name, x, (CommAttr){.axes = axes, .dim = dim});
}
