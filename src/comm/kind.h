// The kinds of communication calls.
#pragma once
#include "plait/comm.h"

typedef enum CommKind {
#define CALL(id, ...) COMM_##id,
#include "comm/calls.def"
#undef CALL
  COMM_KIND_COUNT
} CommKind;

typedef struct CommTraits {
  const char *name;
  int reduces, rooted, root_sends, root_receives, send_parts, recv_parts; // as in calls.def
} CommTraits;
extern const CommTraits comm_traits[COMM_KIND_COUNT];

// By `distance` places from `rank`, or back where that is negative, around a ring of n ranks.
static inline int comm_around(int rank, int distance, int n) { return (int)((((long)rank + distance) % n + n) % n); }

size_t comm_dtype_size(PlaitDtype dtype);
// Bytes of an element of a reduction's accumulator, in which what is not rounded yet can travel.
size_t comm_wide_size(PlaitDtype dtype);
