// Parity from the first day: every layout gives one rank's losses, norms, gradients, parameters and moments.
#include "data/synthetic.h"
#include "parity.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static char corpus[2][256]; // gpt, llama

static int make_corpora(void **state) {
  for (int i = 0; i < 2; i++) {
    snprintf(corpus[i], sizeof corpus[i], "/tmp/plait-parity-%ld-%d", (long)getpid(), i);
    Error error = {0};
    if (synthetic_corpus(corpus[i], 400, 1, 45, i ? 53 : 61, 7, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  }
  return 0;
}

static int remove_corpora(void **state) {
  for (int i = 0; i < 2; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s.bin", corpus[i]);
    unlink(path);
    snprintf(path, sizeof path, "%s.idx", corpus[i]);
    unlink(path);
  }
  return 0;
}

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus[!strcmp(c->model, "llama")], result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// Layouts of both models against one rank; fp64, dropout and ragged documents on.
static const ParityCase layouts[] = {
    {.name = "micro 1", .dp = 1, .pp = 1, .tp = 1, .micro = 1},
    {.name = "micro 2", .dp = 1, .pp = 1, .tp = 1, .micro = 2},
    {.name = "micro 4", .dp = 1, .pp = 1, .tp = 1, .micro = 4},
    {.name = "zero 1 alone", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4},
    {.name = "dp 2 zero 1", .dp = 2, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
    {.name = "dp 4", .dp = 4, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 4 zero 1", .dp = 4, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 8", .dp = 8, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 8 zero 1", .dp = 8, .pp = 1, .tp = 1, .micro = 1, .zero = 1},
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "pp 2 gpipe", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "gpipe"},
    {.name = "pp 2 1f1b", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "1f1b"},
    {.name = "pp 4 1f1b", .dp = 1, .pp = 4, .tp = 1, .micro = 2, .schedule = "1f1b"},
    {.name = "dp 2 tp 2", .dp = 2, .pp = 1, .tp = 2, .micro = 4},
    {.name = "dp 2 tp 2 zero 1", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 1},
    {.name = "dp 2 tp 2 pp 2", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .schedule = "gpipe"},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1, .schedule = "gpipe"},
};

// `filter` (environment PARITY_ONLY) runs the cases whose name contains it, for work on one of them.
static void compare_all(const char *model, Dtype precision, double loss_tolerance, double tolerance, int steps) {
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16, .precision = precision, .steps = steps};
  const char *filter = getenv("PARITY_ONLY");
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  assert_true(one.loss[0] > 1 && isfinite(one.loss[0]) && one.norm[0] > 0 && one.tensors[0] > 10);
  assert_true(one.loss[steps - 1] != one.loss[0]);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    if (filter && !strstr(layouts[i].name, filter)) continue;
    ParityCase c = layouts[i];
    c.model = model;
    c.precision = precision;
    c.steps = steps;
    run(&c, &other);
    ParityDifference d = parity_compare(&other, &one);
    int wrong = !(d.loss <= loss_tolerance && d.norm <= tolerance && d.gradient <= tolerance && d.parameter <= 100 * tolerance && d.eval <= loss_tolerance);
    printf("%-6s %-5s %-22s loss %.1e  norm %.1e  gradients %.1e  parameters %.1e  eval %.1e%s\n", model, dtype_name(precision), c.name,
           d.loss, d.norm, d.gradient, d.parameter, d.eval, wrong ? "  WRONG" : "");
    fflush(stdout);
    bad += wrong;
    parity_free(&other);
  }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static void gpt_fp64(void **state) { compare_all("gpt", DTYPE_F64, 1e-10, 1e-10, 20); }
static void llama_fp64(void **state) { compare_all("llama", DTYPE_F64, 1e-10, 1e-10, 20); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt_fp64), cmocka_unit_test(llama_fp64)};
  return cmocka_run_group_tests(tests, make_corpora, remove_corpora);
}
