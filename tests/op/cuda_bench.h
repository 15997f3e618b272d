// A CUDA device on which calls of ops run one by one, for tests.
#pragma once
#include "cases.h"
#include "device/device.h"

typedef struct CudaBench {
  const Device *device;
  DeviceQueue *queue;
  char *memory;
  int64_t used, room; // room: bytes of it in which libraries are tried; all, unless a test says otherwise
  Arena arena;
} CudaBench;

void cuda_bench_open(CudaBench *b);
void cuda_bench_close(CudaBench *b);
// The device's kernel for a case; 0: it runs on the host.
int cuda_bench_kernel(const OpCase *c, DeviceKernel *kernel);
// Checks and runs the case, whose outputs are then the device's. part: of the workspace that the kernel asks for,
// without that of libraries; chunks are smaller then.
void cuda_bench_run(CudaBench *b, const DeviceKernel *kernel, OpCase *c, double part, const char *where);
