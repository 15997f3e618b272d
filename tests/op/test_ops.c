// What holds for all ops, over every row of the table of cases: gradients are those of central finite differences in
// double, rules parse, all outputs are written, low precision is the rounded result. Then traits, and what builders
// append. test_op_values.c has the values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ctype.h>
#include "check/op_case.h"
#include "close_to.h"
#include "compile/verify.h"
#include "check/evaluate.h"
#include "sharding/rule.h"
#include "op/build.h"
#include "op/optimizer.h"

// ---- gradients

typedef struct Difference {
  OpCase c;
  Values v;
  int doutput[CASE_OUTPUTS], dinput[CASE_INPUTS];
} Difference;

static int differentiable(const OpCase *c) {
  const Node *node = &c->graph->node.data[c->node];
  if (!op_def(c->op)->gradient || c->node != 0 || c->op == OP_CAST) return 0;
  if (c->op == OP_MATMUL)
    return node_attr(node, MatmulAttr)->kind != MATMUL_TN && !node_attr(node, MatmulAttr)->accumulate;
  if (c->op == OP_LAYER_NORM || c->op == OP_RMS_NORM)
    return !node_attr(node, NormAttr)->sum; // by fuse, after all gradients
  if (c->op == OP_GROUPED) return node_attr(node, GroupedAttr)->kind == MATMUL_NT;
  if (c->op == OP_DISPATCH) return node->input[2] < 0; // with weights it is a gradient itself
  if (c->op == OP_LINEAR_CROSS_ENTROPY) return node_attr(node, CrossEntropyAttr)->gradient;
  return 1;
}

// The input that seeds a loss, which makes its gradients itself; -1: another op.
static int seed_of(Op op) {
  switch (op) {
  case OP_LINEAR_CROSS_ENTROPY: return 3;
  case OP_SQUARED_ERROR:
  case OP_CROSS_ENTROPY:
  case OP_ROUTER_BALANCE: return 2;
  case OP_ROUTER_Z: return 1;
  default: return -1;
  }
}

// The scalar whose gradient is taken: Σ doutput · output 0, or seed · loss.
static double scalar_of(Difference *d) {
  values_run(&d->v, 0, 1, &d->c.parameters);
  const Node *node = &d->c.graph->node.data[0];
  const Operand *y = &d->v.tensor[node->output[0]];
  int seed = seed_of(d->c.op);
  if (seed >= 0) return operand_load(y, 0) * operand_load(&d->v.tensor[node->input[seed]], 0);
  double sum = 0;
  for (int64_t i = operand_elements(y) - 1; i >= 0; i--)
    sum += operand_load(y, i) * operand_load(&d->v.tensor[d->doutput[0]], i);
  return sum;
}

static void build_backward(Difference *d) {
  Graph *g = d->c.graph;
  Node node = g->node.data[0];
  values_start(&d->v, g);
  for (int k = 0; k < node.ninput; k++)
    if (node.input[k] >= 0) {
      d->v.tensor[node.input[k]] = d->c.input[k];
      d->c.input[k].data = NULL;
    }
  for (int k = 0; k < CASE_OUTPUTS; k++) d->doutput[k] = -1;
  const Tensor y = *graph_tensor(g, node.output[0]);
  int dy = graph_input(g, "doutput", y.dtype, y.shape);
  if (tensor_is_compact(&y)) graph_compact(g, dy, y.mask, y.choices);
  if (seed_of(d->c.op) < 0) d->doutput[0] = dy;
  g->phase = PHASE_BACKWARD;
  g->scope = arena_format(&g->arena, "grad.%s", node.name);
  op_def(node.op)->gradient(g, 0, d->doutput, d->dinput);
  values_run(&d->v, 0, 0, NULL); // room for the new tensors
  d->v.tensor[dy] = values_create(&d->v, dy);
  for (int64_t i = operand_elements(&d->v.tensor[dy]) - 1; i >= 0; i--)
    operand_store(&d->v.tensor[dy], i, philox_normal((PhiloxKey){{9, 9}}, (uint64_t)i));
  values_run(&d->v, 0, g->node.count, &d->c.parameters);
}

