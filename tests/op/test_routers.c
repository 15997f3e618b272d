// What is asked of routers, against formulas written a second time: losses, loads, capacity and bias.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/philox.h"
#include "check/evaluate.h"
#include "op/build.h"
#include <math.h>

enum { B = 3, S = 11, X = 5, K = 2 };

typedef struct Case {
  Graph *g;
  int logits, mask, seed;
  double logit[B][S][X], p[B][S][X]; // p: softmax
  uint8_t chosen[B][S][X];
} Case;

static int of_shape(Case *c, const char *name, Dtype dtype) {
  return graph_input(c->g, name, dtype,
                     shape_of(3, (int64_t[]){B, S, X}, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_EXPERT}));
}

// Two choices a position, of which expert 0 is one more often than others.
static Case case_new(void) {
  Case c = {.g = graph_create()};
  c.logits = of_shape(&c, "logits", DTYPE_F64);
  c.mask = of_shape(&c, "mask", DTYPE_U8);
  c.seed = graph_input(c.g, "seed", DTYPE_F64, (Shape){0});
  for (int b = 0; b < B; b++)
    for (int s = 0; s < S; s++) {
      double sum = 0;
      for (int x = 0; x < X; x++)
        sum += exp(c.logit[b][s][x] = philox_normal(philox_key(7, 0, 1), (uint64_t)((b * S + s) * X + x)));
      for (int x = 0; x < X; x++) c.p[b][s][x] = exp(c.logit[b][s][x]) / sum;
      c.chosen[b][s][s % 3 ? 0 : 1 + (b + s) % 2] = 1;
      c.chosen[b][s][3 + (s + b) % 2] = 1;
    }
  return c;
}

static void run(Case *c, Values *v, int node) {
  values_start(v, c->g);
  const int inputs[] = {c->logits, c->mask, c->seed};
  for (int k = 0; k < 3; k++)
    v->tensor[inputs[k]] = operand_create(graph_tensor(c->g, inputs[k])->dtype, &graph_tensor(c->g, inputs[k])->shape);
  memcpy(v->tensor[c->logits].data, c->logit, sizeof c->logit);
  memcpy(v->tensor[c->mask].data, c->chosen, sizeof c->chosen);
  operand_store(&v->tensor[c->seed], 0, 1);
  values_run(v, node, node + 1, &(CallParameters){0});
}

static double first_of(Case *c, int node) {
  Values v;
  run(c, &v, node);
  double value = operand_load(&v.tensor[c->g->node.data[node].output[0]], 0);
  values_free(&v);
  return value;
}

// As transformers' load_balancing_loss_func has it for one layer and sequence: experts · Σ over choices and experts of
// the mean of the choice times the mean of the probability.
static void balance_is_that_of_transformers(void **state) {
  Case c = case_new();
  double expected = 0;
  for (int b = 0; b < B; b++)
    for (int x = 0; x < X; x++) {
      double tokens = 0, probability = 0;
      for (int s = 0; s < S; s++) tokens += (double)c.chosen[b][s][x] / S, probability += c.p[b][s][x] / S;
      expected += X * tokens * probability;
    }
  int n = graph_node(c.g, OP_ROUTER_BALANCE, "balance", (int[]){c.logits, c.mask, c.seed}, 3, NULL, 0);
  assert_true(fabs(first_of(&c, n) - expected) < 1e-13);
  graph_destroy(c.g);
}

// Experts that are all chosen alike, with equal probabilities: k, the least that is possible.
static void an_even_router_has_the_least(void **state) {
  Case c = case_new();
  memset(c.logit, 0, sizeof c.logit);
  int n = graph_node(c.g, OP_ROUTER_BALANCE, "balance", (int[]){c.logits, c.mask, c.seed}, 3, NULL, 0);
  assert_true(fabs(first_of(&c, n) - B * K) < 1e-13);
  graph_destroy(c.g);
}

static void z_is_the_mean_of_squares(void **state) {
  Case c = case_new();
  double expected = 0;
  for (int b = 0; b < B; b++)
    for (int s = 0; s < S; s++) {
      double sum = 0;
      for (int x = 0; x < X; x++) sum += exp(c.logit[b][s][x]);
      expected += log(sum) * log(sum) / S;
    }
  int n = graph_node(c.g, OP_ROUTER_Z, "z", (int[]){c.logits, c.seed}, 2, NULL, 0);
  assert_true(fabs(first_of(&c, n) - expected) < 1e-13);
  graph_destroy(c.g);
}

static void capacity_keeps_the_first(void **state) {
  for (int64_t most = 1; most <= S; most++) {
    Case c = case_new();
    CapacityAttr attr = {.most = most};
    int n = graph_node(c.g, OP_CAPACITY, "capacity", &c.mask, 1, &attr, sizeof attr);
    Values v;
    run(&c, &v, n);
    const uint8_t *kept = v.tensor[c.g->node.data[n].output[0]].data;
    for (int b = 0; b < B; b++)
      for (int x = 0; x < X; x++)
        for (int s = 0, before = 0; s < S; s++) {
          assert_int_equal(kept[(b * S + s) * X + x], c.chosen[b][s][x] && before < most);
          before += c.chosen[b][s][x];
        }
    values_free(&v);
    graph_destroy(c.g);
  }
}

static void loads_and_bias(void **state) {
  Case c = case_new();
  int n = graph_node(c.g, OP_ROUTER_LOAD, "load", (int[]){c.mask, -1}, 2, NULL, 0);
  Values v;
  run(&c, &v, n);
  const double *load = v.tensor[c.g->node.data[n].output[0]].data;
  double bias[X] = {0.5, 0.25, 0, -1, 2}, skip = 0;
  RouterBiasAttr attr = {.rate = 0.125};
  Operand input[] = {{.data = bias, .dtype = DTYPE_F64, .rank = 1, .size = {X}},
                     {.data = (void *)load, .dtype = DTYPE_F64, .rank = 2, .size = {2, X}},
                     {.data = &skip, .dtype = DTYPE_F64}};
  KernelCall call = {.ninput = 3, .noutput = 1, .input = input, .output = input, .attr = &attr};
  op_def(OP_ROUTER_BIAS)->reference(&call);
  static const double before[X] = {0.5, 0.25, 0, -1, 2};
  for (int x = 0; x < X; x++) {
    double count = 0, mean = (double)(B * S * K) / X;
    for (int b = 0; b < B; b++)
      for (int s = 0; s < S; s++) count += c.chosen[b][s][x];
    assert_true(load[x] == count && load[X + x] == count);
    assert_true(bias[x] == before[x] + (count < mean ? 0.125 : count > mean ? -0.125 : 0));
  }
  skip = 1;
  double kept[X];
  memcpy(kept, bias, sizeof kept);
  op_def(OP_ROUTER_BIAS)->reference(&call);
  assert_memory_equal(kept, bias, sizeof kept);
  values_free(&v);
  graph_destroy(c.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(balance_is_that_of_transformers), cmocka_unit_test(an_even_router_has_the_least),
      cmocka_unit_test(z_is_the_mean_of_squares), cmocka_unit_test(capacity_keeps_the_first),
      cmocka_unit_test(loads_and_bias)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
