// Inside of the CPU device: SIMD levels, their tables, and what all kernels share.
#pragma once
#include "device/device.h"

// The last two differ from AVX512 in bf16 kernels only: they use its bf16 dot products, and AMX tiles.
typedef enum CpuLevel { CPU_PORTABLE, CPU_AVX2, CPU_AVX512, CPU_AVX512_BF16, CPU_AMX, CPU_LEVELS } CpuLevel;

// The best level of this machine that PLAIT_SIMD allows; without it, not AVX512_BF16 on Intel, where it is slower than
// AVX512. PLAIT_SIMD=reference leaves the reference kernels: CPU_LEVELS.
CpuLevel cpu_simd_level(void);
// Whether PLAIT_SIMD is wrong: it is not a level, or one that this machine cannot run.
typedef enum CpuWish { CPU_WISH_FINE, CPU_WISH_UNKNOWN, CPU_WISH_UNABLE } CpuWish;
CpuWish cpu_simd_wish(char *text, size_t size);
const char *cpu_level_name(CpuLevel level);  // "portable", "avx2", "avx512", "avx512_bf16", "amx"
int cpu_level_available(CpuLevel level); // whether this machine can run it; AMX: asks the kernel for leave to use it
const Device *device_cpu_at(
    CpuLevel level); // for tests: one level, whatever PLAIT_SIMD says; CPU_LEVELS: reference kernels

// A kernel by op and by the dtype of its first floating-point operand (input, else output).
typedef struct KernelEntry {
  Op op;
  Dtype dtype;
  Kernel kernel;
  size_t (*workspace)(const Operand *input, const Operand *output, const void *attr, int threads); // see DeviceKernel
} KernelEntry;
const KernelEntry *cpu_find(CpuLevel level, Op op, Dtype dtype); // NULL: none but the reference kernel

// The threads that a kernel works with.
static inline Team *call_team(const KernelCall *call) { return call->queue ? call->queue->team : NULL; }
// A sum whose first term is absent, as an accumulator is that has nothing yet, as the sum of the others.
static inline KernelCall cpu_call_without_absent(const KernelCall *call) {
  KernelCall others = *call;
  if (!others.input[0].data) others.input++, others.ninput--;
  return others;
}

// Tables end with a NULL kernel.
extern const KernelEntry cpu_table_portable[], cpu_table_avx2[], cpu_table_avx512[];
extern const KernelEntry cpu_fp16_portable[], cpu_fp16_avx2[],
    cpu_fp16_avx512[]; // and accumulators in bf16, casts to fp16
extern const KernelEntry cpu_bf16_portable[], cpu_bf16_avx2[], cpu_bf16_avx512[], cpu_bf16_dot[], cpu_bf16_amx[];

// Work in units: rows of about 8192 elements together, or 16384 elements of a flat array. Never by the number of
// threads.
typedef struct RowRange { int64_t from, to; } RowRange;
static inline int64_t row_unit(int64_t width) { return width >= 8192 || width < 1 ? 1 : 8192 / width; }
static inline int64_t row_units(int64_t rows, int64_t width) { return (rows + row_unit(width) - 1) / row_unit(width); }
static inline RowRange row_range(int64_t rows, int64_t width, int64_t unit) {
  int64_t from = unit * row_unit(width), to = from + row_unit(width);
  return (RowRange){from, to < rows ? to : rows};
}
static inline int64_t chunk_units(int64_t n) { return (n + 16383) / 16384; }
static inline RowRange chunk_range(int64_t n, int64_t unit) {
  return (RowRange){unit * 16384, (unit + 1) * 16384 < n ? (unit + 1) * 16384 : n};
}

// Element i of an operand of ids or positions.
static inline int64_t integer_load(const Operand *x, int64_t i) {
  if (x->dtype == DTYPE_I32) return ((const int32_t *)x->data)[i];
  if (x->dtype == DTYPE_I64) return ((const int64_t *)x->data)[i];
  return (int64_t)operand_load(x, i);
}

// `n` elements of an operand from `from` on; scalars, and what is absent, as they are.
Operand cpu_operand_part(const Operand *x, int64_t from, int64_t n);

// The product that the operands of a MATMUL are: C (m × n) = A (m × k) · B (k × n), and the strides of A and B.
typedef struct MatmulShape { int64_t m, n, k, a_row, a_column, b_row, b_column; } MatmulShape;
MatmulShape cpu_matmul_shape(const Operand *input, const MatmulAttr *attr);

