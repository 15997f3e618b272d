// tier 1; rooms device
// The emulator's double of cuBLASLt refuses what the real one would read or write in the wrong place: each wrong call
// ends the program with a sentence that names it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cuda/library.h"
#include "tier.h"
#include "wrong_calls.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Each case begins with these, in a child: D (6 × 5 by columns) = Aᵀ B, A (4 × 6), B (4 × 5), fp32.
enum {
  M = 6,
  N = 5,
  K = 4,
  A_AT = 0,
  B_AT = 1024,
  D_AT = 2048,
  BIAS_AT = 3072,
  WORKSPACE_AT = 4096,
  BYTES = (1 << 17) + 64
};
static const CudaDriver *d;
static const CudaBlas *blas;
static CudaStream stream;
static CudaPointer memory;
static BlasHandle handle;
static BlasProduct product;
static BlasLayout a, b, out;
static BlasWish wish;
static BlasProposal proposal;
static size_t workspace;
static const float one = 1, zero = 0;

static void *at(int64_t offset) { return (void *)(uintptr_t)(memory + (uint64_t)offset); }

static BlasStatus propose(void) {
  int count;
  BlasStatus status = blas->cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, out, out, wish, 1, &proposal, &count);
  workspace = proposal.workspace;
  return status;
}

static BlasStatus multiply_at(int64_t a_at, int64_t b_at, int64_t d_at) {
  return blas->cublasLtMatmul(handle, product, &one, at(a_at), a, at(b_at), b, &zero, at(d_at), out, at(d_at), out,
                              &proposal.algorithm, at(WORKSPACE_AT), workspace, stream);
}

static void set_int(BlasAttribute attribute, int32_t value) {
  blas->cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value);
}

static void begin(void) {
  Error error = {0};
  CudaContext context;
  const uint64_t most = 1 << 16;
  const uint32_t reduction = BLAS_REDUCES_SUMS;
  int bad = cuda_driver(&d, &error) || d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context) ||
            d->cuStreamCreate(&stream, CUDA_STREAM_OF_ITS_OWN) || d->cuMemAlloc_v2(&memory, BYTES);
  blas = bad ? NULL : cuda_blas(d, &error);
  bad = !blas || blas->cublasLtCreate(&handle) || blas->cublasLtMatmulDescCreate(&product, BLAS_SUMS_F32, BLAS_F32) ||
        blas->cublasLtMatrixLayoutCreate(&a, BLAS_F32, K, M, K) ||
        blas->cublasLtMatrixLayoutCreate(&b, BLAS_F32, K, N, K) ||
        blas->cublasLtMatrixLayoutCreate(&out, BLAS_F32, M, N, M) || blas->cublasLtMatmulPreferenceCreate(&wish) ||
        blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_WORKSPACE, &most, sizeof most) ||
        blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_REDUCTION, &reduction, sizeof reduction);
  if (bad) fprintf(stderr, "cannot begin: %s\n", error.message), _exit(3);
  set_int(BLAS_IS_A_TRANSPOSED, BLAS_TRANSPOSED);
  if (propose()) _exit(4);
}

static void end(void) {
  d->cuMemFree_v2(memory);
  d->cuStreamDestroy_v2(stream);
}

static void all_well(void) {
  float x[K * M], y[K * N], z[M * N];
  for (int i = 0; i < K * M; i++) x[i] = (float)(i % 5);
  for (int i = 0; i < K * N; i++) y[i] = (float)(i % 7);
  d->cuMemcpyHtoDAsync_v2(memory + A_AT, x, sizeof x, stream);
  d->cuMemcpyHtoDAsync_v2(memory + B_AT, y, sizeof y, stream);
  if (multiply_at(A_AT, B_AT, D_AT)) _exit(5);
  d->cuMemcpyDtoHAsync_v2(z, memory + D_AT, sizeof z, stream);
  if (d->cuStreamSynchronize(stream)) _exit(6);
  for (int column = 0; column < N; column++)
    for (int row = 0; row < M; row++) {
      float sum = 0;
      for (int k = 0; k < K; k++) sum += x[row * K + k] * y[column * K + k];
      if (z[column * M + row] != sum) _exit(7);
    }
  end();
}

