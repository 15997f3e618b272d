// Makes the layouts of the matrix and holds them to one rank.
#include "matrix.h"
#include "base/philox.h"
#include "base/shares.h"
#include "corpora.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const matrix_models[MATRIX_MODELS] = {"gpt",   "gpt untied", "llama",   "llama tied",
                                                  "qwen2", "qwen3",      "mistral", "gpt neo"};
static const char *const models_of_3[MATRIX_MODELS] = {"gpt 3",   "gpt untied 3", "llama 3",   "llama tied 3",
                                                         "qwen2 3", "qwen3 3",      "mistral 3", "gpt neo 3"};
const char *const matrix_leg_names[MATRIX_LEGS] = {"fp64", "fp32", "bf16", "bf16 gradients", "fp16"};

// The last two: as the narrow legs are, but in fp64 (matrix_effect).
enum { SMOOTH_FP64 = MATRIX_LEGS, SMOOTH_FP64_SKIPS, ALL_LEGS };
static const struct { Dtype precision; const char *settings; int poison; } legs[ALL_LEGS] = {
    [MATRIX_FP64] = {DTYPE_F64, "", 0},
    [MATRIX_FP32] = {DTYPE_F32, PARITY_SMOOTH, 0},
    [MATRIX_BF16] = {DTYPE_BF16, PARITY_SMOOTH, 0},
    [MATRIX_BF16_GRADIENTS] = {DTYPE_BF16, PARITY_SMOOTH " parallel.grad_dtype=bf16", 0},
    [MATRIX_FP16] = {DTYPE_F16, PARITY_SMOOTH " loss_scale.initial=1024 loss_scale.growth_interval=1", 2},
    [SMOOTH_FP64] = {DTYPE_F64, PARITY_SMOOTH, 0},
    [SMOOTH_FP64_SKIPS] = {DTYPE_F64, PARITY_SMOOTH, 2},
};

enum { SEQUENCE_LENGTH = 12, LAYERS = 4, GLOBAL_OF_3 = 12 };

// Layouts -----------------------------------------------------------------------------------------------------------

static const LayoutFeature schedule_feature[SCHEDULES] = {
#define SCHEDULE(id, ...) [SCHEDULE_##id] = LAYOUT_##id,
#include "schedule/schedules.def"
};

static int has(uint64_t set, LayoutFeature f) { return set >> f & 1; }

// Is there an optimizer whose update jumps?
static int jumps(uint64_t set) {
#define OPTIMIZER_DEFAULT(id, name)
#define OPTIMIZER(id, name) if (has(set, LAYOUT_##id) && op_def(OP_##id)->optimizer->discontinuous) return 1;
#include "ir/optimizers.def"
  return 0;
}

static int of_axis(uint64_t set, const char *axis) {
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (set >> f & 1 && !strcmp(layout_traits[f].axis, axis)) return 1;
  return 0;
}

static uint64_t of_kind(const char *kind) {
  uint64_t set = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (!strcmp(layout_traits[f].kind, kind)) set |= UINT64_C(1) << f;
  return set;
}

// Why the matrix leaves a combination out.
static MatrixReason reason_of(const MatrixLayout *l) {
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    if (!has(l->features, (LayoutFeature)a)) continue;
    if (!layouts_built((LayoutFeature)a)) return MATRIX_NOT_BUILT;
    for (int b = a + 1; b < LAYOUT_FEATURES; b++) {
      if (!has(l->features, (LayoutFeature)b)) continue;
      if (!strcmp(layout_traits[a].kind, layout_traits[b].kind)) return MATRIX_OF_A_KIND;
      if (layouts_refused((LayoutFeature)a, (LayoutFeature)b)) return MATRIX_REFUSED;
    }
  }
  return l->dp * l->tp * l->pp > MATRIX_RANKS ? MATRIX_TOO_LARGE : MATRIX_IN;
}

static void add_setting(MatrixLayout *l, const char *setting) {
  size_t n = strlen(l->settings);
  snprintf(l->settings + n, sizeof l->settings - n, "%s%s", n && setting[0] ? " " : "", setting);
}

