// A device like another one, with memory that the host cannot touch, for tests: a raw pointer to it that somebody
// forgot faults, and what somebody forgot to wait for has not been done yet. That is all of its memory, or a second
// space.
//
// The addresses that it hands out lie in the lower half of a window of address space, where nothing may be read or
// written; the memory lies in the upper half, and only this file adds the distance. A queue is a thread that does what
// is put into it in order.
//
// In the far space communicators reach the memory all the same, as those of a device's own would (host_pointer). In the
// mirror space they do not, so that collectives go through host memory beside it (runtime/host_call.h): as far as
// queues and memory are concerned, this is what a GPU's driver offers.
#include "base/thread.h"
#include "device/host.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { COPY_DELAY = 100000 }; // nanoseconds before a copy: a kernel that does not wait for it runs first
static const uintptr_t WINDOW = (uintptr_t)1 << (sizeof(void *) > 4 ? 34 : 28); // bytes; aligned to its size

// Memory ------------------------------------------------------------------------------------------------------------

static void *near(const void *address) {
  if (!address) return NULL;
  CHECK((uintptr_t)address % WINDOW < WINDOW / 2, "%p is not an address of the far device", address);
  return (void *)((uintptr_t)address + WINDOW / 2);
}

// An address of a space, or of the host, as a pointer.
static void *pointer_to(const Device *device, int space, const void *address) {
  return space == DEVICE_HOST || device->space[space].is_host ? (void *)(uintptr_t)address : near(address);
}

static int allocate(const Device *device, int space, int64_t bytes, char **address, Error *error) {
  if (device->space[space].is_host) return host_map(NULL, bytes, address, error);
  if (bytes > (int64_t)(WINDOW / 2))
    return error_set(error, PLAIT_NO_MEMORY, "PLAIT_SPACE=far has room for %lld bytes", (long long)(WINDOW / 2));
  char *raw = mmap(NULL, 2 * WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    return error_set(error, PLAIT_NO_MEMORY, "cannot reserve addresses for PLAIT_SPACE=far: %s", strerror(errno));
  char *window = (char *)(((uintptr_t)raw + WINDOW - 1) / WINDOW * WINDOW), *memory;
  if (window > raw) munmap(raw, (size_t)(window - raw));
  munmap(window + WINDOW, WINDOW - (size_t)(window - raw));
  int code = host_map(window + WINDOW / 2, bytes, &memory, error);
  if (code) munmap(window, WINDOW);
  else *address = window;
  return code;
}

static void release(const Device *device, int space, char *address, int64_t bytes) {
  munmap(address, device->space[space].is_host ? (size_t)bytes : (size_t)WINDOW);
}

static void *host_pointer_of(const Device *device, void *address) { return pointer_to(device, 0, address); }

// Queues ------------------------------------------------------------------------------------------------------------

typedef enum WorkKind { WORK_RUN, WORK_COPY, WORK_FILL, WORK_FOLLOW } WorkKind;

typedef struct Work {
  struct Work *next;
  WorkKind kind;
  DeviceBound bound;           // RUN
  KernelCall call;             // RUN; its operands are copies, which lie after this struct
  CallParameters parameters;
  void *to;                    // COPY, FILL: pointers that may be followed
  const void *from;            // COPY
  int byte;                    // FILL
  int64_t bytes;               // COPY, FILL
  DeviceEvent event;           // FOLLOW
} Work;

typedef struct FarQueue {
  DeviceQueue base;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Work *first, *last;
  uint64_t entered, done;
  int closed;
} FarQueue;

static FarQueue *far_queue(DeviceQueue *queue) { return (FarQueue *)queue; }

static int wait_for(DeviceEvent event, Error *error) {
  FarQueue *q = far_queue(event.queue);
  pthread_mutex_lock(&q->mutex);
  while (q->done < event.number) pthread_cond_wait(&q->changed, &q->mutex);
  pthread_mutex_unlock(&q->mutex);
  return PLAIT_OK;
}

static void do_run(const Device *device, Work *w) {
  Operand *operand = (Operand *)(uintptr_t)w->call.input;
  for (int i = 0; i < w->call.ninput + w->call.noutput; i++) operand[i].data = pointer_to(device, 0, operand[i].data);
  w->call.workspace = pointer_to(device, 0, w->call.workspace);
  w->parameters.rank_begins = pointer_to(device, 0, w->parameters.rank_begins);
  w->bound.host(&w->call);
}

static void do_work(const Device *device, Work *w) {
  switch (w->kind) {
  case WORK_RUN: do_run(device, w); break;
  case WORK_COPY: memmove(w->to, w->from, (size_t)w->bytes); break;
  case WORK_FILL: memset(w->to, w->byte, (size_t)w->bytes); break;
  case WORK_FOLLOW: wait_for(w->event, NULL); break;
  }
}

static void *work(void *queue) {
  FarQueue *q = queue;
  pthread_mutex_lock(&q->mutex);
  for (;;) {
    int was_empty = !q->first;
    while (!q->first && !q->closed) pthread_cond_wait(&q->changed, &q->mutex);
    Work *w = q->first;
    if (!w) break;
    pthread_mutex_unlock(&q->mutex);
    if (was_empty && w->kind == WORK_COPY) nanosleep(&(struct timespec){0, COPY_DELAY}, NULL);
    do_work(q->base.device, w);
    pthread_mutex_lock(&q->mutex);
    q->first = w->next;
    if (!q->first) q->last = NULL;
    q->done++;
    free(w);
    pthread_cond_broadcast(&q->changed);
  }
  pthread_mutex_unlock(&q->mutex);
  return NULL;
}

static void enqueue(DeviceQueue *queue, Work *w) {
  FarQueue *q = far_queue(queue);
  pthread_mutex_lock(&q->mutex);
  if (q->last) q->last->next = w;
  else q->first = w;
  q->last = w;
  q->entered++;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
}

static int queue_create(const Device *device, Team *team, DeviceQueue **queue, Error *error) {
  FarQueue *q = xcalloc(1, sizeof *q);
  q->base = (DeviceQueue){device, team};
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->changed, NULL);
  int code = thread_start(&q->thread, work, q, error, "a queue of PLAIT_SPACE=far");
  if (code) {
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->mutex);
    free(q);
    return code;
  }
  *queue = &q->base;
  return PLAIT_OK;
}

