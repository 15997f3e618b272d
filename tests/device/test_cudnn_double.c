// tier 1; rooms device
// The emulator's double of cuDNN refuses what the real one would not understand, or would read or write in the wrong
// place: each wrong call ends the program with a sentence that names it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cuda/attention_graph.h"
#include "tier.h"
#include "wrong_calls.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Each case begins with these, in a child: attention of one sample, one head of 8, and T queries.
enum { T = 3, D = 8, APART = 4096, WORKSPACE_AT = ATTENTION_OPERANDS * APART, BYTES = WORKSPACE_AT + 2 * APART };
static const CudaDriver *d;
static const CudaDnn *dnn;
static CudaStream stream;
static CudaPointer memory;
static DnnHandle handle;
static DnnDescriptor tensor;
static AttentionPlan plan;
static void *at[ATTENTION_OPERANDS];
static const AttentionKey key = {.b = 1, .t = T, .g = 1, .r = 1, .d = D, .scale = 0.5, .dtype = DTYPE_BF16};
static const AttentionKey whole = {.b = 1, .t = T, .g = 1, .r = 1, .d = D, .scale = 0.5, .dtype = DTYPE_BF16,
                                   .whole = 1};

static void *address(int64_t offset) { return (void *)(uintptr_t)(memory + (uint64_t)offset); }

static void set(DnnAttribute attribute, DnnType type, int64_t count, const void *values) {
  dnn->cudnnBackendSetAttribute(tensor, attribute, type, count, values);
}

// A tensor that is not finalized yet.
static void describe(int64_t number, unsigned dtype) {
  const int64_t sizes[] = {1, 1, T, D}, strides[] = {T * D, T * D, D, 1}, aligned = 16;
  dnn->cudnnBackendCreateDescriptor(DNN_TENSOR, &tensor);
  set(DNN_TENSOR_DTYPE, DNN_IS_DTYPE, 1, &dtype);
  set(DNN_TENSOR_SIZES, DNN_IS_INT64, 4, sizes);
  set(DNN_TENSOR_NUMBER, DNN_IS_INT64, 1, &number);
  set(DNN_TENSOR_ALIGNMENT, DNN_IS_INT64, 1, &aligned);
  if (number) set(DNN_TENSOR_STRIDES, DNN_IS_INT64, 4, strides);
}

static void begin_with(const AttentionKey *k) {
  Error error = {0};
  CudaContext context;
  int bad = cuda_driver(&d, &error) || d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context) ||
            d->cuStreamCreate(&stream, CUDA_STREAM_OF_ITS_OWN) || d->cuMemAlloc_v2(&memory, BYTES);
  dnn = bad ? NULL : cuda_dnn(d, &error);
  bad = !dnn || dnn->cudnnCreate(&handle) || dnn->cudnnSetStream(handle, stream) ||
        attention_plan_make(dnn, &(DnnTarget){.handle = handle}, k, &plan);
  if (bad) fprintf(stderr, "cannot begin: %s\n", error.message), _exit(3);
  for (int i = 0; i < ATTENTION_OPERANDS; i++) at[i] = address((int64_t)i * APART);
}

static void begin(void) { begin_with(&key); }
static void begin_whole(void) { begin_with(&whole); }

static DnnStatus run_at(void *workspace) { return attention_plan_run(dnn, handle, &plan, &key, at, workspace); }
static void run(void) { run_at(address(WORKSPACE_AT)); }

static void end(void) {
  attention_plan_free(dnn, &plan);
  dnn->cudnnDestroy(handle);
  d->cuMemFree_v2(memory);
  d->cuStreamDestroy_v2(stream);
}

// All scores are 0, so a query's result is the mean of the values that it sees: n[] of them.
static void attends(const uint16_t expected[T], const int n[T]) {
  uint16_t zeros[T * D] = {0}, v[T * D], out[T * D];
  int32_t starts[T] = {0, 0, 2};
  float logsumexp[T];
  for (int i = 0; i < T * D; i++) v[i] = i / D == 0 ? 0x4000 : 0x4080; // 2, 4 and 4
  d->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)at[ATTENTION_Q], zeros, sizeof zeros, stream);
  d->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)at[ATTENTION_K], zeros, sizeof zeros, stream);
  d->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)at[ATTENTION_V], v, sizeof v, stream);
  d->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)at[ATTENTION_STARTS], starts, sizeof starts, stream);
  if (run_at(address(WORKSPACE_AT))) _exit(5);
  attention_plan_free(dnn, &plan); // what was put into the stream does not need it
  d->cuMemcpyDtoHAsync_v2(out, (CudaPointer)(uintptr_t)at[ATTENTION_OUT], sizeof out, stream);
  d->cuMemcpyDtoHAsync_v2(logsumexp, (CudaPointer)(uintptr_t)at[ATTENTION_LOGSUMEXP], sizeof logsumexp, stream);
  if (d->cuStreamSynchronize(stream)) _exit(6);
  for (int i = 0; i < T * D; i++)
    if (out[i] != expected[i / D]) _exit(7);
  for (int i = 0; i < T; i++)
    if (fabsf(logsumexp[i] - logf((float)n[i])) > 1e-6f) _exit(8);
  end();
}
static void all_well(void) { attends((const uint16_t[T]){0x4000, 0x4040, 0x4080}, (const int[T]){1, 2, 1}); } // 2, 3, 4
// Without documents: 2, 3 and 10/3.
static void whole_well(void) { attends((const uint16_t[T]){0x4000, 0x4040, 0x4055}, (const int[T]){1, 2, 3}); }