// Sequences of a microbatch: as many microbatches as the features want, of sequences that divide by the ranks.
static int micro_of(uint64_t set, const MatrixLayout *l) {
  int microbatches = l->pp * (has(set, LAYOUT_ACCUMULATION) ? l->pp > 1 ? 2 : 4 : 1),
      whole = has(set, LAYOUT_BATCH_TP) ? l->tp : 1;
  if (l->pp == 3) microbatches = 6;
  if (has(set, LAYOUT_IN_BACKWARD)) microbatches = 1;
  while (l->global % (microbatches * l->dp * whole)) microbatches /= 2;
  return l->global / (l->dp * whole) / microbatches;
}

// Sequences that do not divide, in as many microbatches; one that leaves a rank without any in the last microbatch, if
// there is one.
static int uneven_global(uint64_t set, const MatrixLayout *l) {
  int ranks = l->dp * (has(set, LAYOUT_BATCH_TP) ? l->tp : 1),
      microbatches = shares_microbatches(l->global, ranks, l->micro);
  for (int less = 3; less > 0; less--)
    if (shares_microbatches(l->global - less, ranks, l->micro) == microbatches &&
        (l->global - less) % (ranks * l->micro))
      return l->global - less;
  CHECK(0, "no uneven batch for %d ranks", ranks);
}

// Sizes 0: as small as shows the features.
static MatrixLayout make(uint64_t set, MatrixKind kind, int dp, int tp, int pp) {
  MatrixLayout l = {.features = set, .kind = kind, .layers = LAYERS};
  int data = of_axis(set, "dp");
  l.dp = dp ? dp : (has(set, LAYOUT_DP) || data ? 2 : 1) * (has(set, LAYOUT_DP) && data ? 2 : 1);
  if (has(set, LAYOUT_HYBRID) && l.dp < 4) l.dp = 4;
  l.tp = tp ? tp : has(set, LAYOUT_TP) || of_axis(set, "tp") ? 2 : 1;
  l.pp = pp ? pp : of_axis(set, "pp") ? 2 : 1;
  l.global = l.dp % 3 && l.tp % 3 && l.pp % 3 ? MATRIX_GLOBAL : GLOBAL_OF_3;
  l.micro = micro_of(set, &l);
  if (has(set, LAYOUT_UNEVEN)) l.global = uneven_global(set, &l);
  for (int s = 0; s < SCHEDULES; s++)
    if (has(set, schedule_feature[s]) && l.pp * schedules[s].least_stages > LAYERS)
      l.layers = l.pp * schedules[s].least_stages;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    if (!(set >> f & 1)) continue;
    const LayoutTraits *t = &layout_traits[f];
    size_t n = strlen(l.name);
    snprintf(l.name + n, sizeof l.name - n, "%s%s", n ? " + " : "", t->name);
    add_setting(&l, t->settings);
  }
  if (has(set, LAYOUT_HYBRID) && l.dp == 6) add_setting(&l, "parallel.shard_group=3");
  if ((has(set, LAYOUT_HYBRID) || has(set, LAYOUT_WHOLE)) && !(set & of_kind("zero")))
    add_setting(&l, "parallel.zero=3");
  size_t n = strlen(l.name);
  snprintf(l.name + n, sizeof l.name - n, " (dp %d tp %d pp %d micro %d)", l.dp, l.tp, l.pp, l.micro);
  return l;
}

typedef Vec(MatrixLayout) LayoutList;

static void add(LayoutList *list, MatrixLayout l) {
  l.reason = reason_of(&l);
  vec_push(list, l);
}

// At 2, at 3 and at 4 of what the feature is about; shard_group: 2 groups of 2, of 3, and 4 of 2.
static void add_singles(LayoutList *list) {
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    const LayoutTraits *t = &layout_traits[f];
    uint64_t set = UINT64_C(1) << f;
    int hybrid = f == LAYOUT_HYBRID, data = (f == LAYOUT_DP || !strcmp(t->axis, "dp")),
        tensor = f == LAYOUT_TP || !strcmp(t->axis, "tp");
    add(list, make(set, MATRIX_SINGLE, 0, 0, 0));
    for (int size = 3; size <= 4; size++) {
      if (data) add(list, make(set, MATRIX_SINGLE, hybrid ? 2 * size : size, 0, 0));
      if (tensor) add(list, make(set, MATRIX_SINGLE, 0, size, 0));
      if (!strcmp(t->axis, "pp")) add(list, make(set, MATRIX_SINGLE, 0, 0, size));
    }
  }
}

