// The list of what each block of a model computes again in backward: by blocks, and by segments of blocks.
//
// As text: "full x 4, (keep, selective) x 3, keep". Elements are separated by commas; "x N" repeats one.
//   keep, selective, full   a block: it keeps all that backward reads; it computes again what is cheap beside products
//                           and attention; it keeps its input only
//   (…)                     a segment: only the input of its first block is kept, and all of its blocks run again
//                           right before the backward of the last. They then keep as the list inside says; a segment
//                           inside runs again once more. (keep) is full.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { RECOMPUTE_BLOCKS = 1024, RECOMPUTE_SEGMENTS = 1024, RECOMPUTE_DEPTH = 16 };

typedef struct RecomputeSegment { int first, end; } RecomputeSegment; // blocks first … end − 1

typedef struct RecomputeList {
  int blocks;                        // 0: nothing runs again
  bool selective[RECOMPUTE_BLOCKS];  // (blocks)
  int segments;
  RecomputeSegment segment[RECOMPUTE_SEGMENTS]; // the outer one before those inside it; a full block is a separate one
} RecomputeList;

// Reads a list. blocks > 0: of a model with that many blocks: a list for fewer blocks begins again from its start, cut
// off at the last block. 0: those that are written. PLAIT_BAD_INPUT: a sentence without a subject, "has 13 blocks, but
// …".
int recompute_list_parse(const char *text, int blocks, RecomputeList *out, Error *error);

// The same text with one space after commas and around x; the caller frees it. text: one that recompute_list_parse
// takes.
char *recompute_list_normal(const char *text);

// The list as text, with repetitions; the caller frees it.
char *recompute_list_text(const RecomputeList *list);
