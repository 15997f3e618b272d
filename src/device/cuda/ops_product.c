// Launches of products.
#include "device/cuda/launch.h"

size_t cuda_product_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return PRODUCT_WORKSPACE;
}

void launch_product(Launch *l, const ProductArguments *a) {
  ProductKey key;
  if (l->asked) {
    l->operands = 0;
    if (product_key(a, &key)) vec_push(&l->asked->list, key);
  } else if (!products_launch(l, a)) launch_own_product(l, a);
}

void launch_own_product(Launch *l, const ProductArguments *a) {
  launch_kernel(l, CUDA_KERNEL_product, divide_up(a->rows, TILE) * divide_up(a->columns, TILE), BLOCK_THREADS, a);
}

// Sizes and strides, as product_of of op/matmul.c.
static ProductArguments shape_of_product(const Operand *input, const MatmulAttr *attr) {
  const Operand *x = &input[0], *w = &input[1];
  int nt = attr->kind == MATMUL_NT, nn = attr->kind == MATMUL_NN;
  int first = attr->m, second = nt || nn ? attr->n : attr->m; // dims before the other group
  int64_t a = operand_extent(x, 0, first), b = operand_extent(x, first, x->rank), c = operand_extent(w, 0, second),
          d = operand_extent(w, second, w->rank);
  ProductArguments p = {.rows = a, .columns = d, .depth = b, .a_row = b, .a_depth = 1, .b_column = 1, .b_depth = d};
  if (nt) p.columns = c, p.b_column = d, p.b_depth = 1;
  if (!nt && !nn) p.rows = b, p.depth = a, p.a_row = 1, p.a_depth = b;
  return p;
}

void launch_matmul(Launch *l) {
  const KernelCall *call = l->call;
  const MatmulAttr *attr = call->attr;
  ProductArguments a = shape_of_product(call->input, attr);
  a.a = launch_array(l, "a", &call->input[0], CUDA_READS);
  a.b = launch_array(l, "b", &call->input[1], CUDA_READS);
  if (call_adds(call, attr->accumulate)) a.added = launch_array(l, "added", &call->input[2], CUDA_READS);
  if (attr->bias) a.bias = launch_array(l, "bias", &call->input[2], CUDA_READS);
  a.out = launch_array(l, "out", &call->output[0], CUDA_WRITES);
  launch_product(l, &a);
}
