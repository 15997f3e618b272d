// What goes over a connection between two ranks (link.h), and checks of what comes. No sockets here, so that a fuzz
// target can give it any bytes. Only the rank that has opened a connection sends messages over it, and only the other
// one answers.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum LinkWord {
  LINK_MESSAGE = 1, // `bytes` in all, of which the first `count` follow at once
  LINK_DATA,        // `count` more of message `id`, for which the receiver was ready
  LINK_READY,       // the receiver of message `id` has come: the rest of it may be sent
  LINK_TAKEN,       // the receiver of message `id` has come, and has all of it
  LINK_CREDIT,      // `count` short and `bytes` long messages may be sent again without being asked for
} LinkWord;

typedef struct LinkFrame {
  uint16_t word, flags; // flags: LINK_ANSWER
  uint32_t id, count, zero;
  uint64_t tag, bytes;
} LinkFrame;

enum {
  LINK_ANSWER = 1,          // the sender waits for READY or TAKEN
  LINK_SHORT = 256,         // bytes of a message that counts as short
  LINK_FIRST = 1 << 16,     // bytes that may follow a message's head at once
  LINK_CHUNK = 1 << 18,     // bytes of DATA, so that others are not stuck for long
  LINK_SHORTS = 256, LINK_LONGS = 8, // that a receiver stores unasked, of each sender
  LINK_HEADS = 1 << 16,     // and of whose messages it stores the heads alone
  LINK_TAG_BITS = 56,
  LINK_LARGEST = 1 << 30,   // bytes of a message
};

// What a receiver stores of a message for which nobody has asked: its bytes as those of a short or a long one, or its
// head alone, whose sender waits for an answer.
typedef enum LinkStore { LINK_STORES_SHORT, LINK_STORES_LONG, LINK_STORES_HEAD } LinkStore;
LinkStore link_stores(const LinkFrame *message);

// Whether a frame is one that the rank at that end sends, as far as this can be said without knowing what came before.
bool link_frame_is_valid(const LinkFrame *frame, bool from_opener);
