#include "runtime/host_call.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "runtime/collective.h"

// A tensor in the device's memory.
typedef struct DeviceMemory { char *address; int64_t bytes; } DeviceMemory;

struct HostCall {
  const Binding *binding;
  PlaitComm *comm;
  DeviceEvent ready;   // kernels are done, and what the collective reads is in the mirror
  DeviceEvent arrived; // its results are in the device's memory
  int inputs, results; // in `memory`, one after the other
  DeviceMemory *memory;
};

int host_call_create(Binding *b, Error *error) {
  if (!b->state->mirror) return PLAIT_OK;
  int code = device_queue_create(b->queue->device, NULL, &b->out, error);
  return code ? code : device_queue_create(b->queue->device, NULL, &b->in, error);
}

void host_call_destroy(Binding *b) {
  device_queue_destroy(b->out);
  device_queue_destroy(b->in);
}

// By the device's description, so that the plan, which binds to a device without memory, counts the same bytes.
void host_call_bind(Binding *binding, Bound *b) {
  const Program *p = binding->program;
  if (p->device->space[0].is_host) return;
  int count = b->node->region == REGION_END ? p->sums_under_way : 1;
  b->host_call = arena_array(&binding->arena, HostCall, count);
  for (int i = 0; i < count; i++)
    b->host_call[i] =
        (HostCall){.binding = binding,
                   .comm = b->comm,
                   .memory = arena_array(&binding->arena, DeviceMemory, b->ninput + b->node->noutput + 1)};
}

// Copies -------------------------------------------------------------------------------------------------------------

// The bytes of the mirror that stand for them.
static void *mirrored(const Binding *b, const DeviceMemory *memory) {
  const State *s = b->state;
  mirror_pin(s->mirror, memory->address - s->in[0].memory, memory->bytes);
  return state_host_pointer(s, memory->address);
}

// After the kernels that there are now: to the mirror, if there is one. The event: the host may read and write.
static DeviceEvent copy_out(const Binding *b, const DeviceMemory *memory, int count) {
  if (!b->out) return device_record(b->queue);
  UNLESS_FAULT(copies_come_before_kernels) device_follow(b->out, device_record(b->queue));
  for (int i = 0; i < count; i++)
    device_copy(b->out, DEVICE_TO_HOST, 0, mirrored(b, &memory[i]), memory[i].address, memory[i].bytes);
  return device_record(b->out);
}

static void copy_in(const Binding *b, DeviceQueue *queue, const DeviceMemory *memory, int count) {
  for (int i = 0; i < FAULT(results_stay_in_the_mirror, count, 0) && b->in; i++)
    device_copy(queue, DEVICE_FROM_HOST, 0, memory[i].address, mirrored(b, &memory[i]), memory[i].bytes);
}

// An operand that this rank has: where others own it, something else lies at its address.
static int find_memory(const Binding *binding, const Bound *b, int k, DeviceMemory *memory) {
  const Graph *g = binding->program->graph;
  if (FAULT(masks_come_to_the_host, !node_moves_operand(b->node, k), 0)) return 0;
  int id = k < b->ninput ? b->tensor[k] : b->node->output[k - b->ninput];
  const Operand *x = k < b->ninput ? &b->input[k] : &b->output[k - b->ninput];
  if (id < 0 || !x->data) return 0;
  const Tensor *t = graph_tensor(g, id);
  if (FAULT(what_others_own_is_copied, !placement_here(&binding->program->mesh, t->placement, binding->state->rank), 0))
    return 0;
  int64_t elements = operand_elements(x);
  int fewer = (b->rows && b->rows[k].count) || (b->compact && b->compact[k]);
  if (!fewer && tensor_allocated(g, t) > elements) elements = tensor_allocated(g, t); // with padding
  *memory = (DeviceMemory){x->data, elements * (int64_t)dtype_size(x->dtype)};
  return elements > 0;
}

static void leave(Binding *binding, const Bound *b, HostCall *c) {
  int count = 0;
  for (int k = 0; k < b->ninput + b->node->noutput; k++) {
    if (k == b->ninput) c->inputs = count;
    count += find_memory(binding, b, k, &c->memory[count]);
  }
  c->results = count - c->inputs;
  c->ready = copy_out(binding, c->memory, c->inputs);
}

// Collectives --------------------------------------------------------------------------------------------------------

static int wait_ready(const HostCall *c) {
  Error error = {0};
  int code = FAULT(collectives_come_before_copies, device_wait(c->ready, &error), PLAIT_OK);
  return code ? comm_fail_world(c->comm->world, &error) : PLAIT_OK;
}

static int drained(Binding *binding, const Bound *b) {
  Error error = {0};
  int code = device_drain(binding->queue, &error);
  return code ? comm_fail_world(b->comm->world, &error) : PLAIT_OK;
}

// On the stream.
static int ready_task(void *argument) { return wait_ready(argument); }

static int arrive_task(void *argument) {
  HostCall *c = argument;
  const Binding *b = c->binding;
  copy_in(b, b->in, c->memory + c->inputs, c->results);
  if (b->in) c->arrived = device_record(b->in);
  return PLAIT_OK;
}

// The call itself looks into operands on the host, to copy a rank's own.
static int reads_operands(const Bound *b) { return b->rows && b->gathers_rows; }

// Else it is called as it is: everything is done by now, or is waited for in the rank's thread.
static int crosses(const Binding *b) {
  const Device *d = b->queue->device;
  return !d->space[0].is_host && (b->out || !d->implementation->at_once);
}

int host_call_tasks(const Binding *binding) { return crosses(binding) ? 2 : 0; }

int host_call_start(Binding *binding, Bound *b, Flight *flight, PlaitStream *stream) {
  int code;
  if (!crosses(binding)) {
    code = drained(binding, b);
    return code ? code : collective_call(binding, b, stream, &flight->done);
  }
  HostCall *c = &b->host_call[flight - b->flight];
  leave(binding, b, c);
  code = reads_operands(b) ? wait_ready(c) : stream_run(stream, ready_task, c, NULL);
  if (!code) code = collective_call(binding, b, stream, NULL);
  return code ? code : stream_run(stream, arrive_task, c, &flight->done);
}

int host_call_wait(Binding *binding, Bound *b, Flight *flight) {
  int code = plait_event_wait(flight->done);
  if (!code && binding->in) {
    UNLESS_FAULT(kernels_come_before_results)
    device_follow(binding->queue, b->host_call[flight - b->flight].arrived);
  }
  return code;
}

int host_call_open(Binding *binding, Bound *b) {
  if (!binding->out) return drained(binding, b);
  leave(binding, b, b->host_call);
  return wait_ready(b->host_call);
}

void host_call_close(Binding *binding, const Bound *b) {
  if (binding->in)
    copy_in(binding, binding->queue, b->host_call->memory + b->host_call->inputs, b->host_call->results);
}

// Messages -----------------------------------------------------------------------------------------------------------

int host_call_open_message(Binding *b, char *address, int64_t bytes, int sends, void **data, Error *error) {
  *data = state_host_pointer(b->state, address);
  DeviceEvent ready = copy_out(b, &(DeviceMemory){address, bytes}, sends && bytes);
  UNLESS_FAULT(message_comes_before_kernels) return device_wait(ready, error);
  return PLAIT_OK;
}

void host_call_close_message(Binding *b, char *address, int64_t bytes) {
  copy_in(b, b->queue, &(DeviceMemory){address, bytes}, bytes > 0);
}
