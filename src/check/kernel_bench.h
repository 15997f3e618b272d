// Runs cases of ops by the kernels of a device, and compares what they give with the reference kernels.
#pragma once
#include "base/arena.h"
#include "check/op_variant.h"
#include "device/device.h"

typedef struct KernelBench {
  const Device *device; // an instance
  DeviceQueue *queue;
  char *memory; // of the device
  int64_t used;
  Arena arena;
  uint64_t digest; // of all bits that kernels gave: begins as kernel_bench_open leaves it
} KernelBench;

// Of one case. share: the largest error over its bound; above 1 `text` says where.
typedef struct KernelVerdict { double share; char text[320]; } KernelVerdict;

// number: of the device among those of the kind. kernel_bench_close afterwards, after an error too.
int kernel_bench_open(KernelBench *b, const Device *kind, int number, Error *error);
void kernel_bench_close(KernelBench *b);
// Whether the device has a kernel of its own for the case: not the reference, and not on the host.
int kernel_bench_has(const KernelBench *b, const OpCase *c, DeviceKernel *kernel);
// 1: compared, and *verdict. 0: the case has no such variant, or the device no kernel for it. Negative: the device
// failed.
int kernel_bench_case(KernelBench *b, const OpCase *whole, Variant variant, KernelVerdict *verdict, Error *error);
