// The tables of devices and of spaces; code that all devices share.
#include "device/device.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  const Device *(*describe)(void);
  int shares_host;
} kinds[] = {
#define HOST 1
#define NOTHING 0
#define DEVICE(id, name, shares) {#name, device_##name, shares},
#include "device/devices.def"
#undef HOST
#undef NOTHING
};

const char *device_kind_name(DeviceKind kind) { return kinds[kind].name; }
int device_shares_host(DeviceKind kind) { return kinds[kind].shares_host; }

const Device *device_describe(DeviceKind kind) {
  int k = kind;
  if (kind == DEVICE_AUTO)
    for (k = 0; !kinds[k].shares_host;) k++;
  return kinds[k].describe();
}

static Device apart[DEVICE_KINDS + 1];
static pthread_once_t apart_once = PTHREAD_ONCE_INIT;

static void make_apart(void) {
  for (int k = 0; k <= DEVICE_KINDS; k++) {
    apart[k] = *device_describe((DeviceKind)k);
    apart[k].fuses &= DEVICE_FUSES_ACCUMULATE | DEVICE_FUSES_BIAS | DEVICE_FUSES_NARROW_ACCUMULATE;
  }
}

const Device *device_describe_apart(DeviceKind kind) {
  pthread_once(&apart_once, make_apart);
  return &apart[kind];
}

int device_space_wish(char *text, size_t size) {
  static const char *const names[] = {
#define SPACE(name) #name,
#include "device/spaces.def"
      NULL};
  const char *wish = getenv("PLAIT_SPACE");
  if (!wish) return 0;
  for (int i = 0; names[i]; i++)
    if (!strcmp(wish, names[i])) return i;
  snprintf(text, size, "PLAIT_SPACE is \"%.40s\"; allowed: %s", wish, names[0]);
  for (int i = 1; names[i]; i++) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s%s", i == 1 ? ", and " : " or ", names[i], names[i + 1] ? "" : " for tests");
  }
  return -1;
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

int device_present(const Device *device, Error *error) {
  int code = cannot_run(device, error);
  return code || !device->implementation->present ? code : device->implementation->present(error);
}

int device_ready(const Device *device, const DeviceNumbers *numbers, Error *error) {
  int code = cannot_run(device, error);
  return code || !device->implementation->ready ? code : device->implementation->ready(device, numbers, error);
}

int device_instance(const Device *device, int number, const Device **instance, Error *error) {
  int code = cannot_run(device, error);
  if (code) return code;
  *instance = device;
  return device->implementation->instance ? device->implementation->instance(device, number, instance, error)
                                          : PLAIT_OK;
}

int device_allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  int code = cannot_run(device, error);
  return code ? code : device->implementation->allocate(device, space, bytes, address, error);
}

void device_release(const Device *device, int space, char *address, int64_t bytes) {
  if (address) device->implementation->release(device, space, address, bytes);
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
