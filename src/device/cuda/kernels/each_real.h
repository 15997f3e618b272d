// Includes KERNELS once for each dtype of sums: REAL and what goes with it. NAME(x) is x_f32 or x_f64.
#define NAME(x) JOINED(x, SUFFIX)

#define REAL float
#define REAL_DTYPE DTYPE_F32
#define SUFFIX f32
#define ARRAY(x, i) array_float(x, i)
#define PUT(x, i, value) array_put_float(x, i, value)
#define REAL_EXP(x) expf(x)
#define REAL_LOG(x) logf(x)
#define REAL_SQRT(x) sqrtf(x)
#define REAL_ERF(x) erff(x)
#define REAL_ERFC(x) erfcf(x)
#define BLOCK_SUM(x, scratch) block_sum_f32(x, scratch)
#define BLOCK_MAX(x, scratch) block_max_f32(x, scratch)
#ifdef OF_ELEMENTS
#define ELEMENT float
#define WIDEN(x) (x)
#define NARROW(x) (x)
#include OF_ELEMENTS
#undef ELEMENT
#undef WIDEN
#undef NARROW
#undef SUFFIX
#define SUFFIX bf16
#define ELEMENT uint16_t
#define WIDEN(x) widen_bf16(x)
#define NARROW(x) narrow_bf16(x)
#include OF_ELEMENTS
#undef WIDEN
#undef NARROW
#undef SUFFIX
#define SUFFIX f16
#define WIDEN(x) widen_f16(x)
#define NARROW(x) narrow_f16(x)
#include OF_ELEMENTS
#undef ELEMENT
#undef WIDEN
#undef NARROW
#endif
#ifdef OF_REALS
#undef SUFFIX
#define SUFFIX f32
#include OF_REALS
#endif
#undef REAL
#undef SUFFIX
#undef ARRAY
#undef PUT
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_SQRT
#undef REAL_ERF
#undef REAL_ERFC
#undef BLOCK_SUM
#undef BLOCK_MAX

#undef REAL_DTYPE
#define REAL double
#define REAL_DTYPE DTYPE_F64
#define SUFFIX f64
#define ARRAY(x, i) array_double(x, i)
#define PUT(x, i, value) array_put_double(x, i, value)
#define REAL_EXP(x) exp(x)
#define REAL_LOG(x) log(x)
#define REAL_SQRT(x) sqrt(x)
#define REAL_ERF(x) erf(x)
#define REAL_ERFC(x) erfc(x)
#define BLOCK_SUM(x, scratch) block_sum_f64(x, scratch)
#define BLOCK_MAX(x, scratch) block_max_f64(x, scratch)
#ifdef OF_ELEMENTS
#define ELEMENT double
#define WIDEN(x) (x)
#define NARROW(x) (x)
#include OF_ELEMENTS
#endif
#ifdef OF_REALS
#include OF_REALS
#endif
