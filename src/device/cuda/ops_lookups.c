// Launches of embeddings, rotary positions and scalars.
#include "device/cuda/launch.h"

void launch_embedding(Launch *l) {
  const Operand *table = launch_input(l, 0), *ids = launch_input(l, 1);
  EmbeddingArguments a = {.map = launch_map(&table->map[0]), .tokens = operand_elements(ids), .rows = table->size[0],
                          .width = operand_extent(table, 1, table->rank)};
  a.table = launch_operand(l, "table", table, CUDA_READS);
  a.ids = launch_array(l, "ids", ids, CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_embedding, a.tokens, pack_threads(a.width, l->dtype), &a);
}

// Gradient of a table: tokens are put into the order of their words first, in the workspace.
enum { MOST_SEGMENTS = 64, LEAST_SEGMENT = 64 };

// Parts of the workspace, one after the other.
typedef struct WordOrder { int64_t each, segments, blocks, counts, rank, sums, begins, token, bytes; } WordOrder;

static int64_t placed(WordOrder *o, int64_t count) {
  const int64_t at = o->bytes;
  o->bytes += divide_up(count * (int64_t)sizeof(int32_t), 256) * 256;
  return at;
}

static WordOrder order_of(int64_t tokens, int64_t rows) {
  WordOrder o = {.each = divide_up(tokens, MOST_SEGMENTS), .blocks = divide_up(rows, BLOCK_THREADS)};
  if (o.each < LEAST_SEGMENT) o.each = LEAST_SEGMENT;
  o.segments = divide_up(tokens, o.each);
  o.counts = placed(&o, o.segments * rows);
  o.rank = placed(&o, tokens);
  o.sums = placed(&o, o.blocks);
  o.begins = placed(&o, rows + 1);
  o.token = placed(&o, tokens);
  return o;
}

size_t cuda_embedding_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return (size_t)order_of(operand_elements(&input[0]), output[0].size[0]).bytes;
}

static int32_t *part(Launch *l, const char *name, int64_t at, int64_t count, unsigned mode) {
  return launch_bytes(l, name, (char *)l->call->workspace + at, count * (int64_t)sizeof(int32_t), mode);
}

static void clear(const Launch *l, int64_t at, int64_t count) {
  const CudaPointer to = (CudaPointer)(uintptr_t)l->call->workspace + (CudaPointer)at;
  if (!count || cuda_has_failed(l->queue)) return;
  cuda_noted(l->queue,
             l->queue->instance->driver->cuMemsetD8Async(to, 0, (size_t)count * sizeof(int32_t), l->queue->stream),
             "cuMemsetD8Async", l->op);
}

// Which parts of the workspace a launch reads or writes: the others' addresses it does not have.
typedef struct Parts { unsigned counts, rank, sums, begins, token; } Parts;

static EmbeddingGradArguments name_parts(Launch *l, const WordOrder *o, Parts parts) {
  const Operand *ids = launch_input(l, 0), *out = launch_output(l, 0);
  EmbeddingGradArguments a = {.map = launch_map(&out->map[0]), .tokens = operand_elements(ids), .rows = out->size[0],
                              .width = operand_extent(out, 1, out->rank), .each = o->each, .segments = o->segments};
  if (parts.counts) a.counts = part(l, "counts", o->counts, o->segments * a.rows, parts.counts);
  if (parts.rank) a.rank = part(l, "rank", o->rank, a.tokens, parts.rank);
  if (parts.sums) a.blocks = part(l, "blocks", o->sums, o->blocks, parts.sums);
  if (parts.begins) a.begins = part(l, "begins", o->begins, a.rows + 1, parts.begins);
  if (parts.token) a.token = part(l, "order", o->token, a.tokens, parts.token);
  return a;
}

static void order_tokens(Launch *l, const WordOrder *o) {
  enum { READS = CUDA_READS, WRITES = CUDA_WRITES, BOTH = CUDA_READS | CUDA_WRITES };
  const Operand *ids = launch_input(l, 0);
  const int threads = block_threads(o->each);
  clear(l, o->counts, o->segments * launch_output(l, 0)->size[0]);
  EmbeddingGradArguments a = name_parts(l, o, (Parts){.counts = BOTH, .rank = WRITES});
  a.ids = launch_array(l, "ids", ids, CUDA_READS);
  launch_kernel(l, CUDA_KERNEL_embedding_ranks, o->segments * divide_up(o->each, threads), threads, &a);
  a = name_parts(l, o, (Parts){.counts = BOTH, .sums = WRITES, .begins = BOTH});
  launch_kernel(l, CUDA_KERNEL_embedding_counts, o->blocks, BLOCK_THREADS, &a);
  a = name_parts(l, o, (Parts){.sums = READS, .begins = BOTH});
  launch_kernel(l, CUDA_KERNEL_embedding_begins, o->blocks, BLOCK_THREADS, &a);
  a = name_parts(l, o, (Parts){.counts = READS, .rank = READS, .begins = READS, .token = WRITES});
  a.ids = launch_array(l, "ids", ids, CUDA_READS);
  launch_kernel(l, CUDA_KERNEL_embedding_order, divide_up(a.tokens, BLOCK_THREADS), BLOCK_THREADS, &a);
}

void launch_embedding_grad(Launch *l) {
  const KernelCall *call = l->call;
  const Operand *out = launch_output(l, 0);
  const WordOrder o = order_of(operand_elements(launch_input(l, 0)), out->size[0]);
  order_tokens(l, &o);
  EmbeddingGradArguments a = name_parts(l, &o, (Parts){.begins = CUDA_READS, .token = CUDA_READS});
  a.dy = launch_operand(l, "dy", launch_input(l, 1), CUDA_READS);
  if (call_adds(call, ((const EmbeddingAttr *)call->attr)->accumulate))
    a.added = launch_array(l, "added", launch_input(l, 2), CUDA_READS);
  a.out = launch_array(l, "out", out, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_embedding_grad, a.rows, pack_threads(a.width, l->dtype), &a);
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
