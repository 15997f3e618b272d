// tier 1 2 3; rooms machine compile; numbers
// Fully automatic: a graph without placements gets a plan, which is the best that there is and trains as one rank does.
// Tier 1 has few plans and no search for the best, tier 2 about half of the machines and meshes, tier 3 all.
#include "plait/graph.h"
#include "tier.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { SAMPLES = 8, WIDE = 24, HIDDEN = 48, OUT = 6, SEQ = 4, HEADS = 2, VOCAB = 12, STEPS = 4 };

// What takes too long for a tier, unless it is asked for by name.
static int only_from(int tier) { return test_tier() < tier && !getenv("TEST_ONLY"); }

static PlaitTensor parameter(PlaitGraph *g, const char *name, int rank, const int64_t *size) {
  return plait_graph_parameter(g, name, rank, size, 0.3);
}

// x (samples, WIDE) → linear, relu → linear: two layers, nothing said about ranks.
static PlaitGraph *build_mlp(void) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){WIDE}), y = plait_graph_input(g, "y", 1, (int64_t[]){OUT});
  PlaitTensor w1 = parameter(g, "w1", 2, (int64_t[]){HIDDEN, WIDE}), b1 = parameter(g, "b1", 1, (int64_t[]){HIDDEN});
  PlaitTensor h = plait_graph_activation(g, "relu", plait_graph_linear(g, "first", x, w1, b1), PLAIT_RELU);
  plait_graph_layer(g, 1);
  PlaitTensor w2 = parameter(g, "w2", 2, (int64_t[]){OUT, HIDDEN});
  plait_graph_squared_error(g, plait_graph_linear(g, "second", h, w2, -1), y);
  return g;
}

static const char *part(const char *name, int layer) {
  static char full[64];
  snprintf(full, sizeof full, "%s%d", name, layer);
  return full;
}

// Two blocks of attention and a gated product, over an embedding.
static PlaitGraph *build_transformer(void) {
  const int64_t in[] = {HEADS, WIDE / HEADS, WIDE}, out[] = {WIDE, HEADS, WIDE / HEADS}, up[] = {HIDDEN, WIDE},
                down[] = {WIDE, HIDDEN}, table[] = {VOCAB, WIDE};
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor tokens = plait_graph_integers(g, "tokens", 1, (int64_t[]){SEQ}),
              targets = plait_graph_integers(g, "targets", 1, (int64_t[]){SEQ});
  PlaitTensor x = plait_graph_embedding(g, "embedded", parameter(g, "table", 2, table), tokens);
  for (int l = 0; l < 2; l++) {
    plait_graph_layer(g, l);
    PlaitTensor q = parameter(g, part("q", l), 3, in), k = parameter(g, part("k", l), 3, in),
                v = parameter(g, part("v", l), 3, in), o = parameter(g, part("o", l), 3, out);
    q = plait_graph_einsum(g, part("queries", l), "b s e, h d e -> b s h d", x, q);
    k = plait_graph_einsum(g, part("keys", l), "b s e, h d e -> b s h d", x, k);
    v = plait_graph_einsum(g, part("values", l), "b s e, h d e -> b s h d", x, v);
    PlaitTensor y = plait_graph_attention(g, part("attention", l), q, k, v, -1, 1, 0);
    y = plait_graph_einsum(g, part("mixed", l), "b s h d, e h d -> b s e", y, o);
    x = plait_graph_add(g, part("middle", l), x, y);
    PlaitTensor wide = parameter(g, part("up", l), 2, up), narrow = parameter(g, part("down", l), 2, down);
    PlaitTensor h = plait_graph_linear(g, part("wide", l), x, wide, -1);
    h = plait_graph_activation(g, part("gelu", l), h, PLAIT_GELU);
    h = plait_graph_linear(g, part("narrow", l), h, narrow, -1);
    x = plait_graph_add(g, part("block", l), x, h);
  }
  plait_graph_linear_cross_entropy(g, x, parameter(g, "head", 2, table), targets);
  return g;
}

