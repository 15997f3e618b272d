// CACHE_WRITE: puts keys or values of new tokens into their rows of a cache, which lives between calls. Not
// differentiable.
#include "base/fault.h"
#include "op/build.h"

// cache (b, c, g, d), x (b, s, g, d), rows (b, s) → cache, in its own dtype
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor cache = *graph_tensor(g, node->input[0]), x = *graph_tensor(g, node->input[1]),
         rows = *graph_tensor(g, node->input[2]);
  const int64_t *n = cache.shape.size, *m = x.shape.size;
  CHECK(cache.shape.rank == 4 && x.shape.rank == 4 && n[0] == m[0] && n[2] == m[2] && n[3] == m[3]);
  CHECK(rows.shape.rank == 2 && rows.shape.size[0] == m[0] && rows.shape.size[1] == m[1]);
  graph_output(g, node, "", cache.dtype, cache.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bcgd", "bsgd", "bs"}, 3, (const char *[]){"bcgd"}, 1, "; whole c s");
}

static void reference(const KernelCall *call) {
  const Operand *cache = &call->output[0], *x = &call->input[1], *rows = &call->input[2];
  int64_t width = operand_extent(x, 2, 4), tokens = x->size[0] * x->size[1];
  if (call->input[0].data != cache->data)
    memcpy(cache->data, call->input[0].data, (size_t)operand_elements(cache) * dtype_size(cache->dtype));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t row = (int64_t)operand_load(rows, t), to = t / x->size[1] * cache->size[1] + row;
    if (row < 0) continue;
    for (int64_t i = 0; i < width; i++) operand_store(cache, to * width + i, operand_load(x, t * width + i));
  }
}

// What is written, not the cache.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = operand_bytes(&input[1]) + operand_bytes(&input[2]);
  work->written = (double)operand_elements(&input[1]) * (double)dtype_size(input[0].dtype);
  work->vector = 0;
}

const OpDef op_def_cache_write = {
    .name = "cache_write",
    .meaning = "cache (b, c, g, d), x (b, s, g, d), rows (b, s) → cache with x[b, s] in its row rows[b, s], where that "
               "is not negative; in place",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .in_place = 1,
};

int op_cache_write(Graph *g, const char *name, int cache, int x, int rows) {
  int n = graph_node(g, OP_CACHE_WRITE, name, (int[]){cache, x, rows}, 3, NULL, 0);
  op_update(g, n, 0, 0);
  return g->node.data[n].output[0];
}
