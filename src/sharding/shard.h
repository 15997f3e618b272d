// One rank's part of a tensor, as boxes of global indices, and where each box lies in the rank's memory. A dim may be
// held in several runs (zigzag: the first and the last part of a sequence), so a shard may be several boxes; so may a
// range of rows (Placement.rows), which begins and ends within other dims. Padding is in none of them.
//
// Checkpoints, gathers, the desync check and initialisation go through these boxes; nobody else takes IndexMaps
// apart.
#pragma once
#include "base/box.h"
#include "sharding/placement.h"

typedef struct Shard {
  int rank;               // dims of the tensor; -1: nothing of it lives here
  IndexMap map[MAX_RANK]; // of each dim; where dims are merged, of those of placement_flat_shape
  int merged;             // the first dims, of which it has a range of rows; 0: none
  int64_t size[MAX_RANK]; // of the merged dims
} Shard;

Shard shard_of(const Mesh *mesh, const Placement *placement, const Shape *shape, int rank);
Shard shard_nowhere(void);

// Goes through a shard: ShardBoxes b = {.shard = …}; while (shard_next(&b)) …
typedef struct ShardBoxes {
  Shard shard;
  Box box;             // global indices; never empty
  int64_t at[MAX_RANK]; // local index of the box's first element; of merged dims only the last is not 0, and counts all
  int run[MAX_RANK], begun;
  int64_t row; // of the merged dims: the index after the box
} ShardBoxes;
int shard_next(ShardBoxes *boxes); // 0: that was the last one
int shard_find(ShardBoxes *boxes, const Box *part); // advances to the box in which `part` lies; 0: there is none
// Elements between neighbours of each dim in the rank's memory, padding among them: element `index` of a box lies at
// Σ (at[d] + index[d] − box.offset[d]) · stride[d].
void shard_strides(const Shard *shard, int64_t *stride);