typedef struct Model { const char *name; PlaitGraph *(*build)(void); int tokens; const char *read[2]; } Model;
static const Model models[] = {{"mlp", build_mlp, 0, {"w1", "w2"}},
                               {"transformer", build_transformer, 1, {"q1", "head"}}};
enum { MODELS = sizeof models / sizeof *models, MOST_READ = VOCAB * HIDDEN + WIDE * HIDDEN };

// Clusters ------------------------------------------------------------------------------------------------------------

// Slow devices, so that a small graph is worth cutting: FLOP/s, bytes of memory, bytes/s and seconds of the link.
typedef struct Machine { double rate, memory, bandwidth, latency; } Machine;

static const char *write_cluster(const Machine *m) {
  static char path[512];
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/graph-plan-%d.yaml", folder ? folder : "/tmp", (int)getpid());
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f,
          "name: test\ndevice:\n  name: slow\n  matrix: {fp64: %g, fp32: %g, bf16: %g}\n"
          "  vector: {fp64: %g, fp32: %g, bf16: %g}\n  sustained: 1\n  units: 4\n  cache: 1e6\n  memory: %g\n"
          "  bandwidth: %g\n  reserved: 0\n  launch: 1e-9\n  host: 1e-9\n  source: invented\nlevels:\n"
          "  - {name: wire, count: 8, kind: switch, ports: 1, bandwidth: %g, latency: %g, source: invented}\n"
          "spread: 0\nbase: [0, 0]\nsource: invented\n",
          m->rate, m->rate, m->rate, m->rate / 10, m->rate / 10, m->rate / 10, m->memory, m->rate, m->bandwidth,
          m->latency);
  assert_int_equal(fclose(f), 0);
  return path;
}

static const Machine machines[] = {
    {1e6, 1e9, 1e9, 1e-9}, // links for nothing
    {1e6, 1e9, 1e6, 1e-4}, // dear links
    {1e9, 1e9, 1e6, 1e-2}, // dearer than computing
    {1e6, (64 << 20) + 20e3, 1e8, 1e-7}, // little memory beside the workspace of products
};
enum { MACHINES = sizeof machines / sizeof *machines };

static PlaitGraphPlan *plan(const PlaitGraph *g, const PlaitTrainingOptions *o, const PlaitPlanOptions *where) {
  PlaitGraphPlan *p;
  PlaitError error = {0};
  if (plait_graph_plan(g, o, where, &p, &error)) fail_msg("%s", error.message);
  return p;
}

// Trains as one rank --------------------------------------------------------------------------------------------------

typedef struct Run { double loss[STEPS], norm[STEPS], read[2][MOST_READ]; } Run;

static void train(const Model *m, const PlaitTrainingOptions *o, Run *r) {
  PlaitGraph *g = m->build();
  PlaitTraining *t;
  PlaitError error = {0};
  double x[SAMPLES * WIDE], y[SAMPLES * OUT];
  int32_t tokens[SAMPLES * SEQ], targets[SAMPLES * SEQ];
  memset(r, 0, sizeof *r);
  if (plait_training_create(g, o, &t, &error)) fail_msg("%s", error.message);
  plait_graph_destroy(g);
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < SAMPLES * WIDE; i++) x[i] = sin(1.3 * i + step);
    for (int i = 0; i < SAMPLES * OUT; i++) y[i] = cos(0.7 * i - step);
    for (int i = 0; i < SAMPLES * SEQ; i++) tokens[i] = (5 * i + step) % VOCAB, targets[i] = (7 * i) % VOCAB;
    const void *numbers[] = {x, y}, *words[] = {tokens, targets};
    PlaitStepResult result;
    if (plait_training_step(t, m->tokens ? words : numbers, 0.05, &result, &error)) fail_msg("%s", error.message);
    r->loss[step] = result.loss;
    r->norm[step] = result.gradient_norm;
  }
  const size_t size[2] = {(size_t)(m->tokens ? WIDE * WIDE : HIDDEN * WIDE),
                          (size_t)(m->tokens ? VOCAB * WIDE : OUT * HIDDEN)};
  for (int i = 0; i < 2; i++)
    if (plait_training_read(t, m->read[i], r->read[i], size[i] * sizeof(double), &error)) fail_msg("%s", error.message);
  plait_training_destroy(t);
}

