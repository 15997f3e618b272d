// Running graphs with the reference kernels, one rank, no memory plan.
#include "check/evaluate.h"
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

Operand values_create(const Values *v, int tensor) {
  const Tensor *t = graph_tensor(v->g, tensor);
  if (!tensor_is_compact(t)) return operand_create(t->dtype, &t->shape);
  const Operand *mask = &v->tensor[t->mask];
  CHECK(mask->data, "the mask of %s has no value", t->name);
  Shape shape = t->shape;
  shape.size[0] = 0;
  shape.size[1] = shape.size[2] = 1;
  for (int64_t i = operand_elements(mask) - 1; i >= 0; i--) shape.size[0] += ((const uint8_t *)mask->data)[i];
  return operand_create(t->dtype, &shape);
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
    int t = node->output[k];
    free(v->tensor[t].data);
    output[k] = v->tensor[t] = values_create(v, t);
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
