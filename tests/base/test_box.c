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

// Elements of a box that begins at an odd address into one whose dims may be turned, in every pair of dtypes: as one
// element at a time. A run is longer than the blocks that are converted at a time.
static void check_copy(Dtype to, Dtype from, int turned) {
  enum { ROWS = 3, COLUMNS = 2051, N = ROWS * COLUMNS };
  static char source[8 * N + 1], target[8 * N + 1], expected[8 * N + 1];
  const Box box = {.rank = 2, .local = {ROWS, COLUMNS}};
  const int64_t plain[] = {COLUMNS, 1}, other[] = {1, ROWS};
  size_t in = dtype_size(from), out = dtype_size(to);
  memset(expected, 7, sizeof expected);
  memset(target, 7, sizeof target);
  for (int64_t i = 0; i < N; i++) {
    uint64_t a, b = 0;
    int small = !dtype_is_float(from) || !dtype_is_float(to); // values that all dtypes have
    dtype_store(&a, from, 0, small ? (double)(i % 251) : (double)(i - N / 2) * 1.37e-3);
    dtype_store(&b, to, 0, dtype_load(&a, from, 0));
    memcpy(source + 1 + (size_t)i * in, &a, in);
    int64_t at = turned ? i % COLUMNS * ROWS + i / COLUMNS : i;
    memcpy(expected + 1 + (size_t)at * out, &b, out);
  }
  box_copy(&box, target + 1, &box, turned ? other : plain, to, source + 1, &box, plain, from);
  if (memcmp(target, expected, sizeof target) != 0)
    fail_msg("%s to %s%s", dtype_name(from), dtype_name(to), turned ? ", turned" : "");
}

static void copies_convert_as_single_elements(void **state) {
  for (int to = 0; to < DTYPE_COUNT; to++)
    for (int from = 0; from < DTYPE_COUNT; from++)
      for (int turned = 0; turned < 2; turned++) check_copy((Dtype)to, (Dtype)from, turned);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_cover_a_box_once),
                                     cmocka_unit_test(copies_convert_as_single_elements)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