static double difference(const Run *a, const Run *b) {
  const double *x = (const double *)a, *y = (const double *)b;
  double worst = 0;
  for (size_t i = 0; i < sizeof *a / sizeof(double); i++)
    worst = fmax(worst, isnan(x[i]) ? INFINITY : fabs(x[i] - y[i]));
  return worst;
}

// Losses, norms of the gradient and parameters: with sgd these are sums of gradients.
static void check_training(const Model *m, const char *optimizer, const PlaitGraphPlan *p, const Run *one) {
  static Run placed;
  train(m, &(PlaitTrainingOptions){.optimizer = optimizer, .plan = p}, &placed);
  if (difference(one, &placed) > 1e-11)
    fail_msg("%s on %s by %s: off by %g", m->name, p->mesh, optimizer, difference(one, &placed));
}

// Some plans are the search's own choice, others have a mesh given. Each is searched for one optimizer, in turn, and
// trained by both.
static void a_plan_trains_as_one_rank_does(void **state) {
  static const char *const meshes[] = {NULL, "tp=2", "dp=2 tp=2", "pp=2 tp=2", "pp=2 dp=2"};
  static const char *const optimizers[] = {"sgd", "adamw"};
  static Run one[2];
  for (int i = 0; i < (only_from(2) ? 1 : MODELS); i++) {
    const Model *m = &models[i];
    for (int o = 0; o < 2; o++) train(m, &(PlaitTrainingOptions){.optimizer = optimizers[o]}, &one[o]);
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
      if (only_from(2) && k > 1) continue;
      if (only_from(3) && i && k != 1 && k != 4) continue;
      PlaitGraph *g = m->build();
      PlaitTrainingOptions options = {.mesh = meshes[k], .optimizer = optimizers[(k + (size_t)i) % 2]};
      PlaitPlanOptions where = {.cluster = write_cluster(&machines[0]), .ranks = meshes[k] ? 0 : 4};
      PlaitGraphPlan *p = plan(g, &options, &where);
      plait_graph_destroy(g);
      if (meshes[k] && strstr(meshes[k], "tp")) assert_true(p->placements > 0);
      for (int o = 0; o < 2; o++) check_training(m, optimizers[o], p, &one[o]);
      plait_graph_plan_destroy(p);
    }
  }
}

// Every rank finds the plan by itself, and joins the others with it.
typedef struct Joint { double loss[4]; const char *cluster; } Joint;

static int join(PlaitComm *comm, void *joint, PlaitError *error) {
  Joint *j = joint;
  PlaitGraph *g = build_mlp();
  PlaitTrainingOptions o = {.comm = comm};
  PlaitTraining *t = NULL;
  PlaitGraphPlan *p;
  PlaitStepResult result = {0};
  double x[SAMPLES * WIDE], y[SAMPLES * OUT];
  for (int i = 0; i < SAMPLES * WIDE; i++) x[i] = sin(1.3 * i);
  for (int i = 0; i < SAMPLES * OUT; i++) y[i] = cos(0.7 * i);
  int code = plait_graph_plan(g, &o, &(PlaitPlanOptions){.cluster = j->cluster, .ranks = 4}, &p, error);
  if (!code) o.plan = p, code = plait_training_create(g, &o, &t, error);
  if (!code) code = plait_training_step(t, (const void *[]){x, y}, 0.05, &result, error);
  j->loss[plait_comm_rank(comm)] = result.loss;
  plait_training_destroy(t);
  plait_graph_plan_destroy(p);
  plait_graph_destroy(g);
  return code;
}

