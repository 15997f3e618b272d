// Rows that are taken from sequences and put into caches, and attention to the pages of a cache: correct, and not fast.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(cache)

#define OF_ELEMENTS "device/cuda/kernels/cache_rows.h"
#define OF_REALS "device/cuda/kernels/cache.h"
#include "device/cuda/kernels/each_real.h"
