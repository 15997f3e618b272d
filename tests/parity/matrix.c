// Makes the layouts of the matrix and holds them to one rank.
#include "matrix.h"
#include "base/philox.h"
#include "corpora.h"
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const matrix_models[MATRIX_MODELS] = {"gpt", "gpt untied", "llama", "llama tied"};

enum { SEQUENCE_LENGTH = 12, LAYERS = 4 };

// Layouts -----------------------------------------------------------------------------------------------------------

static int has(uint64_t set, LayoutFeature f) { return set >> f & 1; }
static uint64_t bit(LayoutFeature f) { return UINT64_C(1) << f; }

static uint64_t of_kind(const char *kind) {
  uint64_t set = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (!strcmp(layout_traits[f].kind, kind)) set |= UINT64_C(1) << f;
  return set;
}

// Two of a kind exclude each other, as do those that the table refuses, and what is not built excludes everything.
static int makes_sense(uint64_t set) {
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    if (!(set >> a & 1)) continue;
    if (!layouts_built((LayoutFeature)a)) return 0;
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      if (set >> b & 1 && (!strcmp(layout_traits[a].kind, layout_traits[b].kind) || layouts_refused((LayoutFeature)a, (LayoutFeature)b))) return 0;
  }
  return 1;
}

// Sizes 0: as small as shows the features.
static MatrixLayout make(uint64_t set, MatrixKind kind, int dp, int tp, int pp) {
  MatrixLayout l = {.features = set, .kind = kind, .layers = LAYERS};
  int needs_zero = has(set, LAYOUT_HYBRID) || has(set, LAYOUT_WHOLE), data = (set & of_kind("zero")) || needs_zero;
  l.dp = dp ? dp : (has(set, LAYOUT_DP) || data ? 2 : 1) * (has(set, LAYOUT_DP) && data ? 2 : 1);
  if (has(set, LAYOUT_HYBRID) && l.dp < 4) l.dp = 4;
  l.tp = tp ? tp : set & of_kind("tp") ? 2 : 1;
  l.pp = pp ? pp : set & of_kind("pp") ? 2 : 1;
  int microbatches = l.pp * (has(set, LAYOUT_ACCUMULATION) ? l.pp > 1 ? 2 : 4 : 1);
  if (l.pp == 3) microbatches = 4;
  while (microbatches * l.dp > MATRIX_GLOBAL) microbatches /= 2;
  l.micro = MATRIX_GLOBAL / l.dp / microbatches;
  if (has(set, LAYOUT_INTERLEAVED)) l.layers = l.pp * 2 > LAYERS ? l.pp * 2 : LAYERS;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    if (!(set >> f & 1)) continue;
    const LayoutTraits *t = &layout_traits[f];
    size_t n = strlen(l.name), k = strlen(l.settings);
    snprintf(l.name + n, sizeof l.name - n, "%s%s", n ? " + " : "", t->name);
    snprintf(l.settings + k, sizeof l.settings - k, "%s%s", k && t->settings[0] ? " " : "", t->settings);
  }
  if (needs_zero && !(set & of_kind("zero"))) {
    size_t k = strlen(l.settings);
    snprintf(l.settings + k, sizeof l.settings - k, " parallel.zero=3");
  }
  size_t n = strlen(l.name);
  snprintf(l.name + n, sizeof l.name - n, " (dp %d tp %d pp %d micro %d)", l.dp, l.tp, l.pp, l.micro);
  return l;
}

typedef Vec(MatrixLayout) LayoutList;

static void add(LayoutList *list, MatrixLayout l) {
  if (makes_sense(l.features) && l.dp * l.tp * l.pp <= MATRIX_RANKS) vec_push(list, l);
}