static void ranks_of_a_world_find_the_same_plan(void **state) {
  static Run one;
  Joint j = {.cluster = write_cluster(&machines[0])};
  PlaitError error = {0};
  train(&models[0], NULL, &one);
  if (plait_world_run(4, join, &j, &error)) fail_msg("%s", error.message);
  for (int r = 0; r < 4; r++) assert_true(fabs(j.loss[r] - one.loss[0]) < 1e-11);
}

// The best that there is ----------------------------------------------------------------------------------------------

// The MLP's plans, one by one, through plait_graph_predict alone.
static double best_of_all(const PlaitPlanOptions *where, int ranks, int64_t *fitting) {
  PlaitGraph *g = build_mlp();
  double best = INFINITY;
  char mesh[64];
  static const char *const schedules[] = {"naive", "gpipe", "1f1b", "zb-h1"};
  *fitting = 0;
  for (int code = 0; code < 3 * 3 * 4 * 4 * 4 * 64;
       code++) { // dim of w1, dim of w2, ZeRO, microbatches, schedule, mesh
    int left = code, cut1 = left % 3 - 1, cut2 = (left /= 3) % 3 - 1, zero = (left /= 3) % 4,
        micro = 1 << (left /= 4) % 4, schedule = (left /= 4) % 4, axes = left / 4, pp = 1 << axes % 4,
        dp = 1 << axes / 4 % 4, tp = 1 << axes / 16;
    if (pp * dp * tp != ranks || pp > 2 || (pp == 1 && schedule) || (dp == 1 && zero) || micro > SAMPLES / dp) continue;
    if ((tp == 1) != (cut1 < 0 && cut2 < 0)) continue;
    snprintf(mesh, sizeof mesh, "pp=%d dp=%d tp=%d", pp, dp, tp);
    PlaitPlacement placement[2];
    int n = 0;
    if (cut1 >= 0) placement[n++] = (PlaitPlacement){"w1", cut1, "tp"};
    if (cut2 >= 0) placement[n++] = (PlaitPlacement){"w2", cut2, "tp"};
    PlaitGraphPlan asked = {mesh, micro, schedules[schedule], zero, placement, n}, *p;
    if (plait_graph_predict(g, &(PlaitTrainingOptions){.plan = &asked}, where, &p, NULL)) continue; // does not divide
    if (p->memory_bytes <= p->room_bytes) best = fmin(best, p->step_seconds), ++*fitting;
    plait_graph_plan_destroy(p);
  }
  plait_graph_destroy(g);
  return best;
}

static void the_choice_is_the_best_of_all(void **state) {
  if (only_from(2)) skip();
  int placed = 0;
  for (int m = 0; m < MACHINES; m++)
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
      int64_t fitting;
      if (only_from(3) && (m % 2 != 0) != (ranks == 1 || ranks == 4)) continue;
      PlaitPlanOptions where = {.cluster = write_cluster(&machines[m]), .ranks = ranks};
      double best = best_of_all(&where, ranks, &fitting);
      PlaitGraph *g = build_mlp();
      PlaitGraphPlan *p, *all;
      PlaitError error = {0};
      if (!fitting) {
        assert_int_equal(plait_graph_plan(g, NULL, &where, &p, &error), PLAIT_INFEASIBLE);
        plait_graph_destroy(g);
        continue;
      }
      p = plan(g, NULL, &where);
      where.exhaustive = 1;
      all = plan(g, NULL, &where);
      if (fabs(all->step_seconds / best - 1) > 1e-12)
        fail_msg("machine %d, %d ranks: exhaustive %g, one by one %g", m, ranks, all->step_seconds, best);
      if (p->step_seconds > best * 1.0000001)
        fail_msg("machine %d, %d ranks: %s takes %g, the best %g (%s)", m, ranks, p->mesh, p->step_seconds, best,
                 all->mesh);
      placed += p->placements > 0;
      plait_graph_plan_destroy(p);
      plait_graph_plan_destroy(all);
      plait_graph_destroy(g);
    }
  assert_true(placed > 0); // else the test sees no cuts
}