static void other_kind(void) { dnn->cudnnBackendCreateDescriptor(32, &tensor); }
static void other_attribute(void) { describe(1, DNN_F32), set(DNN_POINTWISE_AXIS, DNN_IS_INT64, 1, &key.t); }
static void other_type(void) { describe(1, DNN_F32), set(DNN_TENSOR_IS_VIRTUAL, DNN_IS_INT64, 1, &key.t); }
static void other_count(void) { describe(0, DNN_F32), set(DNN_TENSOR_STRIDES, DNN_IS_INT64, 3, &key.b); }
static void set_twice(void) { describe(1, DNN_F32), set(DNN_TENSOR_NUMBER, DNN_IS_INT64, 1, &key.t); }
static void without_strides(void) { describe(0, DNN_F32), dnn->cudnnBackendFinalize(tensor); }
static void other_dtype(void) { describe(1, 7), dnn->cudnnBackendFinalize(tensor); }
static void stride_of_zero(void) {
  const int64_t strides[] = {T * D, 0, D, 1};
  describe(0, DNN_F32), set(DNN_TENSOR_STRIDES, DNN_IS_INT64, 4, strides), dnn->cudnnBackendFinalize(tensor);
}
static void set_too_late(void) {
  const _Bool yes = 1;
  describe(1, DNN_F32), dnn->cudnnBackendFinalize(tensor), set(DNN_TENSOR_IS_VIRTUAL, DNN_IS_BOOLEAN, 1, &yes);
}
static void finalized_twice(void) {
  describe(1, DNN_F32), dnn->cudnnBackendFinalize(tensor), dnn->cudnnBackendFinalize(tensor);
}
static void destroyed_twice(void) {
  describe(1, DNN_F32), dnn->cudnnBackendDestroyDescriptor(tensor), dnn->cudnnBackendDestroyDescriptor(tensor);
}

// A product of a tensor with itself, as a graph; finalizes: whether the tensor was.
static void multiply(int finalizes) {
  const unsigned computes = DNN_F32;
  DnnDescriptor how, product, graph;
  describe(1, DNN_BF16);
  if (finalizes) dnn->cudnnBackendFinalize(tensor);
  dnn->cudnnBackendCreateDescriptor(DNN_MATMUL, &how);
  dnn->cudnnBackendSetAttribute(how, DNN_MATMUL_COMPUTES, DNN_IS_DTYPE, 1, &computes);
  dnn->cudnnBackendFinalize(how);
  dnn->cudnnBackendCreateDescriptor(DNN_DO_MATMUL, &product);
  dnn->cudnnBackendSetAttribute(product, DNN_DO_MATMUL_HOW, DNN_IS_DESCRIPTOR, 1, &how);
  for (DnnAttribute part = DNN_DO_MATMUL_A; part <= DNN_DO_MATMUL_C; part++)
    dnn->cudnnBackendSetAttribute(product, part, DNN_IS_DESCRIPTOR, 1, &tensor);
  dnn->cudnnBackendFinalize(product);
  dnn->cudnnBackendCreateDescriptor(DNN_GRAPH, &graph);
  dnn->cudnnBackendSetAttribute(graph, DNN_GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, 1, &product);
  dnn->cudnnBackendSetAttribute(graph, DNN_GRAPH_HANDLE, DNN_IS_HANDLE, 1, &handle);
  dnn->cudnnBackendFinalize(graph);
}
static void matrices_of_other_sizes(void) { multiply(1); }
static void not_finalized(void) { multiply(0); }
// The same tensor index of its rows, as a graph of one operation.
static void no_attention(void) {
  const unsigned mode = DNN_EXP, computes = DNN_F32;
  DnnDescriptor how, y, operation, graph;
  describe(2, DNN_F32), dnn->cudnnBackendFinalize(tensor);
  y = tensor;
  describe(1, DNN_F32), dnn->cudnnBackendFinalize(tensor);
  dnn->cudnnBackendCreateDescriptor(DNN_POINTWISE, &how);
  dnn->cudnnBackendSetAttribute(how, DNN_POINTWISE_MODE, DNN_IS_POINTWISE_MODE, 1, &mode);
  dnn->cudnnBackendSetAttribute(how, DNN_POINTWISE_COMPUTES, DNN_IS_DTYPE, 1, &computes);
  dnn->cudnnBackendFinalize(how);
  dnn->cudnnBackendCreateDescriptor(DNN_DO_POINTWISE, &operation);
  dnn->cudnnBackendSetAttribute(operation, DNN_DO_POINTWISE_HOW, DNN_IS_DESCRIPTOR, 1, &how);
  dnn->cudnnBackendSetAttribute(operation, DNN_DO_POINTWISE_X, DNN_IS_DESCRIPTOR, 1, &tensor);
  dnn->cudnnBackendSetAttribute(operation, DNN_DO_POINTWISE_Y, DNN_IS_DESCRIPTOR, 1, &y);
  dnn->cudnnBackendFinalize(operation);
  dnn->cudnnBackendCreateDescriptor(DNN_GRAPH, &graph);
  dnn->cudnnBackendSetAttribute(graph, DNN_GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, 1, &operation);
  dnn->cudnnBackendSetAttribute(graph, DNN_GRAPH_HANDLE, DNN_IS_HANDLE, 1, &handle);
  dnn->cudnnBackendFinalize(graph);
}

