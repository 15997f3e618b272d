// The words of a LastCall: what a rank did last in its communicators, and whether it waits there.
#pragma once
#include "worker/last_call.h"
#include <stddef.h>

// Flags of a word: the call runs; it waits for others, and is not frozen; (own only) the thread waits for its stream
// `number`.
enum { LAST_CALL_RUNS = 1, LAST_CALL_WAITS = 2, LAST_CALL_STREAM = 4, LAST_CALL_FLAGS = 3 }; // 3 bits; then the call
enum { LAST_CALL_CREATE = 30 }; // where a CommKind could be: the creation of a communicator

// Call `number` (1 …) of a communicator of `size` ranks.
uint64_t last_call_word(int kind, int size, uint64_t number);
// The rank's own thread waits for what a stream does, whose word is number `stream`.
uint64_t last_call_on_stream(int stream);

// As comm_last.
uint64_t last_call_newest(const LastCall *last, double *alive);

// "its last collective, all_reduce (call 5 of a communicator of 2 ranks), is under way"; "" where it has called none.
void last_call_describe(const LastCall *last, char *text, size_t size);

static inline void last_call_set(_Atomic uint64_t *word, uint64_t value) {
  atomic_store_explicit(word, value, memory_order_relaxed);
}
static inline uint64_t last_call_get(const _Atomic uint64_t *word) {
  return atomic_load_explicit(word, memory_order_relaxed);
}
