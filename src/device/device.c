// Finds devices by name; code that all devices share.
#include "device/device.h"
#include <stdlib.h>
#include <string.h>

int device_by_name(const char *name, const Device **device, Error *error) {
  if (!strcmp(name, "auto") || !strcmp(name, "cpu")) *device = device_cpu();
  else if (!strcmp(name, "reference")) *device = device_reference();
  else return error_set(error, PLAIT_BAD_INPUT, "backend '%s' is unknown; allowed are auto, cpu and reference", name);
  return PLAIT_OK;
}

int device_space_is_far(void) {
  const char *wish = getenv("PLAIT_SPACE");
  if (!wish || !strcmp(wish, "host")) return 0;
  return strcmp(wish, "far") ? -1 : 1;
}

int device_kernel(const Device *device, Op op, Dtype dtype, const char *node, DeviceKernel *kernel, Error *error) {
  if (device->dtypes >> dtype & 1 && device->find(device, op, dtype, kernel)) {
    kernel->op = op;
    kernel->dtype = dtype;
    return PLAIT_OK;
  }
  return error_set(error, PLAIT_INFEASIBLE, "%s: the device %s has no kernel for the op %s in %s", node, device->name,
                   op_name(op), dtype_name(dtype));
}

static int cannot_run(const Device *device, Error *error) {
  if (device->implementation) return PLAIT_OK;
  return error_set(error, PLAIT_INFEASIBLE, "this build of plait can plan for the device %s, but not run it",
                   device->name);
}

int device_allocate(const Device *device, int64_t bytes, char **address, Error *error) {
  int code = cannot_run(device, error);
  return code ? code : device->implementation->allocate(device, bytes, address, error);
}

void device_release(const Device *device, char *address, int64_t bytes) {
  if (address) device->implementation->release(device, address, bytes);
}

int device_queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  int code = cannot_run(device, error);
  return code ? code : device->implementation->queue_create(device, team, queue, error);
}

void device_queue_destroy(DeviceQueue *queue) {
  if (queue) queue->device->implementation->queue_destroy(queue);
}

static const Device *imitated(const Device *device) { return device->own; }

int device_imitated_find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  return imitated(device)->find(imitated(device), op, dtype, kernel);
}

double device_imitated_peak(const Device *device, Dtype dtype, Team *team) {
  return imitated(device)->peak_flops(imitated(device), dtype, team);
}
