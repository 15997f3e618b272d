// tier 2; numbers
// Delayed gradients: that the gradient of step t is taken at the weights of step t − delay, against weights that this
// test updates itself; and that every layout gives one rank's numbers.
#include "corpora.h"
#include "one_rank.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static ParityCase one_rank(const char *model, int steps) {
  return (ParityCase){.name = "one rank",
                      .model = model,
                      .pp = 1,
                      .dp = 1,
                      .tp = 1,
                      .micro = 16,
                      .precision = DTYPE_F64,
                      .steps = parity_steps(steps)};
}

// ---- the definition ------------------------------------------------------------------------------------------------
// A run without delay whose weights are set before every step to what they should be for its gradient. The update is
// made here, by hand: the run's own is thrown away.

enum { STEPS = 6, MOST = 64 }; // parameters of the model
typedef enum Rule { SGD, ADAMW } Rule;
typedef struct Hand {
  Rule rule;
  double clip;
  int delay[4];                     // of the layers
  int count;                        // parameters
  int variable[MOST], age[MOST];    // which they are, and their delays
  int64_t elements[MOST];
  double *weights[MOST][STEPS + 1]; // at the beginning of step 0 …
  double *first[MOST], *second[MOST], *gradient[MOST];
} Hand;

static Box whole(const State *s, int variable) {
  ShardBoxes b = state_boxes(s, variable, -1);
  assert_true(shard_next(&b));
  return b.box;
}

// "layer.2.…": the delay of that layer; what comes before the layers has the first one's, what comes after, the last's.
static int age_of(const Hand *h, const char *name) {
  int layer;
  if (sscanf(name, "layer.%d.", &layer) == 1) return h->delay[layer];
  return !strncmp(name, "wte", 3) || !strncmp(name, "wpe", 3) ? h->delay[0] : h->delay[3];
}

static void find_parameters(Hand *h, const State *s) {
  const Graph *g = s->program->graph;
  for (int i = 0; i < g->variable.count; i++) {
    if (g->variable.data[i].kind != VARIABLE_PARAMETER) continue;
    int p = h->count++;
    assert_true(p < MOST);
    h->variable[p] = i;
    h->age[p] = age_of(h, g->variable.data[i].name);
    size_t n = (size_t)(h->elements[p] = shape_elements(&g->variable.data[i].shape));
    for (int t = 0; t <= STEPS; t++) h->weights[p][t] = xcalloc(n, sizeof(double));
    h->first[p] = xcalloc(n, sizeof(double));
    h->second[p] = xcalloc(n, sizeof(double));
    h->gradient[p] = xcalloc(n, sizeof(double));
    Box box = whole(s, i);
    state_read(s, i, -1, &box, h->weights[p][0]);
  }
}

// The gradients of step t (from 0) are those that the run has just dumped; they update the newest weights.
static void update(Hand *h, const State *s, int t) {
  const Graph *g = s->program->graph;
  double squares = 0, factor = 1;
  for (int p = 0; p < h->count; p++) {
    int dumped = graph_find_of(g, OF_DUMP, h->variable[p]);
    Box box = whole(s, dumped);
    state_read(s, dumped, -1, &box, h->gradient[p]);
    for (int64_t i = 0; i < h->elements[p]; i++) squares += h->gradient[p][i] * h->gradient[p][i];
  }
  if (h->clip > 0 && sqrt(squares) > h->clip) factor = h->clip / (sqrt(squares) + 1e-6);
  for (int p = 0; p < h->count; p++) {
    double decay = g->variable.data[h->variable[p]].weight_decay ? 0.1 : 0;
    for (int64_t i = 0; i < h->elements[p]; i++) {
      double w = h->weights[p][t][i], d = h->gradient[p][i] * factor, *m = &h->first[p][i], *v = &h->second[p][i];
      if (h->rule == SGD) w -= 1e-2 * (d + decay * w);
      else {
        *m = 0.9 * *m + 0.1 * d;
        *v = 0.95 * *v + 0.05 * d * d;
        double mean = *m / (1 - pow(0.9, t + 1)), square = *v / (1 - pow(0.95, t + 1));
        w = w - 1e-2 * decay * w - 1e-2 * mean / (sqrt(square) + 1e-8);
      }
      h->weights[p][t + 1][i] = w;
    }
  }
}

