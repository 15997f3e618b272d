// Launches of routers.
#include "device/cuda/launch.h"

enum { ROUTER_THREADS = 128 };

static int fits_logits(const KernelCall *call) { return operand_elements(&call->input[0]) > 0; }
int fits_route(const KernelCall *call, Dtype dtype) { return fits_logits(call) && call->output[1].dtype == DTYPE_U8; }
int fits_router(const KernelCall *call, Dtype dtype) { return fits_logits(call) && call->input[1].dtype == DTYPE_U8; }
int fits_router_z(const KernelCall *call, Dtype dtype) { return fits_logits(call); }
int fits_router_load(const KernelCall *call, Dtype dtype) {
  return fits_logits(call) && call->input[0].dtype == DTYPE_U8;
}

// Of logits or a mask (b, s, x).
static RouterArguments sizes_of(const Operand *x) {
  return (RouterArguments){.tokens = operand_extent(x, 0, 2), .length = x->size[1], .experts = x->size[2],
                           .positions = (double)x->map[1].global};
}

static RouterArguments router_of(Launch *l) {
  const Operand *logits = launch_input(l, 0);
  RouterArguments a = sizes_of(logits);
  a.logits = launch_array(l, "logits", logits, CUDA_READS);
  return a;
}

static void launch_tokens(Launch *l, CudaKernel kernel, const RouterArguments *a) {
  launch_kernel(l, kernel, divide_up(a->tokens, ROUTER_THREADS), ROUTER_THREADS, a);
}

void launch_route(Launch *l) {
  const RouteAttr *attr = l->call->attr;
  RouterArguments a = router_of(l);
  a.choices = (int32_t)attr->k;
  a.normalize = attr->normalize;
  a.bias = launch_array(l, "bias", launch_input(l, 1), CUDA_READS);
  a.weights = launch_array(l, "weights", launch_output(l, 0), CUDA_WRITES);
  a.mask = launch_operand(l, "mask", launch_output(l, 1), CUDA_WRITES);
  launch_tokens(l, CUDA_KERNEL_route, &a);
}

void launch_route_grad(Launch *l) {
  RouterArguments a = router_of(l);
  a.normalize = ((const RouteAttr *)l->call->attr)->normalize;
  a.mask = launch_operand(l, "mask", launch_input(l, 1), CUDA_READS);
  a.weights = launch_array(l, "dweights", launch_input(l, 2), CUDA_READS);
  a.dlogits = launch_array(l, "dlogits", launch_output(l, 0), CUDA_WRITES);
  launch_tokens(l, CUDA_KERNEL_route_grad, &a);
}

void launch_router_load(Launch *l) {
  const Operand *mask = launch_input(l, 0);
  RouterArguments a = sizes_of(mask);
  a.mask = launch_operand(l, "mask", mask, CUDA_READS);
  a.kept = launch_operand(l, "kept", launch_input(l, 1), CUDA_READS);
  a.out = launch_array(l, "load", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_router_load, 2 * a.experts, BLOCK_THREADS, &a);
}

// The sum of n partial losses.
static void launch_loss(Launch *l, double *partial, int64_t n) {
  SumArguments a = {.n = n, .partial = launch_bytes(l, "partial", partial, n * 8, CUDA_READS)};
  a.out = launch_array(l, "loss", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_sum, 1, block_threads(n), &a);
}

size_t cuda_router_z_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)(divide_up(operand_extent(&input[0], 0, 2), ROUTER_THREADS) + 1);
}

void launch_router_z(Launch *l) {
  RouterArguments a = router_of(l);
  const int64_t blocks = divide_up(a.tokens, ROUTER_THREADS);
  double *partial = l->call->workspace;
  a.seed = launch_array(l, "seed", launch_input(l, 1), CUDA_READS);
  a.dlogits = launch_array(l, "dlogits", launch_output(l, 1), CUDA_WRITES);
  a.partial = launch_bytes(l, "partial", partial, blocks * 8, CUDA_WRITES);
  launch_tokens(l, CUDA_KERNEL_router_z, &a);
  launch_loss(l, partial, blocks);
}

