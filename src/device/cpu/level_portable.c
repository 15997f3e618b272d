// CPU kernels in vectors of 16 bytes, for any machine.
#define LEVEL portable
#define LEVEL_BYTES 16
#include "device/cpu/level.h"
