// tier 1 2 3; rooms device; numbers
// Products by a library, the emulator's double of cuBLASLt, against the reference kernels; and plait's own in its place
// where it is wrong, refuses, or is not there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "library_case.h"

// Products that the library has not: of nothing, of mixed dtypes, and with a bias in fp64. The head's are several.
static int makes(const OpCase *c) {
  const Operand *x = c->input;
  if (c->op != OP_MATMUL) return -1;
  const MatmulAttr *attr = op_case_call(c).attr;
  int lacks = x[0].dtype != x[1].dtype || (attr->bias && x[0].dtype == DTYPE_F64);
  for (int k = 0; k < 2; k++) lacks |= !operand_elements(&x[k]);
  if (call_adds(&(KernelCall){.input = c->input, .ninput = c->ninput}, attr->accumulate))
    lacks |= x[2].dtype != c->output[0].dtype;
  return !lacks;
}

// Of a product with an activation: both, which the library has not in fp64, of rows of an odd length beside a further
// matrix, and but for one function.
static int lacks_both(const OpCase *c) {
  const MatmulActivationAttr *attr = op_case_call(c).attr;
  const Operand *out = &c->output[0];
  int has_before = attr->keeps || c->op == OP_MATMUL_ACTIVATION_GRAD;
  return out->dtype == DTYPE_F64 || attr->kind != ACTIVATION_GELU_TANH ||
         (has_before && out->size[out->rank - 1] % 8);
}

static int has_function(Op op) { return op == OP_MATMUL_ACTIVATION || op == OP_MATMUL_ACTIVATION_GRAD; }

// Whether the last case was made by one call, of a product with its activation.
static void check_function(const OpCase *c, const char *where) {
  const int both = library_others > 0;
  if (has_function(c->op) && both == lacks_both(c))
    fail_msg("%s: the library %s the activation", where, both ? "makes" : "does not make");
}

static int multiplies(Op op) {
  return has_function(op) || op == OP_MATMUL || op == OP_EINSUM || op == OP_LOGITS || op == OP_LINEAR_CROSS_ENTROPY ||
         op == OP_CROSS_ENTROPY_STATISTICS || op == OP_CROSS_ENTROPY_APPLY || op == OP_CROSS_ENTROPY_WEIGHT;
}

// Larger rows: none in tier 1, in tier 2 in two dtypes in turn.
static int is_chosen(int row, int dtype, const OpCase *c) {
  const char *only = getenv("CASE"); // for debugging
  return multiplies(c->op) && (!only || strstr(c->name, only)) &&
         (row < op_cases_count() || test_tier() > 2 || (test_tier() == 2 && (row + dtype) % 2));
}

static int row_may_multiply(int row) { // asked before its operands are filled, which takes as long as their products
  for (int op = 0; op < OP_COUNT; op++)
    if (multiplies((Op)op) && op_case_may_be(row, (Op)op)) return 1;
  return 0;
}

static void run_all(void *with) {
  KernelBench b = {0};
  int *used = with;
  library_bench(&b);
  for (int i = 0; i < op_cases_with_large(); i++)
    for (int dtype = DTYPE_F64; dtype <= DTYPE_F16 && row_may_multiply(i); dtype++) {
      OpCase whole;
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; is_chosen(i, dtype, &whole) && variant < VARIANTS; variant++)
        library_check(&b, &whole, (Dtype)dtype, (Variant)variant, makes, check_function,
                      used);
      op_case_free(&whole);
    }
  kernel_bench_close(&b);
}

static void all_products(void **state) {
  int used[OP_COUNT] = {0};
  library_says_nothing(run_all, used);
  for (int op = 0; op < OP_COUNT && !on_card && !getenv("CASE"); op++)
    if (multiplies((Op)op)) assert_true(used[op] >= 4);
}

// A row of cases in fp32, "matmul nt" unless ROW names another.
static void one(void **state) {
  const long long calls = library_run_one(getenv("ROW") ? getenv("ROW") : "matmul nt", DTYPE_F32);
  printf("its calls: %lld\n", 10 * library_others + calls); // 11: one, with an activation
}

static void prints(const char *variables, const char *expected, long long count) {
  library_prints(variables, expected, *expected != 0, count);
}