static void launch_sums(Launch *l, const Operand *sums) {
  RouterArguments a = router_of(l);
  a.mask = launch_operand(l, "mask", launch_input(l, 1), CUDA_READS);
  a.out = launch_array(l, "sums", sums, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_router_sums, a.tokens / a.length * a.experts, BLOCK_THREADS, &a);
}
void launch_router_balance_sums(Launch *l) { launch_sums(l, launch_output(l, 0)); }

// Losses of sequences, then their sums (b, x, 2).
size_t cuda_router_balance_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  const int64_t *n = input[0].size;
  return sizeof(double) * (size_t)(n[0] + n[0] * n[2] * 2 + 1);
}

void launch_router_balance(Launch *l) {
  const Operand *logits = launch_input(l, 0);
  const int64_t *n = logits->size;
  double *partial = l->call->workspace;
  Operand sums = {.data = partial + n[0], .dtype = DTYPE_F64, .rank = 1, .size = {n[0] * n[2] * 2}};
  if (l->call->ninput > 3) sums = *launch_input(l, 3);
  else launch_sums(l, &sums);
  RouterArguments a = router_of(l);
  a.seed = launch_array(l, "seed", launch_input(l, 2), CUDA_READS);
  a.sums = launch_array(l, "sums", &sums, CUDA_READS);
  a.dlogits = launch_array(l, "dlogits", launch_output(l, 1), CUDA_WRITES);
  a.partial = launch_bytes(l, "partial", partial, n[0] * 8, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_router_balance, n[0] * divide_up(a.length, ROUTER_THREADS), ROUTER_THREADS, &a);
  launch_loss(l, partial, n[0]);
}

void launch_router_bias(Launch *l) {
  const Operand *bias = launch_input(l, 0);
  ScalarArguments a = {.n = bias->size[0], .value = ((const RouterBiasAttr *)l->call->attr)->rate};
  a.x[0] = launch_array(l, "bias", bias, CUDA_READS);
  a.x[1] = launch_array(l, "load", launch_input(l, 1), CUDA_READS);
  a.x[2] = launch_array(l, "skip", launch_input(l, 2), CUDA_READS);
  a.y[0] = launch_array(l, "new bias", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_router_bias, 1, block_threads(a.n), &a);
}

// Capacity ------------------------------------------------------------------------------------------------------------

int fits_capacity(const KernelCall *call, Dtype dtype) { return call->input[0].dtype == DTYPE_U8; }

// Of runs of local positions and their places, as runs_of of op/capacity.c; without places one run of all positions.
static CapacityArguments capacity_of(Launch *l, int64_t places) {
  const Operand *mask = launch_input(l, 0);
  const IndexMap *map = &mask->map[1];
  CapacityArguments a = {.positions = mask->size[1], .experts = mask->size[2], .places = places,
                         .most = ((const CapacityAttr *)l->call->attr)->most};
  a.map = places ? launch_map(map) : (RowMap){.valid = a.positions, .runs = 1};
  for (int r = 0; r < map->runs && places; r++) {
    const int64_t end = r + 1 < map->runs ? map->run[r + 1].local : map->valid;
    a.place[r] = end > map->run[r].local ? map->run[r].global * places / map->global : -1;
  }
  a.mask = launch_operand(l, "mask", mask, CUDA_READS);
  return a;
}

void launch_capacity(Launch *l) {
  const Operand *mask = launch_input(l, 0), *counts = l->call->ninput > 1 ? launch_input(l, 1) : NULL;
  CapacityArguments a = capacity_of(l, counts ? counts->size[1] : 0);
  if (counts) a.counts = launch_array(l, "counts", counts, CUDA_READS);
  a.kept = launch_operand(l, "kept", launch_output(l, 0), CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_capacity, mask->size[0] * a.experts, block_threads(a.positions), &a);
}

void launch_capacity_counts(Launch *l) {
  const Operand *mask = launch_input(l, 0), *counts = launch_output(l, 0);
  CapacityArguments a = capacity_of(l, counts->size[1]);
  a.counts = launch_array(l, "counts", counts, CUDA_WRITES);
  launch_kernel(l, CUDA_KERNEL_capacity_counts, mask->size[0] * a.experts, block_threads(a.positions), &a);
}
