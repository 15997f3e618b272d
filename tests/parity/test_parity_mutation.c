// tier 2
// Parity can fail: each collective that is left out, each order that is reversed, each transfer that does not take
// place is noticed. One that is not needed would be a defect of the layout. In fp64 a sample under ctest, all with
// PARITY_ALL=1 (of layouts with many ranks and mutants a part); in each narrow leg one in a hundred of them, but about
// five of each configuration, fewer under ctest. A narrow leg may miss a mutant when the same mutant, in fp64, moves
// nothing by as much as the leg's bounds. With PARITY_RESULTS, a run that was interrupted resumes with the layouts that
// are not in that file.
#include "corpora.h"
#include "mutation.h"
#include "base/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

typedef struct Count {
  int layouts, tried, survived;
  int below; // missed, because the mutant moves nothing by twice the bounds
} Count;

static int whole(void) { return getenv("PARITY_ALL") && strcmp(getenv("PARITY_ALL"), "0"); }

// Nothing depends on it. A bias of keys moves all scores of a query alike, which softmax does not see: its gradient is
// zero. And where tp cuts the embedding width of weights, a norm of whole rows has its weights gathered, but a rank
// continues with its slice only.
static int is_void(const ParityCase *c, const Mutation *m) {
  if (strstr(m->what, "attention.k.bias") && !strstr(m->what, "bucket")) return 1;
  return strstr(c->name, layout_traits[LAYOUT_EMBED_TP].name) && strstr(m->what, "norm.weight.all_gather of FORWARD");
}

// 1 when parity notices; negative: the run failed, which it notices too. What is wrong with an evaluation shows without
// a step of training, mostly.
static int noticed(const ParityCase *c, MatrixLeg leg, Mutation *m, Error *error) {
  ParityCase x = mutated(c, m), untrained = x;
  untrained.steps = 0;
  int wrong = m->evaluation ? matrix_differs(&untrained, leg, error) : 0;
  return wrong ? wrong : matrix_differs(&x, leg, error);
}

// The largest share of the leg's bounds by which the mutant moves anything in fp64; negative: it did not run.
static double effect_of(const ParityCase *c, MatrixLeg leg, const Mutation *m, const char **measure) {
  ParityCase wide = matrix_in_fp64(c);
  const char *other = NULL;
  Error error = {0};
  Mutation same;
  wide.bucket_bytes = 1;
  if (!mutation_like(&wide, m, &same)) return -1;
  wide = mutated(&wide, &same);
  double effect = matrix_effect(&wide, c, leg, measure, &error);
  wide.steps = 0;
  double untrained = m->evaluation ? matrix_effect(&wide, c, leg, &other, &error) : 0;
  if (untrained > effect) *measure = other;
  return effect < 0 || untrained < 0 ? -1 : fmax(effect, untrained);
}

// A narrow leg missed it. Does it, in fp64, stay within the leg's bounds? Then the leg cannot notice it.
static int below_the_bounds(const ParityCase *c, MatrixLeg leg, const Mutation *m) {
  const char *measure = "nothing";
  double effect = effect_of(c, leg, m, &measure);
  if (effect < 0) printf("%s, %s, %s: %s did not run in fp64\n", matrix_leg_names[leg], c->model, c->name, m->what);
  else
    printf("%s, %s, %s: misses the %s; in fp64 it moves %s by %.2g of the bound\n", matrix_leg_names[leg], c->model,
           c->name, m->what, measure, effect);
  // Rounding moves the leg by up to the bound, and perhaps the other way: only from twice the bound on must a mutant be
  // noticed.
  if (!(effect >= 0 && effect <= 2)) return 0;
  matrix_record("missed\t%s\t%s\t%s\t%s\t%s\t%.2g\n", matrix_leg_names[leg], c->model, c->name, m->what, measure,
                effect);
  return 1;
}

// A bucket may hold the queries' and the keys' weights and biases and nothing else. Reversed alike, they give the same
// scores (of a model without rotation); the first alone must be noticed.
static void try(const ParityCase *c, MatrixLeg leg, Mutation *m, Count *count) {
  Error error = {0};
  int wrong = noticed(c, leg, m, &error);
  count->tried++;
  if (!wrong && is_void(c, m)) return;
  if (!wrong && m->kind == MUTATION_REVERSE && strstr(m->what, "bucket")) {
    m->alone = 1;
    wrong = noticed(c, leg, m, &error);
  }
  if (!wrong && leg != MATRIX_FP64 && below_the_bounds(c, leg, m)) count->below++;
  else if (!wrong) {
    printf("%s, %s, %s: parity does not notice the %s  SURVIVED\n", matrix_leg_names[leg], c->model, c->name, m->what);
    count->survived++;
  } else if (getenv("PARITY_LOUD"))
    printf("%s, %s, %s: %s: %s\n", matrix_leg_names[leg], c->model, c->name, m->what,
           wrong < 0 ? error.message : "parity fails");
  fflush(stdout);
}

// Layouts whose Programs have every kind of collective: every feature alone, on up to 4 ranks or on the fewest that it
// takes, and the real ones. One rank has no collectives.
static int is_subject(const MatrixLayout *l) {
  int ranks = matrix_ranks(l);
  MatrixMesh least = matrix_mesh(l->features, (MatrixMesh){0});
  return l->kind == MATRIX_REAL ||
         (l->kind == MATRIX_SINGLE && ranks > 1 && (ranks <= 4 || ranks == matrix_mesh_ranks(&least)));
}

