// Boxes in pieces: every element once, in row-major order, and no piece larger than asked for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/box.h"

static int64_t next(uint64_t *seed, int64_t below) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((*seed >> 33) % (uint64_t)below);
}

// The place of an index among those of the box, counted row by row.
static int64_t place(const Box *box, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < box->rank; d++) at = at * box->local[d] + index[d] - box->offset[d];
  return at;
}

static void check(const Box *box, int64_t most) {
  BoxPieces pieces = {.whole = *box, .most = most};
  int64_t seen = 0;
  while (box_next_piece(&pieces)) {
    const Box *p = &pieces.piece;
    int64_t n = box_elements(p), index[BOX_MAX_RANK] = {0};
    assert_true(n > 0 && n <= most && p->rank == box->rank);
    assert_true(!box->rank || p->local[pieces.dim] < pieces.step || 2 * n > most ||
                n == box_elements(box)); // no smaller than need be
    for (int d = 0; d < p->rank; d++) index[d] = p->offset[d];
    for (int64_t i = 0; i < n; i++) {
      assert_int_equal(place(box, index), seen++);
      for (int d = p->rank - 1; d >= 0 && ++index[d] == p->offset[d] + p->local[d]; d--) index[d] = p->offset[d];
    }
  }
  assert_int_equal(seen, box_elements(box));
}

static void pieces_cover_a_box_once(void **state) {
  uint64_t seed = 1;
  for (int i = 0; i < 3000; i++) {
    Box box = {.rank = (int)next(&seed, 5)};
    for (int d = 0; d < box.rank; d++) {
      box.offset[d] = next(&seed, 9);
      box.local[d] = next(&seed, 40) ? 1 + next(&seed, 7) : 0;
    }
    check(&box, 1 + next(&seed, 60));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_cover_a_box_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