// Its own kernel computes what the library gets wrong, refuses, or cannot make, and one note says so.
static void own_kernel_in_its_place(void **state) {
  prints("", "", 1);
  prints(
      "PLAIT_EMULATED_BLAS_SPOILS='10 9 7'",
      "note: CUDA device 0: plait's own kernel makes products of 10 × 9 of depth 7 in fp32: cuBLASLt's differ from it",
      0);
  prints("PLAIT_EMULATED_BLAS_REFUSES='10 9 7'", "in fp32: cuBLASLt refuses them (CUBLAS_STATUS_NOT_SUPPORTED)",
         0);
  prints("WITHOUT_ROOM=1", "", 1); // the device has memory left
  prints("WITHOUT_ROOM=1 PLAIT_EMULATED_FAILS='alloc 2'", "in fp32: 1000 bytes are too little memory to compare",
         0);
  prints("PLAIT_CUDA_LIBRARIES=/nowhere",
         "note: products use plait's own kernels, which are slow: there is no libcublasLt.so.12 of the emulator's here",
         0);
  prints("PLAIT_CUDA_LIBRARIES=", "", 0);
  prints("PLAIT_CUDA_OWN=matmul", "", 0);
  if (test_tier() == 1) return;
  prints("PLAIT_EMULATED_BLAS_SPOILS='10 9 8'", "", 1);
  prints("PLAIT_CUDA_OWN=all", "", 0);
  prints("PLAIT_CUDA_OWN=add", "", 1);
}

// 37 words have 64 columns in logits and in their gradients; dw has rows for 37, and products make 64 of 71 words
// first. Where the vocabulary is a multiple of 64 there is one product for all.
static void columns_of_logits(void **state) {
  prints("ROW=linear_cross_entropy", "", 3);
  prints("ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='10 64 6'", "products of 10 × 64 of depth 6", 2);
  prints("ROW='linear_cross_entropy many rows'", "", 4);
  if (test_tier() == 1) return;
  prints("ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='10 6 64'", "products of 10 × 6 of depth 64", 2);
  prints("ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='37 6 10'", "products of 37 × 6 of depth 10", 2);
  prints("ROW='linear_cross_entropy whole tiles'", "", 3);
  prints("ROW='linear_cross_entropy many rows' PLAIT_EMULATED_BLAS_REFUSES='64 19 135'",
         "products of 64 × 19 of depth 135", 3);
}

// A product with its activation is one call. Where the library gets that wrong or refuses it, it makes the product, and
// a kernel follows.
static void activations(void **state) {
  prints("ROW='matmul_activation bias keeps'", "", 11);
  prints("ROW='matmul_activation_grad'", "", 11);
  prints("ROW='matmul_activation bias keeps' PLAIT_EMULATED_BLAS_GELU=after",
         "note: CUDA device 0: plait's own kernel follows products of 134 × 136 of depth 70 in fp32 with a bias, with "
         "tanh-gelu: cuBLASLt's differ from it by",
         1);
  prints("ROW='matmul_activation_grad' PLAIT_EMULATED_BLAS_GELU=refused",
         "plait's own kernel follows products of 10 × 16 of depth 9 in fp32, with the slope of tanh-gelu: cuBLASLt "
         "refuses them (CUBLAS_STATUS_NOT_SUPPORTED)",
         1);
  if (test_tier() == 1) return;
  prints("ROW='matmul_activation bias'", "", 11);
  prints("ROW='matmul_activation bias keeps odd columns'", "", 1);
  prints("ROW='matmul_activation silu'", "", 1);
  prints("ROW='matmul_activation_grad' PLAIT_CUDA_OWN=matmul_activation_grad", "", 0);
}

int main(int count, char **words) {
  const struct CMUnitTest alone[] = {cmocka_unit_test(one)}, card[] = {cmocka_unit_test(all_products)};
  const struct CMUnitTest all[] = {cmocka_unit_test(all_products), cmocka_unit_test(own_kernel_in_its_place),
                                   cmocka_unit_test(columns_of_logits), cmocka_unit_test(activations)};
  library_open(words, "libcublasLt.so.12", "emulated_cublaslt");
  library_other = "emulated_cublaslt_functions"; // with an activation
  if (on_card) return cmocka_run_group_tests(card, NULL, NULL);
  return library_test_is_one() ? cmocka_run_group_tests(alone, NULL, NULL) : cmocka_run_group_tests(all, NULL, NULL);
}
