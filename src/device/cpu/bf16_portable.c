// CPU kernels for bf16 in vectors of 16 bytes, for any machine.
#define LEVEL portable
#define LEVEL_BYTES 16
#define LEVEL_BF16 0
#include "device/cpu/bf16_level.h"
