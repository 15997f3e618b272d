// tier 1 2; rooms device; numbers
// Products by a library, the emulator's double of cuBLASLt, against the reference kernels; and plait's own in its place
// where it is wrong, refuses, or is not there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/kernel_bench.h"
#include "same_case.h"
#include "tier.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *library;
static int on_card; // DRIVER_AS_EVER=1: a card's driver and library, which count no calls

// Calls of the library's so far; 0: it is not loaded.
static long long counted(const char *name) {
  void *there = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  const long long *count = there ? dlsym(there, name) : NULL;
  long long n = count ? *count : 0;
  if (there) dlclose(there);
  return n;
}
static long long calls(void) { return counted("emulated_cublaslt"); }
static long long functions(void) { return counted("emulated_cublaslt_functions"); } // of these with an activation

// Products that the library has not: of nothing, of mixed dtypes, and with a bias in fp64.
static int lacks(const OpCase *c) {
  const Operand *x = c->input;
  int is_matmul = c->op == OP_MATMUL, lacks = x[0].dtype != x[1].dtype;
  for (int k = 0; k < 2; k++) lacks |= !operand_elements(&x[k]);
  const MatmulAttr *attr = is_matmul ? op_case_call(c).attr : NULL;
  if (attr && attr->bias) lacks |= x[0].dtype == DTYPE_F64;
  if (attr && call_adds(&(KernelCall){.input = c->input, .ninput = c->ninput}, attr->accumulate))
    lacks |= x[2].dtype != c->output[0].dtype;
  return lacks;
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

static int multiplies(Op op) {
  return has_function(op) || op == OP_MATMUL || op == OP_LOGITS || op == OP_LINEAR_CROSS_ENTROPY ||
         op == OP_CROSS_ENTROPY_STATISTICS || op == OP_CROSS_ENTROPY_APPLY || op == OP_CROSS_ENTROPY_WEIGHT;
}

static void open_bench(KernelBench *b) {
  Error error = {0};
  if (kernel_bench_open(b, device_cuda(), 0, &error)) fail_msg("%s", error.message);
}

static void run_case(KernelBench *b, const DeviceKernel *kernel, OpCase *c, const char *where) {
  Error error = {0};
  if (kernel_bench_run(b, kernel, c, 1, &error)) fail_msg("%s: %s", where, error.message);
}

static void check_case(KernelBench *b, const OpCase *whole, Dtype dtype, Variant variant, int used[OP_COUNT]) {
  OpCase slow, fast;
  DeviceKernel kernel;
  char where[160];
  if (!op_case_variant(whole, variant, &slow)) return;
  snprintf(where, sizeof where, "%s %s%s", slow.name, dtype_name(dtype), op_variant_name[variant]);
  if (kernel_bench_has(b, &slow, &kernel)) {
    op_case_copy(&slow, &fast);
    op_case_run(&slow);
    long long before = calls(), before_functions = functions();
    run_case(b, &kernel, &fast, where);
    op_case_compare(&fast, &slow, where);
    int by_library = calls() > before, both = functions() > before_functions;
    used[slow.op] += by_library;
    if (slow.op == OP_MATMUL && !on_card && by_library == lacks(&slow))
      fail_msg("%s: %s", where, by_library ? "the library makes what it lacks" : "the library does not make it");
    if (has_function(slow.op) && !on_card && both == lacks_both(&slow))
      fail_msg("%s: the library %s the activation", where, both ? "makes" : "does not make");
    op_case_free(&fast);
  }
  op_case_free(&slow);
}

static int is_chosen(int row, const OpCase *c) {
  const char *only = getenv("CASE"); // for debugging
  return multiplies(c->op) && (!only || strstr(c->name, only)) && (row < op_cases_count() || test_tier() > 1);
}

// All that is written to stderr while `run` runs, in a new string.
static char *errors_of(void (*run)(void *), void *with) {
  FILE *kept = tmpfile();
  int before = dup(2);
  assert_non_null(kept);
  fflush(stderr);
  dup2(fileno(kept), 2);
  run(with);
  fflush(stderr);
  dup2(before, 2);
  close(before);
  long n = ftell(kept);
  char *text = xcalloc((size_t)n + 1, 1);
  rewind(kept);
  assert_int_equal(fread(text, 1, (size_t)n, kept), n);
  fclose(kept);
  return text;
}

static void run_all(void *with) {
  KernelBench b = {0};
  int *used = with;
  open_bench(&b);
  for (int i = 0; i < op_cases_with_large(); i++)
    for (int dtype = DTYPE_F64; dtype <= DTYPE_F16; dtype++) {
      OpCase whole;
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; is_chosen(i, &whole) && variant < VARIANTS; variant++)
        check_case(&b, &whole, (Dtype)dtype, (Variant)variant, used);
      op_case_free(&whole);
    }
  kernel_bench_close(&b);
}

