// An op without a kernel for the device: its operands come to the host, the CPU's kernel runs, its outputs go back.
#include "device/cuda/cuda_device.h"
#include "device/stretches.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Fallback {
  Op op;
  Kernel kernel;
  size_t (*workspace)(const Operand *input, const Operand *output, const void *attr, int threads);
  size_t workspace_bytes; // as for the operands with which it was bound
} Fallback;

int fallback_find(Op op, Dtype dtype, DeviceKernel *kernel) {
  return device_cpu()->find(device_cpu(), op, dtype, kernel);
}

int fallback_takes_all(void) {
  const char *wish = getenv("PLAIT_CUDA_HOST");
  return wish && !strcmp(wish, "all");
}

// Whether a variable is a list of ops that has this one, or "all".
static int names(const char *variable, Op op) {
  const char *wish = getenv(variable), *name = op_name(op);
  size_t n = strlen(name);
  for (const char *word = wish; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
    if (!strncmp(word, name, n) && (!word[n] || word[n] == ',')) return 1;
  return wish && !strcmp(wish, "all");
}

// PLAIT_CUDA_HOST=none: nothing runs on the host, and what would fails.
static int takes_nothing(void) {
  const char *wish = getenv("PLAIT_CUDA_HOST");
  return wish && FAULT(nothing_on_the_host_is_no_wish, !strcmp(wish, "none"), 0);
}

int fallback_takes(Op op) { return names("PLAIT_CUDA_HOST", op); }
int own_takes(Op op) { return names("PLAIT_CUDA_OWN", op); }

static int check_list(const char *variable, Error *error) {
  const char *wish = getenv(variable);
  char list[1024], *rest = list, *name;
  if (!wish || !strcmp(wish, "all") || (!strcmp(wish, "none") && !strcmp(variable, "PLAIT_CUDA_HOST"))) return PLAIT_OK;
  snprintf(list, sizeof list, "%s", wish);
  while ((name = strsep(&rest, ","))) {
    int known = !*name;
    for (int op = 0; op < OP_COUNT && !known; op++) known = !strcmp(name, op_name((Op)op));
    if (!known)
      return error_set(error, PLAIT_BAD_INPUT, "%s names \"%.40s\", which is neither an op nor all", variable, name);
  }
  return PLAIT_OK;
}

int fallback_check_wish(Error *error) {
  int code = check_list("PLAIT_CUDA_HOST", error);
  return code ? code : check_list("PLAIT_CUDA_OWN", error);
}

static size_t workspace_of(const Fallback *f, const KernelCall *call) {
  if (!f->workspace) return 0;
  size_t inputs = (size_t)call->ninput, outputs = (size_t)call->noutput;
  Operand *operand = xcalloc(inputs + outputs + 2 * DEVICE_OPTIONAL_OPERANDS, sizeof *operand);
  memcpy(operand, call->input, inputs * sizeof *operand);
  Operand *output = operand + inputs + DEVICE_OPTIONAL_OPERANDS;
  memcpy(output, call->output, outputs * sizeof *operand);
  size_t bytes = f->workspace(operand, output, call->attr, team_slots(call->queue->team));
  free(operand);
  return bytes;
}

int fallback_bind(const DeviceKernel *kernel, const KernelCall *call, Arena *arena, DeviceBound *bound, Error *error) {
  DeviceKernel host = {0};
  if (!fallback_find(kernel->op, kernel->dtype, &host))
    return error_set(error, PLAIT_INFEASIBLE, "the CPU has no kernel for the op %s either", op_name(kernel->op));
  Fallback *f = arena_array(arena, Fallback, 1);
  *f = (Fallback){.op = kernel->op, .kernel = host.host, .workspace = host.workspace};
  f->workspace_bytes = workspace_of(f, call);
  *bound = (DeviceBound){.own = f};
  return PLAIT_OK;
}

// At least so much pinned memory; nothing waits that uses what there was.
static int grow(CudaQueue *q, size_t bytes, const char *op) {
  const CudaDriver *driver = q->instance->driver;
  void *memory = NULL;
  if (bytes <= q->host_bytes) return 1;
  if (cuda_noted(q, driver->cuStreamSynchronize(q->stream), "cuStreamSynchronize", op)) return 0;
  if (q->host && cuda_noted(q, driver->cuMemFreeHost(q->host), "cuMemFreeHost", op)) return 0;
  q->host = NULL;
  q->host_bytes = 0;
  if (cuda_noted(q, driver->cuMemHostAlloc(&memory, bytes, CUDA_HOST_FOR_ALL), "cuMemHostAlloc", op)) return 0;
  q->host = memory;
  q->host_bytes = bytes;
  return 1;
}

static int copy_in(CudaQueue *q, const Stretch *stretch, int count, const char *op) {
  const CudaDriver *driver = q->instance->driver;
  for (int i = 0; i < count; i++)
    if (cuda_noted(q,
                   driver->cuMemcpyDtoHAsync_v2(stretch[i].host, (CudaPointer)(uintptr_t)stretch[i].from,
                                                (size_t)(stretch[i].to - stretch[i].from), q->stream),
                   "cuMemcpyDtoHAsync", op))
      return 0;
  return !cuda_noted(q, FAULT(fallback_reads_early, driver->cuStreamSynchronize(q->stream), CUDA_OK),
                     "cuStreamSynchronize", op);
}

static void copy_out(CudaQueue *q, const Operand *device, const Operand *host, int count, const char *op) {
  for (int i = 0; i < FAULT(last_output_stays_on_the_host, count, count - 1); i++)
    if (operand_bytes_there(&device[i]) > 0 &&
        cuda_noted(q,
                   q->instance->driver->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)device[i].data, host[i].data,
                                                             (size_t)operand_bytes_there(&device[i]), q->stream),
                   "cuMemcpyHtoDAsync", op))
      return;
}

