// The head: statistics, losses and gradients of logits, which product.h has made.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(head)

#define OF_REALS "device/cuda/kernels/head.h"
#include "device/cuda/kernels/each_real.h"
