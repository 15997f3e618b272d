// Expert parallelism: wherever experts lie, losses, norms, gradients, parameters and moments are one rank's. And what
// it moves.
#include "corpora.h"
#include "compare.h"
#include "program/rows.h"
#include "runtime/job.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { CHOICES = 2, EMBED = 20, SEQ = 24 }; // of the model, which has 6 experts

static const ParityCase layouts[] = {
    {.name = "dp 2", .dp = 2, .settings = "parallel.ep=2"},
    {.name = "dp 2 micro 3, uneven", .dp = 2, .micro = 3, .settings = "parallel.ep=2"},
    {.name = "dp 3, uneven", .dp = 3, .micro = 3, .settings = "parallel.ep=3"},
    {.name = "dp 4 of which 2 zero 1", .dp = 4, .zero = 1, .settings = "parallel.ep=2"},
    {.name = "dp 4 of which 2 zero 2 unsplit",
     .dp = 4,
     .zero = 2,
     .settings = "parallel.ep=2 parallel.unsplit_tensors=true"},
    {.name = "dp 4 of which 2 zero 3", .dp = 4, .zero = 3, .micro = 2, .settings = "parallel.ep=2"},
    {.name = "dp 4 hybrid zero 3", .dp = 4, .zero = 3, .settings = "parallel.ep=2 parallel.shard_group=2"},
    {.name = "dp 2 recompute full", .dp = 2, .recompute = RECOMPUTE_FULL, .settings = "parallel.ep=2"},
    {.name = "dp 2 recompute selective", .dp = 2, .recompute = RECOMPUTE_SELECTIVE, .settings = "parallel.ep=2"},
    {.name = "tp 2", .tp = 2, .settings = "parallel.ep=2"},
    {.name = "tp 2 sequence", .tp = 2, .sequence = 1, .settings = "parallel.ep=2"},
    {.name = "dp 3 tp 2", .dp = 3, .tp = 2, .micro = 3, .settings = "parallel.ep=6"},
    {.name = "dp 3 tp 2 sequence, uneven", .dp = 3, .tp = 2, .micro = 3, .sequence = 1, .settings = "parallel.ep=6"},
    {.name = "cp 2", .cp = 2, .settings = "parallel.ep=2"},
    {.name = "cp 2 ring", .cp = 2, .settings = "parallel.ep=2 parallel.context=ring"},
    {.name = "cp 2 ulysses", .cp = 2, .settings = "parallel.ep=2 parallel.context=ulysses"},
    {.name = "dp 3 cp 2, uneven", .dp = 3, .cp = 2, .micro = 3, .settings = "parallel.ep=6"},
    {.name = "dp 3 cp 2 ring", .dp = 3, .cp = 2, .micro = 3, .settings = "parallel.ep=6 parallel.context=ring"},
    {.name = "dp 2 tp 2 inside", .dp = 2, .tp = 2, .settings = "layout.expert=[dp]"},
    {.name = "dp 2 tp 2 inside, sequence",
     .dp = 2,
     .tp = 2,
     .sequence = 1,
     .zero = 2,
     .settings = "layout.expert=[dp]"},
    {.name = "cp 2 tp 2 inside, sequence", .cp = 2, .tp = 2, .sequence = 1, .settings = "layout.expert=[cp]"},
    {.name = "cp 3 tp 2 over both, sequence", .cp = 3, .tp = 2, .sequence = 1, .settings = "parallel.ep=6"},
    {.name = "dp 2 tp 2 whole, sequence",
     .dp = 2,
     .tp = 2,
     .sequence = 1,
     .settings = "layout.expert=[dp] layout.expert_ffn=[]"},
    {.name = "dp 3 tp 2 inside, samples over both, uneven",
     .dp = 3,
     .tp = 2,
     .micro = 2,
     .settings = "layout.expert=[dp] layout.batch=[dp,tp]"},
    {.name = "dp 2 pp 2 1f1b", .dp = 2, .pp = 2, .micro = 2, .settings = "parallel.ep=2"},
    {.name = "dp 2 pp 2 zb-h1", .dp = 2, .pp = 2, .micro = 2, .schedule = "zb-h1", .settings = "parallel.ep=2"},
    {.name = "dp 2 without overlap", .dp = 2, .settings = "parallel.ep=2 parallel.overlap=false"},
};

static const ParityCase alike[] = {
    {.name = "alike dp 3, uneven", .dp = 3, .micro = 3, .settings = "parallel.ep=3"},
    {.name = "alike dp 3 tp 2 sequence", .dp = 3, .tp = 2, .micro = 3, .sequence = 1, .settings = "parallel.ep=6"},
    {.name = "alike cp 2", .cp = 2, .settings = "parallel.ep=2"},
};

