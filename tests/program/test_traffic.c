// Single collectives and transfers of compiled Programs: what program_traffic adds up is what each of them moves, and
// that follows from the whole tensor and the number of ranks.
#include "program/rows.h"
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

enum { SEQ = 16, HIDDEN = 32, VOCAB = 128 };

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("gpt.json",
             "{\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_embd\": 32, \"n_head\": 4, \"n_positions\": 16,"
             " \"vocab_size\": 128, \"activation_function\": \"gelu_new\"}");
  write_experts_and_recipe();
  return 0;
}

// keys: "key=value …"; those of "moe …" are for the model with experts.
static Case compiled(const char *keys) {
  char text[512];
  if (strncmp(keys, "moe ", 4)) return compiled_by(keys);
  snprintf(text, sizeof text, "model.config=%s %s", path_of("moe.json"), keys + 4);
  return compiled_by(text);
}

static const char *const settings[] = {
    "mesh.dp=4",
    "mesh.dp=4 parallel.zero=1 precision=bf16",
    "mesh.dp=2 parallel.zero=3 mesh.tp=2 parallel.sequence=true",
    "mesh.dp=3 parallel.zero=2 mesh.pp=2 batch.global=7 precision=bf16", // microbatches of different sizes
    "mesh.pp=3 parallel.recompute=selective",
    "mesh.pp=3 parallel.pipeline=zb-h1 mesh.tp=2",
    "mesh.cp=2 parallel.context=ring",
    "mesh.cp=4 parallel.context=ulysses",
    "mesh.dp=2 mesh.tp=2 parallel.zero=1 optimizer.name=muon",
    "mesh.dp=4 mesh.tp=2 optimizer.name=muon",
    "moe mesh.dp=2 parallel.ep=2",
    "moe mesh.dp=3 batch.global=7 parallel.zero=1",
};
enum { SETTINGS = sizeof settings / sizeof *settings };

typedef void (*Visit)(const Program *p, const Node *n, int microbatch, void *context);

// Every collective of a step, as often as it runs.
static void each_collective(const Program *p, Visit visit, void *context) {
  for (int i = 0; i < p->begin.count + p->end.count; i++) {
    const Instruction *at = i < p->begin.count ? &p->begin.instruction[i] : &p->end.instruction[i - p->begin.count];
    const Node *n = &p->graph->node.data[at->node];
    if (op_def(n->op)->communicates) visit(p, n, -1, context);
  }
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int i = 0; i < p->micro[s][phase].count; i++)
        for (int m = 0; m < p->schedule->microbatches; m++) {
          const Node *n = &p->graph->node.data[p->micro[s][phase].instruction[i].node];
          if (op_def(n->op)->communicates) visit(p, n, m, context);
        }
}

static double sent(const Program *p) {
  double bytes = 0;
  for (int i = 0; i < p->schedule->list[p->coordinate].count; i++) {
    const Action *a = &p->schedule->list[p->coordinate].data[i];
    if (a->kind == ACTION_SEND && a->part == LIST_BODY) bytes += transfer_bytes(p, a);
  }
  return bytes;
}

static void add_bytes(const Program *p, const Node *n, int microbatch, void *sum) {
  *(double *)sum += collective_bytes(p, n, microbatch);
}

static void all_together_are_the_traffic(void **state) {
  for (int i = 0; i < SETTINGS; i++) {
    Case c = compiled(settings[i]);
    for (int pp = 0; pp < mesh_pipeline_ranks(&c.job->options.parallel.mesh); pp++) {
      const Program *p = job_train(c.job)->program[pp];
      TrafficList list = {0};
      double sum = sent(p), all = 0;
      each_collective(p, add_bytes, &sum);
      program_traffic(p, &list);
      for (int k = 0; k < list.count; k++) all += list.data[k].bytes;
      vec_free(&list);
      if (!(sum > 0) || fabs(sum - all) > 1e-12 * all)
        fail_msg("%s, stage %d: %.1f bytes one by one, %.1f in all", settings[i], pp, sum, all);
    }
    release(&c);
  }
}

// What a rank of processes moves of the whole, on the average.
static double share_of(const Program *p, const Node *n, int microbatch) {
  double ranks = collective_ranks(p, n), rest = (ranks - 1) / ranks;
  const Placement *owner = node_owner(p->graph, n);
  enum { ONE_HOP = 8192 }; // bytes: up to this many go whole to all, or to the one that wants the sum
  int short_one = collective_whole_bytes(p, n, microbatch) <= ONE_HOP;
  switch ((int)n->op) {
  case OP_ALL_REDUCE: return short_one ? ranks - 1 : 2 * rest;
  case OP_REDUCE_TO: return short_one || ranks < 3 ? rest : rest * (1 + 1 / ranks);
  case OP_SHIFT: return 1;
  case OP_GATHER_TO:
  case OP_SCATTER_FROM: return rest / ranks / (owner ? mesh_size(&p->mesh, owner->owner_axes) : 1);
  default: return rest;
  }
}

