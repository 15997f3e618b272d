// tier 2 3
// run.desync_check: no false alarm under any layout, and an injected fault, in the order of collectives, of transfers,
// in a replica or in a Copy, is named with ranks, step and collective or Variable.
#include "corpora.h"
#include "mutation.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static ParityCase with_check(int dp, int tp, int pp, int zero, const char *settings) {
  return (ParityCase){.name = "check",
                      .model = "gpt",
                      .dp = dp,
                      .tp = tp,
                      .pp = pp,
                      .zero = zero,
                      .micro = 4,
                      .steps = 3,
                      .precision = DTYPE_F64,
                      .settings = settings};
}

// The message of a run that must fail.
static const char *message_of(const ParityCase *c) {
  static Error error;
  error = (Error){0};
  ParityResult result;
  int code = parity_run(c, corpus_for(c->model, CORPUS_RAGGED), &result, &error);
  if (!code) parity_free(&result);
  assert_int_not_equal(code, 0);
  printf("%s\n", error.message);
  return error.message;
}

static void expect_words(const char *message, const char *const *words) {
  for (; *words; words++)
    if (!strstr(message, *words)) fail_msg("\"%s\" lacks \"%s\"", message, *words);
}

// Layouts of all kinds run as before: every feature alone, and the real layouts, of which make check has one in three.
static void no_false_alarm(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), tried = 0;
  for (int i = 0; i < count; i++) {
    MatrixLayout l = layout[i];
    if (l.kind != MATRIX_REAL && (l.kind != MATRIX_SINGLE || matrix_ranks(&l) > 4)) continue;
    if (l.kind == MATRIX_REAL && test_tier() < 3 && i % 3) continue;
    size_t n = strlen(l.settings);
    snprintf(l.settings + n, sizeof l.settings - n, " run.desync_check=true");
    ParityCase c = matrix_case(&l, tried % 2 ? 0 : 3, MATRIX_FP64);
    if (!parity_wanted(&c)) continue;
    MatrixResult result;
    Error error = {0};
    int wrong = matrix_compare(&c, MATRIX_FP64, &result, &error);
    if (wrong) fail_msg("%s, %s: %s", c.model, c.name, wrong < 0 ? error.message : "parity fails");
    tried++;
  }
  free(layout);
  one_rank_forget();
  assert_true(tried > 15 || getenv("PARITY_ONLY"));
}

// Rank 1's own Job: a Program like the others', but with two parts exchanged.
typedef struct Exchanged {
  Job job;
  Compiled train, *list[2];
  Program program, *programs[MAX_STAGES];
  Instruction *instruction;
  ActionList actions;
} Exchanged;

static void copy_job(Exchanged *x, const Job *job, int coordinate) {
  x->job = *job;
  x->train = *job_train(job);
  assert_true(job->list.count <= 2 && job->list.data[0] == job_train(job));
  x->list[0] = &x->train;
  if (job->list.count > 1) x->list[1] = job->list.data[1]; // the evaluation is the others'
  x->job.list.data = x->list;
  for (int c = 0; c < mesh_pipeline_ranks(&job->options.parallel.mesh); c++)
    x->programs[c] = job_train(job)->program[c];
  x->program = *job_train(job)->program[coordinate];
  x->programs[coordinate] = &x->program;
  x->train.program = x->programs;
}

static int sums_an_accumulator(const Graph *g, const Node *n) {
  const Tensor *t = n->op == OP_ALL_REDUCE ? graph_tensor(g, n->input[0]) : NULL;
  return t && t->variable >= 0 && t->producer < 0 && t->allocated_ > 1;
}

// Of two all_reduces of END, of equal length, the second before the first: the communicator cannot tell them apart.
static void exchange_collectives(Job *job, void *context) {
  Exchanged *x = context;
  copy_job(x, job, 0);
  const Graph *g = job_train(job)->graph;
  Body *body = &x->program.end;
  x->instruction = xcalloc((size_t)body->count, sizeof *x->instruction);
  memcpy(x->instruction, body->instruction, (size_t)body->count * sizeof *x->instruction);
  body->instruction = x->instruction;
  for (int i = 0; i < body->count; i++)
    for (int k = i + 1; k < body->count; k++) {
      const Node *a = &g->node.data[x->instruction[i].node], *b = &g->node.data[x->instruction[k].node];
      if (!sums_an_accumulator(g, a) || !sums_an_accumulator(g, b)) continue;
      if (graph_tensor(g, a->input[0])->allocated_ != graph_tensor(g, b->input[0])->allocated_) break;
      Instruction second = x->instruction[k];
      memmove(&x->instruction[i + 1], &x->instruction[i], (size_t)(k - i) * sizeof second);
      x->instruction[i] = second;
      return;
    }
  fail_msg("no two collectives of END are alike");
}

static const Job *rank_1_differs(const Job *job, int rank, void *context) {
  return rank == 1 ? &((Exchanged *)context)->job : job;
}

