// Runs layouts of the matrix in every leg, and holds them to one rank.
#include "matrix.h"
#include "corpora.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const matrix_models[MATRIX_MODELS] = {"gpt",   "gpt untied", "llama",   "llama tied",
                                                  "qwen2", "qwen3",      "mistral", "gpt neo",
                                                  "mixtral", "qwen moe"};
static const char *const models_of_3[MATRIX_MODELS] = {"gpt 3",     "gpt untied 3", "llama 3",   "llama tied 3",
                                                       "qwen2 3",   "qwen3 3",      "mistral 3", "gpt neo 3",
                                                       "mixtral 3", "qwen moe 3"};
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

// Is there an optimizer whose update jumps?
static uint64_t jumping(void) {
  uint64_t set = 0;
#define OPTIMIZER_DEFAULT(id, name)
#define OPTIMIZER(id, name) if (op_def(OP_##id)->optimizer->discontinuous) set |= UINT64_C(1) << LAYOUT_##id;
#include "ir/optimizers.def"
  return set;
}

// Is there a schedule whose stages update at once? Steps are not skipped then, and no weight is on two stages.
static uint64_t at_once(void) {
  uint64_t set = 0;
#define SCHEDULE(id, ...) if (schedules[SCHEDULE_##id].at_once) set |= UINT64_C(1) << LAYOUT_##id;
#include "schedule/schedules.def"
  return set;
}

// Moments of 8 bits jump from value to value, some percent apart, where those of two meshes are rounded differently.
static uint64_t unfit_for_leg(MatrixLeg leg) {
  return (leg == MATRIX_FP16 ? UINT64_C(1) << LAYOUT_IN_BACKWARD | at_once() : 0) |
         (leg != MATRIX_FP64 ? jumping() | UINT64_C(1) << LAYOUT_STATES8 : 0);
}

int matrix_fits(const MatrixLayout *l, MatrixLeg leg) {
  return l->kind == MATRIX_COVER || !(l->features & unfit_for_leg(leg));
}

static uint64_t of_experts(const MatrixLayout *l) {
  uint64_t set = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (!strcmp(layout_traits[f].kind, "ep")) set |= l->features & UINT64_C(1) << f;
  return set;
}

MatrixLayout matrix_dense(const MatrixLayout *l) {
  uint64_t experts = of_experts(l);
  if (l->kind != MATRIX_COVER || !experts) return *l;
  return matrix_layout(l->features & ~experts, MATRIX_COVER, (MatrixMesh){0});
}

int matrix_model(const MatrixLayout *l, int model) {
  static const int untied[MATRIX_MODELS] = {1, 1, 2, 2, 5, 5, 6, 6, 8, 8};
  if (of_experts(l)) model = MATRIX_EXPERTS + model % (MATRIX_MODELS - MATRIX_EXPERTS);
  else if (l->features & jumping() && model < MATRIX_LLAMA) model += MATRIX_LLAMA;
  return l->features & at_once() ? untied[model] : model;
}

MatrixLayout matrix_fitted(const MatrixLayout *l, int model, MatrixLeg leg) {
  uint64_t unfit = unfit_for_leg(leg) | (model < MATRIX_LLAMA ? jumping() : 0);
  if (l->kind != MATRIX_COVER || !(l->features & unfit)) return *l;
  return matrix_layout(l->features & ~unfit, MATRIX_COVER, (MatrixMesh){0});
}

