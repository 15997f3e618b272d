// A GPU that runs CUDA as a device: its description, with which plans are made on any machine, and its memory and
// queues, by the driver's interface.
#include "device/cuda/cuda_device.h"
#include "base/units.h"
#include "device/cuda/facts.h"
#include "device/cuda/products.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 64, LEAST_CAPABILITY = 80, PAGE = 2 << 20, PLACEMENT = 256 /* of cuMemAlloc */ };

static CudaInstance instances[MOST_DEVICES]; // those with a context have been used
static pthread_mutex_t instances_mutex = PTHREAD_MUTEX_INITIALIZER;

void cuda_enter(const CudaInstance *instance) {
  static _Thread_local CudaContext current;
  if (current == instance->context) return;
  instance->driver->cuCtxSetCurrent(instance->context);
  current = instance->context;
}

static int failed(const CudaInstance *c, int code, CudaResult result, const char *what, Error *error) {
  char text[256];
  return error_set(error, code, "CUDA device %d (%s): %s: %s", c->number, c->name, what,
                   cuda_result_text(c->driver, result, text, sizeof text));
}

// Instances ---------------------------------------------------------------------------------------------------------

static int check_capability(const CudaDriver *driver, const CudaInstance *c, CudaDevice device, Error *error) {
  int major = 0, minor = 0;
  driver->cuDeviceGetAttribute(&major, CUDA_IS_CAPABILITY_MAJOR, device);
  driver->cuDeviceGetAttribute(&minor, CUDA_IS_CAPABILITY_MINOR, device);
  if (FAULT(old_devices_are_taken, 10 * major + minor >= LEAST_CAPABILITY, 1)) return PLAIT_OK;
  return error_set(error, PLAIT_INFEASIBLE,
                   "CUDA device %d (%s) has compute capability %d.%d, and plait needs 8.0 (A100) or more", c->number,
                   c->name, major, minor);
}

static int open_instance(CudaInstance *c, const CudaDriver *driver, int number, const Device *device, Error *error) {
  CudaDevice handle = 0;
  CudaContext context = NULL;
  c->driver = driver;
  c->number = number;
  CudaResult result = driver->cuDeviceGet(&handle, number);
  if (!result) result = driver->cuDeviceGetName(c->name, sizeof c->name, handle);
  if (result) return failed(c, PLAIT_FAILED, result, "cannot be asked", error);
  int code = check_capability(driver, c, handle, error);
  if (code) return code;
  result = driver->cuDevicePrimaryCtxRetain(&context, handle);
  if (result) return failed(c, PLAIT_FAILED, result, "gives no context", error);
  driver->cuDeviceGetAttribute(&c->multiprocessors, CUDA_IS_MULTIPROCESSORS, handle);
  c->context = context;
  c->waits = getenv("PLAIT_CUDA_SYNC") && !strcmp(getenv("PLAIT_CUDA_SYNC"), "1");
  cuda_enter(c);
  code = cuda_load_kernels(c, error);
  if (code) c->context = NULL;
  c->device = *device;
  c->device.own = c;
  return code;
}

static int instance(const Device *device, int number, const Device **out, Error *error) {
  const CudaDriver *driver;
  int code = fallback_check_wish(error);
  if (!code) code = cuda_driver(&driver, error);
  if (code) return code;
  int count = driver->devices < MOST_DEVICES ? driver->devices : MOST_DEVICES;
  CudaInstance *c = &instances[number % count];
  pthread_mutex_lock(&instances_mutex);
  if (!c->context) code = open_instance(c, driver, number % count, device, error);
  pthread_mutex_unlock(&instances_mutex);
  *out = &c->device;
  return code;
}

static int present(Error *error) {
  const CudaDriver *driver;
  int code = fallback_check_wish(error);
  return code ? code : cuda_driver_loaded(&driver, error);
}

static int ready(const Device *device, const DeviceNumbers *numbers, Error *error) {
  const CudaDriver *driver;
  const Device *unused;
  int code = cuda_driver(&driver, error);
  for (int i = 0; i < numbers->count && !code; i++)
    if (FAULT(missing_devices_are_taken, numbers->number[i] >= driver->devices, 0))
      code = error_set(error, PLAIT_INFEASIBLE, "there is no CUDA device %d: this machine has %d, numbered from 0",
                       numbers->number[i], driver->devices);
  for (int i = 0; i < (numbers->count ? numbers->count : code ? 0 : driver->devices) && !code; i++)
    code = instance(device, device_number(numbers, i), &unused, error);
  return code;
}