// The table that kernels of experts read, as if it were one more operand; absent where the call has none.
static Operand begins_of(const KernelCall *call) {
  const CallParameters *p = call->parameters;
  if (!p || !p->rank_begins) return (Operand){0};
  return (Operand){
      .data = (void *)(uintptr_t)p->rank_begins, .dtype = DTYPE_F64, .rank = 1, .size = {p->data_ranks + 1}};
}

void fallback_run(CudaQueue *q, const DeviceBound *bound, const KernelCall *call) {
  const Fallback *f = bound->own;
  const char *op = op_name(f->op);
  int begins = call->ninput + call->noutput, count = begins + 1;
  if (takes_nothing())
    cuda_noted_text(q, "PLAIT_CUDA_HOST is none, and no kernel takes these operands", "finding a kernel", op);
  if (cuda_has_failed(q)) return;
  size_t bytes, workspace = workspace_of(f, call);
  if (workspace < f->workspace_bytes) workspace = f->workspace_bytes;
  Operand *operand = xcalloc(2 * (size_t)count + 1, sizeof *operand), *host = operand + count;
  Stretch *stretch = xcalloc((size_t)count + 1, sizeof *stretch);
  memcpy(operand, call->input, (size_t)call->ninput * sizeof *operand);
  memcpy(operand + call->ninput, call->output, (size_t)call->noutput * sizeof *operand);
  operand[begins] = begins_of(call);
  int stretches = stretches_find(operand, count, stretch, &bytes);
  if (grow(q, bytes + workspace + 1, op)) {
    for (int i = 0; i < stretches; i++) stretch[i].host = q->host + (uintptr_t)stretch[i].host;
    memcpy(host, operand, (size_t)count * sizeof *host);
    // an operand without elements is there all the same
    for (int i = 0; i < count; i++)
      if (operand[i].data)
        host[i].data =
            operand_bytes_there(&operand[i]) > 0 ? stretches_host(stretch, stretches, operand[i].data) : q->host;
    KernelCall here = *call;
    here.input = host;
    here.output = host + call->ninput;
    here.queue = &q->host_queue;
    CallParameters parameters = call->parameters ? *call->parameters : (CallParameters){0};
    parameters.rank_begins = host[begins].data;
    if (call->parameters) here.parameters = &parameters;
    here.workspace = workspace ? q->host + bytes : NULL;
    here.workspace_size = workspace;
    if (copy_in(q, stretch, stretches, op)) {
      f->kernel(&here);
      copy_out(q, operand + call->ninput, host + call->ninput, call->noutput, op);
    }
  }
  free(stretch);
  free(operand);
}
