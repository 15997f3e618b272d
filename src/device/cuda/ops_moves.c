// Launches of what copies elements of any dtype: those of one size share a kernel.
#include "device/cuda/launch.h"

static int has_size(const Operand *x) {
  const size_t bytes = dtype_size(x->dtype);
  return bytes == 8 || bytes == 4 || bytes == 2;
}

static Dtype dtype_of_size(const Operand *x) {
  return dtype_size(x->dtype) == 8 ? DTYPE_F64 : dtype_size(x->dtype) == 4 ? DTYPE_F32 : DTYPE_BF16;
}

int fits_next_version(const KernelCall *call, Dtype dtype) { return has_size(&call->output[0]); }

void launch_next_version(Launch *l) {
  const Operand *out = launch_output(l, 0);
  ElementwiseArguments a = {.n = operand_elements(out)};
  l->dtype = dtype_of_size(out);
  a.x[0] = launch_operand(l, "version", launch_input(l, 0), CUDA_READS);
  a.x[1] = launch_operand(l, "newer", launch_input(l, 1), CUDA_READS);
  a.x[2] = launch_operand(l, "weights", launch_input(l, 2), CUDA_READS);
  a.array = launch_array(l, "turn", launch_input(l, 3), CUDA_READS);
  a.y = launch_operand(l, "out", out, CUDA_WRITES);
  launch_over(l, CUDA_KERNEL_next_version, a.n, 4, &a);
}

int fits_slice(const KernelCall *call, Dtype dtype) { return has_size(&call->output[0]) && call->output[0].rank > 0; }

void launch_slice(Launch *l) {
  const Operand *x = launch_input(l, 0), *y = launch_output(l, 0);
  SliceArguments a = {.width = 1, .rank = y->rank};
  // dims that are whole on both sides are copied together; one dim is left
  while (a.rank > 1 && index_is_whole(&x->map[a.rank - 1]) && index_is_whole(&y->map[a.rank - 1]))
    a.width *= y->size[--a.rank];
  a.rows = operand_extent(y, 0, (int)a.rank);
  for (int d = 0; d < (int)a.rank; d++) {
    a.size[d] = y->size[d];
    a.from[d] = x->size[d];
    a.map[d] = launch_map(&y->map[d]);
    a.from_map[d] = launch_map(&x->map[d]);
  }
  l->dtype = dtype_of_size(y);
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.y = launch_operand(l, "y", y, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_slice, a.rows, block_threads(a.width), &a);
}

// Positions ----------------------------------------------------------------------------------------------------------

enum { MOST_UNIT = 16 };

// The largest unit that rows consist of, and at which both begin.
static int64_t unit_of(int64_t bytes, const void *from, const void *to) {
  const int64_t all = (int64_t)((uintptr_t)from | (uintptr_t)to) | bytes | MOST_UNIT;
  return all & -all;
}

// A launch for each part.
static void launch_positions(Launch *l, const Operand *whole, const Operand *part, int parts, int joins) {
  PositionsArguments a = {.parts = parts, .joins = joins};
  a.bytes = operand_extent(whole, 2, whole->rank) * (int64_t)dtype_size(whole->dtype);
  l->dtype = DTYPE_F64; // the one kernel for all
  for (int k = 0; k < parts; k++) {
    const int64_t rows = operand_extent(&part[k], 0, 2);
    a.part = joins ? FAULT(kernel_parts_are_turned, k, (k + 1) % parts) : k;
    a.unit = unit_of(a.bytes, whole->data, part[k].data);
    a.from = launch_operand(l, "from", joins ? &part[k] : whole, CUDA_READS);
    a.to = launch_operand(l, "to", joins ? whole : &part[k], joins ? CUDA_READS | CUDA_WRITES : CUDA_WRITES);
    launch_kernel(l, CUDA_KERNEL_positions, rows, block_threads(a.bytes / a.unit), &a);
  }
}

void launch_split_positions(Launch *l) {
  launch_positions(l, launch_input(l, 0), launch_output(l, 0), l->call->noutput, 0);
}
void launch_join_positions(Launch *l) {
  launch_positions(l, launch_output(l, 0), launch_input(l, 0), l->call->ninput, 1);
}