static int room(const Device *device, int64_t *available, int64_t *total, Error *error) {
  const CudaInstance *c = cuda_instance_of(device);
  size_t have = 0, all = 0;
  cuda_enter(c);
  CudaResult result = c->driver->cuMemGetInfo_v2(&have, &all);
  *available = (int64_t)have;
  *total = (int64_t)all;
  return result ? failed(c, PLAIT_FAILED, result, "does not say what memory it has", error) : PLAIT_OK;
}

int cuda_driver_facts(const char **path, int *version, int *devices, Error *error) {
  const CudaDriver *driver;
  int code = cuda_driver(&driver, error);
  if (code) return code;
  *path = driver->path;
  *version = driver->version;
  *devices = driver->devices;
  return PLAIT_OK;
}

int cuda_facts(int number, CudaFacts *facts, Error *error) {
  const Device *device;
  CudaDevice handle = 0;
  int code = instance(device_cuda(), number, &device, error);
  if (!code) code = room(device, &facts->available, &facts->total, error);
  if (code) return code;
  const CudaInstance *c = cuda_instance_of(device);
  c->driver->cuDeviceGet(&handle, number);
  c->driver->cuDeviceGetAttribute(&facts->major, CUDA_IS_CAPABILITY_MAJOR, handle);
  c->driver->cuDeviceGetAttribute(&facts->minor, CUDA_IS_CAPABILITY_MINOR, handle);
  c->driver->cuDeviceGetAttribute(&facts->multiprocessors, CUDA_IS_MULTIPROCESSORS, handle);
  memcpy(facts->name, c->name, sizeof facts->name);
  return PLAIT_OK;
}

int cuda_has_kernels(const Device *device) { return cuda_instance_of(device)->has_kernels; }

// Memory ------------------------------------------------------------------------------------------------------------

static CudaResult clear(const CudaInstance *c, CudaPointer at, int64_t bytes) {
  CudaStream stream;
  CudaResult result = c->driver->cuStreamCreate(&stream, CUDA_STREAM_OF_ITS_OWN);
  if (result) return result;
  result = FAULT(device_memory_is_not_cleared, c->driver->cuMemsetD8Async(at, 0, (size_t)bytes, stream), CUDA_OK);
  if (!result) result = c->driver->cuStreamSynchronize(stream);
  CudaResult last = c->driver->cuStreamDestroy_v2(stream);
  return result ? result : last;
}

static int allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  const CudaInstance *c = cuda_instance_of(device);
  CudaPointer at = 0;
  size_t have = 0, all = 0;
  cuda_enter(c);
  CudaResult result = c->driver->cuMemAlloc_v2(&at, (size_t)bytes);
  if (result == CUDA_NO_MEMORY) {
    c->driver->cuMemGetInfo_v2(&have, &all);
    return error_set(error, PLAIT_NO_MEMORY,
                     "CUDA device %d (%s) cannot give the %s of its memory plan: %s of %s are free", c->number, c->name,
                     units_bytes((double)bytes).s, units_bytes((double)have).s, units_bytes((double)all).s);
  }
  if (!result) result = clear(c, at, bytes);
  if (result) return failed(c, PLAIT_FAILED, result, "gives no memory", error);
  *address = (char *)(uintptr_t)at;
  return PLAIT_OK;
}

static void release(const Device *device, int space, char *address, int64_t bytes) {
  const CudaInstance *c = cuda_instance_of(device);
  cuda_enter(c);
  c->driver->cuMemFree_v2((CudaPointer)(uintptr_t)address);
}

// Queues ------------------------------------------------------------------------------------------------------------

static CudaQueue *cuda_queue(DeviceQueue *queue) { return (CudaQueue *)queue; }

int cuda_has_failed(CudaQueue *q) {
  pthread_mutex_lock(&q->mutex);
  int code = q->failed.code;
  pthread_mutex_unlock(&q->mutex);
  return code != PLAIT_OK;
}

void cuda_noted_text(CudaQueue *q, const char *result, const char *call, const char *what) {
  const CudaInstance *c = q->instance;
  pthread_mutex_lock(&q->mutex);
  error_set(&q->failed, PLAIT_FAILED, "CUDA device %d (%s): %s failed for %s: %s", c->number, c->name, call, what,
            result);
  pthread_mutex_unlock(&q->mutex);
}