static void short_step(void) { blas->cublasLtMatrixLayoutCreate(&a, BLAS_F32, K, M, K - 1); }
static void no_transposition(void) { set_int(BLAS_IS_A_TRANSPOSED, BLAS_AS_IT_IS), propose(); }
static void other_transposition(void) { set_int(BLAS_IS_A_TRANSPOSED, 7); }
static void another_product(void) {
  blas->cublasLtMatrixLayoutCreate(&a, BLAS_F32, K, M, K + 1);
  multiply_at(A_AT, B_AT, D_AT);
}
static void unaligned(void) { multiply_at(A_AT + 16, B_AT, D_AT); }
static void past_the_end(void) { multiply_at(A_AT, B_AT, 1 << 17); }
static void onto_an_operand(void) { multiply_at(A_AT, B_AT, B_AT); }
static void onto_the_workspace(void) { multiply_at(A_AT, B_AT, WORKSPACE_AT + 256); }
static void small_workspace(void) { workspace--, multiply_at(A_AT, B_AT, D_AT); }
static void of_the_host(void) {
  static float host[64] __attribute__((aligned(256)));
  blas->cublasLtMatmul(handle, product, &one, host, a, at(B_AT), b, &zero, at(D_AT), out, at(D_AT), out,
                       &proposal.algorithm, at(WORKSPACE_AT), workspace, stream);
}
static void no_algorithm(void) {
  blas->cublasLtMatmul(handle, product, &one, at(A_AT), a, at(B_AT), b, &zero, at(D_AT), out, at(D_AT), out, NULL,
                       at(WORKSPACE_AT), workspace, stream);
}
static void no_bias(void) { set_int(BLAS_IS_EPILOGUE, BLAS_ADDS_BIAS), propose(), multiply_at(A_AT, B_AT, D_AT); }
static void other_epilogue(void) { set_int(BLAS_IS_EPILOGUE, 1024); }
static void other_attribute(void) { set_int((BlasAttribute)99, 1); }
static void other_size(void) { blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_EPILOGUE, &one, 1); }
static void other_dtype(void) { blas->cublasLtMatrixLayoutCreate(&a, 3, K, M, K); }
static void tf32(void) { blas->cublasLtMatmulDescCreate(&product, 77, BLAS_F32); }
static void any_reduction(void) {
  const uint32_t all = 7;
  blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_REDUCTION, &all, sizeof all);
  propose();
}
static void default_stream(void) { stream = NULL, multiply_at(A_AT, B_AT, D_AT); }
static void freed_early(void) { multiply_at(A_AT, B_AT, D_AT), d->cuMemFree_v2(memory); }
static void bias_in_fp64(void) { // which it lacks, as the real one does
  blas->cublasLtMatmulDescDestroy(product);
  blas->cublasLtMatrixLayoutDestroy(a), blas->cublasLtMatrixLayoutDestroy(b), blas->cublasLtMatrixLayoutDestroy(out);
  blas->cublasLtMatmulDescCreate(&product, BLAS_SUMS_F64, BLAS_F64);
  set_int(BLAS_IS_A_TRANSPOSED, BLAS_TRANSPOSED), set_int(BLAS_IS_EPILOGUE, BLAS_ADDS_BIAS);
  blas->cublasLtMatrixLayoutCreate(&a, BLAS_F64, K, M, K), blas->cublasLtMatrixLayoutCreate(&b, BLAS_F64, K, N, K);
  blas->cublasLtMatrixLayoutCreate(&out, BLAS_F64, M, N, M);
  if (propose() != BLAS_UNSUPPORTED) _exit(8);
  end();
}


// Columns of D's six rows, with what is written between them left alone.
enum { BEFORE_AT = 3072, BEFORE_STEP = 8 };
static void set_before(int64_t offset, int64_t step) {
  void *before = at(offset);
  blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_BEFORE, &before, sizeof before);
  blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_BEFORE_STEP, &step, sizeof step);
}
static const float slope_at_a_half = 0.8673699f; // tanh-gelu's

static void keeps_the_value_before(void) {
  float x[K * M], y[K * N], z[M * N], before[BEFORE_STEP * N];
  for (int i = 0; i < K * M; i++) x[i] = (float)(i % 5 - 2) / 4;
  for (int i = 0; i < K * N; i++) y[i] = (float)(i % 7 - 3) / 2;
  d->cuMemcpyHtoDAsync_v2(memory + A_AT, x, sizeof x, stream);
  d->cuMemcpyHtoDAsync_v2(memory + B_AT, y, sizeof y, stream);
  set_int(BLAS_IS_EPILOGUE, BLAS_GELU_KEEPS), set_before(BEFORE_AT, BEFORE_STEP);
  if (propose() || multiply_at(A_AT, B_AT, D_AT)) _exit(5);
  d->cuMemcpyDtoHAsync_v2(z, memory + D_AT, sizeof z, stream);
  d->cuMemcpyDtoHAsync_v2(before, memory + BEFORE_AT, sizeof before - 2 * sizeof(float), stream);
  if (d->cuStreamSynchronize(stream)) _exit(6);
  for (int column = 0; column < N; column++)
    for (int row = 0; row < M; row++) {
      float sum = 0;
      for (int k = 0; k < K; k++) sum += x[row * K + k] * y[column * K + k];
      const float gelu = 0.5f * sum * (1 + tanhf(0.79788456f * (sum + 0.044715f * sum * sum * sum)));
      if (before[column * BEFORE_STEP + row] != sum) _exit(7);
      if (fabsf(z[column * M + row] - gelu) > 1e-6f) _exit(9);
    }
  end();
}

