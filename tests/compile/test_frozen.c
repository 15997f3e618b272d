// A parameter that does not train: backward makes no gradient of it, and nothing that follows a gradient.
#include "op/build.h"
#include "compile/pass.h"
#include "model/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
// cmocka wants the four above first
#include <cmocka.h>

typedef struct Small { Graph *g; int first, second; } Small; // parameters

// y = (x first) second, and the squared error of y.
static Small small_graph(void) {
  Small s = {.g = graph_create()};
  DimName be[] = {DIM_BATCH, DIM_EMBED}, fe[] = {DIM_FFN, DIM_EMBED}, ef[] = {DIM_EMBED, DIM_FFN};
  Init init = {.kind = INIT_NORMAL, .value = 1};
  s.first = graph_variable(s.g, "first", VARIABLE_PARAMETER, DTYPE_F32, shape_of(2, (int64_t[]){5, 4}, fe), init);
  s.second = graph_variable(s.g, "second", VARIABLE_PARAMETER, DTYPE_F32, shape_of(2, (int64_t[]){4, 5}, ef), init);
  int x = graph_input(s.g, "x", DTYPE_F32, shape_of(2, (int64_t[]){2, 4}, be)),
      target = graph_input(s.g, "target", DTYPE_F32, shape_of(2, (int64_t[]){2, 4}, be));
  int y = op_matmul(s.g, "y", op_matmul(s.g, "hidden", x, graph_read(s.g, s.first), 1), graph_read(s.g, s.second), 1);
  s.g->loss = op_squared_error(s.g, "loss", y, target, graph_read(s.g, graph_known(s.g, KNOWN_GRADIENT_SEED)));
  return s;
}

static void differentiate(Small *s) {
  CompileOptions o = {.mode = MODEL_TRAIN,
                      .step = {.batch = {.samples = 4, .micro = 2, .length = {[DIM_SEQ] = 1}},
                               .update = {.optimizer = OP_ADAMW, .count = 2, .beta1 = 0.9, .beta2 = 0.95,
                                          .epsilon = 1e-8}},
                      .micro_samples = 2,
                      .microbatches = 2};
  Error error = {0};
  if (pass_autodiff(&s->g, &o, &error)) fail_msg("%s", error.message);
}

// Variables that belong to a parameter.
static int followers(const Graph *g, int parameter) {
  int n = 0;
  for (int v = 0; v < g->variable.count; v++) n += v != parameter && g->variable.data[v].parameter == parameter;
  return n;
}

static void all_parameters_train(void **state) {
  Small s = small_graph();
  differentiate(&s);
  assert_int_equal(followers(s.g, s.first), 3); // a gradient and two moments
  assert_int_equal(followers(s.g, s.second), 3);
  graph_destroy(s.g);
}

// What is read on the way to one that trains is passed through by backward all the same.
static void one_is_frozen(void **state) {
  for (int frozen = 0; frozen < 2; frozen++) {
    Small s = small_graph();
    int which = frozen ? s.second : s.first, other = frozen ? s.first : s.second;
    s.g->variable.data[which].trains = 0;
    assert_true(variable_is_counted(&s.g->variable.data[which]) && !variable_is_trained(&s.g->variable.data[which]));
    differentiate(&s);
    assert_int_equal(followers(s.g, which), 0);
    assert_int_equal(followers(s.g, other), 3);
    for (int i = 0; i < s.g->tensor.count; i++)
      if (graph_tensor(s.g, i)->variable == which)
        assert_int_equal(graph_tensor(s.g, i)->producer, -1); // never written
    graph_destroy(s.g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_parameters_train), cmocka_unit_test(one_is_frozen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
