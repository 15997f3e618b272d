// tier 1 2 3; rooms device; numbers
// Kernels for CUDA against the reference kernels, by the emulated driver: every row of the table of cases, every
// floating-point dtype, sharded and padded operands, in place; and the same bits whatever the order of threads, warps
// and blocks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/kernel_bench.h"
#include "tier.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Bench {
  KernelBench kernels;
  int done[OP_COUNT], variants[VARIANTS];
} Bench;

static void check_case(Bench *b, const OpCase *whole, Dtype dtype, Variant variant) {
  KernelVerdict verdict;
  Error error = {0};
  int done = kernel_bench_case(&b->kernels, whole, variant, &verdict, &error);
  if (done < 0) fail_msg("%s %s%s: %s", whole->name, dtype_name(dtype), op_variant_name[variant], error.message);
  if (verdict.share > 1) fail_msg("%s %s", dtype_name(dtype), verdict.text);
  b->done[whole->op] += done;
  b->variants[variant] += done;
}

// Of the larger rows tier 1 has those of an accumulator: just filling the others takes as long as all the rest. Tier 2
// has them in two dtypes in turn, one whose sums are in fp32 at least, and tier 3 in all.
static int has_time(int row, int dtype) {
  const char *name = op_case_name(row);
  if (test_tier() > 2 || row < op_cases_count()) return 1;
  if (test_tier() == 2) return (row + dtype) % 2;
  return strstr(name, " accumulate") && !strstr(name, "blocks") && !strstr(name, "groups");
}

static void check_all(Bench *b) {
  const char *only = getenv("CASE"); // for debugging
  for (int i = 0; i < op_cases_with_large(); i++)
    for (int dtype = DTYPE_F64; dtype <= DTYPE_F16; dtype++) {
      if (!has_time(i, dtype) || (only && !strstr(op_case_name(i), only))) continue;
      OpCase whole;
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; variant < VARIANTS; variant++)
        check_case(b, &whole, (Dtype)dtype, (Variant)variant);
      op_case_free(&whole);
    }
}

static void all_rows(void **state) {
  Bench b = {0};
  Error error = {0};
  if (kernel_bench_open(&b.kernels, device_cuda(), 0, &error)) fail_msg("%s", error.message);
  check_all(&b);
  printf("%016llx\n", (unsigned long long)b.kernels.digest);
  kernel_bench_close(&b.kernels);
  if (getenv("CASE")) return;
  int ops = 0;
  for (int op = 0; op < OP_COUNT; op++) ops += b.done[op] > 0;
  assert_true(ops >= 50);
  for (int k = 0; k < VARIANTS; k++) assert_true(b.variants[k] >= 8);
}

// With another order of everything, in processes of their own: a driver takes its seed when it is loaded.
static void same_bits_in_any_order(void **state) {
  char first[64] = "", text[64];
  for (int seed = 1; seed <= 2; seed++) {
    char *command = xformat("PLAIT_EMULATED_SEED=%d TEST_ONLY=all_rows '%s'", seed, getenv("SELF"));
    FILE *output = popen(command, "r");
    assert_non_null(output);
    char digest_of[64] = "";
    while (fgets(text, sizeof text, output))
      if (strspn(text, "0123456789abcdef") == 16) memcpy(digest_of, text, 17);
    assert_int_equal(pclose(output), 0);
    free(command);
    if (seed == 1) memcpy(first, digest_of, sizeof first);
    else if (strcmp(first, digest_of) || !*first)
      fail_msg("seed %d gives other bits: %s and %s", seed, first, digest_of);
  }
}

int main(int count, char **words) {
  char *driver = xformat("%s/libemulated_cuda.so", getenv("FOLDER") ? getenv("FOLDER") : ".");
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  setenv("PLAIT_CUDA_OWN", "all", 1); // test_cuda_products has those of libraries
  setenv("SELF", words[0], 1);
  free(driver);
  const struct CMUnitTest all[] = {cmocka_unit_test(all_rows)}, order[] = {cmocka_unit_test(same_bits_in_any_order)};
  const char *only = getenv("TEST_ONLY"); // tier 1 has two orders of some rows, the others one of all
  if (only ? !strcmp(only, "all_rows") : test_tier() > 1) return cmocka_run_group_tests(all, NULL, NULL);
  return cmocka_run_group_tests(order, NULL, NULL);
}
