// A device without memory, whose kernels do nothing.
#include "device/device.h"
#include <stdlib.h>
#include <string.h>

static const Device *like(const Device *device) { return device->own; }

static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) { return like(device)->find(like(device), op, dtype, kernel); }

static double flops(const Device *device, Op op, const Operand *input, const Operand *output, const void *attr) {
  return like(device)->flops(like(device), op, input, output, attr);
}

static double peak_flops(const Device *device, Dtype dtype, Team *team) { return 0; }

static int allocate(const Device *device, int64_t bytes, char **address, Error *error) {
  *address = (char *)((uintptr_t)1 << 28); // nothing lies there
  return PLAIT_OK;
}

static void release(const Device *device, char *address, int64_t bytes) {}

static int queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  *queue = xcalloc(1, sizeof **queue);
  **queue = (DeviceQueue){device, team};
  return PLAIT_OK;
}

static void queue_destroy(DeviceQueue *queue) { free(queue); }

static int bind(const Device *device, const DeviceKernel *kernel, const KernelCall *call, DeviceBound *bound, Error *error) { return PLAIT_OK; }

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {}

// What is read from it is zero.
static void copy(DeviceQueue *queue, DeviceCopy kind, void *to, const void *from, int64_t bytes) {
  if (kind == DEVICE_TO_HOST) memset(to, 0, (size_t)bytes);
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) {}

static DeviceEvent record(DeviceQueue *queue) { return (DeviceEvent){.queue = queue}; }

static void follow(DeviceQueue *queue, DeviceEvent event) {}

static void wait_for(DeviceEvent event) {}

static void *host_pointer(const Device *device, void *address) { return address; }

static const DeviceImplementation null_implementation = {allocate, release, queue_create, queue_destroy, bind,         run,
                                                         copy,     fill,    record,       follow,        wait_for, host_pointer};

Device device_null(const Device *of) {
  Device d = *of;
  d.name = "null";
  d.find = find;
  d.flops = flops;
  d.peak_flops = peak_flops;
  d.own = of;
  d.implementation = &null_implementation;
  return d;
}