int cuda_noted(CudaQueue *q, CudaResult result, const char *call, const char *what) {
  char text[256];
  if (result) cuda_noted_text(q, cuda_result_text(q->instance->driver, result, text, sizeof text), call, what);
  return result != CUDA_OK;
}

void cuda_wait_if_asked(CudaQueue *q, const char *op) {
  const CudaInstance *c = q->instance;
  if (c->waits) cuda_noted(q, c->driver->cuStreamSynchronize(q->stream), "cuStreamSynchronize", op);
}

static void queue_destroy(DeviceQueue *queue) {
  CudaQueue *q = cuda_queue(queue);
  const CudaDriver *driver = q->instance->driver;
  cuda_enter(q->instance);
  if (q->stream) neighbours_flush(q), driver->cuStreamSynchronize(q->stream);
  for (int i = 0; i < CUDA_EVENTS; i++)
    if (q->event[i]) driver->cuEventDestroy_v2(q->event[i]);
  if (q->stream) driver->cuStreamDestroy_v2(q->stream);
  if (q->host) driver->cuMemFreeHost(q->host);
  cuda_pinned_close(q->instance);
  neighbours_free(q);
  pthread_mutex_destroy(&q->mutex);
  free(q);
}

static int queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  CudaInstance *c = cuda_instance_of(device);
  CudaQueue *q = xcalloc(1, sizeof *q);
  *q = (CudaQueue){.base = {device, team}, .instance = c, .host_queue = {device_cpu(), team}};
  pthread_mutex_init(&q->mutex, NULL);
  cuda_pinned_open();
  cuda_enter(c);
  CudaResult result = c->driver->cuStreamCreate(&q->stream, CUDA_STREAM_OF_ITS_OWN);
  for (int i = 0; i < CUDA_EVENTS && !result; i++)
    result = c->driver->cuEventCreate(&q->event[i], CUDA_EVENT_WITHOUT_TIME);
  if (!result) return *queue = &q->base, PLAIT_OK;
  queue_destroy(&q->base);
  return failed(c, PLAIT_FAILED, result, "gives no queue", error);
}

static int bind(const Device *device, const DeviceKernel *kernel, const KernelCall *call, Arena *arena,
                DeviceBound *bound, Error *error) {
  return kernels_bind(kernel, call, arena, bound, error);
}

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {
  cuda_enter(cuda_queue(queue)->instance);
  kernels_run(cuda_queue(queue), bound, call);
}

static int check(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call, char *memory, int64_t bytes,
                 Error *error) {
  cuda_enter(cuda_queue(queue)->instance);
  return kernels_check(cuda_queue(queue), bound, call, memory, bytes) ? device_drain(queue, error) : PLAIT_OK;
}

static void choices(DeviceQueue *queue, DeviceChoices *all) { products_list(cuda_queue(queue), all); }

static char *choose(DeviceQueue *queue, const char *key, char *memory, int64_t bytes) {
  cuda_enter(cuda_queue(queue)->instance);
  return products_choose(cuda_queue(queue), key, memory, bytes);
}

static void take(DeviceQueue *queue, const char *key, const char *value, char *memory, int64_t bytes) {
  cuda_enter(cuda_queue(queue)->instance);
  products_take(cuda_queue(queue), key, value, memory, bytes);
}

// Memory of the host's that is not pinned the driver may read before it returns, or when the stream comes to it.
static void copy(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes) {
  CudaQueue *q = cuda_queue(queue);
  const CudaDriver *driver = q->instance->driver;
  const CudaPointer target = (CudaPointer)(uintptr_t)to, source = (CudaPointer)(uintptr_t)from;
  if (bytes <= 0) return;
  cuda_enter(q->instance);
  neighbours_flush(q);
  if (from_space == DEVICE_HOST) cuda_copy_host(q, DEVICE_FROM_HOST, target, (char *)(uintptr_t)from, bytes);
  else if (to_space == DEVICE_HOST) cuda_copy_host(q, DEVICE_TO_HOST, source, to, bytes);
  else if (to != from)
    cuda_noted(q, driver->cuMemcpyDtoDAsync_v2(target, source, (size_t)bytes, q->stream), "cuMemcpyDtoDAsync",
               "a copy");
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) {
  CudaQueue *q = cuda_queue(queue);
  if (bytes <= 0) return;
  cuda_enter(q->instance);
  neighbours_flush(q);
  cuda_noted(q,
             q->instance->driver->cuMemsetD8Async((CudaPointer)(uintptr_t)at, (unsigned char)byte, (size_t)bytes,
                                                  q->stream),
             "cuMemsetD8Async", "a fill");
}