static void before_step(Rank *r, int step, void *context) {
  Hand *h = context;
  int t = step - 1;
  if (t == 0) find_parameters(h, r->state);
  else update(h, r->state, t - 1);
  for (int p = 0; p < h->count; p++) {
    int from = t - h->age[p] > 0 ? t - h->age[p] : 0;
    Box box = whole(r->state, h->variable[p]);
    state_write(r->state, h->variable[p], -1, &box, h->weights[p][from]);
  }
}

static void free_hand(Hand *h) {
  for (int p = 0; p < h->count; p++) {
    for (int t = 0; t <= STEPS; t++) free(h->weights[p][t]);
    free(h->first[p]);
    free(h->second[p]);
    free(h->gradient[p]);
  }
}

// The loss of every step: those of the run that is delayed, against those of the run whose weights are set. From step 2
// on they depend on all updates before and on every version.
static void check_definition(Rule rule, const char *delay, const int each[4], double clip) {
  char settings[160], delayed[200];
  snprintf(settings, sizeof settings, "optimizer.clip=%g%s", clip,
           rule == SGD ? " optimizer.name=sgd optimizer.momentum=0" : "");
  snprintf(delayed, sizeof delayed, "%s optimizer.delay=%s", settings, delay);
  Hand hand = {.rule = rule, .clip = clip};
  memcpy(hand.delay, each, sizeof hand.delay);
  ParityCase by_hand = one_rank("llama", STEPS), c = by_hand;
  ParityResult set, run_delayed, undelayed;
  by_hand.settings = c.settings = settings;
  by_hand.steps = c.steps = STEPS;
  run(&c, &undelayed);
  by_hand.before_step = before_step, by_hand.context = &hand;
  run(&by_hand, &set);
  c.settings = delayed;
  run(&c, &run_delayed);
  int bad = 0;
  for (int t = 0; t < STEPS; t++) {
    double loss = fabs(run_delayed.loss[t] - set.loss[t]) / set.loss[t],
           norm = fabs(run_delayed.norm[t] - set.norm[t]) / set.norm[t];
    if (loss <= 1e-10 && norm <= 1e-10) continue;
    printf("delay %s, step %d: loss %.15g, by hand %.15g; norm %.15g, by hand %.15g  WRONG\n", delay, t,
           run_delayed.loss[t], set.loss[t], run_delayed.norm[t], set.norm[t]);
    bad = 1;
  }
  assert_int_equal(bad, 0);
  assert_true(fabs(run_delayed.loss[1] - undelayed.loss[1]) > 1e-6); // else nothing was delayed
  free_hand(&hand);
  parity_free(&set);
  parity_free(&run_delayed);
  parity_free(&undelayed);
}

static void one_step_of_sgd(void **state) { check_definition(SGD, "1", (int[]){1, 1, 1, 1}, 0); }
static void one_step_of_adamw(void **state) { check_definition(ADAMW, "1", (int[]){1, 1, 1, 1}, 1); }
static void two_steps(void **state) { check_definition(ADAMW, "2", (int[]){2, 2, 2, 2}, 1); }
static void each_layer_its_own(void **state) { check_definition(ADAMW, "[3,2,0,1]", (int[]){3, 2, 0, 1}, 1); }

// ---- layouts -------------------------------------------------------------------------------------------------------

