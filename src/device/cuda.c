// The description of a GPU that runs CUDA, so that plans and predictions can be made for one on any machine. There is
// no implementation yet: nothing runs on it.
#include "device/device.h"

// cuBLAS and kernels of our own have all ops in all of its dtypes; their workspace is small and shared.
static int find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  *kernel = (DeviceKernel){.host = NULL};
  return 1;
}

static double peak_flops(const Device *device, Dtype dtype, Team *team) { return 0; }

const Device *device_cuda(void) {
  enum { PAGE = 2 << 20, ALIGNMENT = 256 }; // of cudaMalloc
  static const Device cuda = {.kind = DEVICE_CUDA,
                              .name = "cuda",
                              .spaces = 1,
                              .space = {{0, PAGE, ALIGNMENT}},
                              .dtypes = 1u << DTYPE_F64 | 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                              .fast_dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16,
                              .fuses = DEVICE_FUSES_ACCUMULATE | DEVICE_FUSES_BIAS | DEVICE_FUSES_NARROW_ACCUMULATE,
                              .sends_by_rings = 1,
                              .find = find,
                              .peak_flops = peak_flops};
  return &cuda;
}
