// Communication calls (base/comm_kind.h): places around a ring, and the sizes of elements.
#pragma once
#include "base/comm_kind.h"
#include "plait/comm.h"

// By `distance` places from `rank`, or back where that is negative, around a ring of n ranks.
static inline int comm_around(int rank, int distance, int n) { return (int)((((long)rank + distance) % n + n) % n); }

size_t comm_dtype_size(PlaitDtype dtype);
// Bytes of an element of a reduction's accumulator, in which what is not rounded yet can travel.
size_t comm_wide_size(PlaitDtype dtype);
