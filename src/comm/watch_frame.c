// What bytes from another rank are to the watch.
#include "comm/watch_frame.h"
#include <string.h>

static const char purpose[] = "plait: the watch";

Introduction introduction_of(int rank, uint64_t token, const Secret *secret) {
  const uint64_t words[] = {token, (uint64_t)rank};
  Introduction me = {.token = secret ? 0 : token, .rank = (uint32_t)rank};
  if (secret) secret_proof(secret, purpose, words, 2, me.proof);
  return me;
}

bool introduction_is_one(const Introduction *who, int ranks, uint64_t token, const Secret *secret) {
  const uint64_t words[] = {token, who->rank};
  if (!who->rank || who->rank >= (uint32_t)ranks) return false;
  return secret ? secret_proves(secret, purpose, words, 2, who->proof) : who->token == token;
}

size_t frame_write(unsigned char to[FRAME_BYTES], Word word, const void *data, size_t bytes) {
  FrameHead head = {word, (uint32_t)bytes};
  memcpy(to, &head, sizeof head);
  if (bytes) memcpy(to + sizeof head, data, bytes);
  return sizeof head + bytes;
}

// Whoever reads it uses the rank as an index, the code as one of plait/error.h, and the message as text.
static void mend(Notice *n, int ranks) {
  if (n->code >= 0 || n->code < PLAIT_INFEASIBLE) n->code = PLAIT_FAILED;
  if (n->rank < 0 || n->rank >= ranks) n->rank = -1;
  n->silent = n->silent != 0;
  n->message[sizeof n->message - 1] = 0;
}

int frame_take(const unsigned char *data, size_t bytes, int ranks, Frame *frame) {
  FrameHead head;
  *frame = (Frame){WORD_NONE};
  if (bytes < sizeof head) return 0;
  memcpy(&head, data, sizeof head);
  if (head.bytes > sizeof(Notice)) return -1;
  if (bytes < sizeof head + head.bytes) return 0;
  data += sizeof head;
  if (head.word == WORD_PULSE && head.bytes == sizeof frame->call) {
    memcpy(&frame->call, data, sizeof frame->call);
    frame->word = WORD_PULSE;
  } else if (head.word == WORD_NOTICE && head.bytes == sizeof frame->notice) {
    memcpy(&frame->notice, data, sizeof frame->notice);
    mend(&frame->notice, ranks);
    frame->word = WORD_NOTICE;
  } else if (head.word == WORD_LEAVE || head.word == WORD_LEFT) {
    frame->word = (Word)head.word;
  }
  return (int)(sizeof head + head.bytes);
}