// Layouts of 5 to 7 features as people run them.
static const struct { uint64_t features; int dp, tp, pp;
} real[] = {
#define F(id) (UINT64_C(1) << LAYOUT_##id)
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(1F1B) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 2}, // Megatron-LM
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(1F1B) | F(FULL) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(INTERLEAVED) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_1) | F(TP) | F(INTERLEAVED) | F(FULL) | F(ACCUMULATION) | F(BUCKETS_OFF), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(SEQUENCE) | F(SELECTIVE) | F(ACCUMULATION), 4, 4, 1}, // FSDP with tp inside a machine
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(SEQUENCE) | F(SELECTIVE) | F(ACCUMULATION), 8, 2, 1}, // HSDP with tp
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(TP) | F(1F1B) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_1) | F(WHOLE) | F(SEQUENCE) | F(1F1B) | F(SELECTIVE) | F(ACCUMULATION), 4, 2, 2}, // Shampoo, Muon
    {F(DP) | F(ZERO_2) | F(WHOLE) | F(HYBRID) | F(TP) | F(INTERLEAVED) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(WHOLE) | F(SEQUENCE) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_2) | F(SEQUENCE) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 2, 2, 4},
    {F(DP) | F(ZERO_2) | F(TP) | F(1F1B) | F(SELECTIVE) | F(ACCUMULATION) | F(BUCKETS_OFF), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(SEQUENCE) | F(1F1B) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_3) | F(TP) | F(GPIPE) | F(SELECTIVE) | F(ACCUMULATION), 2, 4, 2},
    {F(DP) | F(ZERO_2) | F(HYBRID) | F(SEQUENCE) | F(INTERLEAVED) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(NAIVE) | F(SELECTIVE) | F(BUCKETS_OFF), 2, 4, 2},
    {F(DP) | F(TP) | F(1F1B) | F(FULL) | F(ACCUMULATION), 2, 4, 2}, // no ZeRO
    {F(DP) | F(ZERO_1) | F(HYBRID) | F(TP) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(SEQUENCE) | F(GPIPE) | F(SELECTIVE) | F(ACCUMULATION) | F(BUCKETS_OFF), 2, 2, 4},
    {F(DP) | F(ZERO_2) | F(SEQUENCE) | F(1F1B) | F(SELECTIVE), 2, 3, 2}, // by 3
    {F(DP) | F(ZERO_1) | F(TP) | F(INTERLEAVED) | F(FULL), 2, 2, 3},
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(SEQUENCE) | F(SELECTIVE), 6, 2, 1},
    {F(DP) | F(ZERO_3) | F(TP) | F(1F1B) | F(FULL) | F(BUCKETS_OFF), 3, 2, 2},
    {F(DP) | F(ZERO_2) | F(SEQUENCE) | F(FULL) | F(IN_BACKWARD), 4, 2, 1}, // updates in backward
    {F(DP) | F(ZERO_3) | F(TP) | F(1F1B) | F(SELECTIVE) | F(IN_BACKWARD), 2, 2, 2},
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(TP) | F(IN_BACKWARD) | F(BUCKETS_OFF), 4, 2, 1},
    {F(DP) | F(ZERO_1) | F(TP) | F(1F1B) | F(LION) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 2}, // other optimizers
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(SEQUENCE) | F(LION) | F(FULL) | F(IN_BACKWARD), 4, 2, 1},
    {F(DP) | F(ZERO_2) | F(WHOLE) | F(TP) | F(INTERLEAVED) | F(SGD) | F(ACCUMULATION), 2, 2, 2},
    {F(DP) | F(ZERO_1) | F(EMBED_TP) | F(SEQUENCE) | F(1F1B) | F(ACCUMULATION), 2, 2, 2}, // written
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(BATCH_TP) | F(GPIPE) | F(FULL) | F(ACCUMULATION), 4, 2, 2},
    {F(DP) | F(ZERO_2) | F(TP) | F(VOCAB_DP) | F(INTERLEAVED) | F(SELECTIVE) | F(ACCUMULATION), 2, 2, 2},
    {F(DP) | F(ZERO_1) | F(SEQUENCE) | F(1F1B) | F(SELECTIVE) | F(ACCUMULATION) | F(UNEVEN), 2, 2,
     2}, // batches that do not divide
    {F(DP) | F(ZERO_3) | F(HYBRID) | F(TP) | F(GPIPE) | F(FULL) | F(ACCUMULATION) | F(UNEVEN), 4, 2, 2},
    {F(DP) | F(ZERO_2) | F(SEQUENCE) | F(INTERLEAVED) | F(ACCUMULATION) | F(UNEVEN), 3, 2, 2},
    {F(DP) | F(ZERO_2) | F(BATCH_TP) | F(1F1B) | F(ACCUMULATION) | F(UNEVEN), 2, 2, 2},
