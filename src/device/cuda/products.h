// Products by cuBLASLt, each of which was compared with plait's own kernel before it is used.
#pragma once
#include "base/vec.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/kernels/arguments.h"

// Bytes at the end of the workspace of each op that multiplies: a bias in the dtype of the output, then the library's.
enum {
  PRODUCT_WORKSPACE = DEVICE_LIBRARY_WORKSPACE,
  BIAS_WORKSPACE = 1 << 20,
  LIBRARY_WORKSPACE = PRODUCT_WORKSPACE - BIAS_WORKSPACE
};

// All that a choice of the library's depends on. a: (rows, depth), or transposed; b: (columns, depth), or transposed;
// a_step, b_step: elements between rows of what lies in memory; aligned: bytes, at most 256; bias: whether there is
// one; function: a ProductFunction.
typedef struct ProductKey {
  int64_t rows, columns, depth, a_step, b_step;
  int32_t a_transposed, b_transposed, dtype, out, bias, a_aligned, b_aligned, out_aligned, bias_aligned;
  int32_t function; // keys are compared with memcmp, so the struct has no padding: its int32_t are even in number
} ProductKey;
typedef struct ProductKeys { Vec(ProductKey) list; } ProductKeys;

// 0: the library has no such product: sizes of 0, dtypes that differ, strides that are not those of a matrix; with a
// function also fp64, and rows of `before` that are not a multiple of 8 elements, or begin elsewhere than at 16 bytes.
int product_key(const ProductArguments *arguments, ProductKey *key);

// An instance's library is loaded, if it was not; 0: there is none, or it does not start, which a note has said.
int products_ready(CudaInstance *instance);
// Compares the library's product with plait's, in memory of which nobody needs what is there, and leaves it zero. Too
// little memory: in some that the device has left. A product that differs, is refused or cannot be compared is plait's
// from then on, and a note on stderr says so. 1: it has, and 0: it was known already.
int products_try(CudaQueue *queue, const ProductKey *key, char *memory, int64_t bytes);
// Choices among the library's algorithms, see DeviceImplementation.
void products_list(CudaQueue *queue, DeviceChoices *choices);
char *products_choose(CudaQueue *queue, const char *key, char *memory, int64_t bytes);
void products_take(CudaQueue *queue, const char *key, const char *value, char *memory, int64_t bytes);
typedef struct Launch Launch;
// Whether the library was found not to make such a product.
int products_lack(const CudaInstance *instance, const ProductKey *key);
// Puts the library's product into the queue; 0: it is for plait's own kernel.
int products_launch(Launch *l, const ProductArguments *arguments);
