// Kernels as code for cards, in a file that the build makes (cmake/cuda.cmake).
#pragma once

// code NULL: built without nvcc. hash: of its sources, a part of the name of its KERNEL_MARK.
typedef struct KernelImage { const char *file; const void *code; const char *hash; } KernelImage;
extern const KernelImage kernel_images[]; // a file NULL ends them
extern const int kernels_cuda; // the CUDA whose nvcc compiled them, 13000; its drivers and newer ones take them
