// What ranks of a world of net read from each other: introductions and frames of the watch. The first byte chooses
// whether there is an introduction to be read, or frames.
#include "comm/watch_frame.h"
#include "fuzz.h"
#include <string.h>

enum { RANKS = 3 };

static void read_introduction(const uint8_t *data, size_t size) {
  Introduction who;
  if (size < sizeof who) return;
  memcpy(&who, data, sizeof who);
  if (introduction_is_one(&who, RANKS, 7, NULL)) CHECK(who.rank > 0 && who.rank < RANKS && who.token == 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (fuzz_byte(&data, &size) == 'i') return read_introduction(data, size), 0;
  for (int bytes = 1; bytes > 0;) {
    Frame f;
    bytes = frame_take(data, size, RANKS, &f);
    CHECK(bytes <= FRAME_BYTES && (bytes < 0 || (size_t)bytes <= size));
    if (bytes <= 0) CHECK(f.word == WORD_NONE);
    if (f.word == WORD_NOTICE)
      CHECK(f.notice.code < 0 && f.notice.code >= PLAIT_INFEASIBLE && f.notice.rank >= -1 && f.notice.rank < RANKS &&
            memchr(f.notice.message, 0, sizeof f.notice.message));
    if (bytes > 0) data += bytes, size -= (size_t)bytes;
  }
  return 0;
}
