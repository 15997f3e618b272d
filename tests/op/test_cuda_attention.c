// tier 1 2; rooms device; numbers
// Attention by a library, the emulator's double of cuDNN, against the reference kernels; and plait's own in its place
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
static long long calls(void) {
  void *there = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  const long long *count = there ? dlsym(there, "emulated_cudnn") : NULL;
  long long n = count ? *count : 0;
  if (there) dlclose(there);
  return n;
}

// Attention that the library has: of bf16 and fp16, causal, without dropout, of a row of queries and all of its keys.
static int has(const OpCase *c) {
  const Operand *q = c->input, *k = c->input + 1;
  const AttentionAttr *attr = op_case_call(c).attr;
  const IndexMap *x = &q->map[1], *y = &k->map[1];
  return (q->dtype == DTYPE_BF16 || q->dtype == DTYPE_F16) && attr->causal && attr->contiguous && attr->dropout == 0 &&
         !attr->wide && q->size[4] % 8 == 0 && operand_elements(q) && operand_elements(k) && q->size[1] == k->size[1] &&
         x->runs == 1 && y->runs == 1 && x->run[0].global == y->run[0].global && x->valid == x->local &&
         y->valid == y->local;
}

static int attends(Op op) { return op == OP_ATTENTION || op == OP_ATTENTION_GRAD; }

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
    long long before = calls();
    run_case(b, &kernel, &fast, where);
    op_case_compare(&fast, &slow, where);
    int by_library = calls() > before;
    used[slow.op] += by_library;
    if (!on_card && by_library != has(&slow))
      fail_msg("%s: %s", where, by_library ? "the library makes what it lacks" : "the library does not make it");
    op_case_free(&fast);
  }
  op_case_free(&slow);
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
  const char *only = getenv("CASE"); // for debugging
  open_bench(&b);
  for (int i = 0; i < op_cases_with_large(); i++) {
    const char *name = op_case_name(i);
    if (strncmp(name, "attention", 9) || (only && !strstr(name, only))) continue;
    if (test_tier() == 1 && !strstr(name, "heads of")) continue;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
      OpCase whole;
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; variant < VARIANTS; variant++) check_case(&b, &whole, (Dtype)dtype, (Variant)variant, used);
      op_case_free(&whole);
    }
  }
  kernel_bench_close(&b);
}

// A note would say that the library's was found wrong.
static void all_attention(void **state) {
  int used[OP_COUNT] = {0};
  char *errors = errors_of(run_all, used);
  if (on_card) fputs(errors, stdout); // a card's library may refuse some, and numbers are right all the same
  else assert_string_equal(errors, "");
  free(errors);
  for (int op = 0; op < OP_COUNT && !on_card && !getenv("CASE"); op++)
    if (attends((Op)op)) assert_true(used[op] >= 6);
}

// Attention in bf16, its gradient, and one with the same bits in each run; calls: of the library's in the second run of
// each, after their trials.
typedef struct One { long long calls; } One;
static void run_one(const char *name, One *one) {
  KernelBench b = {0};
  OpCase whole, fast;
  DeviceKernel kernel;
  for (int i = 0; i < op_cases_with_large(); i++)
    if (!strcmp(op_case_name(i), name)) op_case_get(i, DTYPE_BF16, &whole);
  op_case_copy(&whole, &fast);
  op_case_run(&whole);
  open_bench(&b);
  if (getenv("WITHOUT_ROOM")) b.room = 1000;
  assert_true(kernel_bench_has(&b, &fast, &kernel));
  for (int again = 0; again < 2; again++) {
    long long before = calls();
    run_case(&b, &kernel, &fast, name);
    if (again) one->calls += calls() - before;
    op_case_compare(&fast, &whole, name);
  }
  kernel_bench_close(&b);
  op_case_free(&fast);
  op_case_free(&whole);
}

