// What experts on several ranks move, and what doing their work in parts saves.
#include "parity.h"
#include "program/rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { CHOICES = 2, EMBED = 20, SEQ = 24, LAYER = 1 }; // of the model, which has 6 experts

static Job *compiled(const char *model, int dp, int cp, int tp, int micro, const char *settings) {
  ParityCase c = {.name = settings, .model = model, .precision = DTYPE_F64, .seq = SEQ, .dp = dp, .cp = cp, .tp = tp,
                  .pp = 1, .micro = micro, .settings = settings};
  Error error = {0};
  Job *job;
  if (parity_job(&c, &job, &error)) fail_msg("%s: %s", settings, error.message);
  return job;
}

// A balanced router: there and back in forward, and in backward (4 · k · T · e elements of a rank's T tokens). Of a
// layer, in a microbatch, on one rank, in units of (N − 1)/N.
static void rows_move_four_times(void **state) {
  static const struct { int dp, cp, tp, micro, tokens; const char *settings; } cases[] = {
      {2, 1, 1, 4, 4 * SEQ, "parallel.ep=2"},
      {1, 2, 1, 4, 4 * SEQ / 2, "parallel.ep=2"},
      {3, 1, 2, 3, 3 * SEQ / 2, "parallel.ep=6 parallel.sequence=true"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Job *job = compiled("experts", cases[i].dp, cases[i].cp, cases[i].tp, cases[i].micro, cases[i].settings);
    const Program *p = job_train(job)->program[0];
    double elements = 0;
    int exchanges = 0;
    for (int k = 0; k < p->graph->node.count; k++) {
      const Node *n = &p->graph->node.data[k];
      if (n->region != REGION_MICRO || n->layer != LAYER || !node_calls(n, COMM_ALL_TO_ALL_V)) continue;
      const ExchangeAttr *attr = node_attr(n, ExchangeAttr);
      elements += (double)rows_elements(p, graph_tensor(p->graph, attr->parts.home ? n->output[0] : n->input[0]), 0, 0);
      exchanges++;
    }
    job_destroy(job);
    if (exchanges != 4 || elements != 4.0 * CHOICES * cases[i].tokens * EMBED)
      fail_msg("dp %d cp %d tp %d: %d exchanges of %.0f elements, instead of 4 of %d", cases[i].dp, cases[i].cp,
               cases[i].tp, exchanges, elements, 4 * CHOICES * cases[i].tokens * EMBED);
  }
}

// All that reads a mask beside rows reads the one that has moved with them.
static void masks_move_once(void **state) {
  Job *job = compiled("experts", 1, 3, 2, 4, "parallel.ep=6");
  const Graph *g = job_train(job)->program[0]->graph;
  int moved = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->layer != LAYER || n->region != REGION_MICRO || n->phase != PHASE_FORWARD) continue;
    moved += op_def(n->op)->communicates && graph_tensor(g, n->input[0])->dtype == DTYPE_U8;
  }
  job_destroy(job);
  assert_int_equal(moved, 1);
}

// Bytes of one rank that wait for backward, and all that the microbatch needs.
static void chunks_take_less_memory(void **state) {
  static const char *const settings[] = {"parallel.ep=2", "parallel.ep=2 moe.chunks=4"};
  int64_t kept[2], all[2];
  for (int i = 0; i < 2; i++) {
    Job *job = compiled("mixtral", 2, 1, 1, 4, settings[i]);
    kept[i] = job_train(job)->program[0]->memory.kept;
    all[i] = job_train(job)->program[0]->arena_bytes;
    job_destroy(job);
  }
  if (kept[1] >= kept[0] || all[1] >= all[0])
    fail_msg("4 chunks keep %lld bytes and need %lld, without chunks %lld and %lld", (long long)kept[1],
             (long long)all[1], (long long)kept[0], (long long)all[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_move_four_times), cmocka_unit_test(masks_move_once),
                                     cmocka_unit_test(chunks_take_less_memory)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
