// Shards as boxes.
#include "sharding/shard.h"

Shard shard_nowhere(void) { return (Shard){.rank = -1}; }

Shard shard_of(const Mesh *mesh, const Placement *p, const Shape *shape, int rank) {
  Shard s = {.rank = shape->rank};
  if (!placement_here(mesh, p, rank)) return shard_nowhere();
  for (int d = 0; d < shape->rank; d++) s.map[d] = placement_map(mesh, p, d, shape->size[d], rank);
  return s;
}

// Takes run `run` of a dim into the box; 0: it is empty, or there is none.
static int take_run(ShardBoxes *b, int d, int run) {
  const IndexMap *m = &b->shard.map[d];
  int64_t end = run + 1 < m->runs ? m->run[run + 1].local : m->valid;
  if (run >= m->runs) return 0;
  b->run[d] = run;
  b->at[d] = m->run[run].local;
  b->box.offset[d] = m->run[run].global;
  b->box.local[d] = (end < m->valid ? end : m->valid) - b->at[d];
  return b->box.local[d] > 0;
}

// The dim's first run from `run` on that is not empty; 0: none.
static int take_from(ShardBoxes *b, int d, int run) {
  for (; run < b->shard.map[d].runs; run++)
    if (take_run(b, d, run)) return 1;
  return 0;
}

int shard_next(ShardBoxes *b) {
  int rank = b->shard.rank, d = rank - 1;
  if (rank < 0 || (b->begun && !rank)) return 0;
  if (b->begun) {
    while (d >= 0 && !take_from(b, d, b->run[d] + 1)) d--; // the last dims' runs first
    if (d < 0) return 0;
    d++;
  } else {
    d = 0;
  }
  b->begun = 1;
  b->box.rank = rank;
  for (; d < rank; d++)
    if (!take_from(b, d, 0)) return b->shard.rank = -1, 0; // it holds nothing
  return 1;
}

static int contains(const Box *box, const Box *part) {
  int inside = box->rank == part->rank;
  for (int d = 0; d < part->rank && inside; d++)
    inside = part->offset[d] >= box->offset[d] && part->offset[d] + part->local[d] <= box->offset[d] + box->local[d];
  return inside;
}

int shard_find(ShardBoxes *b, const Box *part) {
  while (shard_next(b))
    if (contains(&b->box, part)) return 1;
  return 0;
}

void shard_strides(const Shard *shard, int64_t *stride) {
  int64_t n = 1;
  for (int d = shard->rank - 1; d >= 0; d--) {
    stride[d] = n;
    n *= shard->map[d].local;
  }
}
