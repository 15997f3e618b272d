// Copies a case to a device's memory, runs its kernel there, and compares.
#include "check/kernel_bench.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 << 20, SPACING = 256 };

int kernel_bench_open(KernelBench *b, const Device *kind, int number, Error *error) {
  *b = (KernelBench){.digest = 14695981039346656037u};
  int code = device_instance(kind, number, &b->device, error);
  if (!code) code = device_allocate(b->device, 0, ROOM, &b->memory, error);
  if (!code) code = device_queue_create(b->device, NULL, &b->queue, error);
  return code;
}

void kernel_bench_close(KernelBench *b) {
  device_queue_destroy(b->queue);
  if (b->memory) device_release(b->device, 0, b->memory, ROOM);
  arena_free(&b->arena);
  *b = (KernelBench){0};
}

static char *take(KernelBench *b, int64_t bytes) {
  char *at = b->memory + b->used;
  b->used += (bytes + SPACING - 1) / SPACING * SPACING;
  CHECK(b->used <= ROOM, "a case needs more than %d bytes", ROOM);
  return at;
}

static int64_t bytes_of(const Operand *x) { return operand_elements(x) * (int64_t)dtype_size(x->dtype); }

// The operand in the device's memory; what it shares memory with has been there before.
static Operand upload(KernelBench *b, const Operand *x, const Operand *others, const Operand *there, int n) {
  Operand y = *x;
  for (int k = 0; k < n && x->data; k++)
    if (others[k].data == x->data) return y.data = there[k].data, y;
  if (!x->data) return y;
  y.data = take(b, bytes_of(x));
  device_copy(b->queue, DEVICE_FROM_HOST, 0, y.data, x->data, bytes_of(x));
  return y;
}

static void digest(KernelBench *b, const Operand *x) {
  const unsigned char *bytes = x->data;
  for (int64_t i = 0; i < bytes_of(x); i++) b->digest = (b->digest ^ bytes[i]) * 1099511628211u;
}

// `part`: of the workspace that the kernel asks for; chunks are smaller then.
static int run(KernelBench *b, const DeviceKernel *kernel, OpCase *c, double part, Error *error) {
  Operand all[CASE_INPUTS + CASE_OUTPUTS], there[CASE_INPUTS + CASE_OUTPUTS];
  b->used = 0;
  for (int k = 0; k < c->ninput + c->noutput; k++) {
    all[k] = k < c->ninput ? c->input[k] : c->output[k - c->ninput];
    there[k] = upload(b, &all[k], all, there, k);
  }
  KernelCall call = op_case_call(c);
  call.input = there;
  call.output = there + c->ninput;
  call.queue = b->queue;
  DeviceBound bound;
  int code = b->device->implementation->bind(b->device, kernel, &call, &b->arena, &bound, error);
  if (code) return code;
  size_t bytes = kernel->workspace ? kernel->workspace(c->input, c->output, call.attr, 1) : 0;
  call.workspace_size = (size_t)((double)bytes * part);
  call.workspace = bytes ? take(b, (int64_t)call.workspace_size) : NULL;
  if (bytes) device_fill(b->queue, call.workspace, 0xff, (int64_t)call.workspace_size);
  device_run(b->queue, &bound, &call);
  for (int k = 0; k < c->noutput; k++)
    if (c->output[k].data)
      device_copy(b->queue, DEVICE_TO_HOST, 0, c->output[k].data, call.output[k].data, bytes_of(&c->output[k]));
  code = device_drain(b->queue, error);
  for (int k = 0; k < c->noutput && !code; k++)
    if (c->output[k].data) digest(b, &c->output[k]);
  return code;
}

int kernel_bench_has(const KernelBench *b, const OpCase *c, DeviceKernel *kernel) {
  *kernel = (DeviceKernel){0};
  if (!b->device->find(b->device, c->op, op_case_dtype(c), kernel) || kernel->on_host || kernel->is_reference) return 0;
  kernel->op = c->op;
  kernel->dtype = op_case_dtype(c);
  return 1;
}

int kernel_bench_case(KernelBench *b, const OpCase *whole, Variant variant, KernelVerdict *verdict, Error *error) {
  OpCase slow, fast, expected;
  DeviceKernel kernel;
  int code = PLAIT_OK;
  *verdict = (KernelVerdict){0};
  if (!op_case_variant(whole, variant, &slow)) return 0;
  int has = kernel_bench_has(b, &slow, &kernel);
  // heads have several chunks of rows in a smaller workspace
  int rounds = !has ? 0 : strstr(slow.name, "many rows") && variant < EMPTY_NO_ROWS ? 2 : 1;
  for (int small = 0; small < rounds && !code; small++) {
    char text[256];
    op_case_copy(&slow, &fast);
    op_case_copy(&slow, &expected);
    op_case_run(&expected);
    code = run(b, &kernel, &fast, small ? 0.4 : 1, error);
    double share = code ? 0 : op_case_error(&fast, &expected, text, sizeof text);
    if (share > 1 && !(verdict->share > 1))
      snprintf(verdict->text, sizeof verdict->text, "%s%s: %s", slow.name, op_variant_name[variant], text);
    verdict->share = fmax(verdict->share, share);
    op_case_free(&fast);
    op_case_free(&expected);
  }
  op_case_free(&slow);
  return code ? code : has;
}