// Five matrices of different sizes, each of them its own kind: more patterns than the search tries.
static PlaitGraph *build_deep(void) {
  static const int64_t width[] = {24, 48, 24, 96, 48, 12};
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, &width[0]), y = plait_graph_input(g, "y", 1, &width[5]);
  for (int i = 0; i < 5; i++) {
    PlaitTensor w = parameter(g, part("w", i), 2, (int64_t[]){width[i + 1], width[i]});
    x = plait_graph_linear(g, part("l", i), x, w, -1);
    if (i < 4) x = plait_graph_activation(g, part("a", i), x, PLAIT_GELU);
  }
  plait_graph_squared_error(g, x, y);
  return g;
}

// A number between low and high that depends on its number alone; logarithms are uniform.
static double drawn(int number, double low, double high) {
  double x = fabs(sin(12.9898 * number) * 43758.5453);
  return low * pow(high / low, x - floor(x));
}

// On machines that are drawn: within half a percent of the best.
static void many_patterns_are_searched_well(void **state) {
  if (only_from(2)) skip();
  for (int i = 0; i < (only_from(3) ? 4 : 10); i++) {
    Machine m = {drawn(4 * i, 1e6, 1e10), 1e9, drawn(4 * i + 1, 1e5, 1e9), drawn(4 * i + 2, 1e-8, 1e-3)};
    PlaitPlanOptions where = {.cluster = write_cluster(&m)};
    PlaitTrainingOptions o = {.mesh = i % 2 ? "tp=4" : "dp=2 tp=2", .zero = i % 2 ? 0 : 1};
    PlaitGraph *g = build_deep();
    PlaitGraphPlan *p = plan(g, &o, &where), *all;
    where.exhaustive = 1;
    all = plan(g, &o, &where);
    assert_true(p->simulated < all->simulated);
    if (p->step_seconds > 1.005 * all->step_seconds)
      fail_msg("machine %d: %g s, the best %g s", i, p->step_seconds, all->step_seconds);
    plait_graph_plan_destroy(p);
    plait_graph_plan_destroy(all);
    plait_graph_destroy(g);
  }
}