static void multiplies_by_the_slope(void) {
  float x[K * M], y[K * N], z[M * N], before[BEFORE_STEP * N];
  for (int i = 0; i < K * M; i++) x[i] = 1;
  for (int i = 0; i < K * N; i++) y[i] = 2;
  for (int i = 0; i < BEFORE_STEP * N; i++) before[i] = i % 2 ? 0.5f : 0;
  d->cuMemcpyHtoDAsync_v2(memory + A_AT, x, sizeof x, stream);
  d->cuMemcpyHtoDAsync_v2(memory + B_AT, y, sizeof y, stream);
  d->cuMemcpyHtoDAsync_v2(memory + BEFORE_AT, before, sizeof before, stream);
  set_int(BLAS_IS_EPILOGUE, BLAS_GELU_SLOPE), set_before(BEFORE_AT, BEFORE_STEP);
  if (propose() || multiply_at(A_AT, B_AT, D_AT)) _exit(5);
  d->cuMemcpyDtoHAsync_v2(z, memory + D_AT, sizeof z, stream);
  if (d->cuStreamSynchronize(stream)) _exit(6);
  for (int i = 0; i < M * N; i++)
    if (fabsf(z[i] - 8 * (i % M % 2 ? slope_at_a_half : 0.5f)) > 1e-5f) _exit(7);
  end();
}

static void no_matrix_of_the_epilogue(void) { set_int(BLAS_IS_EPILOGUE, BLAS_GELU_KEEPS), propose(); }
static void unaligned_before(void) { set_before(BEFORE_AT + 8, BEFORE_STEP); }
static void odd_rows_before(void) { set_before(BEFORE_AT, M); }
static void before_onto_d(void) {
  set_int(BLAS_IS_EPILOGUE, BLAS_GELU_KEEPS), set_before(D_AT, BEFORE_STEP), propose(), multiply_at(A_AT, B_AT, D_AT);
}
static void another_function(void) {
  set_int(BLAS_IS_EPILOGUE, BLAS_GELU), propose(), set_int(BLAS_IS_EPILOGUE, BLAS_ADDS_NOTHING);
  multiply_at(A_AT, B_AT, D_AT);
}

static const struct { void (*body)(void); const char *sentence; } cases[] = { // "": all is well
    {all_well, ""},
    {short_step, "cublasLtMatrixLayoutCreate: the leading dimension 3 is less than the 4 rows of a column"},
    {no_transposition, "cublasLtMatmulAlgoGetHeuristic: 4 × 6 times 4 × 5 is not 6 × 5"},
    {other_transposition, "cublasLtMatmulDescSetAttribute: 7 is not a transposition"},
    {another_product, "cublasLtMatmul: the algorithm was proposed for another product"},
    {unaligned, "cublasLtMatmul: A lies at"},
    {past_the_end, "cublasLtMatmul: 120 bytes from byte 131072 on reach beyond an allocation of 131136 bytes"},
    {onto_an_operand, "cublasLtMatmul: B lies in the memory of D"},
    {onto_the_workspace, "cublasLtMatmul: the workspace lies in the memory of D"},
    {small_workspace, "cublasLtMatmul: the algorithm needs a workspace of 65536 bytes, not 65535"},
    {of_the_host, "is not an address in a device's memory"},
    {no_algorithm, "cublasLtMatmul: no algorithm is given"},
    {no_bias, "cublasLtMatmul: the epilogue adds a bias, and there is none"},
    {other_epilogue, "cublasLtMatmulDescSetAttribute: the epilogue 1024 is not emulated"},
    {other_attribute, "cublasLtMatmulDescSetAttribute: the attribute 99 is not emulated"},
    {other_size, "cublasLtMatmulDescSetAttribute: a value of 1 bytes stands for one of 4"},
    {other_dtype, "cublasLtMatrixLayoutCreate: 3 is a dtype that is not emulated"},
    {tf32, "cublasLtMatmulDescCreate: sums 77 with factors 0 are not emulated"},
    {any_reduction, "cublasLtMatmulAlgoGetHeuristic: reductions in the output may be proposed"},
    {default_stream, "cublasLtMatmul: the stream is NULL"},
    {freed_early, "cuMemFree_v2: 131136 bytes are freed while a stream has not done what it does there"},
    {bias_in_fp64, ""},
    {keeps_the_value_before, ""},
    {multiplies_by_the_slope, ""},
    {no_matrix_of_the_epilogue, "cublasLtMatmulAlgoGetHeuristic: the epilogue has a further matrix, and there is none"},
    {unaligned_before, "cublasLtMatmulDescSetAttribute: the epilogue's matrix lies at"},
    {odd_rows_before, "the leading dimension 6 of the epilogue's matrix is not a multiple of 8"},
    {before_onto_d, "cublasLtMatmul: the epilogue's matrix lies in the memory of D"},
    {another_function, "cublasLtMatmul: the algorithm was proposed for another product"},
};

static void each_mistake(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_sentence(i, begin, cases[i].body, cases[i].sentence);
}

int main(void) {
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".";
  char *driver = xformat("%s/libemulated_cuda.so", folder), *libraries = xformat("%s/emulated", folder);
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  setenv("PLAIT_CUDA_LIBRARIES", libraries, 1);
  setenv("PLAIT_EMULATED_SEED", "3", 1);
  free(driver);
  free(libraries);
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_mistake)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
