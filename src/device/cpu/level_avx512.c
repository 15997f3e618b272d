// CPU kernels for AVX-512.
#if defined(__x86_64__)
#define LEVEL avx512
#define LEVEL_BYTES 64
#include "device/cpu/level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
