// tier 2; threads numbers
// Parity to the bit: what must not depend on a second run, on what is recomputed, on the order of a pipeline or on the
// number of threads; and what a skipped step leaves alone.
#include "corpora.h"
#include "one_rank.h"
#include "base/team.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
// cmocka wants some of these first
#include <cmocka.h>

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static const char *const models[] = {"gpt", "gpt untied", "llama", "llama tied"};
enum { MODELS = 4 };

static const ParityCase layouts[] = {
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
    {.name = "pp 4", .dp = 1, .pp = 4, .tp = 1, .micro = 4},
    {.name = "dp 4 zero 1", .dp = 4, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static ParityCase with(ParityCase c, const char *model, Dtype precision, int steps) {
  c.model = model;
  c.precision = precision;
  c.steps = steps;
  return c;
}

static void expect_same_bits(ParityCase a, ParityCase b) {
  if (!parity_wanted(&a)) return;
  ParityResult first, second;
  run(&a, &first);
  run(&b, &second);
  int same = parity_same_bits(&first, &second);
  parity_free(&first);
  parity_free(&second);
  if (!same) fail_msg("%s, %s, %s: bits differ", a.model, a.name, dtype_name(a.precision));
}

// Whatever runs again has the bits of what was kept: lists of blocks and segments, and segments inside segments.
static void recomputation(void **state) {
  static const ParityCase meshes[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                      {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
                                      {.name = "dp 2 tp 2 zero 3", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 3},
                                      {.name = "zb-h1", .dp = 1, .pp = 2, .tp = 1, .micro = 4, .schedule = "zb-h1"}};
  static const char *const lists[] = {"[(keep*4)]",         "[(full,keep),selective,keep]",
                                      "[((keep,keep),keep),keep]", "[((full),(selective)),keep,full]",
                                      "[keep,(selective*3)]", "[full,(keep*3)]"};
  for (int m = 0; m < MODELS; m += 2)
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
      for (size_t k = i % 2; k < sizeof lists / sizeof *lists; k += 1 + (i > 0)) {
        char setting[64];
        snprintf(setting, sizeof setting, "parallel.recompute=%s", lists[k]);
        ParityCase kept = with(meshes[i], models[m], k % 2 ? DTYPE_F32 : DTYPE_F64, parity_steps(3)), again = kept;
        kept.layers = again.layers = 4;
        again.settings = setting;
        expect_same_bits(kept, again);
      }
}

static void same_recipe_twice(void **state) {
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < LAYOUTS; i++) {
      ParityCase c = with(layouts[i], models[m], i % 2 ? DTYPE_F64 : DTYPE_F32, parity_steps(5));
      expect_same_bits(c, c);
    }
}

// Nor may a pipeline's order matter: gpipe and 1f1b add the microbatches up in the same order.
static void same_bits_under_both_schedules(void **state) {
  for (int m = 0; m < MODELS; m++) {
    ParityCase a = with(layouts[1 + m % 2], models[m], DTYPE_F32, parity_steps(5)), b = a;
    a.schedule = "gpipe";
    b.schedule = "1f1b";
    expect_same_bits(a, b);
  }
}

static void threads_do_not_matter(void **state) {
  static const ParityCase few[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                   {.name = "dp 2 zero 1", .dp = 2, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
                                   {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8}};
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < 3; i++)
      for (int threads = 2; threads <= 3; threads++) {
        ParityCase a = with(few[i], models[m], threads == 2 ? DTYPE_F32 : DTYPE_F64, parity_steps(4)), b = a;
        b.threads = threads;
        expect_same_bits(a, b);
      }
}

// Jobs of a team, and who comes to them: the linker puts this in the place of team_each (CMakeLists.txt). In a run with
// helpers the first jobs of every kernel wait until a helper has begun a unit, so that helpers come to all of them on
// any machine.
enum { KERNELS = 128, JOBS_THAT_WAIT = 3, MOST_SECONDS = 120 };
typedef void JobUnit(void *argument, int slot, int64_t unit);
static struct Watch {
  pthread_mutex_t lock;
  int helpers; // of the run; 0: its jobs are left alone
  struct { JobUnit *body; int jobs; } kernel[KERNELS];
  int kernels;
  atomic_int left_alone; // jobs to which no helper came in time; the later ones do not wait
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct WatchedJob { JobUnit *body; void *argument; int threads; atomic_int helped; } WatchedJob;

static void watched_unit(void *argument, int slot, int64_t i) {
  WatchedJob *job = argument;
  time_t end = time(NULL) + MOST_SECONDS;
  if (slot >= job->threads) atomic_store(&job->helped, 1);
  while (!atomic_load(&job->helped) && !atomic_load(&watch.left_alone)) {
    sched_yield();
    if (time(NULL) > end) atomic_store(&watch.left_alone, 1);
  }
  job->body(job->argument, slot, i);
}

// Of own threads each may hold a unit while it waits, and one must be left for a helper.
static int waits(const Team *team, int64_t units, JobUnit *body) {
  int k = 0, first = 0;
  pthread_mutex_lock(&watch.lock);
  if (watch.helpers && units > team_slots(team) - watch.helpers) {
    while (k < watch.kernels && watch.kernel[k].body != body) k++;
    CHECK(k < KERNELS);
    if (k == watch.kernels) watch.kernel[watch.kernels++].body = body;
    first = watch.kernel[k].jobs++ < JOBS_THAT_WAIT;
  }
  pthread_mutex_unlock(&watch.lock);
  return first;
}

void __real_team_each(Team *team, int64_t units, JobUnit *body, void *argument);
void __wrap_team_each(Team *team, int64_t units, JobUnit *body, void *argument);
void __wrap_team_each(Team *team, int64_t units, JobUnit *body, void *argument) {
  WatchedJob job = {.body = body, .argument = argument, .threads = team_slots(team) - watch.helpers};
  if (waits(team, units, body)) __real_team_each(team, units, watched_unit, &job);
  else __real_team_each(team, units, body, argument);
}

static void run_watched(const ParityCase *c, ParityResult *result) {
  watch.helpers = c->helpers;
  watch.kernels = 0;
  memset(watch.kernel, 0, sizeof watch.kernel);
  run(c, result);
  watch.helpers = 0;
}

// Nor who does the work: threads of other ranks, which come and go, so that kernels cut it this way and that.
static void helpers_do_not_matter(void **state) {
  static const ParityCase few[] = {{.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16},
                                   {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 4},
                                   {.name = "dp 2 tp 2 zero 3", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 3}};
  static const Dtype precisions[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
  for (int m = 0; m < MODELS; m += 2)
    for (int i = 0; i < 3; i++)
      for (int p = 0; p < 3; p++) {
        ParityCase alone = with(few[i], models[m], precisions[p], parity_steps(4)), helped = alone;
        helped.helpers = 1 + p;
        helped.threads = 1 + (p + i) % 2;
        if (!parity_wanted(&alone)) continue;
        ParityResult first, second;
        run(&alone, &first);
        run_watched(&helped, &second);
        printf("%-10s %-16s %s: helpers came to %d kernels, %lld units\n", alone.model, alone.name,
               dtype_name(alone.precision), watch.kernels, (long long)second.helped);
        if (atomic_load(&watch.left_alone) || !watch.kernels)
          fail_msg("%s, %s: no helper came", alone.model, alone.name);
        if (!parity_same_bits(&first, &second))
          fail_msg("%s, %s, %s: bits differ", alone.model, alone.name, dtype_name(alone.precision));
        parity_free(&first);
        parity_free(&second);
      }
}

static double counter_of(const ParityResult *r, KnownVariable known) {
  for (int i = 0; i < r->tensors[DUMP_FINAL]; i++)
    if (!strcmp(r->tensor[DUMP_FINAL][i].name, known_name(known))) return r->tensor[DUMP_FINAL][i].data[0];
  fail_msg("the checkpoint would lack %s", known_name(known));
  return -1;
}

// A norm that is not finite, on whichever rank it began: all skip, nothing changes, the count of steps stands, and the
// steps after it continue as if it had not been. The last step is the poisoned one, or one before.
static void skipped_steps(void **state) {
  for (int m = 0; m < MODELS; m += 2) {
    ParityCase base =
        with((ParityCase){.name = "one rank", .dp = 1, .pp = 1, .tp = 1, .micro = 16}, models[m], DTYPE_F64, 2);
    ParityResult two, one;
    run(&base, &two);
    base.steps = base.poison = 3;
    run(&base, &one);
    assert_true(!one.skipped[0] && !one.skipped[1] && one.skipped[2]);
    assert_true(counter_of(&one, KNOWN_OPTIMIZER_STEP) == 2);
    assert_null(parity_first_different(&one, &two, DUMP_FINAL)); // parameters, moments and counts: as after two steps
    parity_free(&one);
    base.steps = 4;
    run(&base, &one);
    assert_true(one.skipped[2] && !one.skipped[3] && counter_of(&one, KNOWN_OPTIMIZER_STEP) == 3);
    for (int i = 0; i < LAYOUTS; i++) {
      ParityCase c = with(layouts[i], models[m], DTYPE_F64, 4);
      c.poison = 3;
      if (parity_wanted(&c) && one_rank_differs(&c, corpus_for(c.model, CORPUS_RAGGED), NULL))
        fail_msg("%s, %s differs after a skipped step", models[m], c.name);
    }
    parity_free(&one);
    parity_free(&two);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(recomputation), cmocka_unit_test(same_recipe_twice),
                                     cmocka_unit_test(same_bits_under_both_schedules),
                                     cmocka_unit_test(threads_do_not_matter),
                                     cmocka_unit_test(helpers_do_not_matter),
                                     cmocka_unit_test(skipped_steps)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, one_rank_end);
}
