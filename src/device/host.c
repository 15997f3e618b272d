// Memory and kernels of the host.
#include "device/host.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int refused(int64_t bytes, int why, Error *error) {
  return error_set(error, PLAIT_NO_MEMORY, "cannot get the %lld bytes of its memory plan: %s", (long long)bytes,
                   strerror(why));
}

static int map(char *within, int64_t bytes, char **address, Error *error) {
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  int64_t asked = within ? bytes : bytes + HOST_PAGE;
  errno = ENOMEM; // 32 bits cannot even ask for more than 4 GiB
  char *raw = (int64_t)(size_t)asked == asked
                  ? mmap(within, (size_t)asked, protection, flags | (within ? MAP_FIXED : 0), -1, 0)
                  : MAP_FAILED;
  if (raw == MAP_FAILED) return refused(bytes, errno, error);
  char *aligned = (char *)(((uintptr_t)raw + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE);
  if (aligned > raw) munmap(raw, (size_t)(aligned - raw));
  if (!within && aligned - raw < HOST_PAGE) munmap(aligned + bytes, (size_t)(HOST_PAGE - (aligned - raw)));
  *address = aligned;
  return PLAIT_OK;
}

int host_map(char *within, int64_t bytes, char **address, Error *error) {
  int code = map(within, bytes, address, error);
  if (code) return code;
  madvise(*address, (size_t)bytes, MADV_HUGEPAGE);
  memset(*address, 0, (size_t)bytes);
  return PLAIT_OK;
}

int host_reserve(int64_t bytes, char **address, Error *error) { return map(NULL, bytes, address, error); }

void host_release(char *address, int64_t bytes) {
  if (address) munmap(address, (size_t)bytes);
}

static int allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  return host_map(NULL, bytes, address, error);
}

static void release(const Device *device, int space, char *address, int64_t bytes) { host_release(address, bytes); }

int host_queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  *queue = xcalloc(1, sizeof **queue);
  **queue = (DeviceQueue){device, team};
  return PLAIT_OK;
}

void host_queue_destroy(DeviceQueue *queue) { free(queue); }

int host_bind(const Device *device, const DeviceKernel *kernel, const KernelCall *call, Arena *arena,
              DeviceBound *bound, Error *error) {
  *bound = (DeviceBound){.host = kernel->host};
  return PLAIT_OK;
}

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) { bound->host(call); }

static void copy(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes) {
  memmove(to, from, (size_t)bytes);
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) { memset(at, byte, (size_t)bytes); }

DeviceEvent host_record(DeviceQueue *queue) { return (DeviceEvent){.queue = queue}; }

void host_follow(DeviceQueue *queue, DeviceEvent event) {}

int host_wait(DeviceEvent event, Error *error) { return PLAIT_OK; }

void *host_pointer(const Device *device, void *address) { return address; }

const DeviceImplementation device_host = {
    .at_once = 1,      .allocate = allocate,  .release = release, .queue_create = host_queue_create,
    .bind = host_bind, .run = run,            .copy = copy,       .queue_destroy = host_queue_destroy,
    .fill = fill,      .record = host_record, .wait = host_wait,  .follow = host_follow,
    .host_pointer = host_pointer};
