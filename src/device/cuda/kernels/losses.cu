// Softmax and the losses of users' graphs.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(losses)

#define OF_ELEMENTS "device/cuda/kernels/losses.h"
#include "device/cuda/kernels/each_real.h"
