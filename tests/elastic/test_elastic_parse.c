// tier 1
// Parsers of the messages of the store and of copies: truncated messages and every malformed field are refused. The
// fuzz targets (tests/fuzz) give the same functions random bytes.
#include "base/error.h"
#include "elastic/copies_protocol.h"
#include "elastic/store_protocol.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// The store -----------------------------------------------------------------------------------------------------------

static void greetings(void **state) {
  StoreGreeting mine = STORE_GREETING(7), theirs = mine;
  bool good = false;
  for (size_t n = 0; n < sizeof mine; n++) assert_int_equal(store_take_greeting((void *)&mine, n, 7, &good), 0);
  assert_int_equal(store_take_greeting((void *)&mine, sizeof mine, 7, &good), sizeof mine);
  assert_true(good);
  assert_int_equal(store_who_answers(&mine, &theirs), STORE_OURS);
  theirs.magic[0] = 'x';
  assert_int_equal(store_who_answers(&mine, &theirs), STORE_NOT_PLAIT);
  theirs = mine, theirs.version++;
  assert_int_equal(store_who_answers(&mine, &theirs), STORE_OTHER_VERSION);
  theirs = mine, theirs.job++;
  assert_int_equal(store_who_answers(&mine, &theirs), STORE_OTHER_JOB);
  store_take_greeting((void *)&theirs, sizeof theirs, 7, &good);
  assert_false(good);
}

static int take_request(const StoreRequest *r, const char *rest, size_t bytes) {
  uint8_t data[200];
  char key[STORE_KEY + 1];
  StoreRequest taken;
  const uint8_t *value;
  assert_true(bytes <= sizeof data);
  memcpy(data, r, bytes < sizeof *r ? bytes : sizeof *r);
  if (bytes > sizeof *r) memcpy(data + sizeof *r, rest, bytes - sizeof *r);
  int whole = store_take_request(data, bytes, &taken, key, &value);
  if (whole > 0) assert_true(!strcmp(key, "key") && value + taken.value_bytes == data + whole);
  return whole;
}

static void requests(void **state) {
  const StoreRequest good = {.call = STORE_SET, .key_bytes = 3, .value_bytes = 5};
  size_t bytes = sizeof good + 8;
  for (size_t n = 0; n < bytes; n++) assert_int_equal(take_request(&good, "keyvalue", n), 0);
  assert_int_equal(take_request(&good, "keyvalue", bytes), bytes);
  StoreRequest wrong = good;
  wrong.call = STORE_LEASE + 1;
  assert_int_equal(take_request(&wrong, "keyvalue", bytes), -1);
  wrong = good, wrong.key_bytes = STORE_KEY + 1;
  assert_int_equal(take_request(&wrong, "keyvalue", bytes), -1);
  wrong = good, wrong.value_bytes = STORE_VALUE + 1;
  assert_int_equal(take_request(&wrong, "keyvalue", bytes), -1);
  wrong.value_bytes = wrong.key_bytes = UINT32_MAX;
  assert_int_equal(take_request(&wrong, "keyvalue", bytes), -1);
}

static void replies(void **state) {
  assert_true(store_reply_is_valid(&(StoreReply){1, 5, 4, 0}));
  assert_true(store_reply_is_valid(&(StoreReply){0, 0, 0, 9}));
  assert_true(store_reply_is_valid(&(StoreReply){0, 0, 4, 0})); // an empty value
  assert_true(store_reply_is_valid(&(StoreReply){1, STORE_VALUE, 1, 0}));
  assert_false(store_reply_is_valid(&(StoreReply){1, 5, 0, 0})); // a value of what does not exist
  assert_false(store_reply_is_valid(&(StoreReply){1, STORE_VALUE + 1, 1, 0}));
  assert_false(store_reply_is_valid(&(StoreReply){1, UINT32_MAX, 1, 0}));
  assert_false(store_reply_is_valid(&(StoreReply){2, 5, 4, 0}));
}

// Copies --------------------------------------------------------------------------------------------------------------

