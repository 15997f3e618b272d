// What a supervisor says to the next one, over a connection of net/channel.h. Both are of one build: job states name
// the version.
#pragma once
#include "checkpoint/memory_image.h"

enum { COPY_PIECE = 1 << 20 }; // bytes of one piece at most

// First, by the sender: whose workers these are. The run's name has a random number that only the job's machines know.
typedef struct CopyGreeting { char magic[8]; uint32_t version, reserved; char run[WORKER_RUN]; } CopyGreeting;
#define COPY_MAGIC "plaitcpy"
enum { COPY_VERSION = 1 };

// Then for each image a frame, its bytes in pieces, and the reply.
typedef struct CopyFrame {
  int64_t step, bytes;
  int32_t rank, ranks, made, reserved;
  uint64_t checksum; // of what is before it
} CopyFrame;

typedef enum CopyEnd {
  COPY_GOES_ON,
  COPY_IS_WHOLE,     // all bytes of the frame have been sent
  COPY_IS_OVERTAKEN  // the worker has replaced the image meanwhile
} CopyEnd;

// Its bytes follow; the last piece has none.
typedef struct CopyPiece { uint32_t bytes, end; uint64_t checksum; } CopyPiece;

typedef struct CopyReply { int64_t step; int32_t rank, kept; } CopyReply;

// Checks of what comes (copies_parse.c). No sockets there, so that fuzz targets can give it any bytes.
CopyGreeting copy_greeting(const char *run);
bool copy_greeting_is_of(const CopyGreeting *greeting, const char *run);
void copy_frame_sign(CopyFrame *frame); // sets its checksum
bool copy_frame_is_valid(const CopyFrame *frame, int ranks); // of a round of so many ranks
bool copy_piece_is_valid(const CopyPiece *piece, int64_t left); // `left` bytes of the frame have not come
bool copy_reply_is_valid(const CopyReply *reply, const CopyFrame *frame);
