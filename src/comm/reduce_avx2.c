// Sums over ranks with AVX2.
#if defined(__x86_64__)
#include "base/dtype.h"
#include <string.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define SUMS_OF_LEVEL reduce_sums_avx2
#include "comm/reduce_sums.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#else
typedef int none; // a file must declare something
#endif
