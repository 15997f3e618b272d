// CPU kernels for bf16 for AVX-512 with dot products of bf16 pairs.
#if defined(__x86_64__)
#define LEVEL dot
#define LEVEL_BYTES 64
#define LEVEL_BF16 1
#include "device/cpu/bf16_level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