static void queue_destroy(DeviceQueue *queue) {
  FarQueue *q = far_queue(queue);
  pthread_mutex_lock(&q->mutex);
  q->closed = 1;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
  pthread_join(q->thread, NULL);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->mutex);
  free(q);
}

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {
  size_t inputs = (size_t)call->ninput, outputs = (size_t)call->noutput;
  Work *w = xcalloc(1, sizeof *w + (inputs + outputs) * sizeof(Operand));
  Operand *operand = (Operand *)(void *)(w + 1);
  *w = (Work){.kind = WORK_RUN, .bound = *bound, .call = *call};
  memcpy(operand, call->input, inputs * sizeof *operand);
  memcpy(operand + inputs, call->output, outputs * sizeof *operand);
  w->call.input = operand;
  w->call.output = operand + inputs;
  if (call->parameters) w->parameters = *call->parameters;
  w->call.parameters = call->parameters ? &w->parameters : NULL;
  enqueue(queue, w);
}

static void copy(DeviceQueue *queue, int to_space, void *to, int from_space, const void *from, int64_t bytes) {
  Work *w = xcalloc(1, sizeof *w);
  *w = (Work){.kind = WORK_COPY, .to = pointer_to(queue->device, to_space, to),
              .from = pointer_to(queue->device, from_space, from), .bytes = bytes};
  enqueue(queue, w);
}

static void fill(DeviceQueue *queue, void *at, int byte, int64_t bytes) {
  Work *w = xcalloc(1, sizeof *w);
  *w = (Work){.kind = WORK_FILL, .to = pointer_to(queue->device, 0, at), .byte = byte, .bytes = bytes};
  enqueue(queue, w);
}

static DeviceEvent record(DeviceQueue *queue) {
  FarQueue *q = far_queue(queue);
  pthread_mutex_lock(&q->mutex);
  DeviceEvent event = {queue, q->entered};
  pthread_mutex_unlock(&q->mutex);
  return event;
}

static void follow(DeviceQueue *queue, DeviceEvent event) {
  Work *w = xcalloc(1, sizeof *w);
  *w = (Work){.kind = WORK_FOLLOW, .event = event};
  enqueue(queue, w);
}

#define QUEUES_AND_MEMORY                                                                                             \
  .allocate = allocate, .release = release, .queue_create = queue_create, .queue_destroy = queue_destroy,              \
  .bind = host_bind, .run = run, .copy = copy, .fill = fill, .record = record, .follow = follow, .wait = wait_for
static const DeviceImplementation far_implementation = {QUEUES_AND_MEMORY, .host_pointer = host_pointer_of},
                                  out_of_reach = {QUEUES_AND_MEMORY};

static Device with_queues(const Device *of) {
  Device d = *of;
  d.find = device_imitated_find;
  d.peak_flops = device_imitated_peak;
  d.own = of;
  d.implementation = &far_implementation;
  return d;
}

Device device_in_far(const Device *of) {
  Device d = with_queues(of);
  d.space[0].is_host = 0;
  return d;
}

Device device_in_mirror(const Device *of) {
  Device d = device_in_far(of);
  d.implementation = &out_of_reach;
  return d;
}

Device device_beside_far(const Device *of) {
  Device d = with_queues(of);
  CHECK(d.spaces < DEVICE_MOST_SPACES);
  d.space[d.spaces] = d.space[0];
  d.space[d.spaces++].is_host = 0;
  return d;
}
