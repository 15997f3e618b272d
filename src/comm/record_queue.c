// A ring of bytes; when it is full a longer one follows it, and records never move. A record lies in one piece, so that
// a gap may be left at the end of the ring: shorter than the record that did not fit.
#include "comm/record_queue.h"
#include "base/error.h"
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 2048 };

typedef struct Header { alignas(max_align_t) size_t length; } Header; // of the record and this

typedef struct RecordChunk {
  struct RecordChunk *next;
  size_t capacity;
  size_t begin, end; // the first record; where the last one ends
  size_t gap;        // the records before `end` come after those up to here; 0: they do not wrap around
  int count;
  alignas(max_align_t) char data[];
} RecordChunk;

static size_t length_of(size_t bytes) {
  size_t unit = alignof(max_align_t);
  return sizeof(Header) + (bytes + unit - 1) / unit * unit;
}

static Header *header_at(const RecordChunk *c, size_t at) { return (Header *)(uintptr_t)(c->data + at); }

static void append_chunk(RecordQueue *q, size_t capacity) {
  RecordChunk *c = xcalloc(1, sizeof *c + capacity);
  memset(c->data, 0, capacity); // the pages are there from now on
  c->capacity = capacity;
  if (q->last) q->last->next = c;
  else q->first = c;
  q->last = c;
}

// Where a record of this length fits; SIZE_MAX: nowhere.
static size_t find_room(RecordChunk *c, size_t length) {
  if (!c->count) c->begin = c->end = c->gap = 0;
  if (!c->gap && c->capacity - c->end >= length) return c->end;
  if (!c->gap && c->count && c->begin >= length) {
    c->gap = c->end;
    return 0;
  }
  return c->gap && c->begin - c->end >= length ? c->end : SIZE_MAX;
}

// The chunks before the last one are kept no longer than their records.
static void drop_empty(RecordQueue *q) {
  while (q->first != q->last && !q->first->count) {
    RecordChunk *next = q->first->next;
    free(q->first);
    q->first = next;
  }
}

void *record_queue_add(RecordQueue *q, size_t bytes) {
  size_t length = length_of(bytes), at = q->last ? find_room(q->last, length) : SIZE_MAX;
  if (at == SIZE_MAX) {
    size_t capacity = q->last ? 2 * q->last->capacity : FIRST_BYTES;
    append_chunk(q, capacity > 2 * length ? capacity : 2 * length);
    drop_empty(q);
    at = 0;
  }
  RecordChunk *c = q->last;
  c->end = at + length;
  c->count++;
  header_at(c, at)->length = length;
  return header_at(c, at) + 1;
}

void *record_queue_first(const RecordQueue *q) {
  return q->first && q->first->count ? header_at(q->first, q->first->begin) + 1 : NULL;
}

void *record_queue_next(const RecordQueue *q, const void *record) {
  const Header *header = (const Header *)record - 1;
  for (const RecordChunk *c = q->first; c; c = c->next) {
    if ((const char *)header < c->data || (const char *)header >= c->data + c->capacity) continue;
    size_t at = (size_t)((const char *)header - c->data) + header->length;
    if (at == c->end) return c->next && c->next->count ? header_at(c->next, c->next->begin) + 1 : NULL;
    return header_at(c, at == c->gap ? 0 : at) + 1;
  }
  return NULL;
}

void record_queue_remove(RecordQueue *q) {
  RecordChunk *c = q->first;
  c->begin += header_at(c, c->begin)->length;
  if (c->begin == c->gap) c->begin = c->gap = 0;
  c->count--;
  drop_empty(q);
}

void record_queue_reserve(RecordQueue *q, size_t records, size_t bytes, size_t more) {
  size_t rounding = more ? alignof(max_align_t) : 0, gap = length_of(bytes + more);
  size_t capacity = records * (length_of(bytes) + rounding) + more + gap;
  if (!records || (q->last && q->last->capacity >= capacity)) return;
  append_chunk(q, capacity);
  drop_empty(q);
}

void record_queue_free(RecordQueue *q) {
  for (RecordChunk *c = q->first, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  *q = (RecordQueue){0};
}