// Is mutant k of the layout in the sample? One in `of`, as the seed says.
static int chosen(const ParityCase *c, MatrixLeg leg, int k, int of, uint64_t seed) {
  uint32_t r[4];
  philox4x32(philox_key(seed, (uint64_t)leg, philox_name(c->name)), (uint32_t)k, 0, 0, 0, r);
  return r[0] % (uint32_t)of == 0;
}

// A layout with few mutants has some in the sample all the same. MOST: ranks times mutants that are tried of one
// layout; those of the largest are a sample in fp64 too.
enum { FEW = 5, MOST = 10240 };

static void try_layout(const ParityCase *c, int ranks, MatrixLeg leg, int of, uint64_t seed, Count *all) {
  char line[512];
  snprintf(line, sizeof line, "mutants\t%s\t%s\t", matrix_leg_names[leg], c->name);
  if (!parity_wanted(c) || matrix_recorded(line)) return; // recorded: before the run was interrupted
  Mutation *m;
  int n = mutations_of(c, &m);
  Count count = {.layouts = 1};
  if (n / FEW < of) of = n < FEW ? 1 : n / FEW;
  if (n / of * ranks > MOST) of = n * ranks / MOST + 1;
  for (int k = 0; k < n; k++)
    if (matrix_mine(k) && chosen(c, leg, k, of, seed)) try(c, leg, &m[k], &count);
  free(m);
  matrix_record("%s%d\t%d\t%d\n", line, count.tried, count.below, count.survived);
  all->layouts++, all->tried += count.tried, all->below += count.below, all->survived += count.survived;
}

// The model of layout i: those of GPT and Llama in turn, then those of the other families.
static int model_of(int i) { return i / 4 % 2 * 4 + i % 2 * 2 + i / 2 % 2; }

// One in `of` mutants of the `sample` layouts, 0: of all; but some FEW of each.
static void try_leg(MatrixLeg leg, int sample, int of) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), subjects = 0;
  for (int i = 0; i < count; i++)
    if (is_subject(&layout[i]) && matrix_fits(&layout[i], leg)) layout[subjects++] = layout[i];
  uint64_t seed = matrix_seed();
  int wanted = sample ? matrix_sample(layout, subjects, sample, seed + (uint64_t)leg) : subjects;
  Count all = {0};
  for (int i = 0; i < wanted; i++) {
    ParityCase c = matrix_case(&layout[i], model_of(i), leg);
    try_layout(&c, matrix_ranks(&layout[i]), leg, of, seed, &all);
  }
  printf("%s: %d mutants of %d layouts, %d below the bounds, %d survived\n", matrix_leg_names[leg], all.tried,
         all.layouts, all.below, all.survived);
  free(layout);
  one_rank_forget();
  assert_true(all.tried > 20 || getenv("PARITY_ONLY") || getenv("PARITY_RESULTS"));
  assert_int_equal(all.survived, 0);
}

// Every collective of the op, deleted and reversed, in forward and in backward; under ctest the first of them.
static void try_all(const ParityCase *c, const char *op) {
  Mutation *m;
  Count count = {0};
  int n = mutations_of(c, &m), kinds[2][2] = {{0}};
  for (int k = 0; k < n; k++) {
    if (!strstr(m[k].what, op) || m[k].evaluation) continue;
    int *of_kind = &kinds[m[k].kind == MUTATION_REVERSE][!!strstr(m[k].what, "BACKWARD")];
    if (++*of_kind <= 4 || whole()) try(c, MATRIX_FP64, &m[k], &count);
  }
  free(m);
  one_rank_forget();
  for (int i = 0; i < 4; i++) assert_true(kinds[i / 2][i % 2] > 0);
  assert_int_equal(count.survived, 0);
}

// A layout whose tp goes from the samples to the width and back.
static void moves(void **state) {
  MatrixLayout two = {.mesh = {.dp = 1, .cp = 1, .tp = 2, .pp = 1}, .micro = 4, .global = 16};
  ParityCase c = matrix_case(&two, 0, MATRIX_FP64);
  c.name = "tp from the samples to the width";
  c.settings = "layout.batch=[dp,tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]";
  try_all(&c, "all_to_all");
}

// Rows that go to their experts and back.
static void rows(void **state) {
  MatrixMesh mesh = {0};
  uint64_t set;
  assert_null(matrix_parse("tp + sequence + experts over all (dp 1 cp 2 tp 2)", &set, &mesh));
  MatrixLayout layout = matrix_layout(set, MATRIX_REAL, mesh);
  ParityCase c = matrix_case(&layout, 0, MATRIX_FP64);
  try_all(&c, "exchange_rows");
}

static void fp64(void **state) { whole() ? try_leg(MATRIX_FP64, 0, 1) : try_leg(MATRIX_FP64, 6, 16); }
static void narrow(MatrixLeg leg) { whole() ? try_leg(leg, 0, 100) : try_leg(leg, 5, 30); }
static void fp32(void **state) { narrow(MATRIX_FP32); }
static void bf16(void **state) { narrow(MATRIX_BF16); }
static void bf16_gradients(void **state) { narrow(MATRIX_BF16_GRADIENTS); }
static void fp16(void **state) { narrow(MATRIX_FP16); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(moves), cmocka_unit_test(rows), cmocka_unit_test(fp64),
                                     cmocka_unit_test(fp32),  cmocka_unit_test(bf16), cmocka_unit_test(bf16_gradients),
                                     cmocka_unit_test(fp16)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
