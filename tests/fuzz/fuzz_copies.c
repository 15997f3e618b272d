// Messages on a connection that carries copies of memory. The first byte of the input chooses: t is what the receiver
// of copies parses (a greeting, then frames with their pieces), r what the sender parses (replies). T is t with valid
// checksums, which a fuzzer does not find. Accepted pieces must fit into their frame.
#include "elastic/copies_protocol.h"
#include "fuzz.h"
#include <string.h>

enum { RANKS = 4 };
static const char run[] = "job.token.3";

// Takes these bytes off the front, if there are enough.
static bool take(const uint8_t **data, size_t *size, void *to, size_t bytes) {
  if (*size < bytes) return false;
  memcpy(to, *data, bytes);
  *data += bytes, *size -= bytes;
  return true;
}

// false: no more is read.
static bool take_pieces(const uint8_t **data, size_t *size, int64_t left) {
  for (CopyPiece p; take(data, size, &p, sizeof p) && copy_piece_is_valid(&p, left);) {
    CHECK(p.bytes <= COPY_PIECE && (int64_t)p.bytes <= left && (p.end == COPY_GOES_ON) == (p.bytes > 0));
    CHECK(p.end != COPY_IS_WHOLE || !left);
    if (p.end != COPY_GOES_ON) return true;
    if (p.bytes > *size) return false;
    *data += p.bytes, *size -= p.bytes;
    left -= p.bytes;
  }
  return false;
}

static void read_images(const uint8_t *data, size_t size, bool sign) {
  CopyGreeting greeting;
  if (!take(&data, &size, &greeting, sizeof greeting) || !copy_greeting_is_of(&greeting, run)) return;
  for (CopyFrame f; take(&data, &size, &f, sizeof f);) {
    if (sign) copy_frame_sign(&f);
    if (!copy_frame_is_valid(&f, RANKS)) return;
    CHECK(f.bytes > 0 && f.step >= 0 && f.rank >= 0 && f.rank < f.ranks && f.ranks <= RANKS);
    if (!take_pieces(&data, &size, f.bytes)) return;
  }
}

static void read_replies(const uint8_t *data, size_t size) {
  const CopyFrame f = {.step = 7, .rank = 1, .ranks = RANKS, .bytes = 1};
  for (CopyReply r; take(&data, &size, &r, sizeof r) && copy_reply_is_valid(&r, &f);)
    CHECK(r.step == f.step && r.rank == f.rank && r.kept >= 0 && r.kept <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned choice = fuzz_byte(&data, &size);
  if (choice == 'r') read_replies(data, size);
  else read_images(data, size, choice == 'T');
  return 0;
}