// A note would say that a product of the library's was found wrong.
static void all_products(void **state) {
  int used[OP_COUNT] = {0};
  char *errors = errors_of(run_all, used);
  if (on_card) fputs(errors, stdout); // a card's library may refuse some, and numbers are right all the same
  else assert_string_equal(errors, "");
  free(errors);
  for (int op = 0; op < OP_COUNT && !on_card && !getenv("CASE"); op++)
    if (multiplies((Op)op)) assert_true(used[op] >= 4);
}

// A row of cases, "matmul nt" unless ROW names another, in fp32, whose result the test has seen; by_library: calls in
// the call itself and in its trial.
typedef struct One { const char *where; long long calls, functions; } One;
static void run_one(void *with) {
  One *one = with;
  KernelBench b = {0};
  OpCase whole, fast;
  DeviceKernel kernel;
  for (int i = 0; i < op_cases_count(); i++)
    if (!strcmp(op_case_name(i), getenv("ROW") ? getenv("ROW") : "matmul nt")) op_case_get(i, DTYPE_F32, &whole);
  op_case_copy(&whole, &fast);
  op_case_run(&whole);
  open_bench(&b);
  if (getenv("WITHOUT_ROOM")) b.room = 1000;
  assert_true(kernel_bench_has(&b, &fast, &kernel));
  for (int again = 0; again < 2; again++) {
    long long before = calls(), before_functions = functions();
    run_case(&b, &kernel, &fast, one->where);
    one->calls = calls() - before;
    one->functions = functions() - before_functions;
    op_case_compare(&fast, &whole, one->where);
  }
  kernel_bench_close(&b);
  op_case_free(&fast);
  op_case_free(&whole);
}

// In a process of its own, as a library is loaded once: TEST_ONLY=NAME.
static void prints(const char *name, const char *variables, const char *expected, long long count) {
  char *command = xformat("%s TEST_ONLY=%s '%s' 2>&1", variables, name, getenv("SELF")), line[512];
  FILE *output = popen(command, "r");
  int notes = 0, found = !*expected;
  long long called = -1;
  assert_non_null(output);
  while (fgets(line, sizeof line, output)) {
    notes += strstr(line, "note:") != NULL;
    found |= *expected && strstr(line, expected) != NULL;
    const char *number = strstr(line, "its calls: "); // of cmocka's own words before it the end may come later
    if (number) called = atoll(number + strlen("its calls: "));
  }
  if (pclose(output) || !found || notes != (*expected != 0) || called != count)
    fail_msg("%s: %d notes, %lld calls of the library's", variables, notes, called);
  free(command);
}

static void one(void **state) {
  One x = {"alone", 0, 0};
  run_one(&x);
  printf("its calls: %lld\n", 10 * x.functions + x.calls); // 11: one, with an activation
}

// Its own kernel computes what the library gets wrong, refuses, or cannot make, and one note says so.
static void own_kernel_in_its_place(void **state) {
  prints("one", "", "", 1);
  prints(
      "one", "PLAIT_EMULATED_BLAS_SPOILS='10 9 7'",
      "note: CUDA device 0: plait's own kernel makes products of 10 × 9 of depth 7 in fp32: cuBLASLt's differ from it",
      0);
  prints("one", "PLAIT_EMULATED_BLAS_REFUSES='10 9 7'", "in fp32: cuBLASLt refuses them (CUBLAS_STATUS_NOT_SUPPORTED)",
         0);
  prints("one", "WITHOUT_ROOM=1", "", 1); // the device has memory left
  prints("one", "WITHOUT_ROOM=1 PLAIT_EMULATED_FAILS='alloc 2'", "in fp32: 1000 bytes are too little memory to compare",
         0);
  prints("one", "PLAIT_CUDA_LIBRARIES=/nowhere",
         "note: products use plait's own kernels, which are slow: there is no libcublasLt.so.12 of the emulator's here",
         0);
  prints("one", "PLAIT_CUDA_LIBRARIES=", "", 0);
  prints("one", "PLAIT_CUDA_OWN=matmul", "", 0);
  if (test_tier() == 1) return;
  prints("one", "PLAIT_EMULATED_BLAS_SPOILS='10 9 8'", "", 1);
  prints("one", "PLAIT_CUDA_OWN=all", "", 0);
  prints("one", "PLAIT_CUDA_OWN=add", "", 1);
}

