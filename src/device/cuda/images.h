// Kernels as code for cards, in a file that the build makes (cmake/cuda.cmake).
#pragma once

typedef struct KernelImage { const char *file; const void *code; } KernelImage; // code NULL: built without nvcc
extern const KernelImage kernel_images[]; // a file NULL ends them
extern const char kernels_hash[];         // of their sources, a part of the name of each file's KERNEL_MARK
extern const int kernels_cuda; // the CUDA whose nvcc compiled them, 13000; its drivers and newer ones take them
