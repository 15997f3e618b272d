// Writes and checks what goes over a connection of the watch.
#include "comm/watch_frame.h"
#include "base/fault.h"
#include <string.h>

bool introduction_is_valid(const Introduction *who, int ranks) {
  return who->rank && who->rank < (uint32_t)ranks && !who->zero;
}

size_t frame_write(unsigned char to[FRAME_BYTES], Word word, const void *data, size_t bytes) {
  FrameHead head = {word, (uint32_t)bytes};
  memcpy(to, &head, sizeof head);
  if (bytes) memcpy(to + sizeof head, data, bytes);
  return sizeof head + bytes;
}

// Whoever reads it uses ranks as indices, the code as one of plait/error.h, and the message as text.
static bool notice_is_valid(const Notice *n, int ranks) {
  return FAULT(any_notice_is_believed, error_is_valid(&n->error, ranks), true) && (n->silent == 0 || n->silent == 1);
}

// Bytes that follow a word; -1: that rank does not say it.
static int64_t bytes_of(uint32_t word, int from) {
  switch (word) {
  case WORD_PULSE: return sizeof(uint64_t);
  case WORD_NOTICE: return sizeof(Notice);
  case WORD_LEAVE: return from ? 0 : -1;
  case WORD_LEFT: return from ? -1 : 0;
  default: return -1;
  }
}

int frame_take(const unsigned char *data, size_t bytes, int from, int ranks, Frame *frame) {
  FrameHead head;
  *frame = (Frame){WORD_NONE};
  if (bytes < sizeof head) return 0;
  memcpy(&head, data, sizeof head);
  if (bytes_of(head.word, from) != head.bytes) return -1;
  if (bytes < sizeof head + head.bytes) return 0;
  data += sizeof head;
  if (head.word == WORD_PULSE) memcpy(&frame->call, data, sizeof frame->call);
  if (head.word == WORD_NOTICE) memcpy(&frame->notice, data, sizeof frame->notice);
  if (head.word == WORD_NOTICE && !notice_is_valid(&frame->notice, ranks)) return -1;
  frame->word = (Word)head.word;
  return (int)(sizeof head + head.bytes);
}