// 37 words have 64 columns in logits and in their gradients; dw has rows for 37, and products make 64 of 71 words
// first. Where the vocabulary is a multiple of 64 there is one product for all.
static void columns_of_logits(void **state) {
  prints("one", "ROW=linear_cross_entropy", "", 3);
  prints("one", "ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='10 64 6'", "products of 10 × 64 of depth 6", 2);
  prints("one", "ROW='linear_cross_entropy many rows'", "", 4);
  if (test_tier() == 1) return;
  prints("one", "ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='10 6 64'", "products of 10 × 6 of depth 64", 2);
  prints("one", "ROW=linear_cross_entropy PLAIT_EMULATED_BLAS_REFUSES='37 6 10'", "products of 37 × 6 of depth 10", 2);
  prints("one", "ROW='linear_cross_entropy whole tiles'", "", 3);
  prints("one", "ROW='linear_cross_entropy many rows' PLAIT_EMULATED_BLAS_REFUSES='64 19 135'",
         "products of 64 × 19 of depth 135", 3);
}

// A product with its activation is one call. Where the library gets that wrong or refuses it, it makes the product, and
// a kernel follows.
static void activations(void **state) {
  prints("one", "ROW='matmul_activation bias keeps'", "", 11);
  prints("one", "ROW='matmul_activation_grad'", "", 11);
  prints("one", "ROW='matmul_activation bias keeps' PLAIT_EMULATED_BLAS_GELU=after",
         "note: CUDA device 0: plait's own kernel follows products of 134 × 136 of depth 70 in fp32 with a bias, with "
         "tanh-gelu: cuBLASLt's differ from it by",
         1);
  prints("one", "ROW='matmul_activation_grad' PLAIT_EMULATED_BLAS_GELU=refused",
         "plait's own kernel follows products of 10 × 16 of depth 9 in fp32, with the slope of tanh-gelu: cuBLASLt "
         "refuses them (CUBLAS_STATUS_NOT_SUPPORTED)",
         1);
  if (test_tier() == 1) return;
  prints("one", "ROW='matmul_activation bias'", "", 11);
  prints("one", "ROW='matmul_activation bias keeps odd columns'", "", 1);
  prints("one", "ROW='matmul_activation silu'", "", 1);
  prints("one", "ROW='matmul_activation_grad' PLAIT_CUDA_OWN=matmul_activation_grad", "", 0);
}

int main(int count, char **words) {
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".";
  char *driver = xformat("%s/libemulated_cuda.so", folder), *libraries = xformat("/nowhere::%s/emulated", folder);
  library = xformat("%s/emulated/libcublasLt.so.12", folder);
  on_card = getenv("DRIVER_AS_EVER") != NULL;
  if (!on_card) setenv("PLAIT_CUDA_DRIVER", driver, 1);
  if (!on_card) setenv("PLAIT_CUDA_LIBRARIES", libraries, 0);
  setenv("SELF", words[0], 1);
  free(driver);
  free(libraries);
  const char *only = getenv("TEST_ONLY");
  const struct CMUnitTest alone[] = {cmocka_unit_test(one)},
                          all[] = {cmocka_unit_test(all_products), cmocka_unit_test(own_kernel_in_its_place),
                          cmocka_unit_test(columns_of_logits), cmocka_unit_test(activations)};
  const struct CMUnitTest card[] = {cmocka_unit_test(all_products)};
  if (on_card) return cmocka_run_group_tests(card, NULL, NULL);
  return only && !strcmp(only, "one") ? cmocka_run_group_tests(alone, NULL, NULL)
                                      : cmocka_run_group_tests(all, NULL, NULL);
}
