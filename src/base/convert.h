// Arrays of one element type into arrays of another, as when weights are loaded in another precision.
#pragma once
#include "base/dtype.h"

// n elements, each as dtype_store of dtype_load, but fast. Both arrays are aligned for their types, and do not overlap.
void dtype_convert(void *to, Dtype to_dtype, const void *from, Dtype from_dtype, int64_t n);
