// tier 2; numbers
// fp16 with dynamic loss scaling, bf16, and gradients in bf16: fp32's numbers, one rank's numbers under every layout,
// skipped steps included; what a skipped step leaves alone; where a value that is not finite is said to come from.
#include "corpora.h"
#include "one_rank.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

// The first scale overflows, so that it is searched for; it grows again after some good steps. Where the largest
// gradient is within rounding of what overflows, layouts may differ in whether it does: the intervals are such that no
// step of these runs is so near.
#define SEARCH(scale, interval) "loss_scale.initial=" #scale " loss_scale.growth_interval=" #interval
enum { STEPS = 8 };

static const ParityCase layouts[] = {
    {.name = "micro 2", .dp = 1, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4},
    {.name = "dp 2 zero 1", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 4 zero 2", .dp = 4, .pp = 1, .tp = 1, .micro = 2, .zero = 2},
    {.name = "dp 2 zero 3", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 3, .recompute = RECOMPUTE_FULL},
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "tp 2 sequence", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .sequence = 1},
    {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1},
    {.name = "dp 2 tp 2 pp 2 zero 3", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static ParityCase with(ParityCase c, const char *model, Dtype precision, int steps, const char *settings) {
  c.model = model;
  c.precision = precision;
  c.steps = steps;
  c.settings = settings;
  c.more_settings = PARITY_SMOOTH;
  return c;
}

static ParityCase one_rank(const char *model, Dtype precision, int steps, const char *settings) {
  return with((ParityCase){.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16}, model, precision, steps,
              settings);
}

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static double counter_of(const ParityResult *r, KnownVariable known) {
  for (int i = 0; i < r->tensors[DUMP_FINAL]; i++)
    if (!strcmp(r->tensor[DUMP_FINAL][i].name, known_name(known))) return r->tensor[DUMP_FINAL][i].data[0];
  fail_msg("the checkpoint would lack %s", known_name(known));
  return -1;
}

static void compare_layouts(const char *model, Dtype precision, const char *settings, int skips) {
  const char *corpus = corpus_for(model, CORPUS_RAGGED);
  int steps = parity_steps(STEPS), bad = 0, skipped = 0;
  ParityCase base = one_rank(model, precision, steps, settings);
  for (int i = 0; i < steps; i++) skipped += one_rank_run(&base, corpus, NULL)->skipped[i];
  assert_true(skips ? skipped > 0 && skipped < steps : !skipped);
  for (int i = 0; i < LAYOUTS; i++) { // differs where other steps are skipped or the scale is another, too
    ParityCase c = with(layouts[i], model, precision, steps, settings);
    if (parity_wanted(&c)) bad += one_rank_differs(&c, corpus, NULL);
  }
  assert_int_equal(bad, 0);
}

static void fp16_gpt(void **state) { compare_layouts("gpt", DTYPE_F16, SEARCH(16777216, 2), 1); }
static void fp16_llama(void **state) { compare_layouts("llama", DTYPE_F16, SEARCH(4194304, 3), 1); }
static void gradients_in_bf16_of_fp32(void **state) {
  compare_layouts("llama tied", DTYPE_F32, "parallel.grad_dtype=bf16", 0);
}

static void follows_fp32(Dtype precision, const char *settings) {
  static const char *const models[] = {"gpt", "gpt untied", "llama", "llama tied"};
  int bad = 0;
  for (int m = 0; m < 4; m++) {
    int steps = parity_steps(12);
    ParityCase wide = one_rank(models[m], DTYPE_F32, steps, NULL),
               narrow = one_rank(models[m], precision, steps, settings);
    ParityResult a, b;
    // Almost whole steps of AdamW, so that weights that are not refreshed show.
    wide.more_settings = narrow.more_settings = "optimizer.epsilon=1e-3";
    run(&wide, &a);
    run(&narrow, &b);
    ParityTolerance t = parity_tolerance(&narrow, &a);
    // Narrow weights are off by the same for all sequences, whose errors are not independent then.
    t.most[MEASURE_NORM] = t.most[MEASURE_GRADIENT];
    ParityDifference d = {.worst = {0}}; // losses and norms alone: fp32 has no loss scale among its counters
    for (int i = 0; i < steps; i++) {
      d.worst[MEASURE_LOSS] = fmax(d.worst[MEASURE_LOSS], fabs(b.loss[i] - a.loss[i]) / a.loss[i]);
      d.worst[MEASURE_NORM] = fmax(d.worst[MEASURE_NORM], fabs(b.norm[i] - a.norm[i]) / a.norm[i]);
    }
    narrow.name = "against fp32";
    bad += parity_report(&narrow, &d, &t, 1) ||
           fabs(parity_norm(&b, 0) - b.norm[0]) > 1e-5 * b.norm[0]; // dumps carry no scale
    parity_free(&a);
    parity_free(&b);
  }
  assert_int_equal(bad, 0);
}

// What is small enough to vanish without a loss scale is there, what the scale brought in is out again.
static void fp16_follows_fp32(void **state) { follows_fp32(DTYPE_F16, "loss_scale.initial=1024"); }

// Each step reads the weights that the step before it left: Copies in bf16 follow their fp32 storage.
static void bf16_follows_fp32(void **state) { follows_fp32(DTYPE_BF16, NULL); }

// A power of two changes no bit but of what would have been subnormal: two fixed scales give the same run.
static void scale_is_taken_out_again(void **state) {
  ParityCase a = one_rank("gpt", DTYPE_F16, parity_steps(4), "loss_scale.initial=2048 loss_scale.growth_interval=0"),
             b = a;
  b.settings = "loss_scale.initial=4096 loss_scale.growth_interval=0";
  ParityResult x, y;
  run(&a, &x);
  run(&b, &y);
  assert_true(counter_of(&x, KNOWN_LOSS_SCALE) == 2048 && counter_of(&y, KNOWN_LOSS_SCALE) == 4096);
  for (int i = 0; i < a.steps; i++)
    assert_true(fabs(x.norm[i] - y.norm[i]) < 0x1p-11 * y.norm[i] && fabs(x.loss[i] - y.loss[i]) < 0x1p-11 * y.loss[i]);
  parity_free(&x);
  parity_free(&y);
}

// The scale of a run that overflows at first: halved by each skipped step, doubled after two good ones.
static void scale_follows_overflow(void **state) {
  ParityCase c = one_rank("gpt", DTYPE_F16, STEPS, SEARCH(16777216, 2));
  ParityResult r;
  run(&c, &r);
  double scale = 16777216;
  int good = 0, applied = 0;
  for (int i = 0; i < c.steps; i++) {
    if (r.skipped[i]) scale /= 2, good = 0;
    else applied++, good++;
    if (good == 2) scale *= 2, good = 0;
  }
  assert_true(counter_of(&r, KNOWN_LOSS_SCALE) == scale && counter_of(&r, KNOWN_OPTIMIZER_STEP) == applied &&
              applied > 0 && applied < c.steps);
  parity_free(&r);
}

// What a skipped step leaves: the bits of parameters and moments, whatever the precision, and the right words.
static void skipped_step_changes_no_bit(void **state) {
  static const struct { Dtype precision; const char *settings;
  } rows[] = {{DTYPE_F32, NULL},
              {DTYPE_BF16, NULL},
              {DTYPE_BF16, "parallel.grad_dtype=bf16"},
              {DTYPE_F16, "loss_scale.initial=1024 loss_scale.growth_interval=0"}};
  static const int ways[] = {0, 4, 5, 7, 8, 9};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
      ParityCase c = with(layouts[ways[i]], i % 2 ? "gpt" : "llama", rows[k].precision, 2, rows[k].settings);
      ParityResult two, three;
      run(&c, &two);
      c.steps = c.poison = 3;
      run(&c, &three);
      assert_true(!three.skipped[1] && three.skipped[2]);
      const char *different = parity_first_different(&three, &two, DUMP_FINAL);
      if (different) fail_msg("%s, %s: a skipped step changed %s", c.name, dtype_name(c.precision), different);
      // The first parameter of rank 0 was infinite: it is met by the first that reads it, on that rank.
      printf("%s: %s\n", c.name, three.non_finite);
      assert_non_null(strstr(three.non_finite, "rank 0"));
      assert_non_null(strstr(three.non_finite, "infinite, as wte is already"));
      parity_free(&two);
      parity_free(&three);
    }
}

// An overflow of scaled gradients is found where they begin.
static void overflow_is_named(void **state) {
  ParityCase c = with(layouts[8], "gpt", DTYPE_F16, 1, "loss_scale.initial=1e9");
  ParityResult r;
  run(&c, &r);
  printf("%s\n", r.non_finite);
  assert_true(r.skipped[0]);
  assert_non_null(strstr(r.non_finite, "head, cross_entropy_apply"));
  assert_non_null(strstr(r.non_finite, "pp 1")); // the last stage
  parity_free(&r);
}

// With updates in backward the step cannot be run again: the gradients that were not finite are named, applied ones
// (untied) and one that was left for the end (tied). The last norm's bias makes the head's gradient so long that its
// square overflows.
static void lengthen(Rank *r, int step, void *context) {
  int bias = graph_find_variable(r->state->program->graph, "norm.bias");
  ShardBoxes b = state_boxes(r->state, bias, -1);
  if (!shard_next(&b)) return;
  Box box = b.box;
  if (box.local[0] > 4) box.local[0] = 4;
  state_write(r->state, bias, -1, &box, (double[]){1e200, 1e200, 1e200, 1e200});
}

static void gradient_of_backward_is_named(void **state) {
  static const char *const models[] = {"gpt", "gpt untied"}, *const names[] = {
                                                                 "after the last microbatch, sum_squares norm.wte",
                                                                 "head, sum_squares update."};
  static const int ways[] = {0, 4, 8};
  for (int m = 0; m < 2; m++)
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
      ParityCase c = with(layouts[ways[i]], models[m], DTYPE_F64, 1,
                          "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop");
      ParityResult r;
      c.micro = 16 / c.dp;
      c.before_step = lengthen;
      run(&c, &r);
      printf("%s, %s: %s\n", c.name, c.model, r.non_finite);
      assert_true(r.skipped[0]);
      assert_non_null(strstr(r.non_finite, names[m]));
      parity_free(&r);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fp16_gpt),
      cmocka_unit_test(fp16_llama),
      cmocka_unit_test(gradients_in_bf16_of_fp32),
      cmocka_unit_test(fp16_follows_fp32),
      cmocka_unit_test(bf16_follows_fp32),
      cmocka_unit_test(scale_is_taken_out_again),
      cmocka_unit_test(scale_follows_overflow),
      cmocka_unit_test(skipped_step_changes_no_bit),
      cmocka_unit_test(overflow_is_named),
      cmocka_unit_test(gradient_of_backward_is_named),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, one_rank_end);
}
