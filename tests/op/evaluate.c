// Running graphs with the reference kernels, one rank, no memory plan.
#include "evaluate.h"
#include <stdlib.h>
#include <string.h>

void operand_allocate(Operand *x) {
  size_t bytes = (size_t)operand_elements(x) * dtype_size(x->dtype);
  bytes = (bytes + 64) / 64 * 64;
  x->data = aligned_alloc(64, bytes);
  CHECK(x->data);
  memset(x->data, 0, bytes);
}

Operand operand_create(Dtype dtype, const Shape *shape) {
  Operand x = {.dtype = dtype, .rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    x.size[d] = shape->size[d];
    x.map[d] = index_whole(shape->size[d]);
  }
  operand_allocate(&x);
  return x;
}

static void grow(Values *v) {
  if (v->count >= v->g->tensor.count) return;
  v->tensor = xrealloc(v->tensor, sizeof *v->tensor * (size_t)v->g->tensor.count);
  memset(v->tensor + v->count, 0, sizeof *v->tensor * (size_t)(v->g->tensor.count - v->count));
  v->count = v->g->tensor.count;
}

void values_start(Values *v, const Graph *g) {
  *v = (Values){.g = g};
  grow(v);
}

static void run_node(Values *v, const Node *node, const CallParameters *parameters) {
  Operand *input = xcalloc((size_t)node->ninput + 1, sizeof *input),
          *output = xcalloc((size_t)node->noutput + 1, sizeof *output);
  for (int k = 0; k < node->ninput; k++) {
    if (node->input[k] < 0) continue;
    input[k] = v->tensor[node->input[k]];
    CHECK(input[k].data, "%s has no value", graph_tensor(v->g, node->input[k])->name);
  }
  for (int k = 0; k < node->noutput; k++) {
    const Tensor *t = graph_tensor(v->g, node->output[k]);
    free(v->tensor[t->id].data);
    output[k] = v->tensor[t->id] = operand_create(t->dtype, &t->shape);
  }
  KernelCall call = {.ninput = node->ninput,
                     .noutput = node->noutput,
                     .input = input,
                     .output = output,
                     .attr = node->attr,
                     .name = philox_name(node->name),
                     .parameters = parameters};
  op_def(node->op)->reference(&call);
  free(input);
  free(output);
}

void values_run(Values *v, int from, int to, const CallParameters *parameters) {
  grow(v);
  for (int i = from; i < to; i++) run_node(v, &v->g->node.data[i], parameters);
}

void values_free(Values *v) {
  for (int i = 0; i < v->count; i++) free(v->tensor[i].data);
  free(v->tensor);
  *v = (Values){0};
}
