// Launches of elementwise ops and of updates of parameters.
#include "device/cpu/cpu.h"
#include "device/cuda/launch.h"
#include <string.h>

enum { BLOCKS_OF_A_MULTIPROCESSOR = 16 };

void launch_over(Launch *l, CudaKernel kernel, int64_t n, int64_t each, const void *arguments) {
  int64_t most = (int64_t)l->queue->instance->multiprocessors * BLOCKS_OF_A_MULTIPROCESSOR, shares = divide_up(n, each);
  int threads = block_threads(shares);
  int64_t blocks = divide_up(shares, threads);
  launch_kernel(l, kernel, blocks < most ? blocks : most, threads, arguments);
}

static int64_t pack_of(Dtype dtype) { return 16 / (int64_t)dtype_size(dtype); }

// All inputs and outputs in their order.
static ElementwiseArguments arguments_of(Launch *l) {
  static const char *const names[] = {"x", "y", "z", "x3", "x4", "x5", "x6", "x7"};
  const KernelCall *call = l->call;
  ElementwiseArguments a = {.n = operand_elements(&call->output[0]), .count = call->ninput};
  for (int k = 0; k < call->ninput; k++) a.x[k] = launch_operand(l, names[k], &call->input[k], CUDA_READS);
  a.y = launch_operand(l, "out", &call->output[0], CUDA_WRITES);
  if (call->noutput > 1) a.z = launch_operand(l, "out2", &call->output[1], CUDA_WRITES);
  return a;
}

static void launch_packs(Launch *l, CudaKernel kernel, const ElementwiseArguments *a) {
  launch_over(l, kernel, a->n, pack_of(l->dtype), a);
}

// Of more terms than a launch takes: sums of narrow dtypes would be rounded in between.
int fits_add(const KernelCall *call, Dtype dtype) {
  if (call->ninput > MOST_ADDED && dtype_size(dtype) == 2) return 0;
  for (int k = 0; k < call->ninput; k++)
    if (call->input[k].data && call->input[k].dtype != dtype) return 0;
  return call->output[0].dtype == dtype;
}

// As many terms as a launch takes, then more to their sum: the gradients' norm has one of each parameter.
void launch_add(Launch *l) {
  const KernelCall *call = l->call;
  for (int at = 0; at < call->ninput;) {
    AddArguments a = {.n = operand_elements(&call->output[0])};
    if (at) a.x[a.count++] = launch_operand(l, "sum", &call->output[0], CUDA_READS);
    while (a.count < MOST_ADDED && at < call->ninput)
      a.x[a.count++] = launch_operand(l, "x", &call->input[at++], CUDA_READS);
    a.y = launch_operand(l, "out", &call->output[0], CUDA_WRITES);
    launch_over(l, CUDA_KERNEL_add, a.n, pack_of(l->dtype), &a);
  }
}

void launch_mul(Launch *l) {
  ElementwiseArguments a = arguments_of(l);
  launch_packs(l, CUDA_KERNEL_mul, &a);
}

void launch_scale(Launch *l) {
  ElementwiseArguments a = arguments_of(l);
  a.value = ((const ScaleAttr *)l->call->attr)->factor;
  launch_packs(l, CUDA_KERNEL_scale, &a);
}

static void launch_of_kind(Launch *l, CudaKernel kernel) {
  ElementwiseArguments a = arguments_of(l);
  a.kind = ((const ActivationAttr *)l->call->attr)->kind;
  launch_packs(l, kernel, &a);
}
void launch_activation(Launch *l) { launch_of_kind(l, CUDA_KERNEL_activation); }
void launch_activation_grad(Launch *l) { launch_of_kind(l, CUDA_KERNEL_activation_grad); }
void launch_gated(Launch *l) { launch_of_kind(l, CUDA_KERNEL_gated); }
void launch_gated_grad(Launch *l) { launch_of_kind(l, CUDA_KERNEL_gated_grad); }

void launch_bias(Launch *l) {
  const Operand *x = launch_input(l, 0), *bias = launch_input(l, 1), *out = launch_output(l, 0);
  ElementwiseArguments a = {.n = operand_elements(x), .width = operand_elements(bias)};
  a.x[0] = launch_operand(l, "x", x, CUDA_READS);
  a.array = launch_array(l, "bias", bias, CUDA_READS);
  a.y = launch_operand(l, "out", out, CUDA_WRITES);
  launch_packs(l, CUDA_KERNEL_bias, &a);
}

