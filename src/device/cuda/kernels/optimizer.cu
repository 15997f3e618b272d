// Updates of parameters.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(optimizer)

#define OF_ELEMENTS "device/cuda/kernels/optimizer.h"
#include "device/cuda/kernels/each_real.h"
