// CPU kernels for bf16 for AVX-512 and AMX tiles.
#if defined(__x86_64__)
#define LEVEL amx
#define LEVEL_BYTES 64
#define LEVEL_BF16 2
#include "device/cpu/bf16_level.h"
#else
typedef int LevelNeedsX86; // a file must declare something
#endif
