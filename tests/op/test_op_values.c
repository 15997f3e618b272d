// Values of the reference kernels, against formulas that are written here a second time: activations, norms, rope,
// attention, losses, routing, updates of optimizers, and what a step does with its scalars.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/op_case.h"
#include "close_to.h"
#include "op/formula.h"

static void activations_have_their_values(void **state) {
  static const struct { int kind; double x, y; } expected[] = {
      {ACTIVATION_GELU, 1, 0.84134474606854293},      {ACTIVATION_GELU, -2, -0.045500263896358417},
      {ACTIVATION_GELU_TANH, 1, 0.84119199060827676}, {ACTIVATION_SILU, 1, 0.73105857863000487},
      {ACTIVATION_SILU, -3, -0.14227761953270035},    {ACTIVATION_RELU, -1, 0},
      {ACTIVATION_RELU, 2, 2},                        {ACTIVATION_SIGMOID, -2, 0.11920292202211755},
  };
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
    close_to(activation_value(expected[i].kind, expected[i].x), expected[i].y, 1e-14, "activation", (int64_t)i);
}

static void layer_norm_normalises(void **state) {
  OpCase c = op_case_named("layer_norm");
  double *x = c.input[0].data, *gain = c.input[1].data, *bias = c.input[2].data, *y = c.output[0].data;
  op_case_run(&c);
  for (int r = 0; r < 10; r++) {
    double sum = 0, squares = 0;
    for (int i = 0; i < 7; i++) {
      double n = (y[r * 7 + i] - bias[i]) / gain[i];
      sum += n;
      squares += n * n;
    }
    close_to(sum, 0, 1e-12, "sum", r);
    close_to(squares / 7, 1, 1e-3, "variance", r);
    close_to((x[r * 7] - ((double *)c.output[1].data)[r]) * ((double *)c.output[2].data)[r] * gain[0] + bias[0],
             y[r * 7], 1e-12, "y", r);
  }
  op_case_free(&c);
}

// Hugging Face's formulation: x cos + rotate_half(x) sin with cos, sin of the frequencies twice over.
static void rope_rotates_halves(void **state) {
  OpCase c = op_case_named("rope");
  op_case_run(&c);
  const double *x = c.input[0].data, *y = c.output[0].data;
  const int32_t *positions = c.input[1].data;
  for (int t = 0; t < 14; t++)
    for (int h = 0; h < 6; h++)
      for (int i = 0; i < 6; i++) {
        int at = (t * 6 + h) * 6;
        double angle = positions[t] / pow(10000, 2 * (i % 3) / 6.0), rotated = i < 3 ? -x[at + i + 3] : x[at + i - 3];
        close_to(y[at + i], x[at + i] * cos(angle) + rotated * sin(angle), 1e-12, "rope", at + i);
      }
  op_case_free(&c);
}