// Parts of a product C, of which each packs what it needs itself (gemm.h): for teams of at most CPU_MOST_PARTING slots.
enum { CPU_MOST_PARTING = 4 };
typedef struct CpuParts {
  const void *product;      // a Gemm or Product
  int64_t count;
  int by_rows;              // parts are rows of C, else columns
  int64_t all, step, tiles; // rows or columns; of a register tile; tiles
  char *workspace;
  size_t bytes;             // of it for a slot
  int64_t room;             // elements of packed B at a time
} CpuParts;
// [from, to): the rows or columns of a part, as even as whole tiles can be.
static inline void cpu_part(const CpuParts *p, int64_t part, int64_t *from, int64_t *to) {
  *from = p->tiles * part / p->count * p->step;
  *to = p->tiles * (part + 1) / p->count * p->step;
  if (*to > p->all) *to = p->all;
}

// Rows of which a head keeps `words` logits of `logit_bytes` each at a time. Fewer take less memory, but with every
// chunk of rows `again_bytes` for each of words · e weights are moved once more: cpu.c weighs one against the other.
// Not by the number of threads: the gradient of the weights is a sum over chunks.
int64_t cpu_head_rows(int64_t rows, int64_t words, int64_t e, size_t logit_bytes, size_t again_bytes);

// Rows of the next chunk when `left` are left, at most `most`: all chunks are about as large, since a small last one
// would move all weights for few rows.
int64_t cpu_head_chunk(int64_t left, int64_t most);

// The rows of a head (input x (b, s, e), w, targets (b, s)) that have a target, rising. Only these are multiplied: the
// loss does not depend on others, and their gradients are 0.
typedef struct CpuTargets { const KernelCall *call; int64_t rows, count, *row; } CpuTargets; // row: (count) of (rows)
CpuTargets cpu_targets(const KernelCall *call, void *memory); // memory: an int64_t for each row
static inline int cpu_targets_adjoin(const CpuTargets *t, int64_t first, int64_t n) {
  return t->row[first + n - 1] - t->row[first] == n - 1;
}
// The rows of x of n targets (> 0) from `first` on, one after the other: where they lie, or in `memory`, (n, e).
const void *cpu_targets_pack(const CpuTargets *t, int64_t first, int64_t n, void *memory);
void cpu_targets_clear(const CpuTargets *t, const Operand *x); // rows (b, s, …) without a target become 0

// Rows of sample b whose logits LOGITS has to make: up to the last one that is wanted.
static inline int64_t cpu_wanted_rows(const KernelCall *call, int64_t b) {
  const Operand *index = &call->input[2];
  int64_t n = index->size[1];
  while (n && integer_load(index, b * index->size[1] + n - 1) < 0) n--;
  return n;
}

// The outputs of a call of LINEAR_CROSS_ENTROPY, CROSS_ENTROPY_APPLY or CROSS_ENTROPY_WEIGHT. NULL: it does not have
// it.
typedef struct CpuHeadOutputs { const Operand *loss, *dx, *dw, *dlogits, *relative_to, *sum; } CpuHeadOutputs;
CpuHeadOutputs cpu_head_outputs(const KernelCall *call);
void cpu_head_clear(const CpuTargets *t, const CpuHeadOutputs *out); // rows without a target, of all that have rows

// The rows of a mask (b, s, x): of each token its choices, by rising expert, with the row that each is.
typedef struct CpuChoice { int32_t row, expert; } CpuChoice;
typedef struct CpuRows { int64_t tokens, experts, *first; CpuChoice *choice; } CpuRows; // first: (tokens + 1)
size_t cpu_rows_bytes(const Operand *mask);
CpuRows cpu_rows(const Operand *mask, void *workspace); // in cpu_rows_bytes of it
void cpu_rows_of_experts(const Operand *mask, int64_t *rows); // how many each has: (experts)
void cpu_clear_rows(const Operand *x, int64_t from); // an operand may have more rows than its mask lets through

// Whether all floating-point operands but scalars have this dtype (a cast's output may have any).
int cpu_one_dtype(const KernelCall *call, Op op, Dtype dtype);
// Whether operands have the dtypes of the texts: 'h' bf16, 'f' fp32, '*' any. Absent ones and those past the text fit.
int cpu_dtypes_fit(const KernelCall *call, const char *inputs, const char *outputs);
int operand_is_whole(const Operand *x);           // no padding
int64_t operand_valid_prefix(
    const Operand *x); // elements before the padding; -1 when padding lies between valid elements
int64_t dropout_first_feature(
    const Operand *x); // global feature of a position's first element; -1 when they do not follow each other