// Of many patterns the search sees some; none beside the one that it found is better.
static void cuts_of_a_transformer_are_the_best(void **state) {
  if (only_from(2)) skip();
  for (int m = 0; m < 2; m++) {
    PlaitGraph *g = build_transformer();
    PlaitPlanOptions where = {.cluster = write_cluster(&machines[m])};
    PlaitTrainingOptions o = {.mesh = "tp=2", .microbatches = 1};
    PlaitGraphPlan *p = plan(g, &o, &where), *again;
    PlaitError error = {0};
    assert_true(p->placements >= 8); // those of both blocks
    double found = p->step_seconds;
    // No change of what lies alike makes it faster: every parameter kind, every dim.
    static const char *const kinds[][2] = {{"q0", "q1"}, {"k0", "k1"},       {"v0", "v1"}, {"o0", "o1"},
                                           {"up0", "up1"}, {"down0", "down1"}, {"table", NULL}, {"head", NULL}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
      for (int dim = -1; dim < (k < 4 ? 3 : 2); dim++) {
        PlaitPlacement placement[16];
        int n = 0;
        for (int i = 0; i < p->placements; i++) {
          const char *name = p->placement[i].parameter;
          if (strcmp(name, kinds[k][0]) && (!kinds[k][1] || strcmp(name, kinds[k][1])))
            placement[n++] = p->placement[i];
        }
        for (int i = 0; i < 2 && dim >= 0 && kinds[k][i]; i++)
          placement[n++] = (PlaitPlacement){kinds[k][i], dim, "tp"};
        PlaitGraphPlan asked = {p->mesh, 1, p->schedule, p->zero, placement, n};
        if (plait_graph_predict(g, &(PlaitTrainingOptions){.plan = &asked}, &where, &again, &error))
          fail_msg("%s", error.message);
        if (again->step_seconds < found * 0.9999999)
          fail_msg("%s along %d takes %g, the plan %g", kinds[k][0], dim, again->step_seconds, found);
        plait_graph_plan_destroy(again);
      }
    plait_graph_plan_destroy(p);
    plait_graph_destroy(g);
  }
}

// Names of more than two blocks are folded; others stand alone.
static void a_plan_is_printed(void **state) {
  const PlaitPlacement placement[] = {{"table", 1, "tp"}, {"q0", 0, "tp"}, {"up0", 0, "tp"}, {"q1", 0, "tp"},
                                      {"up1", 0, "tp"},   {"q2", 0, "tp"}, {"head", 0, "tp"}};
  const PlaitGraphPlan p = {.mesh = "tp=2", .microbatches = 2, .schedule = "1f1b", .zero = 1, .placement = placement,
                            .placements = 7, .step_seconds = 0.5, .memory_bytes = 3e9, .room_bytes = 2e9};
  char text[512] = "";
  FILE *f = fmemopen(text, sizeof text, "w");
  plait_graph_plan_print(&p, f);
  fclose(f);
  assert_string_equal(text, "mesh tp=2, 2 microbatches, ZeRO 1, schedule 1f1b\n  cut over tp: dim 1 of table\n"
                            "  cut over tp: dim 0 of q0 … q2, up0, up1, head\n"
                            "  a step takes 500 ms, the rank with the most 3.00 GB of 2.00 GB, which does not fit\n");
}

static void what_is_given_stays(void **state) {
  PlaitGraph *g = build_mlp();
  PlaitPlanOptions where = {.cluster = write_cluster(&machines[0]), .ranks = 4};
  PlaitGraphPlan *p = plan(g, &(PlaitTrainingOptions){.zero = 2, .microbatches = 2}, &where);
  assert_true(p->zero == 2 && p->microbatches == 2 && p->memory_bytes <= p->room_bytes);
  plait_graph_plan_destroy(p);
  where.ranks = 0; // all of the cluster
  p = plan(g, &(PlaitTrainingOptions){.schedule = "gpipe"}, &where);
  assert_string_equal(p->schedule, "gpipe");
  int pp, dp, tp;
  assert_int_equal(sscanf(p->mesh, "pp=%d dp=%d tp=%d", &pp, &dp, &tp), 3);
  assert_int_equal(pp * dp * tp, 8);
  plait_graph_plan_destroy(p);
  p = plan(g, &(PlaitTrainingOptions){.mesh = "pp=2 dp=2"}, &where);
  assert_string_equal(p->mesh, "pp=2 dp=2");
  plait_graph_plan_destroy(p);
  // with less memory another plan, which fits
  p = plan(g, NULL, &where);
  where.memory_bytes = p->memory_bytes - 1;
  PlaitGraphPlan *smaller = plan(g, NULL, &where);
  assert_true(smaller->memory_bytes < p->memory_bytes && smaller->step_seconds >= p->step_seconds);
  plait_graph_plan_destroy(smaller);
  plait_graph_plan_destroy(p);
  plait_graph_destroy(g);
}

// What is wrong -------------------------------------------------------------------------------------------------------

static void refused(const PlaitGraph *g, const PlaitTrainingOptions *o, const PlaitPlanOptions *where, int code,
                    const char *sentence) {
  PlaitGraphPlan *p;
  PlaitError error = {0};
  assert_int_equal(plait_graph_plan(g, o, where, &p, &error), code);
  assert_null(p);
  if (!strstr(error.message, sentence)) fail_msg("\"%s\" has no \"%s\"", error.message, sentence);
}

static void what_is_wrong_is_said(void **state) {
  if (only_from(2)) skip();
  const char *cluster = write_cluster(&machines[0]);
  PlaitGraph *g = build_mlp();
  setenv("HOME", "", 1); // this machine would be measured, and the result kept there
  setenv("XDG_CACHE_HOME", "", 1);
  refused(g, NULL, NULL, PLAIT_BAD_INPUT, "neither XDG_CACHE_HOME nor HOME says where");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = SOURCE_FOLDER "/clusters/h200-nod"}, PLAIT_BAD_INPUT, "h200-nod");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = 16}, PLAIT_BAD_INPUT, "8 devices");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = -1}, PLAIT_BAD_INPUT, "ranks is -1");
  refused(g, &(PlaitTrainingOptions){.mesh = "dp=2"}, &(PlaitPlanOptions){.cluster = cluster, .ranks = 4},
          PLAIT_BAD_INPUT, "ranks is 4, but the mesh \"dp=2\" has 2");
  refused(g, &(PlaitTrainingOptions){.mesh = "dp=2 more=2"}, &(PlaitPlanOptions){.cluster = cluster}, PLAIT_BAD_INPUT,
          "names the axis \"more\"");
  refused(g, &(PlaitTrainingOptions){.schedule = "1f2b"}, &(PlaitPlanOptions){.cluster = cluster}, PLAIT_BAD_INPUT,
          "schedule is \"1f2b\"");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .memory_bytes = 900}, PLAIT_INFEASIBLE,
          "nothing fits on 8 ranks: the nearest plan (pp=");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = 1, .memory_bytes = (64 << 20) + 20e3},
          PLAIT_INFEASIBLE, "ranks of this cluster would do");
  PlaitGraph *large = build_transformer();
  refused(large, NULL, &(PlaitPlanOptions){.cluster = cluster, .exhaustive = 1}, PLAIT_BAD_INPUT,
          "exhaustive is for small graphs");
  plait_graph_destroy(large);
  plait_graph_destroy(g);

  g = plait_graph_create(1, PLAIT_FP64); // one sample, one layer, 5 × 7 numbers
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){7}), y = plait_graph_input(g, "y", 1, (int64_t[]){5});
  plait_graph_squared_error(g, plait_graph_linear(g, "l", x, parameter(g, "w", 2, (int64_t[]){5, 7}), -1), y);
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = 8}, PLAIT_INFEASIBLE,
          "no mesh of 8 ranks cuts the graph");
  refused(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = 8}, PLAIT_INFEASIBLE,
          "the nearest number of ranks is 7");
  plait_graph_plan_destroy(plan(g, NULL, &(PlaitPlanOptions){.cluster = cluster, .ranks = 7}));
  plait_graph_destroy(g);
}

