// Launches of embeddings, rotary positions and scalars.
#include "device/cuda/launch.h"

void launch_embedding(Launch *l) {
  const Operand *table = launch_input(l, 0), *ids = launch_input(l, 1);
  EmbeddingArguments a = {.map = launch_map(&table->map[0]), .tokens = operand_elements(ids), .rows = table->size[0],
                          .width = operand_extent(table, 1, table->rank)};
  a.table = launch_operand(l, "table", table, CUDA_READS);
  a.ids = launch_array(l, "ids", ids, CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_embedding, a.tokens, block_threads(a.width), &a);
}

// First what the table's gradient begins as, then what tokens add to it.
void launch_embedding_grad(Launch *l) {
  const KernelCall *call = l->call;
  const Operand *ids = launch_input(l, 0), *dy = launch_input(l, 1), *out = launch_output(l, 0);
  const Operand *added = call_adds(call, ((const EmbeddingAttr *)call->attr)->accumulate) ? launch_input(l, 2) : NULL;
  int64_t n = operand_elements(out), width = operand_extent(out, 1, out->rank);
  if (!added) {
    ElementwiseArguments zero = {.n = n * (int64_t)dtype_size(out->dtype) / 2, .valid = 0};
    Dtype dtype = l->dtype;
    l->dtype = DTYPE_BF16; // whose zeros are those of all dtypes
    zero.y = launch_operand(l, "out", out, CUDA_WRITES);
    launch_kernel(l, CUDA_KERNEL_fill, divide_up(zero.n, 8 * BLOCK_THREADS), BLOCK_THREADS, &zero);
    l->dtype = dtype;
  } else if (added->data != out->data) {
    ElementwiseArguments copy = {.n = n};
    copy.array = launch_array(l, "added", added, CUDA_READS);
    copy.to = launch_array(l, "out", out, CUDA_WRITES);
    launch_kernel(l, CUDA_KERNEL_cast, divide_up(n, BLOCK_THREADS), BLOCK_THREADS, &copy);
  }
  EmbeddingArguments a = {.map = launch_map(&out->map[0]), .tokens = operand_elements(ids), .rows = out->size[0],
                          .width = width};
  a.ids = launch_array(l, "ids", ids, CUDA_READS);
  a.table = launch_operand(l, "dy", dy, CUDA_READS);
  a.out = launch_array(l, "out", out, CUDA_READS | CUDA_WRITES);
  int threads = block_threads(width);
  launch_kernel(l, CUDA_KERNEL_embedding_grad, a.tokens * divide_up(width, threads), threads, &a);
}

void launch_rope(Launch *l) {
  const RopeAttr *attr = l->call->attr;
  const Operand *x = launch_input(l, 0);
  RopeArguments a = {.theta = attr->theta, .factor = attr->factor, .low = attr->low_frequency_factor,
                     .high = attr->high_frequency_factor, .original = attr->original_positions,
                     .inverse = attr->inverse, .scaling = attr->scaling, .tokens = operand_extent(x, 0, 2),
                     .heads = operand_extent(x, 2, x->rank - 1), .width = x->size[x->rank - 1]};
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.positions = launch_array(l, "positions", launch_input(l, 1), CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  int64_t n = a.tokens * a.width / 2;
  int threads = block_threads(n);
  launch_kernel(l, CUDA_KERNEL_rope, divide_up(n, threads), threads, &a);
}

// Scalars -------------------------------------------------------------------------------------------------------------

static ScalarArguments scalars_of(Launch *l) {
  static const char *const names[2][3] = {{"x", "y", "z"}, {"out", "out2", "out3"}};
  ScalarArguments a = {.n = 1};
  for (int k = 0; k < l->call->ninput; k++) a.x[k] = launch_array(l, names[0][k], launch_input(l, k), CUDA_READS);
  for (int k = 0; k < l->call->noutput; k++) a.y[k] = launch_array(l, names[1][k], launch_output(l, k), CUDA_WRITES);
  return a;
}

static void launch_scalars(Launch *l, CudaKernel kernel) {
  ScalarArguments a = scalars_of(l);
  launch_kernel(l, kernel, 1, WARP, &a);
}
void launch_gradient_seed(Launch *l) { launch_scalars(l, CUDA_KERNEL_gradient_seed); }
void launch_mean_loss(Launch *l) { launch_scalars(l, CUDA_KERNEL_mean_loss); }
void launch_advance(Launch *l) { launch_scalars(l, CUDA_KERNEL_advance); }

void launch_version_turn(Launch *l) { launch_scalars(l, CUDA_KERNEL_version_turn); }

void launch_clip(Launch *l) {
  ScalarArguments a = scalars_of(l);
  a.value = ((const ClipAttr *)l->call->attr)->max_norm;
  launch_kernel(l, CUDA_KERNEL_clip, 1, WARP, &a);
}

void launch_loss_scale(Launch *l) {
  ScalarArguments a = scalars_of(l);
  a.n = ((const LossScaleAttr *)l->call->attr)->interval;
  launch_kernel(l, CUDA_KERNEL_loss_scale, 1, WARP, &a);
}

void launch_count_targets(Launch *l) {
  ScalarArguments a = scalars_of(l);
  a.n = launch_valid(launch_input(l, 0));
  launch_kernel(l, CUDA_KERNEL_count_targets, 1, block_threads(a.n), &a);
}

void launch_rescale(Launch *l) {
  ScalarArguments a = scalars_of(l);
  a.n = operand_elements(launch_output(l, 0));
  int threads = block_threads(a.n);
  launch_kernel(l, CUDA_KERNEL_rescale, divide_up(a.n, threads), threads, &a);
}