static void unaligned(void) { at[ATTENTION_K] = address(ATTENTION_K * APART + 8), run(); }
static void past_the_end(void) { at[ATTENTION_V] = address(BYTES - 16), run(); }
static void of_the_host(void) {
  static char host[APART] __attribute__((aligned(256)));
  at[ATTENTION_Q] = host, run();
}
static void onto_an_operand(void) { at[ATTENTION_OUT] = at[ATTENTION_V], run(); }
static void onto_the_workspace(void) { at[ATTENTION_LOGSUMEXP] = address(WORKSPACE_AT + 256), run(); }
static void workspace_unaligned(void) { run_at(address(WORKSPACE_AT + 16)); }
static void a_tensor_too_few(void) { plan.used[ATTENTION_STARTS] = 0, run(); }
static void starts_of_a_whole(void) { plan.used[ATTENTION_STARTS] = 1, run(); }
static void a_tensor_too_many(void) { plan.used[ATTENTION_DQ] = 1, run(); }
static void default_stream(void) { dnn->cudnnSetStream(handle, NULL), run(); }
static void plan_is_gone(void) { dnn->cudnnBackendDestroyDescriptor(plan.plan), run(); }
static void freed_early(void) { run(), d->cuMemFree_v2(memory); }

static const struct { void (*body)(void); const char *sentence; void (*begin)(void);
} cases[] = {
    // "": all is well
    {all_well, ""},
    {whole_well, "", begin_whole},
    {other_kind, "cudnnBackendCreateDescriptor: descriptors of kind 32 are not emulated"},
    {other_attribute, "cudnnBackendSetAttribute: descriptors of kind 17 have no attribute 9"},
    {other_type, "cudnnBackendSetAttribute: attribute 907 is of type 2, not 3"},
    {other_count, "cudnnBackendSetAttribute: attribute 903 has 3 values, and takes 4 to 4"},
    {set_twice, "cudnnBackendSetAttribute: attribute 906 is set twice"},
    {without_strides, "cudnnBackendFinalize: a descriptor of kind 17 lacks attribute 903"},
    {other_dtype, "cudnnBackendFinalize: dtype 7 is not emulated"},
    {stride_of_zero, "cudnnBackendFinalize: a tensor has sizes or strides below 1"},
    {set_too_late, "cudnnBackendSetAttribute: attribute 907 is set after its descriptor was finalized"},
    {finalized_twice, "cudnnBackendFinalize: a descriptor of kind 17 is finalized twice"},
    {destroyed_twice, "is not a descriptor that is alive"},
    {matrices_of_other_sizes, "cudnnBackendFinalize: matrices of a product do not fit together"},
    {not_finalized, "cudnnBackendSetAttribute: a descriptor of kind 17 is not finalized"},
    {no_attention, "cudnnBackendFinalize: a graph of these operations has no plan: e"},
    {unaligned, "cudnnBackendExecute: tensor 2 lies at"},
    {past_the_end, "cudnnBackendExecute: 48 bytes from byte"},
    {of_the_host, "is not an address in a device's memory"},
    {onto_an_operand, "cudnnBackendExecute: an output lies in the memory of an input"},
    {onto_the_workspace, "cudnnBackendExecute: the workspace lies in the memory of an output"},
    {workspace_unaligned, "cudnnBackendExecute: the workspace lies at"},
    {a_tensor_too_few, "cudnnBackendExecute: tensor 6 has 0 pointers"},
    {a_tensor_too_many, "cudnnBackendExecute: there are pointers of 1 tensors that the graph does not have"},
    {starts_of_a_whole, "cudnnBackendExecute: there are pointers of 1 tensors that the graph does not have",
     begin_whole},
    {default_stream, "cudnnBackendExecute: the handle has no stream"},
    {plan_is_gone, "is not a descriptor that is alive"},
    {freed_early, "are freed while a stream has not done what it does there"},
};

static void each_mistake(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_sentence(i, cases[i].begin ? cases[i].begin : begin, cases[i].body, cases[i].sentence);
}

int main(void) {
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".";
  char *driver = xformat("%s/libemulated_cuda.so", folder), *libraries = xformat("%s/emulated", folder);
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  setenv("PLAIT_CUDA_LIBRARIES", libraries, 1);
  setenv("PLAIT_EMULATED_SEED", "3", 1);
  free(driver);
  free(libraries);
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_mistake)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