// Central difference of fourth order: rounding of large sums stays small beside it.
static double difference_at(Difference *d, Operand *in, int64_t i) {
  const double h = 3e-4, old = operand_load(in, i);
  double f[4];
  for (int k = 0; k < 4; k++) {
    operand_store(in, i, old + h * (k < 2 ? k - 2 : k - 1));
    f[k] = scalar_of(d);
  }
  operand_store(in, i, old);
  return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
}

static void check_input(Difference *d, int k) {
  Graph *g = d->c.graph;
  int x = g->node.data[0].input[k];
  const Tensor *t = graph_tensor(g, x), *dt = graph_tensor(g, d->dinput[k]);
  assert_true(op_same_sizes(g, x, d->dinput[k]));
  assert_int_equal(t->dtype, dt->dtype);
  Operand *in = &d->v.tensor[x];
  scalar_of(d); // the loss makes its gradients itself: once more, with inputs as they were
  int64_t n = operand_elements(in), samples = n > 2000 ? 12 : 60, stride = n > samples ? n / samples : 1;
  double *gradient = xcalloc((size_t)n + 1, sizeof *gradient), largest = 1;
  for (int64_t i = 0; i < n; i++)
    largest = fmax(largest, fabs(gradient[i] = operand_load(&d->v.tensor[d->dinput[k]], i)));
  for (int64_t i = 0; i < n; i += stride) {
    double difference = difference_at(d, in, i);
    if (!(fabs(difference - gradient[i]) <= 1e-8 * largest))
      fail_msg("%s: gradient of input %d [%lld] is %.12g, finite difference %.12g", d->c.name, k, (long long)i,
               gradient[i], difference);
  }
  free(gradient);
}

static void gradients_match_finite_differences(void **state) {
  int tested = 0;
  for (int i = 0; i < op_cases_count(); i++) {
    Difference d = {0};
    op_case_get(i, DTYPE_F64, &d.c);
    if (differentiable(&d.c)) {
      build_backward(&d);
      for (int k = 0; k < d.c.ninput; k++) {
        int x = d.c.graph->node.data[0].input[k];
        int wanted = x >= 0 && dtype_is_float(graph_tensor(d.c.graph, x)->dtype) && k != seed_of(d.c.op) &&
                     (d.c.op != OP_CROSS_ENTROPY || k == 0) && // its target is data
                     (d.c.op != OP_ROUTE || k == 0);           // its bias only chooses
        if (wanted != (d.dinput[k] >= 0)) fail_msg("%s: input %d has gradient %d", d.c.name, k, d.dinput[k]);
        if (wanted) check_input(&d, k);
      }
      tested++;
      values_free(&d.v);
    }
    op_case_free(&d.c);
  }
  assert_true(tested >= 40);
}

// ---- every row: the rule parses, all outputs are written, low precision is the rounded result

static void every_case_has_a_rule_and_runs(void **state) {
  int seen[OP_COUNT] = {0};
  for (int i = 0; i < op_cases_count(); i++) {
    OpCase c;
    op_case_get(i, DTYPE_F32, &c);
    Arena arena = {0};
    rule_of(&arena, c.graph, &c.graph->node.data[c.node]);
    arena_free(&arena);
    op_case_run(&c);
    for (int k = 0; k < c.noutput; k++)
      for (int64_t e = operand_elements(&c.output[k]) - 1; e >= 0; e--)
        if (!isfinite(operand_load(&c.output[k], e)) &&
            !(op_def(c.op)->minus_infinity >> k & 1 && operand_load(&c.output[k], e) == -INFINITY))
          fail_msg("%s: output %d [%lld] is not finite", c.name, k, (long long)e);
    seen[c.op] = 1;
    op_case_free(&c);
  }
  for (int op = 0; op < OP_COUNT; op++)
    if (!seen[op] && !op_def((Op)op)->communicates && op != OP_CUSTOM) fail_msg("no case for %s", op_name((Op)op));
}

