// Sums over ranks with AVX-512.
#if defined(__x86_64__)
#include "base/dtype.h"
#include <string.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,prefer-vector-width=512")
#endif
#define SUMS_OF_LEVEL reduce_sums_avx512
#include "comm/reduce_sums.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#else
typedef int none; // a file must declare something
#endif
