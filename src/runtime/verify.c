// Copies the operands of a kernel to the host before it runs, and its outputs afterwards; the CPU's kernel computes
// them again.
#include "runtime/verify.h"
#include "base/fault.h"
#include "check/op_error.h"
#include "device/stretches.h"
#include "runtime/observer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Verify {
  const Program *program;
  DeviceQueue *queue;
  const Device *host;    // whose kernels are right
  DeviceQueue host_queue;
  int rank;
  // Of the call under way: operands on the host, as they were before it, and what they are of.
  int active;
  KernelCall call;
  CallParameters parameters;
  Operand *operand;      // (ninput, then room for absent ones, noutput, and the same), for the CPU's kernel
  char *memory;
  int64_t *ranks;        // the table that kernels of experts read
  Error failed;          // the device's; or of what cannot be compared
  char first[512];       // what differs first; empty: nothing
  VerifyResult result;
};

Verify *verify_create(const Program *program, DeviceQueue *queue, int rank) {
  Verify *v = xcalloc(1, sizeof *v);
  const Device *host = queue->device->space[0].is_host ? device_reference() : device_cpu();
  *v = (Verify){.program = program, .queue = queue, .host = host, .rank = rank, .host_queue = {host, queue->team}};
  return v;
}

static void forget(Verify *v) {
  free(v->operand);
  free(v->memory);
  v->operand = NULL;
  v->memory = NULL;
  v->active = 0;
}

void verify_destroy(Verify *v) {
  if (!v) return;
  forget(v);
  free(v);
}

// The table of begins of ranks' rows lies in the device's memory too.
static Operand begins_of(const CallParameters *p) {
  if (!p || !p->rank_begins) return (Operand){0};
  return (Operand){
      .data = (void *)(uintptr_t)p->rank_begins, .dtype = DTYPE_F64, .rank = 1, .size = {p->data_ranks + 1}};
}

// Operands on the host, with the bytes that they have on the device now; memory: for all of them.
static int take(Verify *v, const Operand *from, Operand *to, int count, char **memory) {
  size_t bytes;
  Stretch *stretch = xcalloc((size_t)count + 1, sizeof *stretch);
  int stretches = stretches_find(from, count, stretch, &bytes);
  *memory = aligned_alloc(256, (bytes + 512) / 256 * 256);
  CHECK(*memory, "no memory for a kernel's operands");
  for (int i = 0; i < stretches; i++) {
    stretch[i].host = *memory + (uintptr_t)stretch[i].host;
    device_copy(v->queue, DEVICE_TO_HOST, 0, stretch[i].host, stretch[i].from, stretch[i].to - stretch[i].from);
  }
  memcpy(to, from, (size_t)count * sizeof *to);
  for (int i = 0; i < count; i++)
    if (from[i].data)
      to[i].data = operand_bytes_there(&from[i]) ? stretches_host(stretch, stretches, from[i].data) : *memory;
  free(stretch);
  return device_drain(v->queue, &v->failed);
}

static void before(Verify *v, const Observation *o) {
  const KernelCall *call = o->call;
  int inputs = call->ninput, outputs = call->noutput, all = inputs + outputs + 1;
  forget(v);
  if (*v->first || v->failed.code || node_on_host(v->program->graph, o->node, v->queue->device)) return;
  Operand *there = xcalloc(2 * (size_t)all, sizeof *there), *here = there + all;
  memcpy(there, call->input, (size_t)inputs * sizeof *there);
  memcpy(there + inputs, call->output, (size_t)outputs * sizeof *there);
  there[all - 1] = begins_of(call->parameters);
  if (!take(v, there, here, all, &v->memory)) {
    v->operand = xcalloc((size_t)(inputs + outputs + 2 * DEVICE_OPTIONAL_OPERANDS), sizeof *v->operand);
    memcpy(v->operand, here, (size_t)inputs * sizeof *here);
    memcpy(v->operand + inputs + DEVICE_OPTIONAL_OPERANDS, here + inputs, (size_t)outputs * sizeof *here);
    v->call = *call;
    v->parameters = call->parameters ? *call->parameters : (CallParameters){0};
    v->parameters.rank_begins = here[all - 1].data;
    v->call.parameters = call->parameters ? &v->parameters : NULL;
    v->call.queue = &v->host_queue;
    v->call.input = v->operand;
    v->call.output = v->operand + inputs + DEVICE_OPTIONAL_OPERANDS;
    v->active = 1;
  }
  free(there);
}

// Runs the call on the host. 0: there is no kernel for it.
static int compute(Verify *v, const Node *node) {
  DeviceKernel kernel;
  KernelCall *call = &v->call;
  Dtype dtype = node_dtype(v->program->graph, node);
  if (device_kernel(v->host, node->op, dtype, node->name, &kernel, &v->failed)) return 0;
  call->workspace_size =
      kernel.workspace ? kernel.workspace(call->input, call->output, call->attr, team_slots(v->host_queue.team)) : 0;
  call->workspace = call->workspace_size ? aligned_alloc(64, (call->workspace_size + 64) / 64 * 64) : NULL;
  kernel.host(call);
  free(call->workspace);
  return 1;
}

static void describe(const Verify *v, const Observation *o, char *text, size_t size) {
  const Node *n = o->node;
  char where[64] = "";
  if (n->region == REGION_MICRO)
    snprintf(where, sizeof where, ", %s of microbatch %d", phase_name(n->phase), o->microbatch);
  snprintf(text, size, "%s %.60s%s", op_name(n->op), n->name, where);
}

static void after(Verify *v, const Observation *o) {
  char text[256], *memory = NULL;
  if (!v->active) return;
  Operand *got = xcalloc((size_t)v->call.noutput + 1, sizeof *got);
  const OpBound bound = {.least = 1e-30, .factor = 2, .real = 1};
  if (!take(v, o->output, got, v->call.noutput, &memory) && compute(v, o->node)) {
    double share = op_error(o->node->op, v->call.input, v->call.ninput, got, v->call.output, v->call.noutput, &bound,
                            text, sizeof text);
    v->result.calls++;
    char node[128];
    describe(v, o, node, sizeof node);
    if (FAULT(verify_forgives, share > 1, 0))
      snprintf(v->first, sizeof v->first, "%s, rank %d: %s", node, v->rank, text);
    if (share > v->result.share || v->result.calls == 1) memcpy(v->result.worst, node, sizeof node);
    v->result.share = fmax(v->result.share, share);
  }
  free(memory);
  free(got);
  forget(v);
}

static void see(void *self, const Observation *o) {
  if (o->event == OBSERVE_KERNEL) before(self, o);
  else after(self, o);
}

const ObserverDef observer_verify = {"verify", OBSERVES(KERNEL) | OBSERVES(INSTRUCTION_END), 1, see};

int verify_end(Verify *v, int64_t step, VerifyResult *result, Error *error) {
  *result = v->result;
  if (*v->first)
    return error_set(error, PLAIT_FAILED, "run.verify: step %lld: the first kernel whose result is not %s: %s",
                     (long long)step, v->queue->device->space[0].is_host ? "that of the reference kernel" : "the CPU's",
                     v->first);
  return v->failed.code ? error_take(error, &v->failed) : PLAIT_OK;
}
