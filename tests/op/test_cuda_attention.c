// tier 1 2; rooms device; numbers
// Attention by a library, the emulator's double of cuDNN, against the reference kernels; and plait's own in its place
// where it is wrong, refuses, or is not there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "library_case.h"

// Attention that the library has: of bf16 and fp16, causal, without dropout, of a row of queries and all of its keys.
static int has(const OpCase *c) {
  const Operand *q = c->input, *k = c->input + 1;
  const AttentionAttr *attr = op_case_call(c).attr;
  const IndexMap *x = &q->map[1], *y = &k->map[1];
  return (q->dtype == DTYPE_BF16 || q->dtype == DTYPE_F16) && attr->causal && attr->documents && attr->dropout == 0 &&
         !attr->wide && q->size[4] % 8 == 0 && operand_elements(q) && operand_elements(k) && q->size[1] == k->size[1] &&
         x->runs == 1 && y->runs == 1 && x->run[0].global == y->run[0].global && x->valid == x->local &&
         y->valid == y->local;
}

static int attends(Op op) { return op == OP_ATTENTION || op == OP_ATTENTION_GRAD; }

static void run_all(void *with) {
  KernelBench b = {0};
  int *used = with;
  const char *only = getenv("CASE"); // for debugging
  library_bench(&b);
  for (int i = 0; i < op_cases_with_large(); i++) {
    const char *name = op_case_name(i);
    if (strncmp(name, "attention", 9) || (only && !strstr(name, only))) continue;
    if (test_tier() == 1 && !strstr(name, "heads of")) continue;
    // the library has none of fp32, which tier 2 sees
    for (int dtype = test_tier() == 1 ? DTYPE_BF16 : DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
      OpCase whole;
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; variant < VARIANTS; variant++)
        library_check(&b, &whole, (Dtype)dtype, (Variant)variant, has, NULL, used);
      op_case_free(&whole);
    }
  }
  kernel_bench_close(&b);
}

static void all_attention(void **state) {
  int used[OP_COUNT] = {0};
  library_says_nothing(run_all, used);
  for (int op = 0; op < OP_COUNT && !on_card && !getenv("CASE"); op++)
    if (attends((Op)op)) assert_true(used[op] >= 6);
}

// Attention in bf16, its gradient, and one with the same bits in each run.
static void one(void **state) {
  const char *const names[] = {"attention heads of 8", "attention_grad heads of 8",
                               "attention_grad same bits, heads of 24"};
  long long calls = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) calls += library_run_one(names[i], DTYPE_BF16);
  printf("its calls: %lld\n", calls);
}

// Its own kernel computes what the library gets wrong, refuses, or cannot make, and a note for each says so.
static void own_kernel_in_its_place(void **state) {
  library_prints("", "", 0, 3);
  library_prints("PLAIT_EMULATED_DNN_SPOILS='3 2 9 8'",
         "note: CUDA device 0: plait's own kernel makes attention of 3 × 9, 2 heads of 8, grouped, in bf16: cuDNN's "
         "out differs from it by",
         2, 1);
  library_prints("PLAIT_EMULATED_DNN_REFUSES='2 4 50 24'",
         "in bf16 that have the same bits: cuDNN has none (it proposes no plan", 1, 2);
  if (test_tier() == 1) return;
  library_prints("PLAIT_EMULATED_DNN_WORKSPACE=2000000",
                 "cuDNN's needs 2000000 bytes of workspace, and memory plans have", 3, 0);
  library_prints("PLAIT_CUDA_LIBRARIES=/nowhere",
         "note: attention uses plait's own kernels, which are slow: there is no libcudnn.so.9 of the emulator's here",
         1, 0);
  library_prints("PLAIT_EMULATED_DNN_SPOILS='3 2 9 16'", "", 0, 3);
  library_prints("PLAIT_EMULATED_DNN_VERSION=90500", "libcudnn.so.9 is cuDNN 9.5, and plait needs 9.10 or newer", 1, 0);
  library_prints("WITHOUT_ROOM=1", "", 0, 3); // the device has memory left
  library_prints("PLAIT_CUDA_LIBRARIES=", "", 0, 0);
  library_prints("PLAIT_CUDA_OWN=attention", "", 0, 2);
  library_prints("PLAIT_CUDA_OWN=all", "", 0, 0);
}

int main(int count, char **words) {
  const struct CMUnitTest alone[] = {cmocka_unit_test(one)}, card[] = {cmocka_unit_test(all_attention)};
  const struct CMUnitTest all[] = {cmocka_unit_test(all_attention), cmocka_unit_test(own_kernel_in_its_place)};
  library_open(words, "libcudnn.so.9", "emulated_cudnn");
  if (on_card) return cmocka_run_group_tests(card, NULL, NULL);
  return library_test_is_one() ? cmocka_run_group_tests(alone, NULL, NULL) : cmocka_run_group_tests(all, NULL, NULL);
}
