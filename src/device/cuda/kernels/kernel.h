// All that differs between the two compilers of kernels: nvcc for cards, gcc for the emulated driver, under which each
// thread is a fiber of the host's. Sources are in the common part of C11 and C++17.
//
// A kernel is KERNEL(name, Arguments) { … a.n … }. Grids and blocks have one dim. Every thread of a block comes to each
// BARRIER, and all lanes of a warp to each shuffle.
#pragma once
#include "device/cuda/kernels/arguments.h"
#include <math.h>
#include <stdint.h>

#define JOINED_(a, b) a##_##b
#define JOINED(a, b) JOINED_(a, b)

#ifdef __CUDACC__
#include <cuda_fp16.h>
// Four blocks a multiprocessor leave a thread 64 registers: unasked, ptxas spills some for the sake of more blocks.
#define KERNEL_(name, Arguments) extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 4) name(const Arguments a)
// Three blocks leave it 80, for sums or for arguments that a number chooses.
#define KERNEL_LARGE(name, Arguments)                                                                                  \
  extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 3) name(const Arguments a)
// Tiles of products by tensor cores have few threads, of which each has many sums.
#define KERNEL_TILES_(name, Arguments)                                                                                 \
  extern "C" __global__ void __launch_bounds__(MMA_THREADS, 2) name(const Arguments a)
#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define THREAD ((int)threadIdx.x)
#define THREADS ((int)blockDim.x)
#define BLOCK ((int64_t)blockIdx.x)
#define BLOCKS ((int64_t)gridDim.x)
#define BARRIER() __syncthreads()
#define BARRIER_OR(flag) __syncthreads_or(flag)
#define SHUFFLE_FLOAT(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define SHUFFLE_DOUBLE(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define SHARED(type, name, count) __shared__ type name[count]
#define ALIGNED16 alignas(16)
#define ALIGNED8 alignas(8)
#define PRAGMA_(text) _Pragma(#text)
#define UNROLL_BY(n) PRAGMA_(unroll n)
INLINE uint32_t bits_of(float x) { return __float_as_uint(x); }
INLINE float float_of(uint32_t bits) { return __uint_as_float(bits); }
INLINE float widen_f16(uint16_t h) { return __half2float(__ushort_as_half(h)); }
INLINE uint16_t narrow_f16(float x) { return __half_as_ushort(__float2half_rn(x)); }
#define WARP_MMA_(c, a, b, dtypes)                                                                                     \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." dtypes ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "   \
               "{%0, %1, %2, %3};"                                                                                     \
               : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                                \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#define WARP_MMA_BF16(c, a, b) WARP_MMA_(c, a, b, "bf16.bf16")
#define WARP_MMA_F16(c, a, b) WARP_MMA_(c, a, b, "f16.f16")
#define WARP_LOAD_(x, row, how)                                                                                        \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                               \
               : "=r"((x)[0]), "=r"((x)[1]), "=r"((x)[2]), "=r"((x)[3])                                                \
               : "r"((uint32_t)__cvta_generic_to_shared(row))                                                          \
               : "memory")
