// What goes over a connection of the watch (net_watch.c), and checks of what comes. No sockets here, so that fuzz
// targets can give it any bytes.
#pragma once
#include "comm/wire.h"
#include <stdbool.h>

// The first words of a rank, when both sides have proved to have the world's secret.
typedef struct Introduction { uint32_t rank, zero; } Introduction;

bool introduction_is_valid(const Introduction *who, int ranks); // it is one of these ranks, other than 0

typedef enum Word { WORD_NONE, WORD_PULSE, WORD_NOTICE, WORD_LEAVE, WORD_LEFT } Word;
// `bytes` follow: a pulse's call (comm_last), a Notice, else nothing.
typedef struct FrameHead { uint32_t word, bytes; } FrameHead;
enum { FRAME_BYTES = sizeof(FrameHead) + sizeof(Notice) }; // at most

typedef struct Frame {
  Word word;     // NONE: no whole frame
  uint64_t call; // of a pulse
  Notice notice; // whose error is one of this world (error_is_valid)
} Frame;

size_t frame_write(unsigned char to[FRAME_BYTES], Word word, const void *data, size_t bytes);
// Of bytes that have come from a rank of a world of so many: how many the first frame has; 0: more have to come; -1:
// they are not a frame that this rank sends.
int frame_take(const unsigned char *data, size_t bytes, int from, int ranks, Frame *frame);
