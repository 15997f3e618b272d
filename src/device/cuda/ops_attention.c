// Launches of attention and of its gradient.
#include "device/cuda/attention_library.h"
#include "device/cuda/launch.h"

// For heads of at most ATTENTION_WIDTH.
int fits_attention(const KernelCall *call, Dtype dtype) {
  return call->input[0].size[4] <= ATTENTION_WIDTH && call->input[3].dtype == DTYPE_I32 &&
         call->input[4].dtype == DTYPE_I32;
}

size_t cuda_attention_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return (size_t)attention_workspace(input, output, attr, 0);
}

size_t cuda_attention_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  const int64_t own = operand_extent(&input[0], 0, 4) * sum_bytes(input[0].dtype),
                library = attention_workspace(input, output, attr, 1);
  return (size_t)(library > own ? library : own);
}

static AttentionArguments sizes_of(const Launch *l) {
  const AttentionAttr *attr = l->call->attr;
  const Operand *q = launch_input(l, 0), *k = launch_input(l, 1);
  return (AttentionArguments){.queries = launch_map(&q->map[1]), .keys = launch_map(&k->map[1]), .scale = attr->scale,
                              .groups = launch_map(&q->map[2]), .heads = launch_map(&q->map[3]),
                              .all_heads = q->map[3].global,
                              .mask = launch_mask(l, attr->dropout, attr->stream, &q->map[0]),
                              .causal = attr->causal, .b = q->size[0], .s = q->size[1], .t = k->size[1],
                              .g = q->size[2], .r = q->size[3], .d = q->size[4]};
}

static void read_inputs(Launch *l, AttentionArguments *a) {
  a->q = launch_array(l, "q", launch_input(l, 0), CUDA_READS);
  a->k = launch_array(l, "k", launch_input(l, 1), CUDA_READS);
  a->v = launch_array(l, "v", launch_input(l, 2), CUDA_READS);
  a->documents = launch_operand(l, "documents", launch_input(l, 3), CUDA_READS);
  a->key_documents = launch_operand(l, "key_documents", launch_input(l, 4), CUDA_READS);
}

void launch_own_attention(Launch *l) {
  AttentionArguments a = sizes_of(l);
  read_inputs(l, &a);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  a.logsumexp = launch_array(l, "logsumexp", launch_output(l, 1), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_attention, a.b * a.s * a.g * a.r, ATTENTION_THREADS, &a);
}

void launch_own_attention_grad(Launch *l) {
  AttentionArguments a = sizes_of(l);
  int64_t queries = a.b * a.s * a.g * a.r, bytes = queries * sum_bytes(l->dtype);
  read_inputs(l, &a);
  a.out = launch_array(l, "out", launch_input(l, 5), CUDA_READS);
  a.logsumexp = launch_array(l, "logsumexp", launch_input(l, 6), CUDA_READS);
  a.dout = launch_array(l, "dout", launch_input(l, 7), CUDA_READS);
  a.delta = launch_bytes(l, "delta", l->call->workspace, bytes, CUDA_WRITES);
  a.dq = launch_array(l, "dq", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_attention_grad_query, queries, ATTENTION_THREADS, &a);
  read_inputs(l, &a);
  launch_array(l, "logsumexp", launch_input(l, 6), CUDA_READS);
  launch_array(l, "dout", launch_input(l, 7), CUDA_READS);
  launch_bytes(l, "delta", a.delta, bytes, CUDA_READS);
  a.out = a.dq = (Array){0};
  a.dk = launch_array(l, "dk", launch_output(l, 1), CUDA_WRITES);
  a.dv = launch_array(l, "dv", launch_output(l, 2), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_attention_grad_key, a.b * a.t * a.g, ATTENTION_THREADS, &a);
}

void launch_attention(Launch *l) {
  if (!attention_launch(l, 0)) launch_own_attention(l);
}

void launch_attention_grad(Launch *l) {
  if (!attention_launch(l, 1)) launch_own_attention_grad(l);
}

void launch_merge(Launch *l) {
  const Operand *x = launch_input(l, 0);
  MergeArguments a = {.s = x->size[1], .heads = x->size[2] * x->size[3], .d = x->size[4]};
  for (int k = 0; k < 2; k++) {
    a.out[k] = launch_array(l, k ? "out_b" : "out_a", launch_input(l, 2 * k), CUDA_READS);
    a.logsumexp[k] = launch_array(l, k ? "logsumexp_b" : "logsumexp_a", launch_input(l, 2 * k + 1), CUDA_READS);
  }
  a.out[2] = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  a.logsumexp[2] = launch_array(l, "logsumexp", launch_output(l, 1), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_merge, operand_extent(x, 0, 4), block_threads(a.d), &a);
}