#undef F
};

// Every combination, those that are left out too.
static LayoutList all_layouts(void) {
  LayoutList list = {0};
  add_singles(&list);
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      add(&list, make(UINT64_C(1) << a | UINT64_C(1) << b, MATRIX_PAIR, 0, 0, 0));
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      for (int c = b + 1; c < LAYOUT_FEATURES; c++)
        add(&list, make(UINT64_C(1) << a | UINT64_C(1) << b | UINT64_C(1) << c, MATRIX_TRIPLE, 0, 0, 0));
  for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
    add(&list, make(real[i].features, MATRIX_REAL, real[i].dp, real[i].tp, real[i].pp));
    CHECK(list.data[list.count - 1].reason == MATRIX_IN, "%s is left out", list.data[list.count - 1].name);
  }
  return list;
}

int matrix_layouts(MatrixLayout **out) {
  LayoutList list = all_layouts();
  int n = 0;
  for (int i = 0; i < list.count; i++)
    if (list.data[i].reason == MATRIX_IN) list.data[n++] = list.data[i];
  *out = list.data;
  return n;
}

static const char *const reasons[MATRIX_REASONS] = {"in the matrix", "of two features of one kind", "refused",
                                                    "with a feature that is not built",
                                                    "of more ranks than the matrix runs"};

