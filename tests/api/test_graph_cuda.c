// tier 1; rooms device api op; numbers
// Graphs of one's own on the emulated CUDA device: by its kernels they are the CPU's training to rounding, no op of
// theirs runs on the host, and an op that would is named.
#include "plait/graph.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SAMPLES = 4, S = 20, E = 24, HEADS = 2, D = 12, CLASSES = 5, STEPS = 3, WIDE = 264, VALUES = SAMPLES * S * E };
typedef enum Loss { LABELS, PROBABILITIES, SQUARES, LOSSES } Loss;
#define SIZE(...) sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}

// Attention as an encoder has it, written out: scores and sums whose samples and heads are matrices of their own.
static PlaitTensor attention(PlaitGraph *g, PlaitTensor x) {
  PlaitTensor w = plait_graph_parameter(g, "w", SIZE(HEADS, D, E), 0.3),
              back = plait_graph_parameter(g, "back", SIZE(HEADS, D, E), 0.3);
  PlaitTensor h = plait_graph_einsum(g, "h", "b s e, h d e -> b s h d", x, w);
  PlaitTensor score = plait_graph_einsum(g, "score", "b s h d, b t h d -> b h s t", h, h);
  PlaitTensor p = plait_graph_softmax(g, "p", plait_graph_scale(g, "scaled", score, 1 / sqrt(D)));
  PlaitTensor y = plait_graph_einsum(g, "y", "b h s t, b t h d -> b s h d", p, h);
  return plait_graph_einsum(g, "out", "b s h d, h d e -> b s e", y, back);
}

static PlaitGraph *build(PlaitDtype dtype, Loss kind) {
  PlaitGraph *g = plait_graph_create(SAMPLES, dtype);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(S, E)), gain = plait_graph_parameter_filled(g, "gain", SIZE(E), 1),
              each = plait_graph_parameter_filled(g, "each", SIZE(E), 1.5);
  x = plait_graph_add(g, "residual", x, attention(g, plait_graph_rms_norm(g, "norm", x, gain, 1e-5)));
  x = plait_graph_einsum(g, "each_feature", "b s e, e -> b s e", x, each); // whose gradient is a long sum
  PlaitTensor head = plait_graph_parameter(g, "head", SIZE(CLASSES, E), 0.3);
  PlaitTensor logits = plait_graph_linear(g, "logits", plait_graph_reduce(g, "pooled", x, 1, 1), head, -1);
  if (kind == LABELS) plait_graph_cross_entropy(g, logits, plait_graph_integers(g, "labels", 0, NULL));
  else if (kind == PROBABILITIES)
    plait_graph_cross_entropy(g, logits, plait_graph_input(g, "target", SIZE(CLASSES)));
  else plait_graph_squared_error(g, logits, plait_graph_input(g, "target", SIZE(CLASSES)));
  return g;
}

// Inputs of a step, and losses and a parameter after some.
typedef struct Data { double x[VALUES], target[SAMPLES * CLASSES]; } Data;
typedef struct Narrow { float x[VALUES], target[SAMPLES * CLASSES]; } Narrow;
typedef struct Run { double loss[STEPS], norm[STEPS], w[HEADS * D * E]; } Run;

static void must(int code, const PlaitError *error) {
  if (code) fail_msg("%s", error->message);
}

static void step(PlaitTraining *t, PlaitDtype dtype, Loss kind, int number, PlaitStepResult *result) {
  static Data d;
  static Narrow n;
  const int32_t labels[SAMPLES] = {1, -1, 4, number % CLASSES};
  PlaitError error = {0};
  for (int i = 0; i < VALUES; i++) n.x[i] = (float)(d.x[i] = ((i * 37 + number * 11) % 64 - 32) / 32.);
  for (int i = 0; i < SAMPLES * CLASSES; i++) n.target[i] = (float)(d.target[i] = (1 + (i * 3 + number) % 7) / 16.);
  const void *x = dtype == PLAIT_FP64 ? (const void *)d.x : n.x,
             *target = kind == LABELS ? (const void *)labels : dtype == PLAIT_FP64 ? (const void *)d.target : n.target;
  must(plait_training_step(t, (const void *[]){x, target}, 0.01, result, &error), &error);
}

static Run train(PlaitDtype dtype, Loss kind, const char *mesh, const char *backend) {
  PlaitGraph *g = build(dtype, kind);
  PlaitTrainingOptions options = {.mesh = mesh, .optimizer = "adamw", .seed = 7, .backend = backend};
  PlaitTraining *t;
  PlaitError error = {0};
  Run run;
  must(plait_training_create(g, &options, &t, &error), &error);
  plait_graph_destroy(g);
  for (int i = 0; i < STEPS; i++) {
    PlaitStepResult result;
    step(t, dtype, kind, i, &result);
    run.loss[i] = result.loss, run.norm[i] = result.gradient_norm;
  }
  float narrow[HEADS * D * E];
  void *w = dtype == PLAIT_FP64 ? (void *)run.w : narrow;
  must(plait_training_read(t, "w", w, dtype == PLAIT_FP64 ? sizeof run.w : sizeof narrow, &error), &error);
  for (int i = 0; i < HEADS * D * E && dtype != PLAIT_FP64; i++) run.w[i] = narrow[i];
  plait_training_destroy(t);
  return run;
}

