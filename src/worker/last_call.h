// The last call of a rank in its communicators: words that other threads, and a supervisor, may read at any time. comm
// packs and describes them (comm/last_call.h).
#pragma once
#include <stdatomic.h>
#include <stdint.h>

// A rank's own thread may compute while one of its streams waits for others, so that each has a word, and a time at
// which it was seen alive (Waiter.alive).
typedef struct LastCall { _Atomic uint64_t own, stream; _Atomic int64_t own_alive, stream_alive; } LastCall;
