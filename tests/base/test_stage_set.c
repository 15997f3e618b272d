// Sets of stages against a plain array, over several words and at their borders.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/stage_set.h"

static int next_random(uint64_t *seed, int below) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((*seed >> 33) % (uint64_t)below);
}

static void fill(uint64_t *seed, StageSet *set, char plain[MAX_STAGES]) {
  static const int borders[] = {0, 1, 63, 64, 65, 127, 128, 1022, 1023};
  *set = (StageSet){{0}};
  memset(plain, 0, MAX_STAGES);
  for (int n = next_random(seed, 12); n > 0; n--) {
    int stage = next_random(seed, 2) ? borders[next_random(seed, 9)] : next_random(seed, MAX_STAGES);
    stages_add(set, stage);
    plain[stage] = 1;
  }
}

static void same(const StageSet *set, const char plain[MAX_STAGES]) {
  int count = 0, last = -1;
  for (int s = 0; s < MAX_STAGES; s++) {
    assert_int_equal(stages_have(set, s), plain[s]);
    count += plain[s];
  }
  assert_int_equal(stages_count(set), count);
  for EACH_STAGE(stage, set) {
    assert_true(stage > last && plain[stage]);
    last = stage;
    count--;
  }
  assert_int_equal(count, 0);
  for (int s = stages_previous(set, MAX_STAGES - 1); s >= 0; s = stages_previous(set, s - 1)) {
    assert_true(s == last && plain[s]);
    for (last--; last >= 0 && !plain[last];) last--;
  }
  assert_true(last < 0);
}

static void sets_are_what_arrays_are(void **state) {
  uint64_t seed = 1;
  char a[MAX_STAGES], b[MAX_STAGES];
  StageSet x, y;
  for (int i = 0; i < 300; i++) {
    fill(&seed, &x, a);
    fill(&seed, &y, b);
    same(&x, a);
    int within = 1, coordinates = 1 + next_random(&seed, 70);
    StageMap map = {coordinates, i % 2};
    char on[MAX_STAGES] = {0};
    for (int s = 0; s < MAX_STAGES; s++) {
      within &= a[s] || !b[s];
      if (a[s]) on[stage_coordinate(s, map)] = 1;
    }
    assert_int_equal(stages_include(&x, &y), within);
    assert_int_equal(stages_equal(&x, &y), !memcmp(a, b, sizeof a));
    StageSet run = stages_coordinates(&x, map), both = x, any = x;
    same(&run, on);
    int met = 0, end = 1 + next_random(&seed, MAX_STAGES);
    for (int c = 0; c < coordinates; c++)
      for EACH_STAGE_ON(stage, c, map, end) {
        assert_int_equal(stage_coordinate(stage, map), c);
        met++;
      }
    assert_int_equal(met, end);
    for (int s = 0; s < MAX_STAGES; s++) { // in turn, or there and back
      int turn = s / coordinates, at = s % coordinates;
      assert_int_equal(stage_coordinate(s, map), map.folded && turn % 2 ? coordinates - 1 - at : at);
    }
    stages_intersect(&both, &y);
    stages_unite(&any, &y);
    for (int s = 0; s < MAX_STAGES; s++) {
      assert_int_equal(stages_have(&both, s), a[s] && b[s]);
      assert_int_equal(stages_have(&any, s), a[s] || b[s]);
    }
  }
}

static void ranges_end_where_they_should(void **state) {
  for (int end = 0; end <= MAX_STAGES; end++) {
    StageSet s = stages_below(end);
    assert_int_equal(stages_count(&s), end);
    assert_int_equal(stages_next(&s, end), -1);
    if (end) assert_int_equal(stages_next(&s, end - 1), end - 1);
  }
  StageSet last = stages_one(MAX_STAGES - 1);
  assert_int_equal(stages_next(&last, 0), MAX_STAGES - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sets_are_what_arrays_are),
                                     cmocka_unit_test(ranges_end_where_they_should)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