static void greetings_of_copies(void **state) {
  CopyGreeting g = copy_greeting("job.token.3");
  assert_true(copy_greeting_is_of(&g, "job.token.3"));
  assert_false(copy_greeting_is_of(&g, "job.token.4"));
  g.version++;
  assert_false(copy_greeting_is_of(&g, "job.token.3"));
  g = copy_greeting("job.token.3"), g.magic[0] = 'x';
  assert_false(copy_greeting_is_of(&g, "job.token.3"));
  memset(g.run, 'x', sizeof g.run); // does not end
  assert_false(copy_greeting_is_of(&g, "job.token.3"));
}

static bool signed_frame(CopyFrame f) {
  copy_frame_sign(&f);
  return copy_frame_is_valid(&f, 4);
}

static void frames(void **state) {
  const CopyFrame good = {.step = 3, .bytes = 100, .rank = 1, .ranks = 4, .made = 2};
  CopyFrame f = good;
  assert_true(signed_frame(good));
  assert_false(copy_frame_is_valid(&f, 4)); // without its checksum
  copy_frame_sign(&f);
  for (size_t i = 0; i < 8 * sizeof f; i++) { // any bit that is another
    ((uint8_t *)&f)[i / 8] ^= (uint8_t)(1 << i % 8);
    assert_false(copy_frame_is_valid(&f, 4));
    ((uint8_t *)&f)[i / 8] ^= (uint8_t)(1 << i % 8);
  }
  f = good, f.step = -1;
  assert_false(signed_frame(f));
  f = good, f.bytes = 0;
  assert_false(signed_frame(f));
  f = good, f.bytes = INT64_MIN;
  assert_false(signed_frame(f));
  f = good, f.rank = -1;
  assert_false(signed_frame(f));
  f = good, f.rank = 4;
  assert_false(signed_frame(f));
  f = good, f.ranks = 5; // the round has 4
  assert_false(signed_frame(f));
  f = good, f.ranks = -1;
  assert_false(signed_frame(f));
  f = good, f.reserved = 1;
  assert_false(signed_frame(f));
}

static bool piece(uint32_t bytes, uint32_t end, int64_t left) {
  return copy_piece_is_valid(&(CopyPiece){.bytes = bytes, .end = end}, left);
}

static void pieces(void **state) {
  assert_true(piece(1, COPY_GOES_ON, 1) && piece(COPY_PIECE, COPY_GOES_ON, INT64_MAX));
  assert_true(piece(0, COPY_IS_WHOLE, 0) && piece(0, COPY_IS_OVERTAKEN, 5) && piece(0, COPY_IS_OVERTAKEN, 0));
  assert_false(piece(0, COPY_GOES_ON, 5));
  assert_false(piece(6, COPY_GOES_ON, 5)); // past the end of the image
  assert_false(piece(1, COPY_GOES_ON, 0));
  assert_false(piece(COPY_PIECE + 1, COPY_GOES_ON, INT64_MAX));
  assert_false(piece(UINT32_MAX, COPY_GOES_ON, INT64_MAX));
  assert_false(piece(0, COPY_IS_WHOLE, 1));
  assert_false(piece(1, COPY_IS_WHOLE, 0));
  assert_false(piece(1, COPY_IS_OVERTAKEN, 5));
  assert_false(piece(0, COPY_IS_OVERTAKEN + 1, 0));
  assert_false(piece(0, UINT32_MAX, 0));
}

static void replies_to_copies(void **state) {
  const CopyFrame f = {.step = 3, .bytes = 100, .rank = 1, .ranks = 4};
  assert_true(copy_reply_is_valid(&(CopyReply){3, 1, 0}, &f) && copy_reply_is_valid(&(CopyReply){3, 1, 1}, &f));
  assert_false(copy_reply_is_valid(&(CopyReply){4, 1, 1}, &f));
  assert_false(copy_reply_is_valid(&(CopyReply){3, 2, 1}, &f));
  assert_false(copy_reply_is_valid(&(CopyReply){3, 1, 2}, &f));
  assert_false(copy_reply_is_valid(&(CopyReply){3, 1, -1}, &f));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(greetings), cmocka_unit_test(requests), cmocka_unit_test(replies),
      cmocka_unit_test(greetings_of_copies), cmocka_unit_test(frames), cmocka_unit_test(pieces),
      cmocka_unit_test(replies_to_copies),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