// A call without its accumulator stores what one adds to zeros, wherever its output lies and whatever is there.
static void calls_without_an_accumulator_store(void **state) {
  int seen[OP_COUNT] = {0};
  for (int i = 0; i < op_cases_with_large(); i++) {
    OpCase c, zero;
    if (!strstr(op_case_name(i), "accumulate")) continue;
    op_case_get(i, DTYPE_F64, &c);
    op_case_get(i, DTYPE_F64, &zero);
    const Operand *a = &zero.input[op_def(c.op)->role == ROLE_ACCUMULATE ? 0 : c.ninput - 1];
    if (op_case_empty(&c)) {
      for (int64_t e = operand_elements(a) - 1; e >= 0; e--) operand_store(a, e, 0);
      for (int k = 0; k < c.noutput; k++)
        for (int64_t e = operand_elements(&c.output[k]) - 1; e >= 0; e--) operand_store(&c.output[k], e, NAN);
      op_case_run(&c);
      op_case_run(&zero);
      for (int k = 0; k < c.noutput; k++)
        for (int64_t e = operand_elements(&c.output[k]) - 1; e >= 0; e--)
          close_to(operand_load(&c.output[k], e), operand_load(&zero.output[k], e), 0, c.name, e);
      seen[c.op] = 1;
    }
    op_case_free(&c);
    op_case_free(&zero);
  }
  for (int op = 0; op < OP_COUNT; op++)
    if (!seen[op] && (op_def((Op)op)->accumulate || op_def((Op)op)->role == ROLE_ACCUMULATE))
      fail_msg("no case for %s", op_name((Op)op));
}

// A norm that adds first reads the sum after it is rounded. Backward reads that sum again, so it gives the same bits:
// it stands in the exact case for the first term, and 0 for the second.
static void sum_is_rounded(const OpCase *c, const OpCase *exact) {
  const Operand *a = &exact->input[0], *b = &exact->input[c->ninput - 1], *sum = &c->output[c->noutput - 1];
  for (int64_t e = operand_elements(sum) - 1; e >= 0; e--) {
    double x = operand_load(a, e) + operand_load(b, e);
    close_to(operand_load(sum, e), x, 0x1p-8 * fabs(x), c->name, e);
    operand_store(a, e, operand_load(sum, e));
    operand_store(b, e, 0);
  }
}

static void bf16_is_the_rounded_result(void **state) {
  for (int i = 0; i < op_cases_count(); i++) {
    OpCase c, exact;
    op_case_get(i, DTYPE_BF16, &c);
    op_case_get(i, DTYPE_F64, &exact);
    for (int k = 0; k < c.ninput; k++) // the same numbers into both
      for (int64_t e = c.input[k].data ? operand_elements(&c.input[k]) - 1 : -1; e >= 0; e--)
        operand_store(&exact.input[k], e, operand_load(&c.input[k], e));
    op_case_run(&c);
    if (op_def(c.op)->add_first && op_def(c.op)->accumulated(&c.graph->node.data[c.node]) >= 0)
      sum_is_rounded(&c, &exact);
    op_case_run(&exact);
    for (int k = 0; k < c.noutput; k++)
      for (int64_t e = operand_elements(&c.output[k]) - 1; e >= 0; e--) {
        double x = operand_load(&exact.output[k], e), unit = c.output[k].dtype == DTYPE_F64   ? 1e-14
                                                             : c.output[k].dtype == DTYPE_F32 ? 1e-6
                                                                                              : 0x1p-8;
        close_to(operand_load(&c.output[k], e), x, unit * (fabs(x) + 1e-30), c.name, e);
      }
    op_case_free(&c);
    op_case_free(&exact);
  }
}

// What passes may conclude from one trait about another.
static void traits_agree(void **state) {
  int collectives = 0;
  const char *players[ROLE_COUNT] = {0}, *called_by[COMM_KIND_COUNT] = {0}; // the op of each role, of each kind of call
  for (int op = 0; op < OP_COUNT; op++) {
    const OpDef *d = op_def((Op)op);
    const char *name = op_name((Op)op);
    collectives += d->communicates;
    if (!d->communicates && d->comm) fail_msg("%s does not communicate", name);
    if (d->communicates && (d->reference || d->optimizer || d->role))
      fail_msg("%s communicates", name);
    if (d->communicates && called_by[d->comm]) fail_msg("%s and %s are one call", name, called_by[d->comm]);
    if (d->communicates) called_by[d->comm] = name;
    const CommTraits *traits = op_comm(d);
    if (traits->scatters && (traits->gathers || traits->reduces == traits->rooted)) // a sum, or what the root has
      fail_msg("%s scatters what is not its sum", name);
    if (traits->gathers && traits->reduces) fail_msg("%s gathers sums", name);
    if (traits->send_parts + traits->recv_parts && d->in_place) fail_msg("%s is in place, but moves parts", name);
    if (d->role && d->optimizer) fail_msg("%s is two things", name);
    if ((d->role == ROLE_COPY || d->role == ROLE_ACCUMULATE || d->role == ROLE_BIAS) && d->in_place != 1)
      fail_msg("%s is not in place", name);
    if (d->role && players[d->role]) fail_msg("%s and %s have one role", name, players[d->role]);
    players[d->role] = name;
  }
  assert_int_equal(collectives, 10);
  for (int role = 0; role < ROLE_COUNT; role++)
    if (!players[role]) fail_msg("no op has role %d", role);
}