void matrix_print_left_out(int names) {
  LayoutList list = all_layouts();
  int count[MATRIX_REASONS] = {0};
  for (int i = 0; i < list.count; i++) {
    const MatrixLayout *l = &list.data[i];
    count[l->reason]++;
    if (names && l->reason > MATRIX_OF_A_KIND) printf("left out\t%s\t%s\n", reasons[l->reason], l->name);
  }
  for (int r = 0; r < MATRIX_REASONS; r++) printf("combinations\t%d\t%s\n", count[r], reasons[r]);
  vec_free(&list);
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
  uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
  printf("PARITY_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}

int matrix_fits(const MatrixLayout *l, MatrixLeg leg) {
  return !(leg == MATRIX_FP16 && has(l->features, LAYOUT_IN_BACKWARD)) && !(leg != MATRIX_FP64 && jumps(l->features));
}

int matrix_model(const MatrixLayout *l, int model) {
  return jumps(l->features) && model < MATRIX_LLAMA ? MATRIX_LLAMA + model : model;
}

ParityCase matrix_case(const MatrixLayout *l, int model, MatrixLeg leg) {
  model = matrix_model(l, model);
  return (ParityCase){.name = l->name,
                      .model = l->tp % 3 ? matrix_models[model] : models_of_3[model],
                      .dp = l->dp,
                      .tp = l->tp,
                      .pp = l->pp,
                      .micro = l->micro,
                      .layers = l->layers,
                      .seq = SEQUENCE_LENGTH,
                      .global = l->global,
                      .settings = l->settings,
                      .more_settings = legs[leg].settings,
                      .precision = legs[leg].precision,
                      .poison = legs[leg].poison,
                      .steps = MATRIX_STEPS};
}

int matrix_mine(int index) {
  const char *part = getenv("PARITY_PART"), *of = part ? strchr(part, '/') : NULL;
  return !of || index % atoi(of + 1) == atoi(part) % atoi(of + 1);
}

// One rank ----------------------------------------------------------------------------------------------------------

typedef struct Oracle { ParityCase c; int leg; char settings[256]; ParityResult result; } Oracle;
static Oracle oracle[512]; // of this test program
static int oracles;

// What of the settings of a layout is no layout, and changes the numbers of one rank as well.
static void settings_of_one(const char *settings, char *out, size_t size) {
  out[0] = 0;
  for (size_t n; *settings; settings += n) {
    n = strcspn(settings, " ");
    size_t k = strlen(out);
    if (strncmp(settings, "parallel.", 9) && strncmp(settings, "layout.", 7))
      snprintf(out + k, size - k, "%.*s ", (int)n, settings);
    n += strspn(settings + n, " ");
  }
}

int matrix_like_any(const MatrixLayout *l) {
  char settings[sizeof l->settings];
  settings_of_one(l->settings, settings, sizeof settings);
  return l->global == MATRIX_GLOBAL && !settings[0];
}

static const ParityResult *one_rank(const ParityCase *c, int leg) {
  char settings[sizeof oracle->settings];
  settings_of_one(c->settings, settings, sizeof settings);
  for (int i = 0; i < oracles; i++) {
    const ParityCase *o = &oracle[i].c;
    if (!strcmp(o->model, c->model) && o->layers == c->layers && o->global == c->global && o->steps == c->steps &&
        oracle[i].leg == leg && !strcmp(oracle[i].settings, settings))
      return &oracle[i].result;
  }
  CHECK(oracles < (int)(sizeof oracle / sizeof *oracle));
  Oracle *o = &oracle[oracles++];
  o->leg = leg;
  memcpy(o->settings, settings, sizeof settings);
  o->c = (ParityCase){.name = "one rank",
                      .model = c->model,
                      .dp = 1,
                      .tp = 1,
                      .pp = 1,
                      .micro = c->global,
                      .layers = c->layers,
                      .seq = c->seq,
                      .global = c->global,
                      .settings = o->settings,
                      .more_settings = legs[leg].settings,
                      .precision = c->precision,
                      .poison = legs[leg].poison,
                      .steps = c->steps};
  Error error = {0};
  CHECK(!parity_run(&o->c, corpus_for(c->model, CORPUS_RAGGED), &o->result, &error), "%s", error.message);
  return &o->result;
}

void matrix_forget(void) {
  for (int i = 0; i < oracles; i++) parity_free(&oracle[i].result);
  oracles = 0;
}

// Comparison --------------------------------------------------------------------------------------------------------

static int loud(void) { return getenv("PARITY_LOUD") != NULL; }

int matrix_compare(const ParityCase *c, MatrixLeg leg, MatrixResult *r, Error *error) {
  const ParityResult *one = one_rank(c, leg);
  ParityResult other;
  int code = parity_run(c, corpus_for(c->model, CORPUS_RAGGED), &other, error);
  if (code) return code;
  r->tolerance = parity_tolerance(c, one);
  r->difference = parity_compare(&other, one, &r->tolerance);
  r->initial = parity_first_different(&other, one, DUMP_INITIAL);
  parity_free(&other);
  return parity_differs(&r->difference, &r->tolerance) || r->initial;
}

typedef struct Judge { const ParityResult *one; ParityTolerance tolerance; int wrong; } Judge;

static int judge_step(const ParityResult *so_far, int step, void *judge) {
  Judge *j = judge;
  ParityDifference d = parity_compare_step(so_far, j->one, step, &j->tolerance);
  return j->wrong = parity_differs(&d, &j->tolerance);
}

int matrix_differs(const ParityCase *c, MatrixLeg leg, Error *error) {
  const ParityResult *one = one_rank(c, leg);
  Judge judge = {one, parity_tolerance(c, one), 0};
  ParityCase judged = *c;
  judged.enough = judge_step;
  judged.judge = &judge;
  ParityResult other;
  int code = parity_run(&judged, corpus_for(c->model, CORPUS_RAGGED), &other, error);
  if (code) return code;
  ParityDifference d = {.worst = {0}};
  if (!judge.wrong) d = parity_compare(&other, one, &judge.tolerance);
  int wrong = judge.wrong || parity_differs(&d, &judge.tolerance) || parity_first_different(&other, one, DUMP_INITIAL);
  parity_free(&other);
  return wrong;
}

static int wide_leg(const ParityCase *c) { return c->poison ? SMOOTH_FP64_SKIPS : SMOOTH_FP64; }

ParityCase matrix_in_fp64(const ParityCase *c) {
  ParityCase wide = *c;
  wide.precision = legs[wide_leg(c)].precision;
  wide.more_settings = legs[wide_leg(c)].settings;
  return wide;
}

double matrix_effect(const ParityCase *wide, const ParityCase *c, const char **measure, Error *error) {
  int worst = 0;
  const ParityResult *one = one_rank(wide, wide_leg(wide));
  ParityResult other;
  int code = parity_run(wide, corpus_for(wide->model, CORPUS_RAGGED), &other, error);
  if (code) return code;
  ParityTolerance t = parity_tolerance(c, one);
  ParityDifference d = parity_compare(&other, one, &t);
  if (parity_first_different(&other, one, DUMP_INITIAL)) d.worst[MEASURE_CHANGE] = INFINITY;
  for (int i = 0; i < MEASURES; i++)
    if (d.worst[i] / t.most[i] > d.worst[worst] / t.most[worst]) worst = i;
  *measure = parity_measure_names[worst];
  parity_free(&other);
  return d.worst[worst] / t.most[worst];
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

int matrix_recorded(const char *begin) {
  const char *path = getenv("PARITY_RESULTS");
  FILE *in = path ? fopen(path, "r") : NULL;
  char line[1024];
  int found = 0;
  while (in && !found && fgets(line, sizeof line, in)) found = !strncmp(line, begin, strlen(begin));
  if (in) fclose(in);
  return found;
}

// Of the bound of a measure.
static double share(const MatrixResult *r, int i) {
  return r->tolerance.most[i] > 0 ? r->difference.worst[i] / r->tolerance.most[i] : 0;
}

static const char *leg_name(MatrixLeg leg) { return getenv("PLAIT_CHAOS") ? "chaos" : matrix_leg_names[leg]; }

// "dp|tp + sequence"
static void features_text(uint64_t set, char *text, size_t size) {
  text[0] = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    size_t n = strlen(text);
    if (set >> f & 1) snprintf(text + n, size - n, "%s%s", n ? "|" : "", layout_traits[f].name);
  }
}

// leg, kind, result, ranks, features, layout, model, message, and for each measure: the worst, its share of the bound;
// by tabs.
static void record_run(const MatrixLayout *l, const ParityCase *c, MatrixLeg leg, const char *result,
                       const MatrixResult *r, const char *message) {
  static const char *const kinds[] = {"single", "pair", "triple", "real"};
  char features[256], values[MEASURES * 24] = "";
  features_text(l->features, features, sizeof features);
  for (int i = 0; i < MEASURES; i++) {
    size_t n = strlen(values);
    snprintf(values + n, sizeof values - n, "\t%.1e\t%.1e", r->difference.worst[i], share(r, i));
  }
  matrix_record("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s%s\n", leg_name(leg), kinds[l->kind], result, l->dp * l->tp * l->pp,
                features, l->name, c->model, message, values);
}

void matrix_print_table(void) {
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    printf("feature\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", layout_traits[a].name, layout_traits[a].kind,
           layouts_built((LayoutFeature)a) ? "built" : "not built", layout_traits[a].key, layout_traits[a].condition,
           layout_traits[a].axis, layout_traits[a].settings);
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      if (layouts_refused((LayoutFeature)a, (LayoutFeature)b))
        printf("refused\t%s\t%s\t%s\n", layout_traits[a].name, layout_traits[b].name,
               layouts_refused((LayoutFeature)a, (LayoutFeature)b));
  matrix_print_left_out(1);
}

static void add_to_tally(MatrixTally *tally, const MatrixLayout *l, const MatrixResult *r, int wrong) {
  tally->runs++;
  tally->wrong += wrong;
  if (l->dp * l->tp * l->pp > tally->ranks) tally->ranks = l->dp * l->tp * l->pp;
  for (int i = 0; i < MEASURES; i++) {
    tally->worst[i] = fmax(tally->worst[i], r->difference.worst[i]);
    tally->share[i] = fmax(tally->share[i], share(r, i));
  }
}

void matrix_run(const MatrixLayout *l, int model, MatrixLeg leg, MatrixTally *tally) {
  ParityCase c = matrix_case(l, model, leg);
  if (!parity_wanted(&c)) return;
  Error error = {0};
  MatrixResult r = {.initial = NULL};
  int wrong = matrix_compare(&c, leg, &r, &error);
  if (wrong < 0) {
    printf("%-12s %-5s %s: %s  WRONG\n", c.model, leg_name(leg), l->name, error.message);
    record_run(l, &c, leg, "failed", &r, error.message);
    tally->wrong++;
    return;
  }
  parity_report(&c, &r.difference, &r.tolerance, loud());
  if (r.initial)
    printf("%-12s %-5s %s: begins with other bits: %s  WRONG\n", c.model, leg_name(leg), l->name, r.initial);
  record_run(l, &c, leg, wrong ? "failed" : "passed", &r, "");
  add_to_tally(tally, l, &r, wrong);
}
