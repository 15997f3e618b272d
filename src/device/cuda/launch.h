// How an op becomes launches of kernels: files ops_*.c have a function for each, which fills the arguments of kernels
// (kernels/arguments.h) and names what these read and write.
#pragma once
#include "device/cuda/cuda_device.h"
#include "device/cuda/kernels/arguments.h"
#include "device/cuda/products.h"

enum { LAUNCH_OPERANDS = 80 };

// One call of an op, and the operands of its next launch.
struct Launch {
  CudaQueue *queue;
  const KernelCall *call;
  const char *op;
  Dtype dtype; // of the kernel: that of the first floating-point operand
  CudaOperand operand[LAUNCH_OPERANDS];
  int operands;
  int own;            // it uses no library
  int waits;          // its launches may wait for neighbours (neighbours.h)
  ProductKeys *asked; // where only its products are wanted, and nothing is put into the queue; else NULL
};

// The address of an operand, which the next launch reads, writes or both (CUDA_READS …); NULL: it is absent or empty.
void *launch_operand(Launch *l, const char *name, const Operand *x, unsigned mode);
Array launch_array(Launch *l, const char *name, const Operand *x, unsigned mode);
// The same of `bytes` at an address.
void *launch_bytes(Launch *l, const char *name, void *at, int64_t bytes, unsigned mode);
// Puts the kernel into the queue, and forgets the operands. No blocks: nothing is done. threads: a multiple of WARP.
void launch_kernel(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments);
// The same with these operands, whatever waits for neighbours.
void launch_now(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments,
                const CudaOperand *operand, int operands);

static inline const Operand *launch_input(const Launch *l, int k) { return &l->call->input[k]; }
static inline const Operand *launch_output(const Launch *l, int k) { return &l->call->output[k]; }
// Bytes of a sum: kernels for narrow dtypes add up in fp32.
static inline int64_t sum_bytes(Dtype dtype) { return dtype == DTYPE_F64 ? 8 : 4; }
static inline Dtype sum_dtype(Dtype dtype) { return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }
static inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
// Threads of a block that has n elements to share.
int block_threads(int64_t n);
// The same, where each takes 16 bytes at a time.
int pack_threads(int64_t n, Dtype dtype);
RowMap launch_map(const IndexMap *map);
// Of a call that draws a mask by the stream of a node, for samples of this map.
MaskArguments launch_mask(const Launch *l, double probability, uint64_t stream, const IndexMap *samples);
// Valid elements, where these come first; -1: they do not.
int64_t launch_valid(const Operand *x);

// Operands of an update with this number of states, without outputs where the call has none; and of MUON_MOMENTUM.
void launch_update_operands(Launch *l, OptimizerArguments *a, int states);
void launch_momentum_operands(Launch *l, OptimizerArguments *a);

// The same, with as many blocks as a device has use for, where each thread takes `each` of n elements at a time.
void launch_over(Launch *l, CudaKernel kernel, int64_t n, int64_t each, const void *arguments);
// The sum of squares of n elements of the kernel's dtype, by way of cuda_sum_partial_bytes(n).
void launch_sum_of_squares(Launch *l, const void *x, int64_t n, double *partial, Array out);
int64_t cuda_sum_partial_bytes(int64_t n);

// Of matrices that are operands of the launch already: by a library, or by plait's own kernels, with tensor cores where
// these take them; or by the plain one, with which libraries are compared.
void launch_product(Launch *l, const ProductArguments *arguments);
void launch_own_product(Launch *l, const ProductArguments *arguments);
void launch_plain_product(Launch *l, const ProductArguments *arguments);
// Whether tensor cores make a product of these: both bf16, or both fp16, whose rows (a_row, b_column: elements between
// them) or depths lie side by side, and everything begins at addresses that 16 divides.
int product_fits_tiles(Array a, int64_t a_row, int64_t a_depth, Array b, int64_t b_column, int64_t b_depth);
// A call of ATTENTION, or of its gradient, by plait's own kernels.
void launch_own_attention(Launch *l);
void launch_own_attention_grad(Launch *l);

#define OP_KERNEL(op, launch, fits, workspace)                                                                         \
  void launch(Launch *l);                                                                                              \
  int fits(const KernelCall *call, Dtype dtype);
#include "device/cuda/op_kernels.def"
#undef OP_KERNEL
size_t cuda_reduce_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_norm_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_embedding_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_sum_squares_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_attention_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_attention_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_mask_first_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_mask_second_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_mask_third_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_router_z_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_router_balance_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_reorder_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_row_losses_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_squared_error_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
// They end with PRODUCT_WORKSPACE.
size_t cuda_product_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_orthogonalize_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
size_t cuda_head_workspace(const Operand *input, const Operand *output, const void *attr, int threads);