// ---- builders

static void updates_bind_their_variables(void **state) {
  Graph *g = graph_create();
  Shape s = shape_of(1, (int64_t[]){4}, (DimName[]){DIM_EMBED}), scalar = {0};
  int w = graph_variable(g, "w", VARIABLE_PARAMETER, DTYPE_F32, s, (Init){0});
  int step = graph_variable(g, "step", VARIABLE_COUNTER, DTYPE_F64, scalar, (Init){0});
  int accumulator = graph_variable(g, "accumulator", VARIABLE_GRADIENT, DTYPE_F32, s, (Init){0});
  int x = graph_input(g, "x", DTYPE_F32, s), lr = graph_input(g, "lr", DTYPE_F64, scalar), norm, factor, skip;
  op_fill(g, "zero", accumulator, 0);
  int sum = op_accumulate(g, "accumulate", graph_read(g, accumulator), x);
  assert_int_equal(graph_tensor(g, sum)->variable, accumulator);
  assert_int_equal(graph_read(g, accumulator), sum);
  op_clip(g, "clip", op_sum_squares(g, "squares", sum), -1, -1, 1, &norm, &factor, &skip);
  int now = op_advance(g, "advance", graph_read(g, step), skip);
  int old = graph_read(g, w);
  op_optimizer(g, OP_ADAMW, old, sum, lr, factor, skip, now,
               &(OptimizerAttr){.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8});
  int v = graph_find_variable(g, "moment2.w");
  assert_true(v >= 0 && g->variable.data[v].kind == VARIABLE_OPTIMIZER && graph_find_variable(g, "moment1.w") >= 0);
  assert_int_not_equal(graph_read(g, w), old);
  assert_int_equal(graph_tensor(g, graph_read(g, w))->variable, w);
  assert_int_equal(graph_tensor(g, graph_read(g, w))->role, graph_tensor(g, old)->role);
  assert_int_equal(graph_tensor(g, graph_read(g, v))->variable, v);
  assert_int_equal(graph_tensor(g, now)->variable, step);
  op_optimizer(g, OP_SGD, graph_read(g, w), sum, lr, factor, skip, now, &(OptimizerAttr){0});
  assert_int_equal(graph_find_variable(g, "momentum.w"), -1); // without momentum there is none
  op_optimizer(g, OP_SGD, graph_read(g, w), sum, lr, factor, skip, now, &(OptimizerAttr){.momentum = 0.9});
  assert_true(graph_find_variable(g, "momentum.w") >= 0);
  Error error = {0};
  assert_int_equal(graph_verify(g, "test", &error), PLAIT_OK);
  graph_destroy(g);
}

// What the table of optimizers says is so: names, and that every key that one reads is a known attribute.
static void optimizers_are_found_by_name(void **state) {
  char names[256];
  int count = 0;
  for (int op = 0; op < OP_COUNT; op++) {
    const OptimizerDef *d = op_def((Op)op)->optimizer;
    if (!d) continue;
    assert_int_equal(optimizer_find(op_def((Op)op)->name), op);
    assert_true(d->meaning && *d->meaning && d->reads && !optimizer_reads((Op)op, "") &&
                !optimizer_reads((Op)op, "beta"));
    assert_true(!optimizer_reads((Op)op, "betas") || (d->betas[0] > 0 && d->betas[1] > 0));
    assert_true(!d->build || (op_def(d->others)->optimizer && !op_def(d->others)->optimizer->build));
    count++;
  }
  assert_true(count >= 2);
  assert_int_equal(optimizer_find("shampoo"), -1);
  assert_int_equal(optimizer_find("matmul"), -1);
  assert_true(optimizer_reads(OP_ADAMW, "betas") && optimizer_reads(OP_ADAMW, "epsilon") &&
              !optimizer_reads(OP_ADAMW, "momentum"));
  assert_true(optimizer_reads(OP_SGD, "momentum") && !optimizer_reads(OP_SGD, "betas"));
  optimizer_names(names, sizeof names);
  assert_non_null(strstr(names, "adamw"));
  assert_non_null(strstr(names, " or "));
}

