// A device without memory, whose kernels do nothing.
#include "device/device.h"
#include "device/host.h"
#include <string.h>

static double peak_flops(const Device *device, Dtype dtype, Team *team) { return 0; }

static int allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  *address = (char *)((uintptr_t)1 << 28); // nothing lies there
  return PLAIT_OK;
}

static void release(const Device *device, int space, char *address, int64_t bytes) {}

static int bind(const Device *device, const DeviceKernel *kernel, const KernelCall *call, Arena *arena,
                DeviceBound *bound, Error *error) {
  return PLAIT_OK;
}

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {}

// A read gives zeros.
static void copy(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes) {
  if (to_space == DEVICE_HOST) memset(to, 0, (size_t)bytes);
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) {}

static const DeviceImplementation null_implementation = {
    .at_once = 1, .allocate = allocate,  .release = release, .queue_create = host_queue_create,
    .bind = bind, .run = run,            .copy = copy,       .queue_destroy = host_queue_destroy,
    .fill = fill, .record = host_record, .wait = host_wait,  .follow = host_follow,
    .host_pointer = host_pointer};

Device device_null(const Device *of) {
  Device d = *of;
  d.name = "null";
  d.find = device_imitated_find;
  d.peak_flops = peak_flops;
  d.own = of;
  d.implementation = &null_implementation;
  return d;
}
