// Packing: items that are needed at certain times get offsets so that those needed at the same time lie apart, and the
// end of all is as low as can be found. It knows nothing of Programs. Dynamic storage allocation is NP-hard; this takes
// several orders of first fit, by size and duration, and where none is low enough others of random priorities. Then
// come a tree search of what is needed when much is, from the lowest offset up (pack_search.c, as in TelaMalloc, Maas
// et al., 2022, and MiniMalloc, Moffitt, 2023), guided ejection search, in which what does not fit ejects what is in
// the way (pack_ejection.c, Nagata and Bräysy, 2009), and first fit with what lies too high moved forward. With more
// than PACK_EFFORT there is a tree search that jumps back to what a failure depends on, too (pack_jumps.c, Prosser,
// 1993). Counts bound what it tries, never a clock, and random numbers come from fixed seeds: the same problem has the
// same answer everywhere.
#pragma once
#include "base/vec.h"
#include <stdint.h>

typedef struct PackTime { int lower, upper; } PackTime; // half-open

typedef struct PackItem {
  int64_t size;     // above 0
  int64_t offset;   // result
  int first, count; // its times: of PackProblem.time, rising, not touching one another; 0: it is never needed
  // Where ranks have different items: those of two owners of one set never meet. 0: every rank has it.
  uint32_t owners;
  int owner;
} PackItem;

typedef struct PackProblem {
  Vec(PackItem) item;
  Vec(PackTime) time;
  // Whether two items that both have owners are on no rank together; NULL: where the sets are equal and the owners
  // differ.
  int (*apart)(const void *context, const PackItem *a, const PackItem *b);
  const void *context;
  int64_t enough;   // packing stops at an end of at most this, or at the bound
  uint64_t shuffle; // above 0: one random order is taken instead (tests: any order must do)
} PackProblem;

// How much is tried until the bound is reached, in items that are looked at: about 2.5 ns each on an Emerald Rapids,
// whatever is tried. 0: the first order alone. PACK_EFFORT is for tests and benches; plans take less (lives.c). With
// more, jumps may take half of what is above it in addition.
enum { PACK_EFFORT = 50 * 1000 * 1000 };

// Fills the offsets, multiples of what all sizes are multiples of. Returns the end of the highest item that is needed.
int64_t pack(PackProblem *problem, int64_t effort);
// No packing ends lower: the greatest sum of sizes that are needed at one time (on one rank; of items that have owners
// only those of the owner with the most count, though a rank may own in several sets). at (may be NULL) gets the first
// such time.
int64_t pack_bound(const PackProblem *problem, int *at);
int pack_meet(const PackProblem *problem, const PackItem *a, const PackItem *b); // needed at the same time on one rank?
void pack_free(PackProblem *problem);
