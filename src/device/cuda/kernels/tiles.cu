// Products by tensor cores, of operands that are both bf16 or both fp16.
#include "device/cuda/kernels/expert_tiles.h"
#include "device/cuda/kernels/tiles.h"

KERNEL_MARK(tiles)

KERNEL_TILES(grouped_tiles_bf16, ExpertProductArguments) { grouped_product(&a, 0); }
KERNEL_TILES(grouped_tiles_f16, ExpertProductArguments) { grouped_product(&a, 1); }
KERNEL_TILES(product_tiles_bf16, ProductArguments) { tiled_product(&a, 0); }
KERNEL_TILES(product_tiles_f16, ProductArguments) { tiled_product(&a, 1); }
