// CPU kernels for AVX2 and FMA.
#if defined(__x86_64__)
#define LEVEL avx2
#define LEVEL_BYTES 32
#include "device/cpu/level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
