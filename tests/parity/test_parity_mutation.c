// Parity can fail: each collective that is left out, each order that is reversed, each transfer that does not take place is
// noticed. One that nobody misses would be a defect of the layout. A sample under ctest, all with PARITY_ALL=1.
#include "corpora.h"
#include "mutation.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static int whole(void) { return getenv("PARITY_ALL") && strcmp(getenv("PARITY_ALL"), "0"); }

// Nobody can miss it: a bias of keys moves all scores of a query alike, and softmax does not see that. Its gradient is zero.
static int is_void(const Mutation *m) { return strstr(m->what, "attention.k.bias") && !strstr(m->what, "bucket"); }

// 1 when parity does not notice.
static int survives(const ParityCase *c, Mutation *m) {
  ParityCase x = mutated(c, m);
  ParityDifference d;
  const char *initial;
  Error error = {0};
  int wrong = matrix_compare(&x, &d, &initial, &error);
  if (!wrong && is_void(m)) return 0;
  if (!wrong) printf("%s, %s: nobody misses the %s  SURVIVED\n", c->model, c->name, m->what);
  else if (getenv("PARITY_LOUD"))
    printf("%s, %s: %s: %s\n", c->model, c->name, m->what, wrong < 0 ? error.message : "parity fails");
  fflush(stdout);
  return !wrong;
}

// Layouts whose Programs have every kind of collective, and how many mutants of each a sample tries.
static int is_subject(const MatrixLayout *l) { return l->kind == MATRIX_REAL || (l->kind == MATRIX_SINGLE && l->dp * l->tp * l->pp <= 4); }

static void mutants(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), subjects = 0, layouts = 0, tried = 0, survived = 0;
  for (int i = 0; i < count; i++)
    if (is_subject(&layout[i])) layout[subjects++] = layout[i];
  uint64_t seed = matrix_seed();
  int wanted = whole() ? subjects : matrix_sample(layout, subjects, 8, seed);
  for (int i = 0; i < wanted; i++) {
    ParityCase c = matrix_case(&layout[i], matrix_models[i % 2 * 2 + i / 2 % 2], DTYPE_F64);
    if (layout[i].tp > 2) c.model = matrix_models[i % 2]; // the Llama has two key and value heads
    if (!parity_wanted(&c)) continue;
    layouts++;
    Mutation *m;
    int n = mutations_of(&c, &m), step = whole() || n < 12 ? 1 : n / 12;
    for (int k = whole() ? 0 : (int)(seed % (uint64_t)step); k < n; k += step, tried++) survived += survives(&c, &m[k]);
    free(m);
  }
  matrix_record("mutants\t%d\t%d\t%d\n", tried, layouts, survived);
  printf("%d mutants of %d layouts, %d survived\n", tried, layouts, survived);
  assert_true(tried > (whole() ? 300 : 20) || getenv("PARITY_ONLY"));
  free(layout);
  matrix_forget();
  assert_int_equal(survived, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutants)};
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