static void dropout_streams_follow_the_name(void **state) {
  Graph *g = graph_create();
  int x = graph_input(g, "x", DTYPE_F32, shape_of(3, (int64_t[]){2, 3, 4}, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_EMBED}));
  assert_int_equal(op_dropout(g, "none", x, 0), x);
  g->scope = "layer.1";
  int y = op_dropout(g, "dropout", x, 0.5), dx;
  const Node *node = &g->node.data[graph_tensor(g, y)->producer];
  uint64_t stream = node_attr(node, DropoutAttr)->stream;
  assert_true(stream == philox_name("layer.1.dropout"));
  op_def(OP_DROPOUT)->gradient(g, node->id, &(int){graph_input(g, "dy", DTYPE_F32, graph_tensor(g, y)->shape)}, &dx);
  const Node *back = &g->node.data[graph_tensor(g, dx)->producer];
  assert_true(node_attr(back, DropoutAttr)->stream == stream);
  assert_string_equal(back->name, "layer.1.dropout.dx");
  graph_destroy(g);
}

// A factor of a rule is a letter that stands alone.
static int is_factor(const char *text, int i) {
  return isalpha((unsigned char)text[i]) && !isalpha((unsigned char)text[i + 1]) &&
         (i == 0 || !isalpha((unsigned char)text[i - 1]));
}

// The same rule where letters are called otherwise: each of one stands for one of the other.
static int same_but_letters(const char *a, const char *b) {
  char there[128] = "", back[128] = "";
  int i = 0;
  for (; a[i] && b[i]; i++) {
    if (!is_factor(a, i) || !is_factor(b, i)) {
      if (a[i] != b[i]) return 0;
      continue;
    }
    char *to = &there[(unsigned char)a[i]], *from = &back[(unsigned char)b[i]];
    if (!*to && !*from) *to = b[i], *from = a[i];
    if (*to != b[i] || *from != a[i]) return 0;
  }
  return a[i] == b[i];
}

static void read_rule(const char *name, char *text, size_t size) {
  OpCase c = op_case_named(name);
  op_def(c.op)->rule(c.graph, &c.graph->node.data[c.node], text, size);
  op_case_free(&c);
}

static void matmul_rules_name_their_groups(void **state) {
  static const struct { const char *name, *rule; } expected[] = {
      {"matmul nt", "b s e, f e -> b s f ; linear 0 1"},
      {"matmul nt from heads", "b s g r d, e g r d -> b s e ; linear 0 1"},
      {"matmul nn from heads", "b s g r d, g r d e -> b s e ; linear 0 1"},
      {"matmul tn heads", "b s g r d, b s e -> g r d e ; linear 0 1"},
      {"embedding", "v e, b s -> b s e ; linear 0"},
      {"add three", "b s e, b s e, b s e -> b s e ; linear 0+1+2"},
      {"sum_squares", "v e -> "},
      {"layer_norm no bias", "b s e, e,  -> b s e, b s, b s ; lower e ; complete 1 e 2 e"},
  };
  char text[256];
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    read_rule(expected[i].name, text, sizeof text);
    assert_string_equal(text, expected[i].rule);
  }
  read_rule("matmul nt square", text, sizeof text); // e is two factors here, of which one has another letter
  if (!same_but_letters(text, "b s a, e a -> b s e ; linear 0 1")) fail_msg("%s", text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case_has_a_rule_and_runs),
      cmocka_unit_test(calls_without_an_accumulator_store),
      cmocka_unit_test(gradients_match_finite_differences),
      cmocka_unit_test(bf16_is_the_rounded_result),
      cmocka_unit_test(traits_agree),
      cmocka_unit_test(optimizers_are_found_by_name),
      cmocka_unit_test(updates_bind_their_variables),
      cmocka_unit_test(dropout_streams_follow_the_name),
      cmocka_unit_test(matmul_rules_name_their_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
