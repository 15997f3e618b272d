// Transfers on the links of ranks: cases that one can compute by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "machine/transfers.h"

static const int first[] = {0}, from_first[] = {0, 1}, from_second[] = {1, 0}, both[] = {0, 1};

static void pass_all(Transfers *t) {
  while (transfers_next(t) < INFINITY) transfers_pass(t);
}

// A collective of 10 s, of which 2 pass before it moves anything, and a message of 4 s that starts at 5: until then the
// collective has moved for 3 s of 8. Then each has half: the message needs 8 s, to 13; by then the collective has moved
// for 7, and the last second it has alone.
static void a_message_beside_a_collective(void **state) {
  Transfers *t = transfers_create(2);
  int a = transfers_begin(t, &(Transfer){0, 10, 2, 0, 0, first, 1}),
      b = transfers_begin(t, &(Transfer){5, 4, 0, 0, 1, from_first, 2});
  assert_true(isnan(transfers_end(t, a)) && transfers_next(t) == 2);
  pass_all(t);
  assert_true(transfers_end(t, a) == 14 && transfers_end(t, b) == 13);
  transfers_free(t);
}

// Links are full duplex, and of one level: messages there and back, or of another level, do not meet. Two that one rank
// receives do.
static void who_does_not_meet(void **state) {
  static const int from_third[] = {2, 1};
  Transfers *t = transfers_create(3);
  int a = transfers_begin(t, &(Transfer){0, 4, 0, 0, 1, from_first, 2}),
      b = transfers_begin(t, &(Transfer){0, 4, 0, 0, 1, from_second, 2}),
      c = transfers_begin(t, &(Transfer){0, 4, 0, 1, 0, both, 2}),
      d = transfers_begin(t, &(Transfer){0, 4, 0, -1, 0, both, 2});
  pass_all(t);
  assert_true(transfers_end(t, a) == 4 && transfers_end(t, b) == 4 && transfers_end(t, c) == 4);
  assert_true(transfers_end(t, d) == 4);
  a = transfers_begin(t, &(Transfer){10, 4, 0, 0, 1, from_first, 2});
  b = transfers_begin(t, &(Transfer){10, 4, 0, 0, 1, from_third, 2});
  pass_all(t);
  assert_true(transfers_end(t, a) == 18 && transfers_end(t, b) == 18);
  transfers_free(t);
}

// A collective is on the links of all its ranks: whoever slows one of them slows all.
static void all_ranks_of_a_collective_wait(void **state) {
  static const int all[] = {0, 1, 2}, away[] = {2, 3};
  Transfers *t = transfers_create(4);
  int a = transfers_begin(t, &(Transfer){0, 6, 0, 0, 0, all, 3}),
      b = transfers_begin(t, &(Transfer){0, 2, 0, 0, 1, away, 2});
  pass_all(t);
  assert_true(transfers_end(t, b) == 4 && transfers_end(t, a) == 8);
  transfers_free(t);
}

// What met: by what a rank sends, and of the worst link what it receives too.
static void what_met_is_added_up(void **state) {
  Transfers *t = transfers_create(2);
  transfers_note(t, 0, &(Transfer){.start = 0, .level = 0}, 10);
  transfers_note(t, 0, &(Transfer){.start = 4, .level = 0, .message = 1, .member = from_first}, 7);
  transfers_note(t, 0, &(Transfer){.start = 4, .level = 1}, 9);
  transfers_note(t, 1, &(Transfer){.start = 5, .level = 0}, 11);
  transfers_note(t, 1, &(Transfer){.start = 0, .level = -1}, 11);
  assert_true(transfers_met(t, 0) == 3 && transfers_met(t, 1) == 0); // a message that comes is not sent
  assert_true(transfers_met_most(t) == 3);
  transfers_note(t, 0, &(Transfer){.start = 7, .level = 0, .message = 1, .member = from_first}, 12);
  assert_true(transfers_met(t, 0) == 6 && transfers_met_most(t) == 6);
  transfers_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_message_beside_a_collective),
                                     cmocka_unit_test(who_does_not_meet),
                                     cmocka_unit_test(all_ranks_of_a_collective_wait),
                                     cmocka_unit_test(what_met_is_added_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
