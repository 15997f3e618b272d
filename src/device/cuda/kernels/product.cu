// Matrix products, of operands of any dtypes.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(product)

#define OF_REALS "device/cuda/kernels/product.h"
#include "device/cuda/kernels/each_real.h"
