// Ops that read and write each element once.
#include "device/cuda/kernels/kernel.h"
#include "op/attributes.h"

KERNEL_MARK(elementwise)

#define OF_ELEMENTS "device/cuda/kernels/elementwise.h"
#define OF_REALS "device/cuda/kernels/blend.h"
#include "device/cuda/kernels/each_real.h"
