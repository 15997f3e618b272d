// Backend: a description that passes, planner and simulator read (always compiled in), and kernels by op and dtype.
// What a backend lacks falls back to the op's reference kernel.
#pragma once
#include "op/op.h"

typedef struct KernelEntry {
  Op op;
  Dtype dtype; // of the first floating-point operand (input, else output)
  Kernel kernel;
  // Bytes of workspace for one call, from local shapes; NULL: none. An upper bound over `threads` threads.
  size_t (*workspace)(const Operand *input, const Operand *output, const void *attr, int threads);
} KernelEntry;

typedef struct Backend {
  const char *name; // "cpu", "reference"
  const KernelEntry *(*find)(const struct Backend *backend, Op op, Dtype dtype); // NULL: use the reference kernel
} Backend;

// The portable and SIMD kernels of src/backend/cpu; picks by the machine at run time (PLAIT_SIMD=reference|portable|avx2|avx512|avx512_bf16|amx).
const Backend *backend_cpu(void);
// Reference kernels only.
const Backend *backend_reference(void);
// "auto", "cpu" or "reference"; PLAIT_BAD_INPUT with the allowed names otherwise.
int backend_by_name(const char *name, const Backend **backend, Error *error);

// FLOP/s of fp32 matrix products on this team: the best of about 50 ms of products; 0 where unknown. Allocates and frees.
double backend_peak_flops(Team *team);