static void add_singles(LayoutList *list) {
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    const LayoutTraits *t = &layout_traits[f];
    uint64_t set = UINT64_C(1) << f;
    add(list, make(set, MATRIX_SINGLE, 0, 0, 0));
    if (set & (of_kind("zero") | bit(LAYOUT_DP) | bit(LAYOUT_WHOLE))) add(list, make(set, MATRIX_SINGLE, 4, 0, 0));
    if (f == LAYOUT_HYBRID) add(list, make(set, MATRIX_SINGLE, 8, 0, 0));
    if (!strcmp(t->kind, "tp")) add(list, make(set, MATRIX_SINGLE, 0, 4, 0));
    if (!strcmp(t->kind, "pp")) add(list, make(set, MATRIX_SINGLE, 0, 0, 4));
    if (!strcmp(t->kind, "pp") && f != LAYOUT_INTERLEAVED) add(list, make(set, MATRIX_SINGLE, 0, 0, 3)); // layers do not divide
  }
}

// Layouts of 5 to 7 features as people run them.
static const struct { uint64_t features; int dp, tp, pp; } real[] = {
#define F(id) (UINT64_C(1) << LAYOUT_##id)
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(ONE_F_ONE_B) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 2},  // Megatron-LM
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(ONE_F_ONE_B) | F(FULL) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(INTERLEAVED) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_1) | F(TP) | F(INTERLEAVED) | F(FULL) | F(ACCUMULATION) | F(BUCKETS_OFF), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(SEQUENCE) | F(SELECTIVE) | F(ACCUMULATION), 4, 4, 1},                   // FSDP with tp inside a machine
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(SEQUENCE) | F(SELECTIVE) | F(ACCUMULATION), 8, 2, 1},       // HSDP with tp
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(TP) | F(ONE_F_ONE_B) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_1) | F(WHOLE) | F(SEQUENCE) | F(ONE_F_ONE_B) | F(SELECTIVE) | F(ACCUMULATION), 4, 2, 2}, // Shampoo, Muon
    {F(DP) | F(ZERO_2) | F(WHOLE) | F(HYBRID) | F(TP) | F(INTERLEAVED) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(WHOLE) | F(SEQUENCE) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_2) | F(SEQUENCE) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_2) | F(TP) | F(ONE_F_ONE_B) | F(SELECTIVE) | F(ACCUMULATION) | F(BUCKETS_OFF), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(SEQUENCE) | F(ONE_F_ONE_B) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(TP) | F(GPIPE) | F(SELECTIVE) | F(ACCUMULATION), 2, 4, 2},
    {F(DP) | F(ZERO_2) | F(HYBRID) | F(SEQUENCE) | F(INTERLEAVED) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(NAIVE) | F(SELECTIVE) | F(BUCKETS_OFF), 2, 4, 2},
    {F(DP) | F(TP) | F(ONE_F_ONE_B) | F(FULL) | F(ACCUMULATION), 2, 4, 2},                          // no ZeRO
    {F(DP) | F(ZERO_1) | F(HYBRID) | F(TP) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(SEQUENCE) | F(GPIPE) | F(SELECTIVE) | F(ACCUMULATION) | F(BUCKETS_OFF), 2, 2, 4},
#undef F
};

int matrix_layouts(MatrixLayout **out) {
  LayoutList list = {0};
  add_singles(&list);
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++) add(&list, make(UINT64_C(1) << a | UINT64_C(1) << b, MATRIX_PAIR, 0, 0, 0));
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      for (int c = b + 1; c < LAYOUT_FEATURES; c++)
        add(&list, make(UINT64_C(1) << a | UINT64_C(1) << b | UINT64_C(1) << c, MATRIX_TRIPLE, 0, 0, 0));
  for (size_t i = 0; i < sizeof real / sizeof *real; i++) add(&list, make(real[i].features, MATRIX_REAL, real[i].dp, real[i].tp, real[i].pp));
  *out = list.data;
  return list.count;
}

int matrix_sample(MatrixLayout *layout, int count, int wanted, uint64_t seed) {
  PhiloxKey key = philox_key(seed, 0, philox_name("matrix"));
  if (wanted > count) wanted = count;
  for (int i = 0; i < wanted; i++) {
    uint32_t r[4];
    philox4x32(key, (uint32_t)i, 0, 0, 0, r);
    int k = i + (int)(r[0] % (uint32_t)(count - i));
    MatrixLayout chosen = layout[k];
    layout[k] = layout[i];
    layout[i] = chosen;
  }
  return wanted;
}

