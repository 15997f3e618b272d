// A queue of records of different lengths, first in, first out. A record stays at its address until it is removed.
#pragma once
#include <stddef.h>

// All zero: empty, without memory.
typedef struct RecordQueue {
  struct RecordChunk *first, *last; // records are added to the last; a chunk before it goes when it is empty
} RecordQueue;

// Allocates, and touches, what `records` records of `bytes` each need, and `more` bytes beyond that in all of them:
// while no more is in the queue it allocates nothing. The queue must be empty. Without this it grows whenever it is
// full.
void record_queue_reserve(RecordQueue *queue, size_t records, size_t bytes, size_t more);
void record_queue_free(RecordQueue *queue);

void *record_queue_add(RecordQueue *queue, size_t bytes); // not cleared; aligned as malloc aligns
void *record_queue_first(const RecordQueue *queue);       // NULL: it is empty
void *record_queue_next(const RecordQueue *queue, const void *record); // NULL: that is the last one
void record_queue_remove(RecordQueue *queue);             // the first
