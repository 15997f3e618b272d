// Shards as boxes.
#include "sharding/shard.h"

Shard shard_nowhere(void) { return (Shard){.rank = -1}; }

Shard shard_of(const Mesh *mesh, const Placement *p, const Shape *shape, int rank) {
  Shard s = {.rank = shape->rank};
  if (!placement_here(mesh, p, rank)) return shard_nowhere();
  Placement flat = placement_flat(p, p);
  Shape rows = placement_flat_shape(p, shape);
  for (int d = 0; d < shape->rank; d++) s.map[d] = placement_map(mesh, &flat, d, rows.size[d], rank);
  s.merged = p->merged;
  for (int d = 0; d < p->merged; d++) s.size[d] = shape->size[d];
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

// Indices of the merged dims together that are one row: 1, or where the last dim is merged, too, a part of it.
static int64_t row_length(const Shard *s) { return s->merged == s->rank ? s->map[s->rank - 1].local : 1; }

// Takes the largest box of the merged dims that begins at index `from` of them together and is within the shard's
// range; 0: that has ended. Example: of rows 130 to 400 of (heads 4, head_dim 128) these are 1 × [2, 128), [2, 3) × 128
// and 1 × [0, 16).
static int take_rows(ShardBoxes *b, int64_t from) {
  const Shard *s = &b->shard;
  int64_t length = row_length(s), first = s->map[0].run[0].global * length, end = first + s->map[0].valid * length,
          rest = from, inner = 1; // inner: indices in the dims after d
  if (from >= end) return 0;
  b->row = from;
  for (int d = s->merged - 1, open = 1; d >= 0; d--) { // open: the box has all of the dims after d
    int64_t at = rest % s->size[d], fit = (end - from) / inner, left = s->size[d] - at;
    b->at[d] = 0;
    b->box.offset[d] = at;
    b->box.local[d] = !open ? 1 : left < fit ? left : fit;
    if (open) b->row = from + b->box.local[d] * inner;
    open = open && b->box.local[d] == s->size[d];
    inner *= s->size[d];
    rest /= s->size[d];
  }
  b->at[s->merged - 1] = FAULT(range_of_rows_is_at_its_start, from - first, 0);
  return 1;
}

// The next boxes of the merged dims, each with all runs of the others.
static int take_merged(ShardBoxes *b) {
  int merged = b->shard.merged;
  return merged && take_rows(b, b->begun ? b->row : b->shard.map[0].run[0].global * row_length(&b->shard));
}

int shard_next(ShardBoxes *b) {
  int rank = b->shard.rank, merged = rank < 0 ? 0 : b->shard.merged, d = rank - 1;
  if (rank < 0 || (b->begun && !rank)) return 0;
  if (b->begun) {
    while (d >= merged && !take_from(b, d, b->run[d] + 1)) d--; // the last dims' runs first
    if (merged && d < merged) d = take_merged(b) ? merged - 1 : -1;
    if (d < 0) return 0;
    d++;
  } else {
    if (merged && !take_merged(b)) return b->shard.rank = -1, 0;
    d = merged;
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
    n *= d < shard->merged ? shard->size[d] : shard->map[d].local;
  }
}
