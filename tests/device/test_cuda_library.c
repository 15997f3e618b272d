// tier 1; rooms device
// An installed cuBLASLt without a device: it is found, has every entry, and takes what plait describes to
// it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cuda/library.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SKIPPED = 77 };

// AddressSanitizer asks it: without a device cublasLtCreate forgets some bytes of its own.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libcublasLt"; }

static CudaDriver driver = {.path = "a driver", .version = 13000};
static const CudaBlas *blas;

static void has_a_version(void **state) {
  assert_true(blas->version / 10000 >= 12 && blas->version / 10000 <= 13); // 130100 is 13.1.0
  assert_string_equal(blas->cublasLtGetStatusName(BLAS_UNSUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  assert_string_equal(blas->cublasLtGetStatusName(BLAS_BAD_VALUE), "CUBLAS_STATUS_INVALID_VALUE");
}

// Without a device it returns a status, which plait turns into a sentence.
static void needs_a_device(void **state) {
  BlasHandle handle;
  if (!access("/dev/nvidia0", F_OK)) return;
  BlasStatus status = blas->cublasLtCreate(&handle);
  assert_int_not_equal(status, BLAS_OK);
  assert_string_equal(blas->cublasLtGetStatusName(status), "CUBLAS_STATUS_NOT_INITIALIZED");
}

// Values of another size than the library's own are refused, so this compares sizes too.
static void takes_descriptions(void **state) {
  const int32_t transposed = BLAS_TRANSPOSED;
  const uint32_t epilogue = BLAS_ADDS_BIAS, reduction = BLAS_REDUCES_SUMS, aligned = 64;
  const uint32_t functions[] = {BLAS_GELU, BLAS_GELU | BLAS_ADDS_BIAS, BLAS_GELU_KEEPS,
                                BLAS_GELU_KEEPS | BLAS_ADDS_BIAS, BLAS_GELU_SLOPE};
  const int64_t step = 64;
  const uint64_t workspace = 63 << 20;
  const void *bias = (void *)(uintptr_t)256;
  BlasProduct product;
  BlasLayout layout;
  BlasWish wish;
  for (int wide = 0; wide < 2; wide++) {
    assert_int_equal(
        blas->cublasLtMatmulDescCreate(&product, wide ? BLAS_SUMS_F64 : BLAS_SUMS_F32, wide ? BLAS_F64 : BLAS_F32),
        BLAS_OK);
    assert_int_equal(
        blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_A_TRANSPOSED, &transposed, sizeof transposed), BLAS_OK);
    assert_int_equal(
        blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_B_TRANSPOSED, &transposed, sizeof transposed), BLAS_OK);
    assert_int_equal(blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_EPILOGUE, &epilogue, sizeof epilogue),
                     BLAS_OK);
    assert_int_equal(blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_BIAS, &bias, sizeof bias), BLAS_OK);
    assert_int_equal(blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_BEFORE, &bias, sizeof bias), BLAS_OK);
    assert_int_equal(blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_BEFORE_STEP, &step, sizeof step), BLAS_OK);
    for (int k = 0; k < 5; k++)
      assert_int_equal(
          blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_EPILOGUE, &functions[k], sizeof functions[k]), BLAS_OK);
    assert_int_not_equal(blas->cublasLtMatmulDescSetAttribute(product, BLAS_IS_EPILOGUE, &epilogue, 1), BLAS_OK);
    assert_int_equal(blas->cublasLtMatmulDescDestroy(product), BLAS_OK);
  }
  for (BlasDtype dtype = BLAS_F32; dtype <= BLAS_BF16; dtype++) {
    if (dtype > BLAS_F16 && dtype < BLAS_BF16) continue;
    assert_int_equal(blas->cublasLtMatrixLayoutCreate(&layout, dtype, 30, 50, 32), BLAS_OK);
    assert_int_equal(blas->cublasLtMatrixLayoutDestroy(layout), BLAS_OK);
  }
  assert_int_equal(blas->cublasLtMatmulPreferenceCreate(&wish), BLAS_OK);
  assert_int_equal(blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_WORKSPACE, &workspace, sizeof workspace),
                   BLAS_OK);
  assert_int_equal(blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_REDUCTION, &reduction, sizeof reduction),
                   BLAS_OK);
  for (BlasAttribute a = BLAS_IS_A_ALIGNED; a <= BLAS_IS_D_ALIGNED; a++)
    assert_int_equal(blas->cublasLtMatmulPreferenceSetAttribute(wish, a, &aligned, sizeof aligned), BLAS_OK);
  assert_int_not_equal(blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_WORKSPACE, &workspace, 4), BLAS_OK);
  assert_int_equal(blas->cublasLtMatmulPreferenceDestroy(wish), BLAS_OK);
}

int main(void) {
  Error error = {0};
  setenv("PLAIT_CUDA_LIBRARIES", "/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/local/cuda-13.0/lib", 0);
  blas = cuda_blas(&driver, &error);
  if (!blas) {
    printf("skipped: %s\n", error.message);
    return SKIPPED;
  }
  printf("%s, version %zu\n", blas->path, blas->version);
  const struct CMUnitTest tests[] = {cmocka_unit_test(has_a_version), cmocka_unit_test(needs_a_device),
                                     cmocka_unit_test(takes_descriptions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
