// Parity to the bit: what must not depend on the layout at all, on a second run, or on the number of threads; and the fast
// kernels against the reference kernels.
#include "corpora.h"
#include "parity.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static const char *const models[] = {"gpt", "gpt untied", "llama", "llama tied"};
enum { MODELS = 4 };

static const ParityCase layouts[] = {
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
    {.name = "pp 4", .dp = 1, .pp = 4, .tp = 1, .micro = 4},
    {.name = "dp 4 zero 1", .dp = 4, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static ParityCase with(ParityCase c, const char *model, Dtype precision, int steps) {
  c.model = model;
  c.precision = precision;
  c.steps = steps;
  return c;
}

// Init is addressed by global index: every element of every parameter has one rank's bits, wherever it lies.
static void initial_parameters(void **state) {
  int bad = 0;
  for (int m = 0; m < MODELS; m++) {
    ParityCase base = with((ParityCase){.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16}, models[m], DTYPE_F32, 1);
    ParityResult one, other;
    run(&base, &one);
    assert_true(one.tensors[DUMP_INITIAL] > 10);
    for (int i = 0; i < LAYOUTS; i++) {
      ParityCase c = with(layouts[i], models[m], DTYPE_F32, 1);
      if (!parity_wanted(&c)) continue;
      run(&c, &other);
      const char *different = parity_first_different(&other, &one, DUMP_INITIAL);
      if (different) printf("%s, %s: %s begins with other bits  WRONG\n", models[m], c.name, different);
      bad += different != NULL;
      parity_free(&other);
    }
    parity_free(&one);
  }
  assert_int_equal(bad, 0);
}

static void expect_same_bits(ParityCase a, ParityCase b) {
  if (!parity_wanted(&a)) return;
  ParityResult first, second;
  run(&a, &first);
  run(&b, &second);
  int same = parity_same_bits(&first, &second);
  parity_free(&first);
  parity_free(&second);
  if (!same) fail_msg("%s, %s, %s: bits differ", a.model, a.name, dtype_name(a.precision));
}

static void same_recipe_twice(void **state) {
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < LAYOUTS; i++) {
      ParityCase c = with(layouts[i], models[m], i % 2 ? DTYPE_F64 : DTYPE_F32, parity_steps(5));
      expect_same_bits(c, c);
    }
}

// Nor may a pipeline's order matter: gpipe and 1f1b add the microbatches up in the same order.
static void same_bits_under_both_schedules(void **state) {
  for (int m = 0; m < MODELS; m++) {
    ParityCase a = with(layouts[1 + m % 2], models[m], DTYPE_F32, parity_steps(5)), b = a;
    a.schedule = "gpipe";
    b.schedule = "1f1b";
    expect_same_bits(a, b);
  }
}

static void threads_do_not_matter(void **state) {
  static const ParityCase few[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                   {.name = "dp 2 zero 1", .dp = 2, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
                                   {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8}};
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < 3; i++)
      for (int threads = 2; threads <= 3; threads++) {
        ParityCase a = with(few[i], models[m], threads == 2 ? DTYPE_F32 : DTYPE_F64, parity_steps(4)), b = a;
        b.threads = threads;
        expect_same_bits(a, b);
      }
}

// Nor who does the work: threads of other ranks, which come and go, so that kernels cut it this way and that.
static void helpers_do_not_matter(void **state) {
  static const ParityCase few[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                   {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
                                   {.name = "dp 2 tp 2 zero 3", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 3}};
  static const Dtype precisions[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
  int64_t units = 0; // in all: on a busy machine a short run may be over before the helper's turn
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < 3; i++)
      for (int p = 0; p < 3; p++) {
        ParityCase alone = with(few[i], models[m], precisions[p], parity_steps(4)), helped = alone;
        helped.helpers = 1 + p;
        helped.threads = 1 + (p + i) % 2;
        if (!parity_wanted(&alone)) continue;
        ParityResult first, second;
        run(&alone, &first);
        run(&helped, &second);
        units += second.helped;
        if (!parity_same_bits(&first, &second))
          fail_msg("%s, %s, %s: bits differ; %lld units by helpers", alone.model, alone.name, dtype_name(alone.precision), (long long)second.helped);
        parity_free(&first);
        parity_free(&second);
      }
  printf("%lld units by helpers\n", (long long)units);
  assert_true(units > 100 || getenv("PARITY_ONLY"));
}

static double counter_of(const ParityResult *r, const char *name) {
  for (int i = 0; i < r->tensors[DUMP_FINAL]; i++)
    if (!strcmp(r->tensor[DUMP_FINAL][i].name, name)) return r->tensor[DUMP_FINAL][i].data[0];
  return -1;
}

// A norm that is not finite, on whichever rank it began: all skip, nothing changes, the count of steps stands, and the steps
// after it go on as if it had not been. The last step is the poisoned one, or one before.
static void skipped_steps(void **state) {
  for (int m = 0; m < MODELS; m += 2) {
    ParityCase base = with((ParityCase){.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16}, models[m], DTYPE_F64, 2);
    ParityResult two, one, other;
    run(&base, &two);
    base.steps = base.poison = 3;
    run(&base, &one);
    assert_true(!one.skipped[0] && !one.skipped[1] && one.skipped[2]);
    assert_true(counter_of(&one, "optimizer_step") == 2);
    assert_null(parity_first_different(&one, &two, DUMP_FINAL)); // parameters, moments and counts: as after two steps
    parity_free(&one);
    base.steps = 4;
    run(&base, &one);
    assert_true(one.skipped[2] && !one.skipped[3] && counter_of(&one, "optimizer_step") == 3);
    for (int i = 0; i < LAYOUTS; i++) {
      ParityCase c = with(layouts[i], models[m], DTYPE_F64, 4);
      if (!parity_wanted(&c)) continue;
      c.poison = 3;
      run(&c, &other);
      ParityDifference d = parity_compare(&other, &one);
      if (!(d.loss <= 1e-10 && d.norm <= 1e-10 && d.parameter <= 1e-8))
        fail_msg("%s, %s: loss %g, norm %g, parameters %g after a skipped step", models[m], c.name, d.loss, d.norm, d.parameter);
      parity_free(&other);
    }
    parity_free(&one);
    parity_free(&two);
  }
}

// The kernels that say what ops mean, in a whole model: losses, norms, gradients and parameters of the fast ones.
static void reference_kernels(void **state) {
  static const ParityCase few[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                   {.name = "dp 2 tp 2 zero 1", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 1},
                                   {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4}};
  int bad = 0;
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < 3; i++) {
      ParityCase fast = with(few[i], models[m], DTYPE_F64, parity_steps(4)), slow = fast;
      if (!parity_wanted(&fast)) continue;
      slow.reference = 1;
      ParityResult a, b;
      run(&fast, &a);
      run(&slow, &b);
      ParityDifference d = parity_compare(&a, &b);
      int wrong = !(d.loss <= 1e-10 && d.norm <= 1e-10 && d.gradient <= 1e-10 && d.parameter <= 1e-8 && d.eval <= 1e-10);
      printf("%-10s reference %-22s loss %.1e  norm %.1e  gradients %.1e  parameters %.1e%s\n", models[m], fast.name, d.loss, d.norm,
             d.gradient, d.parameter, wrong ? "  WRONG" : "");
      bad += wrong;
      parity_free(&a);
      parity_free(&b);
    }
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(initial_parameters), cmocka_unit_test(same_recipe_twice),
                                     cmocka_unit_test(same_bits_under_both_schedules), cmocka_unit_test(threads_do_not_matter),
                                     cmocka_unit_test(helpers_do_not_matter),
                                     cmocka_unit_test(skipped_steps),
                                     cmocka_unit_test(reference_kernels)};
  if (getenv("PARITY_TEST")) cmocka_set_test_filter(getenv("PARITY_TEST"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