#define WARP_LOAD(x, row) WARP_LOAD_(x, row, "")
#define WARP_LOAD_TURNED(x, row) WARP_LOAD_(x, row, ".trans")
INLINE void copy_later(uint16_t *to, const uint16_t *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
#define COPY_LATER(to, from, bytes) copy_later(to, from, bytes)
#define COPIES_END() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT(newest) asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory")
#else
#include "base/half.h"
#define KERNEL_(name, Arguments)                                                                                       \
  void name(const void *arguments);                                                                                    \
  static void name##_thread(const Arguments a);                                                                        \
  void name(const void *arguments) { name##_thread(*(const Arguments *)arguments); }                                   \
  extern const size_t name##_bytes;                                                                                    \
  const size_t name##_bytes = sizeof(Arguments);                                                                       \
  static void name##_thread(const Arguments a)
#define KERNEL_LARGE(name, Arguments) KERNEL_(name, Arguments)
#define KERNEL_TILES_(name, Arguments) KERNEL_(name, Arguments)
#define INLINE static inline __attribute__((unused))
#define UNROLL
typedef struct EmulatedHere { int thread, threads; int64_t block, blocks; } EmulatedHere;
extern EmulatedHere emulated_here; // who runs
void emulated_barrier(int place);
int emulated_barrier_or(int flag, int place);
double emulated_shuffle(double value, int mask, int place);
void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], float (*widen)(uint16_t), int line);
void emulated_load(uint32_t x[4], const uint16_t *row, int turned, int line);
void emulated_copy(uint16_t *to, const uint16_t *from, int bytes, int line);
void emulated_copies_end(void);
void emulated_copies_wait(int newest);
void *emulated_shared(const void *site, size_t bytes); // this block's, full of NaN at first
#define THREAD emulated_here.thread
#define THREADS emulated_here.threads
#define BLOCK emulated_here.block
#define BLOCKS emulated_here.blocks
// Where a thread waits: its line, and a number, for all of a macro that makes a function has one line.
#define PLACE (__COUNTER__ << 16 | __LINE__)
#define BARRIER() emulated_barrier(PLACE)
#define BARRIER_OR(flag) emulated_barrier_or(flag, PLACE)
#define SHUFFLE_FLOAT(value, mask) (float)emulated_shuffle(value, mask, PLACE)
#define SHUFFLE_DOUBLE(value, mask) emulated_shuffle(value, mask, PLACE)
#define WARP_MMA_BF16(c, a, b) emulated_mma(c, a, b, widen_bf16, __LINE__)
#define WARP_MMA_F16(c, a, b) emulated_mma(c, a, b, widen_f16, __LINE__)
#define WARP_LOAD(x, row) emulated_load(x, row, 0, __LINE__)
#define WARP_LOAD_TURNED(x, row) emulated_load(x, row, 1, __LINE__)
#define COPY_LATER(to, from, bytes) emulated_copy(to, from, bytes, __LINE__)
#define COPIES_END() emulated_copies_end()
#define COPIES_WAIT(newest) emulated_copies_wait(newest)
#define SHARED(type, name, count)                                                                                      \
  static const char name##_site = 0;                                                                                   \
  type *const name = (type *)emulated_shared(&name##_site, sizeof(type) * (count))
#define ALIGNED16 _Alignas(16)
#define ALIGNED8 _Alignas(8)
#define UNROLL_BY(n)
INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
INLINE float widen_f16(uint16_t h) { return half_to_float(h); }
INLINE uint16_t narrow_f16(float x) { return half_from_float(x); }
#endif

#define KERNEL(name, Arguments) KERNEL_(name, Arguments)
#define KERNEL_TILES(name, Arguments) KERNEL_TILES_(name, Arguments)

// Tensor cores, by a whole warp as for a shuffle. Elements are 16 bits wide, two neighbours of the depth in a word, the
// first in its low half.
// WARP_MMA_BF16(c, a, b), WARP_MMA_F16: c += a b, of 16 x 16 by 16 x 8 with sums in fp32 (mma.m16n8k16 of the PTX ISA).
// With g = lane / 4 and t = lane % 4 a lane has, of a: rows g, g + 8, g, g + 8 at depth 2 t, 2 t, 2 t + 8, 2 t + 8; of
// b: column g at depth 2 t and 2 t + 8; of c: columns 2 t and 2 t + 1 of row g, and of row g + 8.
// WARP_LOAD(x, row): word i is of the i-th of four matrices of 8 x 8 in shared memory, row g, columns 2 t and 2 t + 1.
// Lane l says where row l % 8 of matrix l / 8 lies, in 16 bytes that are aligned so. _TURNED: rows and columns of each
// matrix change places.
// COPY_LATER(to, from, bytes): 16 bytes to shared memory, of which those after the first `bytes` become 0; they are
//   there when this thread has come to COPIES_WAIT. COPIES_END makes a group of those since the last one, and
//   COPIES_WAIT(n) waits for all groups but the newest n.

// One kernel that does a piece of work, and one that does many (MANY_OF in arguments.h): each has as many blocks as by
// itself. The body, which follows, has `block` and `blocks` in the place of BLOCK and BLOCKS.
#define KERNEL_OF_MANY(one, many, piece, Arguments)                                                                    \
  INLINE void piece(const Arguments a, int64_t block, int64_t blocks);                                                 \
  KERNEL(one, Arguments) { piece(a, BLOCK, BLOCKS); }                                                                  \
  KERNEL_LARGE(many, Many##Arguments) {                                                                                \
    int k = 0;                                                                                                         \
    while (a.first[k + 1] <= BLOCK) k++;                                                                               \
    piece(a.each[k], BLOCK - a.first[FAULT(kernel_pieces_begin_together, k, 0)], a.first[k + 1] - a.first[k]);         \
  }                                                                                                                    \
  INLINE void piece(const Arguments a, int64_t block, int64_t blocks)

// A function that does nothing, by whose name the host sees that a module was made of the sources that it knows.
#define KERNEL_MARK(file) KERNEL(JOINED(JOINED(kernels, file), KERNELS_HASH), ScalarArguments) {}

typedef struct Four16 { ALIGNED8 uint16_t e[4]; } Four16;

#define MINUS_INFINITY (-(float)INFINITY)

INLINE float widen_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }
// To nearest even; a NaN stays one.
INLINE uint16_t narrow_bf16(float x) {
  uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

INLINE double array_double(Array x, int64_t i) {
  switch (x.dtype) {
  case DTYPE_F64: return ((const double *)x.data)[i];
  case DTYPE_F32: return ((const float *)x.data)[i];
  case DTYPE_BF16: return widen_bf16(((const uint16_t *)x.data)[i]);
  case DTYPE_F16: return widen_f16(((const uint16_t *)x.data)[i]);
  case DTYPE_I64: return (double)((const int64_t *)x.data)[i];
  case DTYPE_I32: return ((const int32_t *)x.data)[i];
  case DTYPE_U16: return ((const uint16_t *)x.data)[i];
  default: return ((const uint8_t *)x.data)[i];
  }
}
INLINE float array_float(Array x, int64_t i) {
  switch (x.dtype) {
  case DTYPE_F32: return ((const float *)x.data)[i];
  case DTYPE_BF16: return widen_bf16(((const uint16_t *)x.data)[i]);
  case DTYPE_F16: return widen_f16(((const uint16_t *)x.data)[i]);
  default: return (float)array_double(x, i);
  }
}
// Floating-point dtypes only.
INLINE void array_put_float(Array x, int64_t i, float value) {
  switch (x.dtype) {
  case DTYPE_F64: ((double *)x.data)[i] = value; return;
  case DTYPE_F32: ((float *)x.data)[i] = value; return;
  case DTYPE_BF16: ((uint16_t *)x.data)[i] = narrow_bf16(value); return;
  default: ((uint16_t *)x.data)[i] = narrow_f16(value); return;
  }
}
INLINE void array_put_double(Array x, int64_t i, double value) {
  if (x.dtype == DTYPE_F64) ((double *)x.data)[i] = value;
  else array_put_float(x, i, (float)value);
}
INLINE int64_t array_integer(Array x, int64_t i) {
  return x.dtype == DTYPE_I32 ? ((const int32_t *)x.data)[i] : (int64_t)array_double(x, i);
}

// As index_map and index_local (op/op.h).
INLINE int64_t map_global(const RowMap *m, int64_t i) {
  int r = m->runs > 1 && i >= m->local[1];
  return m->global[r] + (i - m->local[r]);
}
INLINE int64_t map_local(const RowMap *m, int64_t i) {
  for (int r = 0; r < (int)m->runs; r++) {
    int64_t end = r + 1 < (int)m->runs ? m->local[1] : m->valid, local = m->local[r] + (i - m->global[r]);
    if (i >= m->global[r] && local < end && local < m->valid) return local;
  }
  return -1;
}

// Four random numbers at a counter, as philox4x32 (base/philox.h).
typedef struct Four { uint32_t r[4]; } Four;
INLINE Four philox_at(const uint32_t key[2], uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const Four four = {{c0, c1, c2, c3}};
  return four;
}
INLINE int is_kept(const MaskArguments *m, uint32_t r) { return r * (1 / 4294967296.0) >= m->probability; }
INLINE uint32_t mask_sample(const MaskArguments *m, int64_t b) {
  return (uint32_t)(m->sample_base + map_global(&m->samples, b));
}

// Sums over a block in an order that only its size decides; every thread gets them. scratch: WARP shared elements.
#define BLOCK_REDUCTIONS(REAL_, name, SHUFFLE_)                                                                        \
  INLINE REAL_ block_sum_##name(REAL_ x, REAL_ *scratch) {                                                             \
    for (int mask = WARP / 2; mask; mask /= 2) x += SHUFFLE_(x, mask);                                                 \
    if (THREAD % WARP == 0) scratch[THREAD / WARP] = x;                                                                \
    UNLESS_FAULT(kernel_sum_without_barrier) BARRIER();                                                                \
    REAL_ sum = 0;                                                                                                     \
    for (int w = 0; w < THREADS / WARP; w++) sum += scratch[w];                                                        \
    UNLESS_FAULT(kernel_scratch_is_used_again) BARRIER();                                                              \
    return sum;                                                                                                        \
  }                                                                                                                    \
  INLINE REAL_ block_max_##name(REAL_ x, REAL_ *scratch) {                                                             \
    for (int mask = WARP / 2; mask; mask /= 2) {                                                                       \
      REAL_ other = SHUFFLE_(x, mask);                                                                                 \
      x = other > x ? other : x;                                                                                       \
    }                                                                                                                  \
    if (THREAD % WARP == 0) scratch[THREAD / WARP] = x;                                                                \
    BARRIER();                                                                                                         \
    x = scratch[0];                                                                                                    \
    for (int w = 1; w < THREADS / WARP; w++) x = scratch[w] > x ? scratch[w] : x;                                      \
    BARRIER();                                                                                                         \
    return x;                                                                                                          \
  }
BLOCK_REDUCTIONS(float, f32, SHUFFLE_FLOAT)
BLOCK_REDUCTIONS(double, f64, SHUFFLE_DOUBLE)