static void order_of_collectives(void **state) {
  Exchanged x = {0};
  ParityCase c = with_check(2, 1, 1, 0, "run.desync_check=true parallel.bucket_mb=0");
  c.edit = exchange_collectives;
  c.job_of = rank_1_differs;
  c.context = &x;
  expect_words(message_of(&c),
               (const char *const[]){"run.desync_check: step 1: call ", "rank 0 (dp 0) is all_reduce of ",
                                     "rank 1 (dp 1) it is all_reduce of ", NULL});
  free(x.instruction);
}

// The receiver takes two messages of a queue in the wrong order.
static void exchange_messages(Job *job, void *context) {
  Exchanged *x = context;
  copy_job(x, job, 1);
  int first = -1;
  for (int i = 0; i < x->program.actions.count; i++) vec_push(&x->actions, x->program.actions.data[i]);
  for (int i = 0; i < x->actions.count; i++) {
    Action *a = &x->actions.data[i];
    if (a->kind != ACTION_RECV || a->phase != PHASE_FORWARD) continue;
    if (first < 0) first = i;
    else {
      x->actions.data[first].microbatch = a->microbatch;
      a->microbatch = 0;
      break;
    }
  }
  x->program.actions = x->actions;
}

static void order_of_transfers(void **state) {
  Exchanged x = {0};
  ParityCase c = with_check(1, 1, 2, 0, "run.desync_check=true parallel.pipeline=gpipe");
  c.edit = exchange_messages;
  c.job_of = rank_1_differs;
  c.context = &x;
  expect_words(message_of(&c),
               (const char *const[]){"run.desync_check: step 1: call 1 of rank 0 (pp 0) is transfer of ",
                                     "microbatch 0, but of rank 1 (pp 1)", "microbatch 1", NULL});
  vec_free(&x.actions);
}

// One bit of one element on one rank, before the second step.
typedef struct Flip { int rank; const char *variable; int copy; } Flip;

static void flip(Rank *r, int step, void *context) {
  const Flip *f = context;
  if (r->rank != f->rank || step != 2) return;
  int v = graph_find_variable(r->state->program->graph, f->variable);
  ShardBoxes b = state_boxes(r->state, v, f->copy);
  assert_true(shard_next(&b));
  Box box = b.box;
  unsigned char *data = xcalloc((size_t)box_elements(&box), sizeof(double));
  state_read(r->state, v, f->copy, &box, data);
  data[8 * 3 + 5] ^= 1; // fp64: a bit of the fourth element that rounding does not swallow
  state_write(r->state, v, f->copy, &box, data);
  free(data);
}

// A moment that was changed has changed its parameter after the step, which comes first.
static void replicas(void **state) {
  static const struct { int dp, tp, pp, zero; Flip flip; const char *words[4];
  } faults[] = {
      {2, 1, 1, 0, {1, "layer.2.ffn.up.weight", -1}, {"rank 0 (dp 0) and rank 1 (dp 1)", "layer.2.ffn.up.weight"}},
      {4,
       1,
       1,
       0,
       {2, "moment2.layer.1.attention.norm.weight", -1},
       {"rank 0 (dp 0) and rank 2 (dp 2)", "layer.1.attention.norm.weight"}},
      {2,
       2,
       1,
       0,
       {3, "moment1.layer.0.ffn.up.weight", -1},
       {"rank 1 (dp 0 tp 1) and rank 3 (dp 1 tp 1)", "layer.0.ffn.up.weight"}},
      {1, 1, 2, 0, {1, "moment1.wte", -1}, {"rank 0 (pp 0) and rank 1 (pp 1)", "wte"}},
  };
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    ParityCase c = with_check(faults[i].dp, faults[i].tp, faults[i].pp, faults[i].zero, "run.desync_check=true");
    Flip f = faults[i].flip;
    c.before_step = flip;
    c.context = &f;
    const char *message = message_of(&c);
    expect_words(message, (const char *const[]){
                              "run.desync_check: step 2: ", " hold different bits of the same part of ", NULL});
    expect_words(message, faults[i].words);
    c.settings = ""; // and without the check nobody notices
    ParityResult result;
    Error error = {0};
    assert_int_equal(parity_run(&c, corpus_for(c.model, CORPUS_RAGGED), &result, &error), PLAIT_OK);
    parity_free(&result);
  }
}

// Only a Copy differs: BEGIN gathers one parameter's on neither rank, so that each has its own shard and zeros. The
// parameter itself is sharded, and all that both ranks hold is summed over both.
static void copies(void **state) {
  ParityCase c = with_check(2, 1, 1, 1, "run.desync_check=true parallel.bucket_mb=0");
  static const char missing[] = "deleted all_gather refresh.layer.2.ffn.up.weight.copy.all_gather of BEGIN";
  Mutation *list;
  int n = mutations_of(&c, &list), i = 0;
  while (i < n && strcmp(list[i].what, missing)) i++;
  assert_true(i < n);
  ParityCase without_gather = mutated(&c, &list[i]);
  expect_words(message_of(&without_gather),
               (const char *const[]){"run.desync_check: step 1: rank 0 (dp 0) and rank 1 (dp 1) hold different bits of",
                                     " layer.2.ffn.up.weight (its copy)", NULL});
  free(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_false_alarm), cmocka_unit_test(order_of_collectives),
                                     cmocka_unit_test(order_of_transfers), cmocka_unit_test(replicas),
                                     cmocka_unit_test(copies)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
