// tier 1; numbers
// 20 AdamW steps of the graph after autodiff and update, by the reference kernels, against PyTorch's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "compile/verify.h"
#include "evaluate.h"
#include "golden.h"
#include "model/model.h"
#include "compile/pass.h"

// `factor`: of every parameter's learning rate.
static Graph *training_graph(const ModelConfig *c, Dtype dtype, double factor) {
  Graph *g = graph_create();
  ModelOutputs outputs;
  CompileOptions options = {
      .mode = MODEL_TRAIN,
      .device = device_cpu(),
      .micro_samples = BATCH,
      .microbatches = 1,
      .step = {
          .batch = {.samples = BATCH, .length = {[DIM_SEQ] = SEQ}},
          .precision = dtype,
          .update = {.optimizer = OP_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1}}};
  SUCCEED(model_build(g, c, &(ModelOptions){.batch = BATCH, .length = {[DIM_SEQ] = SEQ}, .mode = MODEL_TRAIN}, &outputs,
                      &error));
  g->loss = outputs.loss_sum;
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER) g->variable.data[i].learning_rate = factor;
  SUCCEED(pass_autodiff(&g, &options, &error));
  SUCCEED(pass_precision(&g, &options, &error));
  SUCCEED(graph_verify(g, "update", &error));
  return g;
}

static void load_weights(Evaluation *e, const char *folder, const ModelConfig *c) {
  CheckpointTensor wanted[64];
  int count = 0;
  for (int i = 0; i < e->graph->variable.count; i++) {
    const Variable *v = &e->graph->variable.data[i];
    if (v->kind != VARIABLE_PARAMETER) continue;
    assert_true(count < 64);
    CheckpointTensor *w = &wanted[count++];
    *w = (CheckpointTensor){.name = v->name, .dtype = v->dtype, .rank = v->shape.rank, .data = e->variable[i]};
    for (int d = 0; d < w->rank; d++) w->global[d] = w->local[d] = v->shape.size[d];
  }
  SUCCEED(huggingface_load(folder, c, wanted, count, &error));
}

static void feed(Evaluation *e, const Safetensors *data, int step, double rate) {
  for (int i = 0; i < GOLDEN_INPUTS; i++) {
    const int32_t *from = safetensors_find(data, golden_input[i].name)->data;
    memcpy(evaluation_input(e, golden_input[i].known), from + (size_t)step * BATCH * SEQ, sizeof *from * BATCH * SEQ);
  }
  *(double *)evaluation_input(e, INPUT_LEARNING_RATE) = rate;
}

// For huggingface_save: the weights after training.
static int read_variable(void *context, const char *name, const Box *part, float *out, Error *error) {
  Evaluation *e = context;
  int id = graph_find_variable(e->graph, name);
  const Variable *v = &e->graph->variable.data[id];
  int64_t elements = box_elements(part), first = part->offset[0] * (shape_elements(&v->shape) / v->shape.size[0]);
  for (int d = 1; d < v->shape.rank; d++) assert_int_equal(part->local[d], v->shape.size[d]);
  for (int64_t i = 0; i < elements; i++) out[i] = (float)dtype_load(e->variable[id], v->dtype, first + i);
  return PLAIT_OK;
}

static void train(const char *name, Dtype dtype, double factor, const char *loss_key, const char *norm_key,
                  double tolerance) {
  ModelConfig c;
  Safetensors data;
  Evaluation e;
  char *folder = xformat("%s/model/golden/%s", TESTS_FOLDER, name), *file = xformat("%s/golden.safetensors", folder);
  SUCCEED(model_config_load(&c, folder, &error));
  SUCCEED(safetensors_open(&data, file, &error));
  const SafetensorsEntry *loss = safetensors_find(&data, loss_key), *norm = safetensors_find(&data, norm_key);
  if (loss) {
    Graph *g = training_graph(&c, dtype, factor);
    evaluation_begin(&e, g);
    load_weights(&e, folder, &c);
    double worst = 0;
    for (int step = 0; step < STEPS; step++) {
      feed(&e, &data, step, 1e-3 / factor);
      evaluation_run(&e);
      double got[2] = {*(double *)evaluation_variable(&e, KNOWN_LOSS),
                       *(double *)evaluation_variable(&e, KNOWN_GRAD_NORM)};
      worst = fmax(worst, golden_step(name, step, got, loss, norm, tolerance));
    }
    double weights = golden_after((HuggingfaceSave){.read = read_variable, .context = &e}, &c, &data);
    print_message("%s %s: loss and norm within %.2g, weights within %.2g\n", name, dtype_name(dtype), worst, weights);
    assert_true(weights < 1e-4); // a step moves a weight by up to 1e-3
    evaluation_end(&e);
    graph_destroy(g);
  }
  safetensors_close(&data);
  model_config_free(&c);
  free(folder);
  free(file);
}

static void test_fp32(void **state) {
  for (int i = 0; i < CASES; i++) train(cases[i], DTYPE_F32, 1, "loss", "grad_norm", 1e-4);
}

static void test_fp64(void **state) {
  for (int i = 0; i < CASES; i++)
    train(cases[i], DTYPE_F64, 1, "loss64", "grad_norm64", 1e-7); // PyTorch clips by norm + 1e-6
}

static void test_learning_rate_of_a_parameter(void **state) { // the step's learning rate is 4 times PyTorch's
  train(cases[0], DTYPE_F64, 0.25, "loss64", "grad_norm64", 1e-7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp32), cmocka_unit_test(test_fp64),
                                     cmocka_unit_test(test_learning_rate_of_a_parameter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
