// Launches of what decoding does with a cache.
#include "device/cuda/launch.h"

void launch_take(Launch *l) {
  const Operand *x = launch_input(l, 0), *index = launch_input(l, 1);
  RowsArguments a = {.map = launch_map(&x->map[1]), .s = x->size[1], .t = index->size[1],
                     .width = operand_extent(x, 2, x->rank)};
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.index = launch_array(l, "index", index, CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_take, operand_elements(index), block_threads(a.width), &a);
}

void launch_cache_write(Launch *l) {
  const Operand *cache = launch_output(l, 0), *x = launch_input(l, 1), *rows = launch_input(l, 2);
  RowsArguments a = {.s = cache->size[1], .t = x->size[1], .width = operand_extent(x, 2, 4)};
  launch_copy(l); // of the cache as it was; nothing in place
  a.from = launch_array(l, "x", x, CUDA_READS);
  a.index = launch_array(l, "rows", rows, CUDA_READS);
  a.y = launch_operand(l, "cache", cache, CUDA_READS | CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_cache_write, operand_elements(rows), block_threads(a.width), &a);
}

// Heads of at most ATTENTION_WIDTH.
int fits_cache_attention(const KernelCall *call, Dtype dtype) { return call->input[0].size[4] <= ATTENTION_WIDTH; }

void launch_cache_attention(Launch *l) {
  const CacheAttr *attr = l->call->attr;
  const Operand *q = launch_input(l, 0), *keys = launch_input(l, 1), *pages = launch_input(l, 5);
  CacheArguments a = {.scale = attr->scale, .page = attr->page, .s = q->size[1], .c = keys->size[1], .g = q->size[2],
                      .r = q->size[3], .d = q->size[4], .n = pages->size[1], .m = pages->size[2]};
  a.q = launch_array(l, "q", q, CUDA_READS);
  a.keys = launch_array(l, "keys", keys, CUDA_READS);
  a.values = launch_array(l, "values", launch_input(l, 2), CUDA_READS);
  a.requests = launch_array(l, "requests", launch_input(l, 3), CUDA_READS);
  a.positions = launch_array(l, "positions", launch_input(l, 4), CUDA_READS);
  a.pages = launch_operand(l, "pages", pages, CUDA_READS);
  a.out = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_cache_attention, operand_extent(q, 0, 4), ATTENTION_THREADS, &a);
}