uint64_t cuda_record(CudaQueue *q) {
  neighbours_flush(q);
  pthread_mutex_lock(&q->mutex);
  const uint64_t number = ++q->recorded;
  CudaResult result = q->instance->driver->cuEventRecord(q->event[number % CUDA_EVENTS], q->stream);
  pthread_mutex_unlock(&q->mutex);
  cuda_noted(q, result, "cuEventRecord", "an event");
  return number;
}

static DeviceEvent record(DeviceQueue *queue) {
  cuda_enter(cuda_queue(queue)->instance);
  return (DeviceEvent){queue, cuda_record(cuda_queue(queue))};
}

// An event that failed to be recorded has never been: there is nothing to wait for but the error.
static int is_recorded(const DeviceEvent *event) { return event->number && !cuda_has_failed(cuda_queue(event->queue)); }

static void follow(DeviceQueue *queue, DeviceEvent event) {
  CudaQueue *q = cuda_queue(queue);
  cuda_enter(q->instance);
  neighbours_flush(q);
  if (is_recorded(&event))
    cuda_noted(q,
               FAULT(queues_follow_nothing,
                     q->instance->driver->cuStreamWaitEvent(
                         q->stream, cuda_queue(event.queue)->event[event.number % CUDA_EVENTS], 0),
                     CUDA_OK),
               "cuStreamWaitEvent", "a queue that follows another one");
}

static int wait_for(DeviceEvent event, Error *error) {
  CudaQueue *q = cuda_queue(event.queue);
  cuda_enter(q->instance);
  if (is_recorded(&event))
    cuda_noted(q, q->instance->driver->cuEventSynchronize(q->event[event.number % CUDA_EVENTS]), "cuEventSynchronize",
               "what is in the queue");
  pthread_mutex_lock(&q->mutex);
  int code = q->failed.code ? error_take(error, &q->failed) : PLAIT_OK;
  pthread_mutex_unlock(&q->mutex);
  return code;
}

// Communicators of the host cannot reach its memory (no host_pointer): collectives go through the State's mirror.
static const DeviceImplementation implementation = {.instance = instance,
                                                    .present = present,
                                                    .ready = ready,
                                                    .room = room,
                                                    .allocate = allocate,
                                                    .release = release,
                                                    .queue_create = queue_create,
                                                    .queue_destroy = queue_destroy,
                                                    .bind = bind,
                                                    .check = check,
                                                    .choices = choices,
                                                    .choose = choose,
                                                    .take = take,
                                                    .run = run,
                                                    .copy = copy,
                                                    .pin = cuda_pin,
                                                    .unpin = cuda_unpin,
                                                    .fill = fill,
                                                    .record = record,
                                                    .follow = follow,
                                                    .wait = wait_for};

// Description -------------------------------------------------------------------------------------------------------

static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  if (kernels_find(op, dtype, kernel)) return 1;
  int found = fallback_find(op, dtype, kernel);
  *kernel = (DeviceKernel){.on_host = 1};
  return found;
}

static double peak_flops(const Device *device, Dtype dtype, Team *team) { return 0; }

// It joins the neighbours that the CPU does: with PLAIT_CUDA_HOST=all a run has the CPU's bits.
static const Device cuda = {.kind = DEVICE_CUDA,
                            .name = "cuda",
                            .spaces = 1,
                            .space = {{0, PAGE, PLACEMENT}},
                            .dtypes = 1u << DTYPE_F64 | 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                            .fast_dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                            .fuses = DEVICE_FUSES_ACCUMULATE | DEVICE_FUSES_BIAS | DEVICE_FUSES_NARROW_ACCUMULATE |
                                     DEVICE_FUSES_ACTIVATION | DEVICE_FUSES_SUM | DEVICE_FUSES_NORM_SUM |
                                     DEVICE_FUSES_COPY | DEVICE_FUSES_ROW_SUM,
                             .bounds_rows = 1,
                            .sends_by_rings = 1,
                            .find = find,
                            .peak_flops = peak_flops,
                            .implementation = &implementation};

const Device *device_cuda(void) { return &cuda; }