#define LAYOUT(about, ...) {.name = about, .dp = 1, .pp = 1, .tp = 1, .micro = 16, __VA_ARGS__}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const ParityCase layouts[] = {
    LAYOUT("accumulation", .micro = 4),
    LAYOUT("dp 2 zero 1", .dp = 2, .micro = 8, .zero = 1),
    LAYOUT("dp 4 zero 3", .dp = 4, .micro = 2, .zero = 3),
    LAYOUT("dp 2 zero 3 kept", .dp = 2, .micro = 4, .zero = 3, .settings = "parallel.reshard=false"),
    LAYOUT("dp 2 zero 3 by layers", .dp = 2, .micro = 4, .zero = 3, .settings = "parallel.gather=layer"),
    LAYOUT("dp 2 zero 1 unsplit", .dp = 2, .micro = 4, .zero = 1, .settings = "parallel.unsplit_tensors=true"),
    LAYOUT("dp 4 zero 3 hybrid", .dp = 4, .micro = 2, .zero = 3, .settings = "parallel.shard_group=2"),
    LAYOUT("tp 2 sequence", .tp = 2, .micro = 8, .sequence = 1),
    LAYOUT("cp 2 ring", .cp = 2, .micro = 8, .seq = 16, .settings = "parallel.context=ring"),
    LAYOUT("pp 4 1f1b", .pp = 4, .micro = 2, .schedule = "1f1b"),
    LAYOUT("pp 2 zb-v zero 3", .pp = 2, .dp = 2, .zero = 3, .micro = 4, .schedule = "zb-v"),
    LAYOUT("2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1),
};
#pragma GCC diagnostic pop

// Runs the case of a table with the model; skipped steps are compared too.
static int differs(ParityCase c, const char *model, Dtype precision, int steps, int poison, const char *settings) {
  c.model = model, c.precision = precision, c.steps = parity_steps(steps), c.poison = poison;
  c.more_settings = settings;
  const char *corpus = corpus_for(model, CORPUS_RAGGED);
  if (poison && poison <= c.steps) assert_true(one_rank_run(&c, corpus, NULL)->skipped[poison - 1]);
  return parity_wanted(&c) && one_rank_differs(&c, corpus, NULL);
}

static int compare(const char *model, Dtype precision, int poison, const char *settings) {
  int bad = 0;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    bad += differs(layouts[i], model, precision, 4, poison, settings);
  return bad;
}

static void list(void **state) { assert_int_equal(compare("llama", DTYPE_F64, 0, "optimizer.delay=[3,2,0,1]"), 0); }
static void skips(void **state) { assert_int_equal(compare("llama", DTYPE_F64, 2, "optimizer.delay=2"), 0); }
// A step is run again to find what was not finite; and a run that skips must continue as the definition says: the
// skipped step's weights are those before it, and count as a version.
static void skipped_steps_are_versions(void **state) {
  ParityCase c = one_rank("llama", 4), plain;
  ParityResult skipped, same;
  c.settings = "optimizer.delay=1";
  c.poison = 2;
  c.steps = 4;
  run(&c, &skipped);
  assert_int_equal(skipped.skipped[1], 1);
  assert_non_null(strstr(skipped.non_finite, "wte"));
  // Step 3 then reads what step 2 left, which is what step 1 left: without delay, the same loss in step 3.
  plain = c;
  plain.settings = "optimizer.delay=0";
  run(&plain, &same);
  assert_true(same.skipped[1] && fabs(skipped.loss[2] - same.loss[2]) < 1e-12 * same.loss[2]);
  assert_true(fabs(skipped.loss[3] - same.loss[3]) > 1e-6);
  parity_free(&skipped);
  parity_free(&same);
}