ParityCase matrix_case(const MatrixLayout *l, int model, MatrixLeg leg) {
  model = matrix_model(l, model);
  int by_3 = l->mesh.tp % 3 == 0 || (l->mesh.cp % 3 == 0 && l->mesh.tp % 2); // heads that divide
  return (ParityCase){.name = l->name,
                      .model = by_3 ? models_of_3[model] : matrix_models[model],
                      .dp = l->mesh.dp,
                      .cp = l->mesh.cp,
                      .tp = l->mesh.tp,
                      .pp = l->mesh.pp,
                      .micro = l->micro,
                      .layers = l->layers,
                      .seq = l->seq,
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

void matrix_settings_of_one(const MatrixLayout *l, char *out, size_t size) {
  one_rank_settings(l->settings, out, size);
}

int matrix_like_any(const MatrixLayout *l) {
  char settings[sizeof l->settings];
  matrix_settings_of_one(l, settings, sizeof settings);
  return l->global == MATRIX_GLOBAL && !settings[0];
}

// In fp64 no token changes to another expert by rounding.
static int records_routing(const ParityCase *c, int leg) {
  return leg > MATRIX_FP64 && leg < MATRIX_LEGS && (strstr(c->model, "mixtral") || strstr(c->model, "moe"));
}

// chooses: the leg whose choices of experts it makes; its own where that is `leg`.
static const ParityResult *one_rank_choosing(const ParityCase *c, int leg, int chooses) {
  ParityCase one = *c;
  int fresh;
  one.follows = NULL;
  if (chooses != leg) {
    one.precision = legs[chooses].precision;
    one.follows = one_rank_choosing(&one, chooses, chooses)->routing;
    one.precision = c->precision;
  }
  one.more_settings = legs[leg].settings;
  one.poison = legs[leg].poison;
  one.records = records_routing(c, leg);
  const ParityResult *result = one_rank_run(&one, corpus_for(c->model, CORPUS_RAGGED), &fresh);
  if (fresh && result->routing)
    matrix_record("gap\t%s\t%s\t%.1e\n", matrix_leg_names[leg], c->model, routing_smallest_gap(result->routing));
  return result;
}

static const ParityResult *one_rank(const ParityCase *c, int leg) { return one_rank_choosing(c, leg, leg); }

// Comparison --------------------------------------------------------------------------------------------------------

static int loud(void) { return getenv("PARITY_LOUD") != NULL; }

int matrix_compare(const ParityCase *c, MatrixLeg leg, MatrixResult *r, Error *error) {
  const ParityResult *one = one_rank(c, leg);
  ParityCase following = *c;
  following.follows = one->routing;
  ParityResult other;
  int code = parity_run(&following, corpus_for(c->model, CORPUS_RAGGED), &other, error);
  if (code) return code;
  r->tolerance = parity_tolerance(c, one);
  r->difference = parity_compare(&other, one, &r->tolerance);
  r->flips = other.flips.count;
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
  judged.follows = one->routing;
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

double matrix_effect(const ParityCase *wide, const ParityCase *c, MatrixLeg leg, const char **measure, Error *error) {
  int worst = 0;
  ParityCase narrow = *c, following = *wide;
  narrow.steps = wide->steps;
  following.follows = one_rank(&narrow, (int)leg)->routing;
  const ParityResult *one = one_rank_choosing(wide, wide_leg(wide), following.follows ? (int)leg : wide_leg(wide));
  ParityResult other;
  int code = parity_run(&following, corpus_for(wide->model, CORPUS_RAGGED), &other, error);
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

static const char *const leg_words[MATRIX_LEGS] = {"fp64", "fp32", "bf16", "bf16_gradients",
                                                   "fp16"}; // scripts/parity's
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
  static const char *const kinds[MATRIX_KINDS] = {"single", "pair", "cover", "real"};
  char features[384], values[MEASURES * 24] = "";
  features_text(l->features, features, sizeof features);
  for (int i = 0; i < MEASURES; i++) {
    size_t n = strlen(values);
    snprintf(values + n, sizeof values - n, "\t%.1e\t%.1e", r->difference.worst[i], share(r, i));
  }
  matrix_record("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s%s\n", leg_name(leg), kinds[l->kind], result, matrix_ranks(l),
                features, l->name, c->model, message, values);
}

static void add_to_tally(MatrixTally *tally, const MatrixLayout *l, const MatrixResult *r, int wrong) {
  tally->runs++;
  tally->wrong += wrong;
  if (matrix_ranks(l) > tally->ranks) tally->ranks = matrix_ranks(l);
  for (int i = 0; i < MEASURES; i++) {
    tally->worst[i] = fmax(tally->worst[i], r->difference.worst[i]);
    tally->share[i] = fmax(tally->share[i], share(r, i));
  }
}

enum { REDUCED = 5 }; // layouts that a process reduces

// A layout that fails: takes out features as long as it fails without them.
static void reduce(const MatrixLayout *failed, int model, MatrixLeg leg) {
  static int reduced;
  if (__builtin_popcountll(failed->features) < 2 || reduced++ >= REDUCED) return;
  MatrixLayout least = *failed;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    uint64_t without = least.features & ~(UINT64_C(1) << f);
    if (without == least.features || !without || matrix_reason(without, (MatrixMesh){0}) != MATRIX_IN) continue;
    MatrixLayout l = matrix_layout(without, MATRIX_REAL, (MatrixMesh){0});
    ParityCase c = matrix_case(&l, model, leg);
    Error error = {0};
    MatrixResult r;
    if (matrix_compare(&c, leg, &r, &error)) least = l;
  }
  printf("%-12s %-5s fails with these of its features: PARITY_ONLY='=%s' scripts/parity BUILD %s  WRONG\n",
         matrix_case(&least, model, leg).model, leg_name(leg), least.name,
         getenv("PLAIT_CHAOS") ? "chaos" : leg_words[leg]);
  fflush(stdout);
}

// A broken invariant ends the process: says in which layout.
static char under_way[512];
static void say_which(int signal_number) {
  if (write(STDOUT_FILENO, under_way, strlen(under_way)) < 0) return; // abort() ends the process
}

static int compare_and_record(const MatrixLayout *l, int model, MatrixLeg leg, MatrixTally *tally) {
  ParityCase c = matrix_case(l, model, leg);
  snprintf(under_way, sizeof under_way, "%-12s %-5s %s: broken invariant  WRONG\n", c.model, leg_name(leg), l->name);
  signal(SIGABRT, say_which);
  Error error = {0};
  MatrixResult r = {.initial = NULL};
  int wrong = matrix_compare(&c, leg, &r, &error);
  if (wrong < 0) {
    printf("%-12s %-5s %s: %s  WRONG\n", c.model, leg_name(leg), l->name, error.message);
    record_run(l, &c, leg, "failed", &r, error.message);
    tally->wrong++;
    return wrong;
  }
  parity_report(&c, &r.difference, &r.tolerance, loud());
  if (r.initial)
    printf("%-12s %-5s %s: begins with other bits: %s  WRONG\n", c.model, leg_name(leg), l->name, r.initial);
  record_run(l, &c, leg, wrong ? "failed" : "passed", &r, "");
  if (r.flips)
    matrix_record("flips\t%s\t%s\t%s\t%lld\t%.1e\t%s\n", leg_name(leg), c.model, l->name, (long long)r.flips,
                  r.difference.worst[MEASURE_ROUTING], r.difference.tensor[MEASURE_ROUTING]);
  add_to_tally(tally, l, &r, wrong);
  return wrong;
}

void matrix_run(const MatrixLayout *l, int model, MatrixLeg leg, MatrixTally *tally) {
  MatrixLayout fitted = matrix_fitted(l, model, leg);
  ParityCase c = matrix_case(&fitted, model, leg);
  if (parity_wanted(&c) && compare_and_record(&fitted, model, leg, tally)) reduce(&fitted, model, leg);
}
