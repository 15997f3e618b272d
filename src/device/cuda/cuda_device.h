// Shared by the files of this folder: instances, queues, and ops that run on the host.
#pragma once
#include "base/fault.h"
#include "device/cuda/driver.h"
#include "device/device.h"
#include <pthread.h>

// A device of this process, with its primary context, which ranks that are threads share.
typedef struct CudaInstance {
  Device device; // its description; `own` is this
  const CudaDriver *driver;
  int number;
  char name[64];
  CudaContext context;
} CudaInstance;

// Events are used in turn: one that was recorded again since stands for a later place in the same stream, so whoever
// waits for it waits a little longer.
enum { CUDA_EVENTS = 64 };

typedef struct CudaQueue {
  DeviceQueue base;
  CudaInstance *instance;
  CudaStream stream;
  pthread_mutex_t mutex; // of events and the error
  CudaEvent event[CUDA_EVENTS];
  uint64_t recorded;
  Error failed;           // the first call that failed: nothing is computed after it
  DeviceQueue host_queue; // for kernels of the CPU
  char *host;             // pinned memory for their operands and workspace; NULL: none yet
  size_t host_bytes;
} CudaQueue;

static inline CudaInstance *cuda_instance_of(const Device *device) { return (CudaInstance *)(uintptr_t)device->own; }

// Makes the instance's context the calling thread's.
void cuda_enter(const CudaInstance *instance);
// Remembers a call that failed, and what for; 1: it did.
int cuda_noted(CudaQueue *queue, CudaResult result, const char *call, const char *what);
int cuda_has_failed(CudaQueue *queue);

// fallback.c: ops without a kernel for the device, at present all of them: their operands are copied to the host, where
// the CPU's kernel runs. With all ops there a Program gives the CPU's bits.
// The CPU's kernel; 0: it has none either.
int fallback_find(Op op, Dtype dtype, DeviceKernel *kernel);
int fallback_bind(const DeviceKernel *kernel, const KernelCall *call, Arena *arena, DeviceBound *bound, Error *error);
// Waits for what is in the queue, and then does it in the calling thread.
void fallback_run(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call);
// PLAIT_CUDA_HOST names ops that run on the host though the device has a kernel, or is "all": PLAIT_BAD_INPUT where one
// is unknown.
int fallback_check_wish(Error *error);
int fallback_takes_all(void);
