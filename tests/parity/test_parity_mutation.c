// Parity can fail: each collective that is left out, each order that is reversed, each transfer that does not take place is
// noticed. One that nobody misses would be a defect of the layout. A sample under ctest, all with PARITY_ALL=1. With PARITY_RESULTS,
// a run that was interrupted goes on with the layouts that are not in that file.
#include "corpora.h"
#include "mutation.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static int whole(void) { return getenv("PARITY_ALL") && strcmp(getenv("PARITY_ALL"), "0"); }

// Nobody can miss it: a bias of keys moves all scores of a query alike, and softmax does not see that: its gradient is zero. And
// where tp cuts the embedding width of weights, a norm of whole rows has its weights gathered, but a rank goes on with its slice.
static int is_void(const ParityCase *c, const Mutation *m) {
  if (strstr(m->what, "attention.k.bias") && !strstr(m->what, "bucket")) return 1;
  return strstr(c->name, layout_traits[LAYOUT_EMBED_TP].name) && strstr(m->what, "norm.weight.all_gather of FORWARD");
}

// 1 when parity notices; negative: the run failed, which it notices too. What is wrong with an evaluation shows without a step of
// training, mostly.
static int noticed(const ParityCase *c, Mutation *m, Error *error) {
  ParityCase x = mutated(c, m), untrained = x;
  untrained.steps = 0;
  int wrong = m->evaluation ? matrix_differs(&untrained, MATRIX_FP64, error) : 0;
  return wrong ? wrong : matrix_differs(&x, MATRIX_FP64, error);
}

// A bucket may hold the queries' and the keys' weights and biases and nothing else. Reversed alike, they give the same scores (of a
// model without rotation); the first alone must be noticed.
static int survives(const ParityCase *c, Mutation *m) {
  Error error = {0};
  int wrong = noticed(c, m, &error);
  if (!wrong && is_void(c, m)) return 0;
  if (!wrong && m->kind == MUTATION_REVERSE && strstr(m->what, "bucket")) {
    m->alone = 1;
    wrong = noticed(c, m, &error);
  }
  if (!wrong) printf("%s, %s: nobody misses the %s  SURVIVED\n", c->model, c->name, m->what);
  else if (getenv("PARITY_LOUD"))
    printf("%s, %s: %s: %s\n", c->model, c->name, m->what, wrong < 0 ? error.message : "parity fails");
  fflush(stdout);
  return !wrong;
}

// Layouts whose Programs have every kind of collective, and how many mutants of each a sample tries.
static int is_subject(const MatrixLayout *l) { return l->kind == MATRIX_REAL || (l->kind == MATRIX_SINGLE && l->dp * l->tp * l->pp <= 4); }

// Adds to what was tried and what survived. A sample has every step-th mutant from the first on.
static void try_layout(const ParityCase *c, int sample, uint64_t seed, int *tried, int *survived) {
  Mutation *m;
  int n = mutations_of(c, &m), step = !sample || n < sample ? 1 : n / sample;
  for (int k = sample ? (int)(seed % (uint64_t)step) : 0; k < n; k += step) {
    if (!matrix_mine(k)) continue;
    *survived += survives(c, &m[k]);
    (*tried)++;
  }
  free(m);
}

static void mutants(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), subjects = 0, layouts = 0, tried = 0, survived = 0;
  for (int i = 0; i < count; i++)
    if (is_subject(&layout[i])) layout[subjects++] = layout[i];
  uint64_t seed = matrix_seed();
  int wanted = whole() ? subjects : matrix_sample(layout, subjects, 8, seed);
  for (int i = 0; i < wanted; i++) {
    ParityCase c = matrix_case(&layout[i], i % 2 * 2 + i / 2 % 2, MATRIX_FP64);
    char line[256];
    snprintf(line, sizeof line, "mutants\t%s\t", c.name);
    if (!parity_wanted(&c) || matrix_recorded(line)) continue; // recorded: before the run was interrupted
    int of_layout = 0, missed = 0;
    try_layout(&c, whole() ? 0 : 12, seed, &of_layout, &missed);
    matrix_record("%s%d\t%d\n", line, of_layout, missed);
    layouts++, tried += of_layout, survived += missed;
  }
  printf("%d mutants of %d layouts, %d survived\n", tried, layouts, survived);
  assert_true(tried > 20 || getenv("PARITY_ONLY") || getenv("PARITY_RESULTS"));
  free(layout);
  matrix_forget();
  assert_int_equal(survived, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutants)};
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
