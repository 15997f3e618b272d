// Which dataset sample i of a weighted blend comes from, and its number within that dataset; no table.
//
// The unit interval is cut into one stretch per dataset, as long as its weight. Sample i stands at the i-th point of
// the van der Corput sequence (the bits of i mirrored at the binary point; van der Corput, 1935), shifted digit by
// digit with a key from the seed. Of the first n points, each stretch gets its share to within log2(n) + 2 for every n,
// and how many of them fell into [0, x) is summed up over the set bits of n. So weights are followed over any prefix,
// and each dataset is walked in its own order, epoch after epoch. Weights are rounded to multiples of 2^-32 of their
// sum; after 2^32 samples the counts are these multiples exactly.
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct Blend {
  int count;
  uint64_t *begin; // (count + 1) begins of the stretches in units of 2^-32; begin[count] = 2^32
  uint32_t shift;
} Blend;

// Weights need not sum to 1; each must be finite and positive, and at least 2^-32 of the sum, else PLAIT_BAD_INPUT.
int blend_create(Blend *blend, const double *weights, int count, uint64_t seed, Error *error);
void blend_destroy(Blend *blend);

// Sample i >= 0 of the blend is sample *index of dataset *dataset. O(log datasets + 32).
void blend_pick(const Blend *blend, int64_t i, int *dataset, int64_t *index);

// How many of the first n samples come from the dataset.
int64_t blend_count(const Blend *blend, int dataset, int64_t n);
