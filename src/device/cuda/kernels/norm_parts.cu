// Parts of norms, where a row is cut over ranks: sums, and what follows from those of whole rows.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(norm_parts)

#define OF_ELEMENTS "device/cuda/kernels/norm_parts.h"
#include "device/cuda/kernels/each_real.h"