static void near(double a, double b, double far, const char *what) {
  if (!(fabs(a - b) <= far * fmax(1, fabs(b)))) fail_msg("%s: %.12g, on the CPU %.12g", what, a, b);
}

static void a_training_is_the_cpus(void **state) {
  const struct {
    PlaitDtype dtype;
    double far;
  } dtypes[] = {{PLAIT_FP64, 1e-10}, {PLAIT_FP32, 1e-5}, {PLAIT_BF16, 3e-2}};
  for (int k = 0; k < 3; k++)
    for (int kind = 0; kind < LOSSES; kind++)
      for (int ranks = 1; ranks <= 2; ranks++) {
        char what[64];
        const char *mesh = ranks > 1 ? "dp=2" : NULL;
        if (ranks > 1 && k != 1) continue;
        const Run cpu = train(dtypes[k].dtype, (Loss)kind, mesh, "cpu"),
                  cuda = train(dtypes[k].dtype, (Loss)kind, mesh, "cuda");
        snprintf(what, sizeof what, "dtype %d, loss %d, %d ranks", k, kind, ranks);
        for (int i = 0; i < STEPS; i++) {
          near(cuda.loss[i], cpu.loss[i], dtypes[k].far, what);
          near(cuda.norm[i], cpu.norm[i], dtypes[k].far, what);
        }
        for (int i = 0; i < HEADS * D * E; i++) near(cuda.w[i], cpu.w[i], k == 2 ? 0.07 : 1e-4, what);
      }
}

// Heads that no kernel takes: the host's turn, unless nothing may run there.
static int wide_heads(const char *backend, double *loss, PlaitError *error) {
  PlaitGraph *g = plait_graph_create(1, PLAIT_FP32);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(2, 1, WIDE)),
              target = plait_graph_input(g, "target", SIZE(2, 1, WIDE)),
              gain = plait_graph_parameter_filled(g, "gain", SIZE(WIDE), 1);
  PlaitTensor h = plait_graph_multiply(g, "h", x, gain);
  plait_graph_squared_error(g, plait_graph_attention(g, "wide", h, h, h, -1, 1, 0), target);
  PlaitTraining *t;
  PlaitStepResult result = {0};
  float inputs[2][2 * WIDE];
  for (int i = 0; i < 2 * WIDE; i++) inputs[0][i] = (float)(i % 9) / 9, inputs[1][i] = (float)(i % 7) / 7;
  must(plait_training_create(g, &(PlaitTrainingOptions){.backend = backend}, &t, error), error);
  plait_graph_destroy(g);
  int code = plait_training_step(t, (const void *[]){inputs[0], inputs[1]}, 0.1, &result, error);
  plait_training_destroy(t);
  *loss = result.loss;
  return code;
}

static void what_no_kernel_takes_is_named(void **state) {
  double cpu, cuda;
  PlaitError error = {0};
  must(wide_heads("cpu", &cpu, &error), &error);
  assert_int_not_equal(wide_heads("cuda", &cuda, &error), 0);
  assert_non_null(strstr(error.message, "attention"));
  assert_non_null(strstr(error.message, "PLAIT_CUDA_HOST is none"));
  unsetenv("PLAIT_CUDA_HOST");
  must(wide_heads("cuda", &cuda, &error), &error);
  near(cuda, cpu, 1e-6, "on the host");
  setenv("PLAIT_CUDA_HOST", "none", 1);
}

static void wrong_backends_have_a_sentence(void **state) {
  PlaitGraph *g = build(PLAIT_FP32, LABELS);
  PlaitTraining *t;
  PlaitError error = {0};
  assert_int_equal(plait_training_create(g, &(PlaitTrainingOptions){.backend = "gpu"}, &t, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "backend is \"gpu\"; allowed: cuda, cpu");
  setenv("PLAIT_BACKEND", "tpu", 1);
  error = (PlaitError){0};
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "PLAIT_BACKEND is \"tpu\"; allowed: cuda, cpu");
  unsetenv("PLAIT_BACKEND");
  plait_graph_destroy(g);
}

int main(void) {
  char driver[4096];
  snprintf(driver, sizeof driver, "%s/libemulated_cuda.so", getenv("FOLDER") ? getenv("FOLDER") : ".");
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  setenv("PLAIT_CUDA_HOST", "none", 1);
  setenv("PLAIT_CUDA_OWN", "all", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_backends_have_a_sentence),
                                     cmocka_unit_test(a_training_is_the_cpus),
                                     cmocka_unit_test(what_no_kernel_takes_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
