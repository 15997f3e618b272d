// Two instances of a device in a process, each with memory of its own.
#include "twin.h"
#include "base/fault.h"
#include "device/host.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 64 };
typedef struct Block { const char *address; int64_t bytes; } Block;
typedef struct Twin {
  Device device;
  Block block[MOST];
  atomic_llong allocations, runs;
} Twin;

static Twin twin[TWINS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static Twin *of(const Device *device) {
  for (int i = 0; i < TWINS; i++)
    if (device == &twin[i].device) return &twin[i];
  CHECK(0, "%s: a description is not an instance", device->name);
}

static int instance(const Device *device, int number, const Device **out, Error *error) {
  *out = &twin[number % TWINS].device;
  return PLAIT_OK;
}

static void set_block(Twin *t, const char *was, Block block) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MOST && t->block[i].address != was) i++;
  CHECK(i < MOST, "%p is not memory of this instance", (const void *)was);
  t->block[i] = block;
  pthread_mutex_unlock(&mutex);
}

static int allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  int code = host_map(NULL, bytes, address, error);
  if (code) return code;
  set_block(of(device), NULL, (Block){*address, bytes});
  atomic_fetch_add(&of(device)->allocations, 1);
  return PLAIT_OK;
}

static void release(const Device *device, int space, char *address, int64_t bytes) {
  set_block(of(device), address, (Block){0});
  munmap(address, (size_t)bytes);
}

static int queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  of(device);
  return host_queue_create(device, team, queue, error);
}

static void check(Twin *t, const void *at) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (at && i < MOST &&
         !((const char *)at >= t->block[i].address && (const char *)at < t->block[i].address + t->block[i].bytes))
    i++;
  pthread_mutex_unlock(&mutex);
  CHECK(i < MOST, "%p lies in the memory of another instance", at);
}

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {
  Twin *t = of(queue->device);
  for (int i = 0; i < call->ninput; i++) check(t, call->input[i].data);
  for (int i = 0; i < call->noutput; i++) check(t, call->output[i].data);
  atomic_fetch_add(&t->runs, 1);
  bound->host(call);
}

static void copy(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes) {
  if (to_space != DEVICE_HOST) check(of(queue->device), to);
  if (from_space != DEVICE_HOST) check(of(queue->device), from);
  memmove(to, from, (size_t)bytes);
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) {
  check(of(queue->device), at);
  memset(at, byte, (size_t)bytes);
}

static const DeviceImplementation implementation = {
    .at_once = 1, .instance = instance,  .allocate = allocate, .queue_create = queue_create,
    .run = run,   .bind = host_bind,     .copy = copy,         .queue_destroy = host_queue_destroy,
    .fill = fill, .record = host_record, .wait = host_wait,    .follow = host_follow,
    .host_pointer = host_pointer,        .release = release};

const Device *twin_device(const Device *like) {
  static Device description;
  description = *like;
  description.name = "twin";
  description.space[0].is_host = 0;
  description.find = device_imitated_find;
  description.peak_flops = device_imitated_peak;
  description.own = like;
  description.implementation = &implementation;
  for (int i = 0; i < TWINS; i++) twin[i].device = description;
  return &description;
}

int64_t twin_allocations(int i) { return twin[i].allocations; }
int64_t twin_runs(int i) { return twin[i].runs; }