static void one(void **state) {
  One x = {0};
  run_one("attention heads of 8", &x);
  run_one("attention_grad heads of 8", &x);
  run_one("attention_grad same bits, heads of 24", &x);
  printf("its calls: %lld\n", x.calls);
}

// In a process of its own, as a library is loaded once: TEST_ONLY=one.
static void prints(const char *variables, const char *expected, int notes_expected, long long count) {
  char *command = xformat("%s TEST_ONLY=one '%s' 2>&1", variables, getenv("SELF")), line[512];
  FILE *output = popen(command, "r");
  int notes = 0, found = !*expected;
  long long called = -1;
  assert_non_null(output);
  while (fgets(line, sizeof line, output)) {
    notes += strstr(line, "note:") != NULL;
    found |= *expected && strstr(line, expected) != NULL;
    const char *number = strstr(line, "its calls: "); // of cmocka's own words before it the end may come later
    if (number) called = atoll(number + strlen("its calls: "));
    if (getenv("SHOW")) fputs(line, stdout);
  }
  if (pclose(output) || !found || notes != notes_expected || called != count)
    fail_msg("%s: %d notes, %lld calls of the library's", variables, notes, called);
  free(command);
}

// Its own kernel computes what the library gets wrong, refuses, or cannot make, and a note for each says so.
static void own_kernel_in_its_place(void **state) {
  prints("", "", 0, 3);
  prints("PLAIT_EMULATED_DNN_SPOILS='3 2 9 8'",
         "note: CUDA device 0: plait's own kernel makes attention of 3 × 9, 2 heads of 8, grouped, in bf16: cuDNN's "
         "out differs from it by",
         2, 1);
  prints("PLAIT_EMULATED_DNN_REFUSES='2 4 50 24'",
         "in bf16 that have the same bits: cuDNN has none (it proposes no plan", 1, 2);
  if (test_tier() == 1) return;
  prints("PLAIT_EMULATED_DNN_WORKSPACE=2000000", "cuDNN's needs 2000000 bytes of workspace, and memory plans have", 3,
         0);
  prints("PLAIT_CUDA_LIBRARIES=/nowhere",
         "note: attention uses plait's own kernels, which are slow: there is no libcudnn.so.9 of the emulator's here",
         1, 0);
  prints("PLAIT_EMULATED_DNN_SPOILS='3 2 9 16'", "", 0, 3);
  prints("PLAIT_EMULATED_DNN_VERSION=90500", "libcudnn.so.9 is cuDNN 9.5, and plait needs 9.10 or newer", 1, 0);
  prints("WITHOUT_ROOM=1", "", 0, 3); // the device has memory left
  prints("PLAIT_CUDA_LIBRARIES=", "", 0, 0);
  prints("PLAIT_CUDA_OWN=attention", "", 0, 2);
  prints("PLAIT_CUDA_OWN=all", "", 0, 0);
}

int main(int count, char **words) {
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".";
  char *driver = xformat("%s/libemulated_cuda.so", folder), *libraries = xformat("/nowhere::%s/emulated", folder);
  library = xformat("%s/emulated/libcudnn.so.9", folder);
  on_card = getenv("DRIVER_AS_EVER") != NULL;
  if (!on_card) setenv("PLAIT_CUDA_DRIVER", driver, 1);
  if (!on_card) setenv("PLAIT_CUDA_LIBRARIES", libraries, 0);
  setenv("SELF", words[0], 1);
  free(driver);
  free(libraries);
  const char *only = getenv("TEST_ONLY");
  const struct CMUnitTest alone[] = {cmocka_unit_test(one)},
                          all[] = {cmocka_unit_test(all_attention), cmocka_unit_test(own_kernel_in_its_place)};
  const struct CMUnitTest card[] = {cmocka_unit_test(all_attention)};
  if (on_card) return cmocka_run_group_tests(card, NULL, NULL);
  return only && !strcmp(only, "one") ? cmocka_run_group_tests(alone, NULL, NULL)
                                      : cmocka_run_group_tests(all, NULL, NULL);
}
