#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "cuda_bench.h"
#include "device/cuda/products.h"
#include "variants.h"

enum { ROOM = 192 << 20, SPACING = 256 };

static char *take(CudaBench *b, int64_t bytes) {
  char *at = b->memory + b->used;
  b->used += (bytes + SPACING - 1) / SPACING * SPACING;
  CHECK(b->used <= ROOM, "a case needs more than %d bytes", ROOM);
  return at;
}

static int64_t bytes_of(const Operand *x) { return operand_elements(x) * (int64_t)dtype_size(x->dtype); }

// The operand in the device's memory; what it shares memory with has been there before.
static Operand upload(CudaBench *b, const Operand *x, const Operand *others, const Operand *there, int n) {
  Operand y = *x;
  for (int k = 0; k < n && x->data; k++)
    if (others[k].data == x->data) return y.data = there[k].data, y;
  if (!x->data) return y;
  y.data = take(b, bytes_of(x));
  device_copy(b->queue, DEVICE_FROM_HOST, 0, y.data, x->data, bytes_of(x));
  return y;
}

static size_t workspace_of(const DeviceKernel *kernel, const OpCase *c, const void *attr, double part) {
  const size_t bytes = kernel->workspace ? kernel->workspace(c->input, c->output, attr, 1) : 0,
               library = bytes >= PRODUCT_WORKSPACE ? PRODUCT_WORKSPACE : 0;
  const size_t own = (size_t)((double)(bytes - library) * part);
  return library + (part < 1 ? own / SPACING * SPACING : own);
}

void cuda_bench_run(CudaBench *b, const DeviceKernel *kernel, OpCase *c, double part, const char *where) {
  const DeviceImplementation *implementation = b->device->implementation;
  Operand all[CASE_INPUTS + CASE_OUTPUTS], there[CASE_INPUTS + CASE_OUTPUTS];
  Error error = {0};
  DeviceBound bound;
  KernelCall call = op_case_call(c);
  call.queue = b->queue;
  call.workspace_size = workspace_of(kernel, c, call.attr, part);
  assert_int_equal(implementation->bind(b->device, kernel, &call, &b->arena, &bound, &error), 0);
  if (implementation->check(b->queue, &bound, &call, b->memory, b->room, &error))
    fail_msg("%s: %s", where, error.message);
  b->used = 0;
  for (int k = 0; k < c->ninput + c->noutput; k++) {
    all[k] = k < c->ninput ? c->input[k] : c->output[k - c->ninput];
    there[k] = upload(b, &all[k], all, there, k);
  }
  call.input = there;
  call.output = there + c->ninput;
  call.workspace = call.workspace_size ? take(b, (int64_t)call.workspace_size) : NULL;
  const int64_t own = (int64_t)call.workspace_size - PRODUCT_WORKSPACE;
  if (call.workspace) device_fill(b->queue, call.workspace, 0xff, own >= 0 ? own : (int64_t)call.workspace_size);
  device_run(b->queue, &bound, &call);
  for (int k = 0; k < c->noutput; k++)
    if (c->output[k].data)
      device_copy(b->queue, DEVICE_TO_HOST, 0, c->output[k].data, call.output[k].data, bytes_of(&c->output[k]));
  if (device_drain(b->queue, &error)) fail_msg("%s: %s", where, error.message);
}

int cuda_bench_kernel(const OpCase *c, DeviceKernel *kernel) {
  *kernel = (DeviceKernel){0};
  if (!device_cuda()->find(device_cuda(), c->op, op_case_dtype(c), kernel) || kernel->on_host) return 0;
  kernel->op = c->op;
  kernel->dtype = op_case_dtype(c);
  return 1;
}

void cuda_bench_open(CudaBench *b) {
  Error error = {0};
  b->room = ROOM;
  int code = device_instance(device_cuda(), 0, &b->device, &error);
  if (!code) code = device_allocate(b->device, 0, ROOM, &b->memory, &error);
  if (!code) code = device_queue_create(b->device, NULL, &b->queue, &error);
  if (code) fail_msg("%s", error.message);
}

void cuda_bench_close(CudaBench *b) {
  device_queue_destroy(b->queue);
  device_release(b->device, 0, b->memory, ROOM);
  arena_free(&b->arena);
}