void launch_unscale(Launch *l) {
  ElementwiseArguments a = {.n = operand_elements(launch_output(l, 0))};
  a.x[0] = launch_operand(l, "x", launch_input(l, 0), CUDA_READS);
  a.array = launch_array(l, "scale", launch_input(l, 1), CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_packs(l, CUDA_KERNEL_unscale, &a);
}

void launch_fill(Launch *l) {
  const Operand *out = launch_output(l, 0);
  ElementwiseArguments a = {.n = operand_elements(out), .valid = launch_valid(out)};
  a.value = ((const FillAttr *)l->call->attr)->value;
  a.y = launch_operand(l, "out", out, CUDA_WRITES);
  launch_packs(l, CUDA_KERNEL_fill, &a);
}

static void launch_sum_of(Launch *l, const Operand *added, const Operand *x) {
  ElementwiseArguments a = {.n = operand_elements(launch_output(l, 0))};
  if (added) a.added = launch_array(l, "added", added, CUDA_READS);
  a.array = launch_array(l, "x", x, CUDA_READS);
  a.to = launch_array(l, "out", launch_output(l, 0), CUDA_WRITES);
  launch_over(l, CUDA_KERNEL_cast, a.n, 1, &a);
}
void launch_cast(Launch *l) { launch_sum_of(l, NULL, launch_input(l, 0)); }
void launch_accumulate(Launch *l) { launch_sum_of(l, launch_input(l, 0), launch_input(l, 1)); }

// Features of one range.
int fits_dropout(const KernelCall *call, Dtype dtype) {
  return fits_one_dtype(call, dtype) && dropout_first_feature(&call->input[0]) >= 0;
}

void launch_dropout(Launch *l) {
  const DropoutAttr *attr = l->call->attr;
  const Operand *x = launch_input(l, 0);
  DropoutArguments a = {.mask = launch_mask(l, attr->probability, attr->stream, &x->map[0]),
                        .positions = launch_map(&x->map[1]), .s = x->size[1], .width = operand_extent(x, 2, x->rank),
                        .first = dropout_first_feature(x), .n = operand_elements(x)};
  a.x = launch_operand(l, "x", x, CUDA_READS);
  a.y = launch_operand(l, "y", launch_output(l, 0), CUDA_WRITES);
  launch_over(l, CUDA_KERNEL_dropout, a.n, pack_of(l->dtype), &a);
}

// The driver's own copy.
void launch_copy(Launch *l) {
  const Operand *x = launch_input(l, 0), *y = launch_output(l, 0);
  size_t bytes = dtype_size(x->dtype) * (size_t)operand_elements(x);
  if (!bytes || x->data == y->data) return;
  cuda_noted(l->queue,
             l->queue->instance->driver->cuMemcpyDtoDAsync_v2((CudaPointer)(uintptr_t)y->data,
                                                              (CudaPointer)(uintptr_t)x->data, bytes,
                                                              l->queue->stream),
             "cuMemcpyDtoDAsync", l->op);
}

// Optimizers ----------------------------------------------------------------------------------------------------------

// The Copy of w: the last output, of a narrow dtype beside a wider w (op/optimizer.c).
static const Operand *copy_of(const KernelCall *call) {
  const Operand *w = &call->output[0], *last = &call->output[call->noutput - 1];
  return dtype_is_float(last->dtype) && dtype_size(last->dtype) == 2 && dtype_size(w->dtype) > 2 ? last : NULL;
}

// Inputs: w, states, gradient, lr, factor, skip, step, and the lower bits of a split w; outputs w, the states that are
// there, and the lower bits or the Copy.
void launch_update_operands(Launch *l, OptimizerArguments *a, int states) {
  const KernelCall *call = l->call;
  const OptimizerAttr *attr = call->attr;
  const Operand *in = call->input, *last = &call->input[call->ninput - 1], *copy = call->noutput ? copy_of(call) : NULL;
  *a = (OptimizerArguments){.beta1 = attr->beta1, .beta2 = attr->beta2, .epsilon = attr->epsilon,
                            .momentum = attr->momentum, .decay = attr->decay, .n = operand_elements(&in[0])};
  a->w = launch_operand(l, "w", &in[0], CUDA_READS);
  for (int k = 0, out = 1; k < states; k++) {
    if (!in[1 + k].data) continue;
    a->moment[k] = launch_array(l, "moment", &in[1 + k], CUDA_READS);
    if (call->noutput) a->new_moment[k] = launch_array(l, "new moment", &call->output[out++], CUDA_WRITES);
  }
  in += 1 + states;
  a->gradient = launch_array(l, "gradient", &in[0], CUDA_READS);
  a->rate = launch_array(l, "lr", &in[1], CUDA_READS);
  a->factor = launch_array(l, "factor", &in[2], CUDA_READS);
  a->skip = launch_array(l, "skip", &in[3], CUDA_READS);
  a->step = launch_array(l, "step", &in[4], CUDA_READS);
  if (last->dtype == DTYPE_U16) a->low = launch_operand(l, "low", last, CUDA_READS);
  if (!call->noutput) return;
  a->new_w = launch_operand(l, "new w", &call->output[0], CUDA_WRITES);
  if (copy) a->copy = launch_array(l, "copy", copy, CUDA_WRITES);
  if (a->low) a->new_low = launch_operand(l, "new low", &call->output[call->noutput - 1], CUDA_WRITES);
}

static void launch_update(Launch *l, CudaKernel kernel, int states) {
  OptimizerArguments a;
  launch_update_operands(l, &a, states);
  launch_over(l, kernel, a.n, 1, &a);
}
void launch_adamw(Launch *l) { launch_update(l, CUDA_KERNEL_adamw, 2); }
void launch_lion(Launch *l) { launch_update(l, CUDA_KERNEL_lion, 1); }
void launch_sgd(Launch *l) { launch_update(l, CUDA_KERNEL_sgd, 1); }

// m, gradient, factor, skip → m, u
void launch_momentum_operands(Launch *l, OptimizerArguments *a) {
  *a = (OptimizerArguments){.momentum = ((const MuonAttr *)l->call->attr)->momentum,
                            .n = operand_elements(launch_input(l, 0))};
  a->moment[0] = launch_array(l, "momentum", launch_input(l, 0), CUDA_READS);
  a->gradient = launch_array(l, "gradient", launch_input(l, 1), CUDA_READS);
  a->factor = launch_array(l, "factor", launch_input(l, 2), CUDA_READS);
  a->skip = launch_array(l, "skip", launch_input(l, 3), CUDA_READS);
  if (!l->call->noutput) return;
  a->new_moment[0] = launch_array(l, "new momentum", launch_output(l, 0), CUDA_WRITES);
  a->copy = launch_array(l, "u", launch_output(l, 1), CUDA_WRITES);
}

void launch_muon_momentum(Launch *l) {
  OptimizerArguments a;
  launch_momentum_operands(l, &a);
  launch_over(l, CUDA_KERNEL_muon_momentum, a.n, 1, &a);
}

// w, o, lr, skip, and the lower bits of a split w
void launch_muon(Launch *l) {
  const KernelCall *call = l->call;
  const MuonAttr *attr = call->attr;
  const Operand *last = &call->input[call->ninput - 1], *copy = copy_of(call);
  OptimizerArguments a = {.momentum = attr->scale, .decay = attr->decay, .n = operand_elements(&call->input[0])};
  a.w = launch_operand(l, "w", &call->input[0], CUDA_READS);
  a.new_w = launch_operand(l, "new w", &call->output[0], CUDA_WRITES);
  a.gradient = launch_array(l, "o", &call->input[1], CUDA_READS);
  a.rate = launch_array(l, "lr", &call->input[2], CUDA_READS);
  a.skip = launch_array(l, "skip", &call->input[3], CUDA_READS);
  if (copy) a.copy = launch_array(l, "copy", copy, CUDA_WRITES);
  if (last->dtype == DTYPE_U16) {
    a.low = launch_operand(l, "low", last, CUDA_READS);
    a.new_low = launch_operand(l, "new low", &call->output[call->noutput - 1], CUDA_WRITES);
  }
  launch_over(l, CUDA_KERNEL_muon, a.n, 1, &a);
}
