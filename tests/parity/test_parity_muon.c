// Muon on any mesh: each matrix is made orthogonal as a whole, so that the numbers are one rank's.
#include "corpora.h"
#include "compare.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MUON "optimizer.name=muon optimizer.momentum=0.9 "
#define CASE(n, data, ranks, rows, keys, ...)                                                                          \
  {.name = n, .dp = data, .tp = ranks, .pp = 1, .micro = rows, .settings = MUON keys, __VA_ARGS__}
static const ParityCase layouts[] = {
    CASE("dp 2", 2, 1, 8, ""),
    CASE("dp 3 uneven zero 1", 3, 1, 2, "", .zero = 1),
    CASE("dp 2 zero 1", 2, 1, 8, "", .zero = 1),
    CASE("tp 2", 1, 2, 8, ""),
    CASE("dp 2 zero 3 tp 2 sequence", 2, 2, 4, "", .zero = 3, .sequence = 1),
    CASE("dp 4 zero 2 unsplit", 4, 1, 2, "parallel.unsplit_tensors=true", .zero = 2),
    CASE("dp 2 zero 1 unsplit tp 2", 2, 2, 4, "parallel.unsplit_tensors=true", .zero = 1),
    CASE("hybrid zero 2 unsplit tp 2", 4, 2, 2, "parallel.shard_group=2 parallel.unsplit_tensors=true", .zero = 2),
    CASE("hybrid zero 3", 4, 1, 2, "parallel.shard_group=2", .zero = 3),
    CASE("2d zero 1", 2, 4, 2, "parallel.tensor=2d", .zero = 1),
    CASE("2.5d zero 2", 2, 8, 1, "parallel.tensor=2.5d", .zero = 2),
    CASE("3d", 1, 8, 4, "parallel.tensor=3d"),
    CASE("ring zero 2", 2, 1, 4, "mesh.cp=2 parallel.context=ring", .zero = 2),
    CASE("zb-v zero 1 tp 2", 2, 2, 2, "mesh.pp=2 parallel.pipeline=zb-v", .zero = 1),
    CASE("interleaved zero 3", 2, 1, 2, "mesh.pp=2 parallel.pipeline=interleaved", .zero = 3),
    CASE("in backward zero 2 tp 2", 2, 2, 8, "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop",
         .zero = 2),
    CASE("original", 2, 2, 8, "optimizer.muon_scale=original", .zero = 1),
};

static int compare(const char *model, Dtype precision) {
  int bad = 0;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ParityCase c = layouts[i], one = c;
    if (!parity_wanted(&c)) continue;
    c.model = model, c.precision = precision, c.steps = parity_steps(3), c.seq = 16;
    c.more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH;
    one = (ParityCase){.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16, .seq = c.seq,
                       .precision = precision, .steps = c.steps, .more_settings = c.more_settings,
                       .settings = i + 1 < sizeof layouts / sizeof *layouts ? MUON : c.settings};
    if (strstr(c.settings, "clip=0"))
      one.settings = MUON "optimizer.clip=0";
    bad += parity_against(&c, &one, corpus_for(model, CORPUS_RAGGED));
  }
  return bad;
}

static void gpt(void **state) { assert_int_equal(compare("gpt", DTYPE_F64), 0); }
static void qwen3(void **state) { assert_int_equal(compare("qwen3", DTYPE_F64), 0); }
static void narrow(void **state) { assert_int_equal(compare("llama", DTYPE_F32) + compare("llama", DTYPE_BF16), 0); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt), cmocka_unit_test(qwen3), cmocka_unit_test(narrow)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