static void check_share(const Program *p, const Node *n, int microbatch, void *context) {
  int *seen = context;
  double moved = collective_bytes(p, n, microbatch), whole = collective_whole_bytes(p, n, microbatch);
  seen[n->op]++;
  if (fabs(moved - share_of(p, n, microbatch) * whole) > 1e-12 * whole)
    fail_msg("%s: %g bytes of %g over %d ranks", n->name, moved, whole, collective_ranks(p, n));
}

static void shares_follow_from_the_whole(void **state) {
  static const Op wanted[] = {OP_ALL_REDUCE, OP_ALL_GATHER,  OP_REDUCE_SCATTER, OP_ALL_TO_ALL,   OP_SHIFT,
                              OP_GATHER_TO,  OP_SCATTER_FROM, OP_BROADCAST,     OP_EXCHANGE_ROWS};
  int seen[OP_COUNT] = {0};
  for (int i = 0; i < SETTINGS; i++) {
    Case c = compiled(settings[i]);
    each_collective(job_train(c.job)->program[0], check_share, seen);
    release(&c);
  }
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (!seen[wanted[i]]) fail_msg("no setting has %s", op_name(wanted[i]));
}

// Bytes of whole tensors by op, of BEGIN and END, and by the number of ranks.
typedef struct Ends { Op op; int ranks; double bytes; } Ends;
static void add_ends(const Program *p, const Node *n, int microbatch, void *context) {
  Ends *e = context;
  if (microbatch < 0 && n->op == e->op && collective_ranks(p, n) == e->ranks)
    e->bytes += collective_whole_bytes(p, n, microbatch);
}

static double of_ends(const Program *p, Op op, int ranks) {
  Ends e = {op, ranks, 0};
  each_collective(p, add_ends, &e);
  return e.bytes;
}

static void near(const char *what, double bytes, double expected) {
  enum { SCALARS = 512 }; // bytes: loss, count, norm
  if (bytes < expected || bytes > expected + SCALARS) fail_msg("%s: %.0f bytes, expected %.0f", what, bytes, expected);
}

// Gradients of all parameters are summed whole, or scattered and the parameters gathered.
static void wholes_are_the_parameters(void **state) {
  Case c = compiled(settings[0]);
  const Program *p = job_train(c.job)->program[0];
  double all = (double)model_config_parameters(&c.config);
  near("gradients", of_ends(p, OP_ALL_REDUCE, 4), 4 * all);
  release(&c);
  c = compiled("mesh.dp=4 parallel.zero=1");
  p = job_train(c.job)->program[0];
  near("scattered gradients", of_ends(p, OP_REDUCE_SCATTER, 4), 4 * all);
  near("gathered parameters", of_ends(p, OP_ALL_GATHER, 4), 4 * all);
  release(&c);
}

// Of three stages the first and the last have the tied embedding, and all have a part of the norm.
static void groups_along_pp_are_those_of_the_stages(void **state) {
  Case c = compiled("mesh.pp=3");
  for (int pp = 0; pp < 3; pp++) {
    const Program *p = job_train(c.job)->program[pp];
    near("the tied gradient", of_ends(p, OP_ALL_REDUCE, 2), pp == 1 ? 0 : 4.0 * VOCAB * HIDDEN);
    assert_true(of_ends(p, OP_ALL_REDUCE, 3) > 0);
    // Each microbatch of one sequence: forward to the next stage and backward to the last one.
    near("transfers", sent(p), 8 * 4.0 * SEQ * HIDDEN * (pp == 1 ? 2 : 1));
  }
  release(&c);
}

// Of a batch of 7 over 3 ranks the first has 3 sequences: two in a microbatch, and then one.
static void transfers_have_the_rows_of_their_microbatch(void **state) {
  Case c = compiled("mesh.dp=3 mesh.pp=2 batch.global=7 batch.micro=2");
  const Program *p = job_train(c.job)->program[0];
  double bytes[2] = {0};
  assert_int_equal(p->schedule->microbatches, 2);
  for (int i = 0; i < p->schedule->list[0].count; i++) {
    const Action *a = &p->schedule->list[0].data[i];
    if (a->kind == ACTION_SEND) bytes[a->microbatch] += transfer_bytes(p, a);
  }
  assert_true(bytes[0] > bytes[1] && bytes[1] > 0);
  assert_true(bytes[0] + bytes[1] == 3 * 4.0 * SEQ * HIDDEN);
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_together_are_the_traffic),
      cmocka_unit_test(shares_follow_from_the_whole),
      cmocka_unit_test(wholes_are_the_parameters),
      cmocka_unit_test(groups_along_pp_are_those_of_the_stages),
      cmocka_unit_test(transfers_have_the_rows_of_their_microbatch),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
