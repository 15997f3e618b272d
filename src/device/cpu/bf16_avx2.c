// CPU kernels for bf16 for AVX2, which computes in fp32.
#if defined(__x86_64__)
#define LEVEL avx2
#define LEVEL_BYTES 32
#define LEVEL_BF16 0
#include "device/cpu/bf16_level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
