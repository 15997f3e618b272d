// tier 2; numbers
// Losses beside the model's own: routers' balance and z losses, their loads, biases and capacity are one rank's under
// every mesh; gradients are those of the sum of all losses, by finite differences; and a loss scale changes nothing.
//
// The model is made here: blocks of attention, of a router, whose weights go through a product onto the stream, and of
// a feed-forward half.
#include "compare.h"
#include "corpora.h"
#include "model/family.h"
#include "model/routing.h"
#include "runtime/state_tensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EXPERTS = 5, CHOICES = 2, LAYERS = 4, STEPS = 4, MOST_EXPERTS = 12 };
#define LOSSES "moe.balance_loss=0.7 moe.z_loss=0.05"
#define ALL LOSSES " moe.bias_rate=0.05 moe.capacity=0.8"

static int block(ModelBuild *m, int layer, int stream) { // (b, s, e) → (b, s, e)
  const ModelConfig *c = m->config;
  const Extent experts = {DIM_EXPERT, EXPERTS}, ffn = {DIM_FFN, c->ffn};
  const RouteAttr attr = {.k = CHOICES};
  int weights, mask;
  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, build_rms_norm(m, "norm", stream)); // (b, s, g, r, d)
  stream = build_linear_residual(m, "output", x, stream, c->initializer_range, 3, 0);
  build_scope(m, layer, "layer.%d", layer);
  x = build_rms_norm(m, "norm", stream);
  int logits = build_linear(m, "router", x, c->initializer_range, 1, &experts, 1, 0); // (b, s, x)
  build_routing(m, logits, &attr, &weights, &mask);
  stream = build_linear_residual(m, "back", weights, stream, c->initializer_range, 1, 0);
  build_scope(m, layer, "layer.%d.ffn", layer);
  x = build_linear(m, "up", build_rms_norm(m, "norm", stream), c->initializer_range, 1, &ffn, 1, 0);
  x = op_activation(m->g, "activation", x, c->activation);
  return build_linear_residual(m, "down", x, stream, c->initializer_range, 1, 0);
}

static void build(ModelBuild *m, ModelOutputs *outputs) {
  int wte, stream = build_embedding(m, &wte);
  for (int layer = 0; layer < m->config->layers; layer++) stream = block(m, layer, stream);
  build_scope(m, (int)m->config->layers, "%s", "");
  build_head(m, build_rms_norm(m, "norm", stream), wte, outputs);
}

static const Family family = {.model_type = "router", .build = build};

static void with_routers(ModelConfig *c) {
  c->family = &family;
  c->experts = EXPERTS;
  c->experts_per_token = CHOICES;
  c->router_aux_loss_coef = 0.001;
  model_measure(c);
}

// What a run has measured after each step but the last, and what is done to it before the first.
typedef struct Seen {
  double balance[STEPS], z[STEPS], load[STEPS][LAYERS][2 * MOST_EXPERTS], bias[STEPS][LAYERS][MOST_EXPERTS];
  const char *parameter; // of which an element is moved
  int element;
  double by;
} Seen;

// -1: the layer has none.
static int of_router(const Graph *g, KnownOf of, int layer) {
  char name[64];
  snprintf(name, sizeof name, "layer.%d.router.weight", layer);
  int router = graph_find_variable(g, name);
  return router < 0 ? -1 : graph_find_of(g, of, router);
}

static void read_whole(State *s, int variable, double *out) {
  const Shape *shape = &s->program->graph->variable.data[variable].shape;
  Box box = {.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) box.local[d] = shape->size[d];
  state_read(s, variable, -1, &box, out);
}

static void move_element(State *s, const char *name, int element, double by) {
  int v = graph_find_variable(s->program->graph, name);
  const Shape *shape = &s->program->graph->variable.data[v].shape;
  Box box = {.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) box.local[d] = shape->size[d];
  double *values = xcalloc((size_t)shape_elements(shape), sizeof *values); // the case is fp64
  state_read(s, v, -1, &box, values);
  values[element] += by;
  state_write(s, v, -1, &box, values);
  free(values);
}

static void look(Rank *r, int step, void *context) {
  Seen *seen = context;
  State *s = r->state;
  const Graph *g = s->program->graph;
  if (step == 1 && seen->parameter) move_element(s, seen->parameter, seen->element, seen->by);
  if (r->rank || step == 1) return;
  seen->balance[step - 2] = state_scalar(s, KNOWN_BALANCE_LOSS);
  seen->z[step - 2] = state_scalar(s, KNOWN_Z_LOSS);
  for (int layer = 0; layer < LAYERS; layer++) {
    int load = of_router(g, OF_ROUTER_LOAD, layer), bias = of_router(g, OF_ROUTER_BIAS, layer);
    if (load >= 0) read_whole(s, load, seen->load[step - 2][layer]);
    if (bias >= 0) read_whole(s, bias, seen->bias[step - 2][layer]);
  }
}

