// Messages on a connection of the watch. The first byte of the input chooses: i is the introduction of a rank, 0 and 1
// are frames that rank 0 or another rank receives. An accepted frame, written again, must give the same bytes.
#include "comm/watch_frame.h"
#include "fuzz.h"
#include <string.h>

enum { RANKS = 3 };

static void read_introduction(const uint8_t *data, size_t size) {
  Introduction who;
  if (size < sizeof who) return;
  memcpy(&who, data, sizeof who);
  if (introduction_is_valid(&who, RANKS)) CHECK(who.rank > 0 && who.rank < RANKS && !who.zero);
}

static void check_frame(const Frame *f, int from, const uint8_t *data, size_t bytes) {
  unsigned char again[FRAME_BYTES];
  const void *rest = f->word == WORD_PULSE ? (const void *)&f->call : f->word == WORD_NOTICE ? &f->notice : NULL;
  size_t size = f->word == WORD_PULSE ? sizeof f->call : f->word == WORD_NOTICE ? sizeof f->notice : 0;
  CHECK(f->word != WORD_NONE && f->word <= WORD_LEFT);
  CHECK((f->word != WORD_LEAVE || from) && (f->word != WORD_LEFT || !from));
  CHECK(frame_write(again, f->word, rest, size) == bytes && !memcmp(again, data, bytes));
  if (f->word == WORD_NOTICE)
    CHECK(f->notice.error.code < 0 && f->notice.error.code >= PLAIT_UNWRITABLE && f->notice.error.blamed.rank >= 0 &&
          (!f->notice.error.blamed.known || f->notice.error.blamed.rank < RANKS) &&
          strlen(f->notice.error.message) < sizeof f->notice.error.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned choice = fuzz_byte(&data, &size);
  if (choice == 'i') return read_introduction(data, size), 0;
  for (int from = choice == '0' ? 1 : 0, bytes = 1; bytes > 0;) {
    Frame f;
    bytes = frame_take(data, size, from, RANKS, &f);
    CHECK(bytes <= FRAME_BYTES && (bytes < 0 || (size_t)bytes <= size));
    if (bytes <= 0) CHECK(f.word == WORD_NONE);
    if (bytes <= 0) break;
    check_frame(&f, from, data, (size_t)bytes);
    data += bytes, size -= (size_t)bytes;
  }
  return 0;
}
