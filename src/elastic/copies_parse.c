// Makes and checks what goes over a connection of copies.
#include "base/fault.h"
#include "checkpoint/checksum.h"
#include "elastic/copies_protocol.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

CopyGreeting copy_greeting(const char *run) {
  CopyGreeting g = {.magic = COPY_MAGIC, .version = COPY_VERSION};
  snprintf(g.run, sizeof g.run, "%s", run);
  return g;
}

bool copy_greeting_is_of(const CopyGreeting *greeting, const char *run) {
  CopyGreeting mine = copy_greeting(run);
  return !memcmp(&mine, greeting, sizeof mine);
}

static uint64_t frame_checksum(const CopyFrame *f) { return checksum_of(f, offsetof(CopyFrame, checksum)); }

void copy_frame_sign(CopyFrame *f) { f->checksum = frame_checksum(f); }

bool copy_frame_is_valid(const CopyFrame *f, int ranks) {
  return frame_checksum(f) == f->checksum && f->step >= 0 && f->bytes > 0 && f->rank >= 0 && f->rank < f->ranks &&
         f->ranks <= ranks && !f->reserved;
}

bool copy_piece_is_valid(const CopyPiece *p, int64_t left) {
  int64_t most = left < COPY_PIECE ? left : COPY_PIECE;
  switch (p->end) {
  case COPY_GOES_ON: return p->bytes > 0 && p->bytes <= FAULT(pieces_pass_the_end, most, COPY_PIECE);
  case COPY_IS_WHOLE: return !p->bytes && !left;
  case COPY_IS_OVERTAKEN: return !p->bytes;
  default: return false;
  }
}

bool copy_reply_is_valid(const CopyReply *r, const CopyFrame *f) {
  return r->step == f->step && r->rank == f->rank && (r->kept == 0 || r->kept == 1);
}