uint64_t matrix_seed(void) {
  const char *given = getenv("PARITY_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)(time(NULL) / 86400);
  printf("PARITY_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}

ParityCase matrix_case(const MatrixLayout *l, const char *model, Dtype precision) {
  return (ParityCase){.name = l->name, .model = model, .dp = l->dp, .tp = l->tp, .pp = l->pp, .micro = l->micro, .layers = l->layers,
                      .seq = SEQUENCE_LENGTH, .global = MATRIX_GLOBAL, .settings = l->settings, .precision = precision, .steps = MATRIX_STEPS};
}

// One rank ----------------------------------------------------------------------------------------------------------

typedef struct Oracle { const char *model; int layers; Dtype precision; ParityResult result; } Oracle;
static Oracle oracle[64]; // of this test program
static int oracles;

static const ParityResult *one_rank(const char *model, int layers, Dtype precision) {
  for (int i = 0; i < oracles; i++)
    if (!strcmp(oracle[i].model, model) && oracle[i].layers == layers && oracle[i].precision == precision) return &oracle[i].result;
  CHECK(oracles < (int)(sizeof oracle / sizeof *oracle));
  Oracle *o = &oracle[oracles++];
  *o = (Oracle){.model = model, .layers = layers, .precision = precision};
  MatrixLayout l = {.name = "one rank", .dp = 1, .tp = 1, .pp = 1, .micro = MATRIX_GLOBAL, .layers = layers};
  ParityCase c = matrix_case(&l, model, precision);
  Error error = {0};
  CHECK(!parity_run(&c, corpus_for(model, CORPUS_RAGGED), &o->result, &error), "%s", error.message);
  return &o->result;
}

void matrix_forget(void) {
  for (int i = 0; i < oracles; i++) parity_free(&oracle[i].result);
  oracles = 0;
}

// Comparison --------------------------------------------------------------------------------------------------------

MatrixTolerance matrix_tolerance(Dtype precision) {
  if (precision == DTYPE_F64) return (MatrixTolerance){1e-10, 1e-10, 1e-10, 1e-10, 1e-10};
  // The unit roundoff of activations times the roundings that an element of a gradient goes through: in series some 16 in each of
  // 4 blocks, which add up as the root; in sums that are kept in the same type (fp32) times the root of their terms, the tokens
  // of a step; bf16 sums in fp32, and 4 standard deviations are left for the worst of thousands of elements. Moments of second
  // order are squares. A parameter may differ by the AdamW steps (lr = 1e-2) taken and no more: these divide a gradient that is
  // only rounding by its own size, and the largest parameter is above 1.
  int narrow = precision == DTYPE_BF16;
  double u = narrow ? 1.0 / 256 : FLT_EPSILON / 2, walk = sqrt(16.0 * LAYERS) * (narrow ? 4 : sqrt((double)MATRIX_GLOBAL * SEQUENCE_LENGTH));
  return (MatrixTolerance){u * 4, u * walk, u * walk, 2e-2 * MATRIX_STEPS, 2 * u * walk};
}

static int is_wrong(const ParityDifference *d, const MatrixTolerance *t) {
  return !(d->loss <= t->loss && d->norm <= t->norm && d->gradient <= t->gradient && d->weight <= t->parameter && d->moment <= t->moment &&
           d->eval <= t->loss);
}

static void keep_worst(ParityDifference *worst, const ParityDifference *d) {
  worst->loss = fmax(worst->loss, d->loss);
  worst->norm = fmax(worst->norm, d->norm);
  worst->gradient = fmax(worst->gradient, d->gradient);
  worst->weight = fmax(worst->weight, d->weight);
  worst->moment = fmax(worst->moment, d->moment);
  worst->eval = fmax(worst->eval, d->eval);
}

static int loud(void) { return getenv("PARITY_LOUD") != NULL; }

int matrix_compare(const ParityCase *c, ParityDifference *d, const char **initial, Error *error) {
  const ParityResult *one = one_rank(c->model, c->layers, c->precision);
  ParityResult other;
  int code = parity_run(c, corpus_for(c->model, CORPUS_RAGGED), &other, error);
  if (code) return code;
  MatrixTolerance t = matrix_tolerance(c->precision);
  *d = parity_compare(&other, one);
  *initial = parity_first_different(&other, one, DUMP_INITIAL);
  parity_free(&other);
  return is_wrong(d, &t) || *initial;
}

void matrix_record(const char *format, ...) {
  const char *path = getenv("PARITY_RESULTS");
  FILE *out = path ? fopen(path, "a") : NULL;
  if (!out) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(out, format, arguments);
  va_end(arguments);
  fclose(out);
}

static const char *leg_of(Dtype precision) { return getenv("PLAIT_CHAOS") ? "chaos" : dtype_name(precision); }

// "dp|tp + sequence"
static void features_text(uint64_t set, char *text, size_t size) {
  text[0] = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    size_t n = strlen(text);
    if (set >> f & 1) snprintf(text + n, size - n, "%s%s", n ? "|" : "", layout_traits[f].name);
  }
}

// leg, kind, result, ranks, features, layout, model, six differences, message; by tabs.
static void record_run(const MatrixLayout *l, const ParityCase *c, const char *result, const ParityDifference *d, const char *message) {
  static const char *const kinds[] = {"single", "pair", "triple", "real"};
  char features[256];
  features_text(l->features, features, sizeof features);
  matrix_record("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%.1e\t%.1e\t%.1e\t%.1e\t%.1e\t%.1e\t%s\n", leg_of(c->precision), kinds[l->kind], result,
                l->dp * l->tp * l->pp, features, l->name, c->model, d->loss, d->norm, d->gradient, d->weight, d->moment, d->eval, message);
}

void matrix_record_table(void) {
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    matrix_record("table\tfeature\t%s\t%s\t%s\n", layout_traits[a].name, layout_traits[a].kind, layouts_built((LayoutFeature)a) ? "built" : "not built");
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      if (layouts_refused((LayoutFeature)a, (LayoutFeature)b))
        matrix_record("table\trefused\t%s\t%s\t%s\n", layout_traits[a].name, layout_traits[b].name, layouts_refused((LayoutFeature)a, (LayoutFeature)b));
  }
}

void matrix_run(const MatrixLayout *l, const char *model, Dtype precision, MatrixTally *tally) {
  ParityCase c = matrix_case(l, model, precision);
  if (!parity_wanted(&c)) return;
  Error error = {0};
  ParityDifference d = {0};
  const char *initial;
  int wrong = matrix_compare(&c, &d, &initial, &error);
  if (wrong < 0) {
    // Sizes that a mesh does not divide are refused before anything starts; all else must run.
    int by_size = wrong == PLAIT_BAD_INPUT && strstr(error.message, "key and value heads");
    printf("%-10s %-5s %s: %s%s\n", model, dtype_name(precision), l->name, error.message, by_size ? "" : "  WRONG");
    record_run(l, &c, by_size ? "refused" : "failed", &d, error.message);
    if (by_size) tally->refused++;
    else tally->wrong++;
    return;
  }
  if (wrong || loud())
    printf("%-10s %-5s %s: loss %.1e  norm %.1e  gradients %.1e  parameters %.1e  moments %.1e  eval %.1e%s%s%s\n", model, dtype_name(precision),
           l->name, d.loss, d.norm, d.gradient, d.weight, d.moment, d.eval, initial ? "  begins with other bits: " : "", initial ? initial : "",
           wrong ? "  WRONG" : "");
  fflush(stdout);
  record_run(l, &c, wrong ? "failed" : "passed", &d, "");
  tally->runs++;
  tally->of[l->kind]++;
  tally->wrong += wrong;
  if (l->dp * l->tp * l->pp > tally->ranks) tally->ranks = l->dp * l->tp * l->pp;
  keep_worst(&tally->worst, &d);
}
