// CPU kernels for bf16 for AVX-512 without bf16 instructions.
#if defined(__x86_64__)
#define LEVEL avx512
#define LEVEL_BYTES 64
#define LEVEL_BF16 0
#include "device/cpu/bf16_level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
