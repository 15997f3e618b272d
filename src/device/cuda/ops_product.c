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

static int is_aligned(Array x, int64_t step) { return (uintptr_t)x.data % 16 == 0 && step % 8 == 0; }

int product_fits_tiles(Array a, int64_t a_row, int64_t a_depth, Array b, int64_t b_column, int64_t b_depth) {
  const int a_turned = a_depth != 1, b_turned = b_depth != 1;
  return (a.dtype == DTYPE_BF16 || a.dtype == DTYPE_F16) && a.dtype == b.dtype &&
         (a_turned ? a_row == 1 && b_turned : 1) && (b_turned ? b_column == 1 : 1) &&
         is_aligned(a, a_turned ? a_depth : a_row) && is_aligned(b, b_turned ? b_depth : b_column);
}

void launch_plain_product(Launch *l, const ProductArguments *a) {
  launch_kernel(l, CUDA_KERNEL_product, divide_up(a->rows, TILE) * divide_up(a->columns, TILE), BLOCK_THREADS, a);
}

void launch_own_product(Launch *l, const ProductArguments *a) {
  const Dtype dtype = l->dtype;
  if (a->depth > INT32_MAX - MMA_DEPTH || // in tiles the depth is an int
      !product_fits_tiles(a->a, a->a_row, a->a_depth, a->b, a->b_column, a->b_depth)) {
    launch_plain_product(l, a);
    return;
  }
  l->dtype = (Dtype)a->a.dtype; // that of the product, which may be a part of an op in another
  launch_kernel(l, CUDA_KERNEL_product_tiles, divide_up(a->rows, MMA_TILE) * divide_up(a->columns, MMA_TILE),
                MMA_THREADS, a);
  l->dtype = dtype;
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

// Its operands are those of the launch.
static ProductArguments product_of(Launch *l, const MatmulAttr *attr) {
  const KernelCall *call = l->call;
  ProductArguments a = shape_of_product(call->input, attr);
  a.a = launch_array(l, "a", &call->input[0], CUDA_READS);
  a.b = launch_array(l, "b", &call->input[1], CUDA_READS);
  if (call_adds(call, attr->accumulate)) a.added = launch_array(l, "added", &call->input[2], CUDA_READS);
  if (attr->bias) a.bias = launch_array(l, "bias", &call->input[2], CUDA_READS);
  return a;
}

void launch_matmul(Launch *l) {
  ProductArguments a = product_of(l, l->call->attr);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_product(l, &a);
}

// All is of the activation's dtype but a bias.
int fits_activation(const KernelCall *call, Dtype dtype) {
  const MatmulActivationAttr *attr = call->attr;
  for (int k = 0; k < call->ninput; k++)
    if (call->input[k].dtype != dtype && !(attr->product.bias && k == 2)) return 0;
  return call->output[0].dtype == dtype;
}

// The library makes both, as far as is known. 0: it does not, and nothing was put into the queue.
static int launch_with_function(Launch *l, const ProductArguments *a) {
  ProductKey key;
  if (((const MatmulActivationAttr *)l->call->attr)->kind != ACTIVATION_GELU_TANH) return 0;
  if (!l->asked) return products_launch(l, a);
  l->operands = 0;
  if (!product_key(a, &key) || products_lack(l->queue->instance, &key)) return 0;
  vec_push(&l->asked->list, key);
  return 1;
}

static void launch_function(Launch *l, CudaKernel kernel, const Operand *x, const Operand *dy) {
  const Operand *out = launch_output(l, 0);
  ElementwiseArguments e = {.n = operand_elements(out), .count = dy ? 2 : 1,
                            .kind = ((const MatmulActivationAttr *)l->call->attr)->kind};
  e.x[0] = launch_operand(l, "x", x, CUDA_READS);
  if (dy) e.x[1] = launch_operand(l, "dy", dy, CUDA_READS);
  e.y = launch_operand(l, "out", out, CUDA_WRITES);
  launch_over(l, kernel, e.n, 16 / (int64_t)dtype_size(l->dtype), &e);
}

void launch_matmul_activation(Launch *l) {
  const MatmulActivationAttr *attr = l->call->attr;
  const Operand *out = launch_output(l, 0), *before = attr->keeps ? launch_output(l, 1) : out;
  ProductArguments a = product_of(l, &attr->product);
  a.out = launch_array(l, "out", FAULT(product_keeps_the_value_after, out, before), CUDA_WRITES);
  if (attr->keeps)
    a.before = launch_array(l, "before", FAULT(product_keeps_the_value_after, before, out), CUDA_WRITES);
  a.function = attr->keeps ? PRODUCT_GELU_KEEPS : PRODUCT_GELU;
  if (launch_with_function(l, &a)) return;
  l->operands = 0;
  a = product_of(l, &attr->product);
  a.out = launch_array(l, "before", before, CUDA_WRITES);
  launch_product(l, &a);
  launch_function(l, CUDA_KERNEL_activation, before, NULL);
}

void launch_matmul_activation_grad(Launch *l) {
  const MatmulActivationAttr *attr = l->call->attr;
  const Operand *x = launch_input(l, 2), *out = launch_output(l, 0);
  ProductArguments a = product_of(l, &attr->product);
  a.before = launch_array(l, "before", x, CUDA_READS);
  a.out = launch_array(l, "out", out, CUDA_WRITES);
  a.function = PRODUCT_GELU_SLOPE;
  if (launch_with_function(l, &a)) return;
  l->operands = 0;
  a = product_of(l, &attr->product);
  a.out = launch_array(l, "dy", out, CUDA_WRITES);
  launch_product(l, &a);
  launch_function(l, CUDA_KERNEL_activation_grad, x, out);
}