// ---- pipelines that never drain ------------------------------------------------------------------------------------

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const ParityCase streams[] = {
    LAYOUT("pp 2", .pp = 2, .micro = 8),
    LAYOUT("pp 2, 4 microbatches", .pp = 2, .micro = 4),
    LAYOUT("pp 3, 5 microbatches", .pp = 3, .micro = 1, .global = 5),
    LAYOUT("pp 4", .pp = 4, .micro = 2),
    LAYOUT("pp 2 dp 2 zero 2", .pp = 2, .dp = 2, .micro = 4, .zero = 2),
    LAYOUT("pp 2 dp 2 zero 3", .pp = 2, .dp = 2, .micro = 4, .zero = 3),
    LAYOUT("pp 2 cp 2 ring", .pp = 2, .cp = 2, .micro = 4, .seq = 16, .settings = "parallel.context=ring"),
    LAYOUT("2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1),
};
#pragma GCC diagnostic pop

// One microbatch a step; the layers of llama are cut as its delays say.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#define AT_ONCE(layers, delays) .settings = "parallel.layers=" layers " optimizer.delay=" delays
static const ParityCase at_once[] = {
    LAYOUT("pp 2 uneven stages", .pp = 2, AT_ONCE("[1,3]", "[1,0,0,0]")),
    LAYOUT("pp 3", .pp = 3, AT_ONCE("[1,2,1]", "[2,1,1,0]")),
    LAYOUT("pp 4", .pp = 4, AT_ONCE("[1,1,1,1]", "[3,2,1,0]")),
    LAYOUT("pp 4, 7 rows", .pp = 4, .global = 7, AT_ONCE("[1,1,1,1]", "[3,2,1,0]")),
    LAYOUT("pp 3 dp 2, 7 rows", .pp = 3, .dp = 2, .micro = 4, .global = 7, AT_ONCE("[1,2,1]", "[2,1,1,0]")),
    LAYOUT("pp 3 dp 2 zero 1", .pp = 3, .dp = 2, .micro = 8, .zero = 1, AT_ONCE("[1,2,1]", "[2,1,1,0]")),
    LAYOUT("pp 4 dp 2 zero 3", .pp = 4, .dp = 2, .micro = 8, .zero = 3, AT_ONCE("[1,1,1,1]", "[3,2,1,0]")),
    LAYOUT("pp 3 dp 2 zero 3 unsplit", .pp = 3, .dp = 2, .micro = 8, .zero = 3,
           AT_ONCE("[1,2,1]", "[2,1,1,0] parallel.unsplit_tensors=true")),
    LAYOUT("pp 3 tp 2 sequence", .pp = 3, .tp = 2, .sequence = 1, AT_ONCE("[1,2,1]", "[2,1,1,0]")),
    LAYOUT("pp 3 cp 2 ring", .pp = 3, .cp = 2, .seq = 16, AT_ONCE("[1,2,1]", "[2,1,1,0] parallel.context=ring")),
    LAYOUT("2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 8, .zero = 3, .sequence = 1,
           AT_ONCE("[2,2]", "[1,1,0,0]")),
};
#pragma GCC diagnostic pop

enum { AT_ONCE_STEPS = 8 };

static int compare_at_once(const char *model, Dtype precision, const char *settings) {
  int bad = 0;
  for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
    ParityCase c = at_once[i];
    c.schedule = "pipedream";
    bad += differs(c, model, precision, AT_ONCE_STEPS, 0, settings);
  }
  return bad;
}

#define NO_WORD "optimizer.clip=0 run.non_finite=stop "
static void updates_at_once(void **state) {
  assert_int_equal(compare_at_once("llama", DTYPE_F64, NO_WORD "run.desync_check=true"), 0);
}
static void updates_at_once_by_muon(void **state) {
  assert_int_equal(compare_at_once("llama", DTYPE_F64, NO_WORD "optimizer.name=muon"), 0);
}
static void updates_at_once_of_experts(void **state) {
  assert_int_equal(compare_at_once("mixtral", DTYPE_F64, NO_WORD), 0);
}

static int compare_streams(const char *model, Dtype precision, int poison, const char *settings) {
  int bad = 0;
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    ParityCase c = streams[i];
    c.schedule = "2bw";
    bad += differs(c, model, precision, 5, poison, settings);
  }
  return bad;
}

static void streams_of_llama(void **state) {
  assert_int_equal(compare_streams("llama", DTYPE_F64, 0, "optimizer.delay=1 run.desync_check=true"), 0);
}
static void streams_skip(void **state) {
  assert_int_equal(compare_streams("llama", DTYPE_F64, 3, "optimizer.delay=1"), 0);
}
static void streams_narrow(void **state) {
  // The scale doubles at the end of every second step.
  assert_int_equal(
      compare_streams("llama", DTYPE_F16, 0,
                      "optimizer.delay=1 loss_scale.initial=64 loss_scale.growth_interval=2 " PARITY_SMOOTH),
      0);
}