static const ParityCase layouts[] = {
    {.name = "micro 4", .dp = 1, .pp = 1, .tp = 1, .micro = 4},
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 3 uneven", .dp = 3, .pp = 1, .tp = 1, .micro = 3},
    {.name = "dp 2 zero 3 recompute", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 3, .recompute = RECOMPUTE_FULL},
    {.name = "cp 2", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .cp = 2},
    {.name = "cp 4 selective", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .cp = 4, .recompute = RECOMPUTE_SELECTIVE},
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "tp 2 sequence", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .sequence = 1},
    {.name = "cp 2 tp 2 sequence", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .sequence = 1, .cp = 2},
    {.name = "tp 4 2d", .dp = 1, .pp = 1, .tp = 4, .micro = 4, .settings = "parallel.tensor=2d"},
    {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
    {.name = "pp 2 zb-h1", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "zb-h1"},
    {.name = "pp 2 interleaved", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "interleaved"},
    {.name = "pp 2 dp 2 cp 2 tp 2 sequence zero 2",
     .dp = 2,
     .pp = 2,
     .tp = 2,
     .micro = 3,
     .sequence = 1,
     .cp = 2,
     .zero = 2},
    {.name = "dp 2 update in backward",
     .dp = 2,
     .pp = 1,
     .tp = 1,
     .micro = 8,
     .zero = 2,
     .settings = "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
};

// The model that is made here, where none is named.
static ParityCase case_of(ParityCase c, const char *settings, Seen *seen) {
  if (!c.model) c.config = with_routers;
  if (!c.model) c.model = "llama tied";
  c.precision = c.precision ? c.precision : DTYPE_F64;
  c.steps = c.steps ? c.steps : STEPS;
  c.seq = 16;
  c.more_settings = settings;
  c.before_step = look;
  c.context = seen;
  return c;
}

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static const ParityCase one_rank = {.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16};

static double apart(double a, double b) { return fabs(a - b) / fmax(fabs(b), 1e-300); }

static int seen_differs(const char *name, const Seen *a, const Seen *b) {
  int bad = 0;
  for (int i = 0; i + 1 < STEPS; i++) {
    if (!(apart(a->balance[i], b->balance[i]) < 1e-10) || !(apart(a->z[i], b->z[i]) < 1e-10))
      bad = printf("%s: step %d: balance %.15g and %.15g, z %.15g and %.15g\n", name, i + 1, a->balance[i],
                   b->balance[i], a->z[i], b->z[i]);
    if (memcmp(a->load[i], b->load[i], sizeof a->load[i])) bad = printf("%s: step %d: loads differ\n", name, i + 1);
    if (memcmp(a->bias[i], b->bias[i], sizeof a->bias[i])) bad = printf("%s: step %d: biases differ\n", name, i + 1);
  }
  return bad != 0;
}

static int compare(const char *model, const char *settings) {
  Seen seen_one = {0};
  ParityCase base = one_rank;
  base.model = model;
  base = case_of(base, settings, &seen_one);
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    Seen seen = {0};
    ParityCase c = layouts[i];
    c.model = model;
    c = case_of(c, settings, &seen);
    if (!parity_wanted(&c) || (c.settings && strstr(c.settings, "in_backward"))) continue;
    run(&c, &other);
    ParityTolerance t = parity_exactly(1e-10);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1) + seen_differs(c.name, &seen, &seen_one);
    parity_free(&other);
  }
  parity_free(&one);
  return bad;
}

static void losses_are_those_of_one_rank(void **state) { assert_int_equal(compare(NULL, LOSSES), 0); }
static void bias_and_capacity_are_those_of_one_rank(void **state) { assert_int_equal(compare(NULL, ALL), 0); }
// Families with experts, whose rows a capacity drops; of the second one a layer has none.
static void mixtral(void **state) { assert_int_equal(compare("mixtral", ALL), 0); }
static void qwen_moe(void **state) { assert_int_equal(compare("qwen moe", ALL), 0); }

// Gradients that are applied in backward have no common norm: both runs do it.
static void updates_in_backward(void **state) {
  Seen seen[2] = {{{0}}};
  ParityCase c = case_of(layouts[sizeof layouts / sizeof *layouts - 1], ALL, &seen[0]), base = c;
  base.dp = 1;
  base.zero = 0;
  base.micro = 16;
  base.context = &seen[1];
  ParityResult one, other;
  run(&base, &one);
  run(&c, &other);
  ParityTolerance t = parity_exactly(1e-10);
  ParityDifference d = parity_compare(&other, &one, &t);
  assert_int_equal(parity_report(&c, &d, &t, 1) + seen_differs(c.name, &seen[0], &seen[1]), 0);
  parity_free(&one);
  parity_free(&other);
}