static void rope_scales_as_llama_3(void **state) {
  RopeAttr a = {500000, 0, 1, 8, 1, 4, 8192};
  int kinds[3] = {0};
  for (int i = 0; i < 64; i++) {
    double f = 1 / pow(500000, 2 * i / 128.0), wavelength = 2 * acos(-1) / f, expected;
    if (wavelength > 8192 / 1.0) expected = f / 8, kinds[0]++;
    else if (wavelength < 8192 / 4.0) expected = f, kinds[1]++;
    else {
      double smooth = (8192 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * f / 8 + smooth * f, kinds[2]++;
    }
    close_to(rope_frequency(&a, i, 128), expected, 1e-14 * expected, "frequency", i);
  }
  assert_true(kinds[0] && kinds[1] && kinds[2]);
}

static void attention_is_a_masked_softmax(void **state) {
  OpCase c = op_case_named("attention causal documents");
  op_case_run(&c);
  const double *q = c.input[0].data, *k = c.input[1].data, *v = c.input[2].data, *out = c.output[0].data;
  const int32_t *documents = c.input[3].data;
  int masked = 0;
  for (int b = 0; b < 2; b++)
    for (int s = 0; s < 7; s++)
      for (int h = 0; h < 6; h++) { // h = g * 3 + r
        double p[7], total = 0;
        for (int t = 0; t < 7; t++) {
          double dot = 0;
          for (int i = 0; i < 5; i++) dot += q[((b * 7 + s) * 6 + h) * 5 + i] * k[((b * 7 + t) * 2 + h / 3) * 5 + i];
          int visible = t <= s && documents[b * 7 + t] == documents[b * 7 + s];
          masked += t <= s && !visible;
          total += p[t] = visible ? exp(0.4 * dot) : 0;
        }
        for (int i = 0; i < 5; i++) {
          double expected = 0;
          for (int t = 0; t < 7; t++) expected += p[t] / total * v[((b * 7 + t) * 2 + h / 3) * 5 + i];
          close_to(out[((b * 7 + s) * 6 + h) * 5 + i], expected, 1e-12, "attention", s);
        }
        close_to(((double *)c.output[1].data)[(b * 6 + h) * 7 + s], log(total), 1e-12, "logsumexp", s);
      }
  assert_true(masked > 0);
  op_case_free(&c);
}

static void cross_entropy_is_the_sum_over_targets(void **state) {
  OpCase c = op_case_named("linear_cross_entropy");
  op_case_run(&c);
  const double *x = c.input[0].data, *w = c.input[1].data;
  const int32_t *targets = c.input[2].data;
  double loss = 0;
  for (int r = 0; r < 10; r++) {
    double total = 0, chosen = 0;
    for (int v = 0; v < 37; v++) {
      double dot = 0;
      for (int i = 0; i < 6; i++) dot += x[r * 6 + i] * w[v * 6 + i];
      total += exp(dot);
      if (v == targets[r]) chosen = dot;
    }
    if (targets[r] >= 0) loss += log(total) - chosen;
  }
  close_to(*(double *)c.output[0].data, loss, 1e-11, "loss", 0);
  op_case_free(&c);
  c = op_case_named("linear_cross_entropy no target");
  op_case_run(&c);
  assert_true(*(double *)c.output[0].data == 0);
  for (int i = 0; i < 12; i++) assert_true(((double *)c.output[1].data)[i] == 0);
  for (int i = 0; i < 15; i++) assert_true(((double *)c.output[2].data)[i] == 0);
  op_case_free(&c);
}

static int mask_at(const OpCase *c, int64_t i) { return ((const uint8_t *)c->output[1].data)[i]; }

// Of equal probabilities the lower expert is taken; a bias chooses, and the weights are those without it.
static void route_takes_the_best_experts(void **state) {
  OpCase c = op_case_named("route"), biased = op_case_named("route bias");
  double *logits = c.input[0].data, sum = 0;
  for (int i = 0; i < 4; i++) logits[i] = 1;
  for (int i = 0; i < 4; i++) logits[4 + i] = i == 3 ? 2 : i == 1 ? -1 : 0.5; // then 0 and 2 are alike
  op_case_run(&c);
  for (int i = 0; i < 4; i++) assert_int_equal(mask_at(&c, i), i < 2);
  for (int i = 0; i < 4; i++) assert_int_equal(mask_at(&c, 4 + i), i == 0 || i == 3);
  for (int i = 0; i < 4; i++) close_to(((double *)c.output[0].data)[i], i < 2 ? 0.25 : 0, 1e-15, "weight", i);
  for (int i = 0; i < 4; i++) sum += exp(logits[4 + i]);
  close_to(((double *)c.output[0].data)[7], exp(2) / sum, 1e-15, "weight", 7);
  for (int i = 0; i < 4; i++) ((double *)biased.input[0].data)[i] = i, ((double *)biased.input[1].data)[i] = -2 * i;
  op_case_run(&biased);
  assert_int_equal(mask_at(&biased, 0), 1);
  close_to(((double *)biased.output[0].data)[0], 1 / (1 + exp(1) + exp(2) + exp(3)), 1e-15, "weight", 0);
  op_case_free(&c);
  op_case_free(&biased);
}

// Two steps of torch.optim.AdamW on one weight, by its documented update.
static void adamw_updates_as_pytorch(void **state) {
  const double g[2] = {0.5, -0.25}, lr = 0.1, b1 = 0.9, b2 = 0.95, decay = 0.1, epsilon = 1e-8;
  double w = 1, m = 0, v = 0, expected = 1, em = 0, ev = 0;
  OptimizerAttr attr = {.beta1 = b1, .beta2 = b2, .epsilon = epsilon, .decay = decay};
  for (int t = 1; t <= 2; t++) {
    double doubled = 2 * g[t - 1], half = 0.5, zero = 0, step = t, rate = lr;
    double *data[] = {&w, &m, &v, &doubled, &rate, &half, &zero, &step};
    Operand in[8] = {{0}};
    for (int k = 0; k < 8; k++) in[k] = (Operand){.data = data[k], .dtype = DTYPE_F64};
    KernelCall call = {.ninput = 8, .noutput = 3, .input = in, .output = in, .attr = &attr};
    op_def(OP_ADAMW)->reference(&call);
    em = b1 * em + (1 - b1) * g[t - 1];
    ev = b2 * ev + (1 - b2) * g[t - 1] * g[t - 1];
    double mhat = em / (1 - pow(b1, t)), vhat = ev / (1 - pow(b2, t));
    expected = expected * (1 - lr * decay) - lr * mhat / (sqrt(vhat) + epsilon);
    close_to(w, expected, 1e-14, "adamw", t);
    const double before[3] = {w, m, v};
    zero = 1, doubled = t == 1 ? 0.5 : NAN; // a skipped step changes nothing, whatever the gradient is
    op_def(OP_ADAMW)->reference(&call);
    assert_true(w == before[0] && m == before[1] && v == before[2]);
  }
  assert_true(fabs(w - 0.88) < 0.03);
}

// Two steps of torch.optim.SGD with momentum and weight decay.
static void sgd_updates_as_pytorch(void **state) {
  const double g[2] = {0.5, -0.25}, decay = 0.1, momentum = 0.9;
  double w = 1, m = 0, lr = 0.1, factor = 1, zero = 0, expected = 1, buffer = 0, plain = 1;
  OptimizerAttr attr = {.momentum = momentum, .decay = decay};
  for (int t = 0; t < 2; t++) {
    double gradient = g[t];
    double step = t + 1, *data[] = {&w, &m, &gradient, &lr, &factor, &zero, &step};
    Operand in[7] = {{0}};
    for (int k = 0; k < 7; k++) in[k] = (Operand){.data = data[k], .dtype = DTYPE_F64};
    KernelCall call = {.ninput = 7, .noutput = 2, .input = in, .output = in, .attr = &attr};
    op_def(OP_SGD)->reference(&call);
    buffer = momentum * buffer + g[t] + decay * expected;
    expected -= lr * buffer;
    close_to(w, expected, 1e-14, "sgd", t);
    const double w_before = w, m_before = m;
    zero = 1, gradient = t == 0 ? 0.5 : NAN; // skipped
    op_def(OP_SGD)->reference(&call);
    assert_true(w == w_before && m == m_before);
    zero = 0, gradient = g[t];
    in[0].data = &plain, in[1].data = NULL; // without momentum
    double before = plain;
    call.noutput = 1;
    op_def(OP_SGD)->reference(&call);
    close_to(plain, before - lr * (g[t] + decay * before), 1e-14, "sgd without momentum", t);
  }
}

// Two steps of Lion, as its authors' page of pseudocode has them: the direction is the sign of one average, another one
// is kept.
static void lion_updates_by_its_paper(void **state) {
  const double lr = 0.1, b1 = 0.9, b2 = 0.99, decay = 0.2, g[3][2] = {{0.5, -0.2}, {-0.04, 0.002}, {0, 0}},
               sign[3] = {-1, -1, 0};
  OptimizerAttr attr = {.beta1 = b1, .beta2 = b2, .decay = decay};
  for (int i = 0; i < 3; i++) {
    double w = 3, m = 0, rate = lr, half = 0.5, zero = 0, step = 1, expected = 3, em = 0, doubled;
    double *data[] = {&w, &m, &doubled, &rate, &half, &zero, &step};
    Operand in[7] = {{0}};
    for (int k = 0; k < 7; k++) in[k] = (Operand){.data = data[k], .dtype = DTYPE_F64};
    KernelCall call = {.ninput = 7, .noutput = 2, .input = in, .output = in, .attr = &attr};
    for (int t = 0; t < 2; t++) {
      // The first direction is that of the gradient. The second is the sign of 0.9 · 0.01 · 0.5 − 0.1 · 0.2 < 0, where
      // the average that is kept is above 0; of −0.9 · 0.01 · 0.04 + 0.1 · 0.002 < 0, where the gradient is above 0;
      // and 0: such an element only decays.
      double direction = t == 0 ? (g[i][0] > 0) - (g[i][0] < 0) : sign[i];
      zero = 0, doubled = 2 * g[i][t];
      op_def(OP_LION)->reference(&call);
      expected -= lr * (direction + decay * expected);
      em = b2 * em + (1 - b2) * g[i][t];
      close_to(w, expected, 1e-15, "lion", i);
      close_to(m, em, 1e-15, "lion's momentum", i);
      const double before[2] = {w, m};
      zero = 1, doubled = NAN; // skipped
      op_def(OP_LION)->reference(&call);
      assert_true(w == before[0] && m == before[1]);
    }
  }
}

static double scalars_to_scalar(Op op, double a, double b) {
  double y = NAN;
  Operand in[2] = {{.data = &a, .dtype = DTYPE_F64}, {.data = isnan(b) ? NULL : &b, .dtype = DTYPE_F64}},
          out = {.data = &y, .dtype = DTYPE_F64};
  KernelCall call = {.ninput = 2, .noutput = 1, .input = in, .output = &out};
  op_def(op)->reference(&call);
  return y;
}

static void loss_scalars_divide_by_the_count(void **state) {
  assert_true(scalars_to_scalar(OP_GRADIENT_SEED, 8, NAN) == 0.125);
  assert_true(scalars_to_scalar(OP_GRADIENT_SEED, 8, 16) == 2);
  assert_true(scalars_to_scalar(OP_GRADIENT_SEED, 0, NAN) == 1);
  assert_true(scalars_to_scalar(OP_MEAN_LOSS, 12, 8) == 1.5);
  assert_true(scalars_to_scalar(OP_MEAN_LOSS, 0, 0) == 0);
  assert_true(scalars_to_scalar(OP_ADVANCE, 4, 0) == 5);
  assert_true(scalars_to_scalar(OP_ADVANCE, 4, 1) == 4);
  OpCase c = op_case_named("count_targets");
  int count = 0;
  for (int i = 0; i < 28; i++) count += ((int32_t *)c.input[0].data)[i] >= 0;
  op_case_run(&c);
  assert_true(count > 0 && count < 28 && *(double *)c.output[0].data == count);
  op_case_free(&c);
}

static double clip_of(double squares, double scale, double limit, double *factor, double *skip) {
  double norm;
  Operand in[2] = {{.data = &squares, .dtype = DTYPE_F64}, {.data = scale ? &scale : NULL, .dtype = DTYPE_F64}};
  Operand out[3] = {
      {.data = &norm, .dtype = DTYPE_F64}, {.data = factor, .dtype = DTYPE_F64}, {.data = skip, .dtype = DTYPE_F64}};
  ClipAttr attr = {limit};
  KernelCall call = {.ninput = 2, .noutput = 3, .input = in, .output = out, .attr = &attr};
  op_def(OP_CLIP)->reference(&call);
  return norm;
}

static void clip_scales_and_skips(void **state) {
  double factor, skip;
  assert_true(clip_of(16, 0, 1, &factor, &skip) == 4 && factor == 0.25 && skip == 0);
  assert_true(clip_of(16, 0, 8, &factor, &skip) == 4 && factor == 1 && skip == 0);
  assert_true(clip_of(16, 0, 0, &factor, &skip) == 4 && factor == 1 && skip == 0);
  assert_true(clip_of(16, 8, 0, &factor, &skip) == 0.5 && factor == 0.125 &&
              skip == 0); // the norm of what the scale leaves
  assert_true(clip_of(1024, 8, 1, &factor, &skip) == 4 && factor == 0.03125 && skip == 0);
  clip_of(INFINITY, 8, 1, &factor, &skip);
  assert_true(skip == 1);
  clip_of(NAN, 0, 0, &factor, &skip);
  assert_true(skip == 1);
}

// Halved when a step is skipped, doubled after as many good ones as asked; never below 1.
static void loss_scale_follows_overflow(void **state) {
  static const struct { double scale, good, skip, scale_after, good_after; } rows[] = {
      {1024, 5, 0, 1024, 6}, {1024, 6, 0, 2048, 0}, {1024, 6, 1, 512, 0}, {1, 0, 1, 1, 0}, {0x1p40, 6, 0, 0x1p40, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double value[3] = {rows[i].scale, rows[i].good, rows[i].skip};
    Operand in[3] = {{.data = &value[0], .dtype = DTYPE_F64},
                     {.data = &value[1], .dtype = DTYPE_F64},
                     {.data = &value[2], .dtype = DTYPE_F64}};
    LossScaleAttr attr = {.interval = 7};
    KernelCall call = {.ninput = 3, .noutput = 2, .input = in, .output = in, .attr = &attr};
    op_def(OP_LOSS_SCALE)->reference(&call);
    assert_true(value[0] == rows[i].scale_after && value[1] == rows[i].good_after);
  }
}

static void fill_leaves_padding_zero(void **state) {
  double data[6] = {9, 9, 9, 9, 9, 9};
  Operand x = {.data = data,
               .dtype = DTYPE_F64,
               .rank = 1,
               .size = {6},
               .map = {{.local = 6, .valid = 4, .global = 10, .runs = 1, .run = {{0, 6}}}}};
  FillAttr attr = {2};
  KernelCall call = {.ninput = 1, .noutput = 1, .input = &x, .output = &x, .attr = &attr};
  op_def(OP_FILL)->reference(&call);
  for (int i = 0; i < 6; i++) assert_true(data[i] == (i < 4 ? 2 : 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(activations_have_their_values),
      cmocka_unit_test(layer_norm_normalises),
      cmocka_unit_test(rope_rotates_halves),
      cmocka_unit_test(rope_scales_as_llama_3),
      cmocka_unit_test(attention_is_a_masked_softmax),
      cmocka_unit_test(cross_entropy_is_the_sum_over_targets),
      cmocka_unit_test(route_takes_the_best_experts),
      cmocka_unit_test(adamw_updates_as_pytorch),
      cmocka_unit_test(sgd_updates_as_pytorch),
      cmocka_unit_test(lion_updates_by_its_paper),
      cmocka_unit_test(loss_scalars_divide_by_the_count),
      cmocka_unit_test(clip_scales_and_skips),
      cmocka_unit_test(loss_scale_follows_overflow),
      cmocka_unit_test(fill_leaves_padding_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
