// A model with experts: whatever cuts samples, positions, layers, storage or the experts' inside gives one rank's
// losses, norms, gradients, parameters and moments. Dropout and ragged documents are on.
#include "corpora.h"
#include "compare.h"
#include "program/program.h"
#include "runtime/job.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const ParityCase layouts[] = {
    {.name = "micro 2", .micro = 2},
    {.name = "micro 5, uneven", .micro = 5},
    {.name = "reference", .reference = 1},
    {.name = "recompute selective", .recompute = RECOMPUTE_SELECTIVE},
    {.name = "recompute full", .recompute = RECOMPUTE_FULL},
    {.name = "dp 2", .dp = 2},
    {.name = "dp 3, uneven", .dp = 3, .micro = 3},
    {.name = "dp 4 zero 1", .dp = 4, .zero = 1},
    {.name = "dp 2 zero 2", .dp = 2, .zero = 2},
    {.name = "dp 4 zero 3", .dp = 4, .zero = 3, .micro = 2},
    {.name = "pp 2 1f1b", .pp = 2, .micro = 2},
    {.name = "pp 2 zb-h1", .pp = 2, .micro = 2, .schedule = "zb-h1"},
    {.name = "pp 2 interleaved", .pp = 2, .micro = 4, .schedule = "interleaved"},
    {.name = "cp 2", .cp = 2},
    {.name = "cp 2 ring", .cp = 2, .settings = "parallel.context=ring"},
    {.name = "tp 2", .tp = 2},
    {.name = "tp 2 sequence", .tp = 2, .sequence = 1},
    {.name = "tp 4", .tp = 4},
    {.name = "tp 2 sequence, recompute full", .tp = 2, .sequence = 1, .recompute = RECOMPUTE_FULL},
    {.name = "2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1},
    {.name = "ulysses", .cp = 2, .settings = "parallel.context=ulysses"},
    {.name = "dp 4 hybrid zero 3", .dp = 4, .zero = 3, .settings = "parallel.shard_group=2"},
    {.name = "dp 2 zero 2 unsplit", .dp = 2, .zero = 2, .settings = "parallel.unsplit_tensors=true"},
    {.name = "dp 2 zero 3, update in backward",
     .dp = 2,
     .zero = 3,
     .micro = 8,
     .settings = "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
    {.name = "2d", .tp = 4, .settings = "parallel.tensor=2d parallel.rows=2"},
    {.name = "2d summa", .tp = 4, .settings = "parallel.tensor=2d parallel.rows=2 parallel.summa=true"},
    {.name = "2.5d", .tp = 8, .settings = "parallel.tensor=2.5d parallel.rows=2 parallel.depth=2"},
    {.name = "3d", .tp = 8, .settings = "parallel.tensor=3d parallel.rows=2 parallel.depth=2"},
    {.name = "tp from the samples to the width",
     .dp = 2,
     .tp = 2,
     .settings =
         "layout.batch=[dp,tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"},
    {.name = "tp from the positions to the width",
     .dp = 2,
     .tp = 2,
     .settings =
         "layout.seq=[tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"},
    {.name = "dp 2 cp 2 tp 2 zero 2", .dp = 2, .cp = 2, .tp = 2, .zero = 2, .sequence = 1},
};

// Each rank of tp has experts of its own: what these make of a token is a partial sum.
static const ParityCase apart[] = {
    {.name = "tp 2", .tp = 2},
    {.name = "tp 3", .tp = 3, .settings = "layout.heads=[] layout.head_dim=[tp]"},
    {.name = "tp 2, recompute full", .tp = 2, .recompute = RECOMPUTE_FULL},
    {.name = "dp 2 pp 2 tp 2 zero 3", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3},
    {.name = "dp 3 tp 2 zero 1, uneven", .dp = 3, .tp = 2, .micro = 3, .zero = 1},
};

// Positions go through experts in parts, against all at once.
static const ParityCase chunks[] = {
    {.name = "4 chunks", .settings = "moe.chunks=4"},
    {.name = "16 chunks, reference", .reference = 1, .settings = "moe.chunks=16"},
    {.name = "2 chunks, recompute full", .recompute = RECOMPUTE_FULL, .settings = "moe.chunks=2"},
    {.name = "4 chunks, recompute selective", .recompute = RECOMPUTE_SELECTIVE, .settings = "moe.chunks=4"},
    {.name = "4 chunks, dp 3, uneven", .dp = 3, .micro = 3, .settings = "moe.chunks=4"},
    {.name = "4 chunks, dp 2 ep 2", .dp = 2, .settings = "moe.chunks=4 parallel.ep=2"},
    {.name = "2 chunks, dp 4 ep 2 zero 3", .dp = 4, .zero = 3, .micro = 2, .settings = "moe.chunks=2 parallel.ep=2"},
    {.name = "4 chunks, dp 2 zero 2", .dp = 2, .zero = 2, .settings = "moe.chunks=4"},
    {.name = "4 chunks, tp 2", .tp = 2, .settings = "moe.chunks=4"},
    {.name = "4 chunks, tp 2 sequence", .tp = 2, .sequence = 1, .settings = "moe.chunks=4"},
    {.name = "4 chunks, tp 2 ep 2", .tp = 2, .settings = "moe.chunks=4 parallel.ep=2"},
    {.name = "4 chunks, tp 2 ep 2 sequence", .tp = 2, .sequence = 1, .settings = "moe.chunks=4 parallel.ep=2"},
    {.name = "4 chunks, cp 2 ep 2", .cp = 2, .settings = "moe.chunks=4 parallel.ep=2"},
    {.name = "2 chunks, cp 2 ring", .cp = 2, .settings = "moe.chunks=2 parallel.context=ring"},
    {.name = "2 chunks, dp 2 cp 2 tp 2, experts over dp",
     .dp = 2,
     .cp = 2,
     .tp = 2,
     .sequence = 1,
     .settings = "moe.chunks=2 layout.expert=[dp]"},
    {.name = "4 chunks, dp 2 pp 2 zb-h1 ep 2",
     .dp = 2,
     .pp = 2,
     .micro = 2,
     .schedule = "zb-h1",
     .settings = "moe.chunks=4 parallel.ep=2"},
    {.name = "4 chunks, dp 2 zero 3, update in backward",
     .dp = 2,
     .zero = 3,
     .micro = 8,
     .settings = "moe.chunks=4 parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
};

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// settings: of the one rank as well.
static void compare_with(const char *model, Dtype precision, const char *settings, const ParityCase *cases,
                         size_t count) {
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16,
                     .precision = precision, .steps = parity_steps(3), .seq = 16, .more_settings = settings};
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = cases[i];
    if (!parity_wanted(&c)) continue;
    if (!c.dp) c.dp = 1;
    if (!c.tp) c.tp = 1;
    if (!c.pp) c.pp = 1;
    if (!c.micro) c.micro = 4;
    c.model = base.model;
    c.seq = base.seq;
    c.precision = precision;
    c.steps = base.steps;
    c.more_settings = base.more_settings;
    run(&c, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1);
    parity_free(&other);
  }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static void compare(const char *model, Dtype precision, const ParityCase *cases, size_t count) {
  compare_with(model, precision, precision == DTYPE_F64 ? NULL : PARITY_SMOOTH, cases, count);
}

static void compare_all(Dtype precision) { compare("experts", precision, layouts, sizeof layouts / sizeof *layouts); }

static void fp64(void **state) { compare_all(DTYPE_F64); }
static void fp32(void **state) { compare_all(DTYPE_F32); }
static void experts_over_tp(void **state) {
  compare("experts apart", DTYPE_F64, apart, sizeof apart / sizeof *apart);
}

// What lies behind the rows that are there is poisoned too: nobody reads it.
static void chaos(void **state) {
  setenv("PLAIT_CHAOS", "3", 1);
  compare_all(DTYPE_F64);
  unsetenv("PLAIT_CHAOS");
}

static void in_chunks(void **state) {
  compare_with("mixtral", DTYPE_F64, NULL, chunks, sizeof chunks / sizeof *chunks);
}

// Capacity, losses and biases are of all choices, in how many parts these are carried out. A shared expert.
static void in_chunks_with_losses(void **state) {
  compare_with("qwen moe", DTYPE_F64, "moe.capacity=0.8 moe.balance_loss=0.02 moe.z_loss=0.01 moe.bias_rate=0.01",
               chunks, sizeof chunks / sizeof *chunks);
}

// Bytes of one rank that wait for backward, and all that the microbatch needs.
typedef struct Memory { int64_t kept, all; } Memory;
static void measure(Job *job, void *context) {
  const Program *p = job->train.program[0];
  *(Memory *)context = (Memory){p->memory.kept, p->arena_bytes};
}

static void chunks_take_less_memory(void **state) {
  static const char *const settings[] = {"parallel.ep=2", "parallel.ep=2 moe.chunks=4"};
  Memory memory[2];
  for (int i = 0; i < 2; i++) {
    ParityResult result;
    ParityCase c = {.name = settings[i], .model = "mixtral", .dp = 2, .pp = 1, .tp = 1, .micro = 4,
                    .precision = DTYPE_F64, .steps = 1, .seq = 16, .settings = settings[i], .edit = measure,
                    .context = &memory[i]};
    run(&c, &result);
    parity_free(&result);
  }
  if (memory[1].kept >= memory[0].kept || memory[1].all >= memory[0].all)
    fail_msg("4 chunks keep %lld bytes and need %lld, without chunks %lld and %lld", (long long)memory[1].kept,
             (long long)memory[1].all, (long long)memory[0].kept, (long long)memory[0].all);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fp64), cmocka_unit_test(fp32), cmocka_unit_test(chaos),
                                     cmocka_unit_test(experts_over_tp), cmocka_unit_test(in_chunks),
                                     cmocka_unit_test(in_chunks_with_losses),
                                     cmocka_unit_test(chunks_take_less_memory)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
