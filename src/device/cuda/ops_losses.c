// Launches of softmax and of the losses of users' graphs.
#include "device/cuda/launch.h"

enum { EACH_ERROR = 4096 };

static int64_t width_of(const Operand *x) { return x->size[x->rank - 1]; }
static int64_t rows_of(const Operand *x) { return operand_extent(x, 0, x->rank - 1); }

static void launch_rows(Launch *l, CudaKernel kernel, const SoftmaxArguments *a) {
  launch_kernel(l, kernel, rows_of(launch_input(l, 0)), block_threads(a->width), a);
}

void launch_softmax(Launch *l) {
  SoftmaxArguments a = {.width = width_of(launch_input(l, 0))};
  a.x = launch_operand(l, "x", launch_input(l, 0), CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_rows(l, CUDA_KERNEL_softmax, &a);
}

void launch_softmax_grad(Launch *l) {
  SoftmaxArguments a = {.width = width_of(launch_input(l, 0))};
  a.x = launch_operand(l, "y", launch_input(l, 0), CUDA_READS);
  a.dy = launch_operand(l, "dy", launch_input(l, 1), CUDA_READS);
  a.y = launch_operand(l, "dx", launch_output(l, 0), CUDA_WRITES);
  launch_rows(l, CUDA_KERNEL_softmax_grad, &a);
}

// The sum of n losses, in the workspace, as output 0.
static void launch_total(Launch *l, double *losses, int64_t n) {
  SumArguments a = {.n = n};
  a.partial = launch_bytes(l, "losses", losses, n * (int64_t)sizeof *losses, CUDA_READS);
  a.out = launch_array(l, "loss", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_sum, 1, block_threads(n), &a);
}

size_t cuda_row_losses_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)rows_of(&input[0]);
}

void launch_given_cross_entropy(Launch *l) {
  const Operand *logits = launch_input(l, 0), *target = launch_input(l, 1);
  const int64_t rows = rows_of(logits);
  CrossEntropyArguments a = {.width = width_of(logits), .labels = !dtype_is_float(target->dtype)};
  a.logits = launch_operand(l, "logits", logits, CUDA_READS);
  a.target = launch_array(l, "target", target, CUDA_READS);
  a.seed = launch_array(l, "seed", launch_input(l, 2), CUDA_READS);
  a.losses = launch_bytes(l, "losses", l->call->workspace, rows * (int64_t)sizeof(double), CUDA_WRITES);
  a.dlogits = launch_operand(l, "dlogits", launch_output(l, 1), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_cross_entropy, rows, block_threads(a.width), &a);
  launch_total(l, l->call->workspace, rows);
}

size_t cuda_squared_error_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)divide_up(operand_elements(&input[0]), EACH_ERROR);
}

void launch_squared_error(Launch *l) {
  const Operand *y = launch_input(l, 0);
  const int64_t n = operand_elements(y), blocks = divide_up(n, EACH_ERROR);
  SquaredErrorArguments a = {.n = n, .each = EACH_ERROR, .rank = y->rank};
  while (a.rank && y->map[a.rank - 1].valid >= y->size[a.rank - 1]) a.rank--;
  a.width = operand_extent(y, (int)a.rank, y->rank);
  for (int d = 0; d < (int)a.rank; d++) a.size[d] = y->size[d], a.valid[d] = y->map[d].valid;
  a.y = launch_operand(l, "y", y, CUDA_READS);
  a.target = launch_array(l, "target", launch_input(l, 1), CUDA_READS);
  a.seed = launch_array(l, "seed", launch_input(l, 2), CUDA_READS);
  a.partial = launch_bytes(l, "partial", l->call->workspace, blocks * (int64_t)sizeof(double), CUDA_WRITES);
  a.dy = launch_operand(l, "dy", launch_output(l, 1), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_squared_error, blocks, BLOCK_THREADS, &a);
  launch_total(l, l->call->workspace, blocks);
}