static const NamedTensor *gradient_of(const ParityResult *r, const char *name) {
  for (int i = 0; i < r->tensors[DUMP_GRADIENT]; i++)
    if (!strcmp(r->tensor[DUMP_GRADIENT][i].name, name)) return &r->tensor[DUMP_GRADIENT][i];
  fail_msg("no gradient of %s", name);
  return NULL;
}

// The sum of all losses of the first step, with one element of a parameter moved.
static double total(const char *parameter, int element, double by, const char *dropout) {
  Seen seen = {.parameter = parameter, .element = element, .by = by};
  ParityCase c = case_of(one_rank, dropout, &seen);
  c.steps = 2;
  ParityResult r;
  run(&c, &r);
  double sum = r.loss[0] + 0.7 * seen.balance[0] + 0.05 * seen.z[0];
  parity_free(&r);
  return sum;
}

static void gradients_are_of_all_losses(void **state) {
  static const struct { const char *name; int element; } of[] = {
      {"layer.0.router.weight", 7}, {"layer.3.router.weight", 44}, {"layer.1.back.weight", 3}, {"wte", 100}};
  Seen seen = {0};
  ParityCase c = case_of(one_rank, LOSSES, &seen);
  ParityResult r;
  run(&c, &r);
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const double h = 1e-5;
    double expected =
               (total(of[i].name, of[i].element, h, LOSSES) - total(of[i].name, of[i].element, -h, LOSSES)) / h / 2,
           got = gradient_of(&r, of[i].name)->data[of[i].element];
    if (!(fabs(got - expected) <= 1e-7))
      fail_msg("%s: gradient %.12g, by differences %.12g", of[i].name, got, expected);
  }
  parity_free(&r);
}

// A balance loss evens out what is uneven, and the bias goes where less was chosen.
static void biases_go_to_the_idle(void **state) {
  Seen seen = {0};
  ParityCase c = case_of(one_rank, ALL, &seen);
  ParityResult r;
  int moved = 0, dropped = 0;
  run(&c, &r);
  for (int layer = 0; layer < LAYERS; layer++) {
    const double *load = seen.load[0][layer], *kept = load + EXPERTS;
    double all = 0;
    for (int i = 0; i < EXPERTS; i++) all += load[i];
    assert_true(all == 16 * 16 * CHOICES);
    for (int i = 0; i < EXPERTS; i++) {
      double less = all / EXPERTS - load[i], expected = less > 0 ? 0.05 : less < 0 ? -0.05 : 0;
      if (seen.bias[0][layer][i] != expected) fail_msg("bias %g, expected %g", seen.bias[0][layer][i], expected);
      moved += less != 0;
      assert_true(kept[i] <= 16 * ceil(0.8 * CHOICES * 16 / EXPERTS));
      dropped += kept[i] < load[i];
    }
  }
  assert_true(moved > 0 && dropped > 0);
  parity_free(&r);
}

static void a_loss_scale_changes_nothing(void **state) {
  static const char *const scales[] = {LOSSES " loss_scale.initial=1", LOSSES " loss_scale.initial=4096"};
  ParityResult r[2];
  for (int i = 0; i < 2; i++) {
    Seen seen = {0};
    ParityCase c = one_rank;
    c.precision = DTYPE_F16;
    c = case_of(c, scales[i], &seen);
    run(&c, &r[i]);
  }
  const NamedTensor *a = gradient_of(&r[0], "layer.2.router.weight"), *b = gradient_of(&r[1], "layer.2.router.weight");
  double difference = 0, size = 0;
  for (int64_t i = 0; i < a->elements; i++) {
    difference += (a->data[i] - b->data[i]) * (a->data[i] - b->data[i]);
    size += a->data[i] * a->data[i];
  }
  assert_true(size > 0 && difference < 1e-4 * size);
  parity_free(&r[0]);
  parity_free(&r[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_those_of_one_rank),
                                     cmocka_unit_test(bias_and_capacity_are_those_of_one_rank),
                                     cmocka_unit_test(mixtral),
                                     cmocka_unit_test(qwen_moe),
                                     cmocka_unit_test(updates_in_backward),
                                     cmocka_unit_test(gradients_are_of_all_losses),
                                     cmocka_unit_test(biases_go_to_the_idle),
                                     cmocka_unit_test(a_loss_scale_changes_nothing)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
