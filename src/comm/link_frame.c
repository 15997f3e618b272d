// Checks frames of a connection between two ranks.
#include "comm/link_frame.h"
#include "base/fault.h"

LinkStore link_stores(const LinkFrame *f) {
  if (!f->count) return LINK_STORES_HEAD;
  return f->count == f->bytes && f->bytes <= LINK_SHORT ? LINK_STORES_SHORT : LINK_STORES_LONG;
}

static bool is_message(const LinkFrame *f) {
  bool has_room = FAULT(any_length_is_taken, f->count <= LINK_FIRST && f->bytes <= LINK_LARGEST, true);
  bool is_whole = f->count && f->count == f->bytes,
       is_part = f->count <= f->bytes && (is_whole || f->flags == LINK_ANSWER);
  return has_room && is_part && !(f->flags & ~LINK_ANSWER) && !(f->tag >> LINK_TAG_BITS);
}

bool link_frame_is_valid(const LinkFrame *f, bool from_opener) {
  if (f->zero) return false;
  if (f->word == LINK_MESSAGE) return from_opener && is_message(f);
  if (f->flags || f->tag) return false;
  if (f->word == LINK_DATA) return from_opener && f->count && f->count <= LINK_CHUNK && !f->bytes;
  if (f->word == LINK_READY || f->word == LINK_TAKEN) return !from_opener && !f->count && !f->bytes;
  return f->word == LINK_CREDIT && !from_opener && !f->id && f->count <= LINK_SHORTS && f->bytes <= LINK_LONGS;
}
