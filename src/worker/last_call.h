// The last call of a rank in its communicators: words that other threads, and a supervisor, may read at any time. comm
// packs and describes them (comm/last_call.h).
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum { LAST_CALL_STREAMS = 8 }; // a rank has no more at a time; further ones share their words

// A rank's own thread may compute while its streams wait for others, so that each has a word, and a time at which it
// was seen alive (Waiter.alive). streams: that have been made so far; they take words in turn.
typedef struct LastCall {
  _Atomic uint64_t own, stream[LAST_CALL_STREAMS];
  _Atomic int64_t own_alive, stream_alive[LAST_CALL_STREAMS];
  atomic_int streams;
} LastCall;
