// What pack.c tries beside first fit.
#pragma once
#include "program/pack.h"

// (items, words) bits: the items that each one meets.
typedef struct PackMeets { uint64_t *bits; size_t words; } PackMeets;
static inline int pack_meets(const PackMeets *m, int a, int b) {
  return m->bits[(size_t)a * m->words + (size_t)b / 64] >> (b % 64) & 1;
}

PackMeets pack_find_meets(const PackProblem *problem); // freed by free(bits)

// Each looks for a packing that ends below `end`, at best at `bound`, with at most about `effort` items looked at.
// Returns the lowest end found, and its offsets, or `end`, and leaves the offsets as they are.
// Tree search from the lowest offset up.
int64_t pack_search(const PackProblem *problem, int64_t bound, int64_t end, int64_t effort, int64_t *offset);
// Insertion, from a packing.
int64_t pack_insert(const PackProblem *problem, const PackMeets *meets, int64_t bound, int64_t end, int64_t effort,
                    int64_t *offset);