static void complete(ParityCase *c, const ParityCase *base) {
  if (!c->dp) c->dp = 1;
  if (!c->tp) c->tp = 1;
  if (!c->pp) c->pp = 1;
  if (!c->micro) c->micro = 4;
  c->model = base->model;
  c->seq = base->seq;
  c->precision = base->precision;
  c->steps = base->steps;
  c->more_settings = base->more_settings;
}

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// A run may come to a point at which rounding is magnified, as a row that is nearly nothing before its norm. How much
// is measured: by how much one rank differs from itself when it sums in another order, which must be within the bound
// itself. A layout may differ by MAGNIFIED times as much, where that is more than the bound: the largest of some thirty
// layouts was twice one rank's own difference (AVX-512, an element of layer.0.experts.gate.weight).
enum { MAGNIFIED = 3 };
static ParityDifference noise_of_one_rank(const ParityCase *base, const ParityResult *one, int *bad) {
  ParityCase halves = *base;
  ParityResult other;
  halves.micro = base->micro / 2;
  run(&halves, &other);
  ParityTolerance t = parity_tolerance(&halves, one);
  ParityDifference noise = parity_compare(&other, one, &t);
  *bad += parity_report(&halves, &noise, &t, 1);
  parity_free(&other);
  return noise;
}

static void compare(const char *model, Dtype precision, const ParityCase *cases, size_t count) {
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16,
                     .precision = precision, .steps = parity_steps(3), .seq = SEQ,
                     .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  ParityDifference noise = {0};
  if (precision != DTYPE_F64) noise = noise_of_one_rank(&base, &one, &bad);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = cases[i];
    if (!parity_wanted(&c)) continue;
    complete(&c, &base);
    run(&c, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    for (int m = 0; m < MEASURES; m++) t.most[m] = fmax(t.most[m], MAGNIFIED * noise.worst[m]);
    bad += parity_report(&c, &d, &t, 1);
    parity_free(&other);
  }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static void fp64(void **state) { compare("experts", DTYPE_F64, layouts, sizeof layouts / sizeof *layouts); }
static void fp32(void **state) { compare("experts", DTYPE_F32, layouts, sizeof layouts / sizeof *layouts); }

// In the first step all tokens go to the first experts, and most ranks have no row.
static void all_tokens_to_one_rank(void **state) {
  compare("experts alike", DTYPE_F64, alike, sizeof alike / sizeof *alike);
}

// What lies behind the rows that are there is poisoned too: nobody reads it.
static void chaos(void **state) {
  setenv("PLAIT_CHAOS", "5", 1);
  fp64(state);
  all_tokens_to_one_rank(state);
  unsetenv("PLAIT_CHAOS");
}

// ---- what is moved --------------------------------------------------------------------------------------------------

typedef struct Moved { double rows; int exchanges; } Moved;

// Of a layer, in a microbatch, on one rank, in units of (N − 1)/N.
static void count(Job *job, void *context) {
  enum { LAYER = 1 };
  Moved *m = context;
  const Program *p = job->train.program[0];
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    if (n->region != REGION_MICRO || n->layer != LAYER || !op_def(n->op)->moves_rows) continue;
    const ExchangeAttr *attr = node_attr(n, ExchangeAttr);
    const Tensor *tokens = graph_tensor(p->graph, attr->parts.home ? n->output[0] : n->input[0]);
    m->rows += (double)rows_elements(p, tokens, 0, 0);
    m->exchanges++;
  }
}

// A balanced router: there and back in forward, and in backward (4 · k · T · e elements of a rank's T tokens).
static void rows_move_four_times(void **state) {
  static const struct { ParityCase c; int tokens; } cases[] = {
      {{.name = "dp 2", .dp = 2, .settings = "parallel.ep=2"}, 4 * SEQ},
      {{.name = "cp 2", .cp = 2, .settings = "parallel.ep=2"}, 4 * SEQ / 2},
      {{.name = "dp 3 tp 2", .dp = 3, .tp = 2, .micro = 3, .sequence = 1, .settings = "parallel.ep=6"}, 3 * SEQ / 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ParityCase base = {.model = "experts", .precision = DTYPE_F64, .steps = 1, .seq = SEQ}, c = cases[i].c;
    Moved moved = {0};
    ParityResult result;
    complete(&c, &base);
    c.edit = count;
    c.context = &moved;
    run(&c, &result);
    if (moved.exchanges != 4 || moved.rows != 4.0 * CHOICES * cases[i].tokens * EMBED)
      fail_msg("%s: %d exchanges of %.0f elements, instead of 4 of %d", c.name, moved.exchanges, moved.rows,
               4 * CHOICES * cases[i].tokens * EMBED);
    parity_free(&result);
  }
}

static void count_masks(Job *job, void *moved) {
  const Graph *g = job->train.program[0]->graph;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->layer != 1 || n->region != REGION_MICRO || n->phase != PHASE_FORWARD || !op_def(n->op)->communicates)
      continue;
    *(int *)moved += graph_tensor(g, n->input[0])->dtype == DTYPE_U8;
  }
}

// All that reads a mask beside rows reads the one that has moved with them.
static void masks_move_once(void **state) {
  ParityCase base = {.model = "experts", .precision = DTYPE_F64, .steps = 1, .seq = SEQ},
             c = {.name = "cp 3 tp 2", .cp = 3, .tp = 2, .settings = "parallel.ep=6"};
  int moved = 0;
  ParityResult result;
  complete(&c, &base);
  c.edit = count_masks;
  c.context = &moved;
  run(&c, &result);
  parity_free(&result);
  assert_int_equal(moved, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(masks_move_once),
                                     cmocka_unit_test(fp64),
                                     cmocka_unit_test(fp32),
                                     cmocka_unit_test(chaos),
                                     cmocka_unit_test(all_tokens_to_one_rank),
                                     cmocka_unit_test(rows_move_four_times)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