static void a_plan_is_for_its_graph(void **state) {
  PlaitGraph *mlp = build_mlp(), *other = build_transformer();
  PlaitPlanOptions where = {.cluster = write_cluster(&machines[0])};
  PlaitGraphPlan *p = plan(mlp, &(PlaitTrainingOptions){.mesh = "tp=2"}, &where);
  PlaitTraining *t;
  PlaitError error = {0};
  assert_int_equal(plait_training_create(other, &(PlaitTrainingOptions){.plan = p}, &t, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "which the graph does not have"));
  error = (PlaitError){0};
  assert_int_equal(plait_training_create(mlp, &(PlaitTrainingOptions){.plan = p, .mesh = "dp=2"}, &t, &error),
                   PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "mesh is given, and so is plan"));
  plait_graph_plan_destroy(p);
  plait_graph_destroy(mlp);
  plait_graph_destroy(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_trains_as_one_rank_does),
                                     cmocka_unit_test(ranks_of_a_world_find_the_same_plan),
                                     cmocka_unit_test(the_choice_is_the_best_of_all),
                                     cmocka_unit_test(many_patterns_are_searched_well),
                                     cmocka_unit_test(cuts_of_a_transformer_are_the_best),
                                     cmocka_unit_test(a_plan_is_printed),
                                     cmocka_unit_test(what_is_given_stays),
                                     cmocka_unit_test(what_is_wrong_is_said),
                                     cmocka_unit_test(a_plan_is_for_its_graph)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  remove(write_cluster(&machines[0]));
  return failed;
}