static void refusals(void **state) {
  static const struct { const char *model, *settings, *says;
  } table[] = {
      {"llama", "optimizer.delay=[1,2]", "optimizer.delay has 2 numbers, but the model of llama has 4 layers"},
      {"gpt", "optimizer.delay=[1,1,1,0]", "the head of the model of gpt is its embedding, which has one delay"},
      {"llama", "optimizer.delay=1 parallel.update=in_backward optimizer.clip=0 run.non_finite=stop",
       "optimizer.delay is 1, but parallel.update is in_backward"},
      {"llama", "parallel.pipeline=2bw mesh.pp=2 batch.micro=4",
       "optimizer.delay is not 1, but parallel.pipeline is 2bw"},
      {"llama", "parallel.pipeline=2bw mesh.pp=2 optimizer.delay=[1,1,1,0]", "optimizer.delay is not 1"},
      {"llama", "parallel.pipeline=2bw mesh.pp=2 optimizer.delay=1", "takes at least as many microbatches"},
      {"mixtral", "parallel.pipeline=2bw mesh.pp=2 optimizer.delay=1 batch.micro=4 moe.bias_rate=0.1",
       "moved the routers' biases"},
      {"llama", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=1 parallel.layers=[1,3] " NO_WORD,
       "optimizer.delay is 1, but parallel.pipeline is pipedream, whose gradients are those of the weights of as many "
       "steps ago as there are stages after a layer's; take optimizer.delay [1,0,0,0], or parallel.pipeline 1f1b"},
      {"llama", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=[0,1,1,1] parallel.layers=[0,4] " NO_WORD,
       "the first stage has no layer, so that the embedding would have another delay than the layer beside it"},
      {"llama", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=[1,1,0,0] batch.micro=4 " NO_WORD,
       "makes 4 microbatches, but parallel.pipeline is pipedream, which takes one a step; take batch.micro 16"},
      {"llama", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=[1,1,0,0] run.noise_scale=2",
       "optimizer.clip is 1, and the global norm is known only when the last stage is done; run.non_finite is skip, "
       "and "
       "what a stage has updated cannot be taken back; run.noise_scale tries steps that update nothing; take "
       "optimizer.clip 0 and run.non_finite stop or rollback and run.noise_scale 0, or parallel.pipeline 1f1b"},
      {"gpt", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=1 " NO_WORD, "which would have two delays"},
      {"mixtral", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=[1,1,0,0] moe.bias_rate=0.1 " NO_WORD,
       "moe.bias_rate moves the routers' biases"},
      {"llama", "parallel.pipeline=pipedream mesh.pp=2 optimizer.delay=[1,1,0,0] parallel.update=in_backward " NO_WORD,
       "parallel.update is in_backward"},
      {"llama", "optimizer.delay=65", "optimizer.delay"},
      {"llama", "optimizer.delay=-1", "optimizer.delay"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ParityCase c = one_rank(table[i].model, 1);
    ParityResult result;
    Error error = {0};
    c.settings = table[i].settings;
    int code = parity_run(&c, corpus_for(c.model, CORPUS_RAGGED), &result, &error);
    if (code != PLAIT_BAD_INPUT || !strstr(error.message, table[i].says))
      fail_msg("row %zu: code %d, \"%s\" does not say \"%s\"", i, code, error.message, table[i].says);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_step_of_sgd),
      cmocka_unit_test(one_step_of_adamw),
      cmocka_unit_test(two_steps),
      cmocka_unit_test(each_layer_its_own),
      cmocka_unit_test(list),
      cmocka_unit_test(skips),
      cmocka_unit_test(skipped_steps_are_versions),
      cmocka_unit_test(refusals),
      cmocka_unit_test(streams_of_llama),
      cmocka_unit_test(streams_skip),
      cmocka_unit_test(streams_narrow),
      cmocka_unit_test(updates_at_once),
      cmocka_unit_test(updates_at_once_by_muon),
      cmocka_unit_test(updates_at_once_of_experts),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, one_rank_end);
}
