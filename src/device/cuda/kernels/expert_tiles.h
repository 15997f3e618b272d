// Which tile of which expert's product a block makes.
#pragma once
#include "device/cuda/kernels/kernel.h"

// a, b, out: from these elements of the operands on; rows, depth: of the expert's product.
typedef struct ExpertTile { int64_t top, side, a, b, out, rows, depth; } ExpertTile;

// As many rows of each expert as it has. All experts are looked at, so that what is read of one need not wait until
// those before it are known.
INLINE int find_rows_of_expert(const ExpertProductArguments *a, int64_t tile, int edge, ExpertTile *t) {
  int64_t first = a->begins[0], before = 0;
  int found = 0;
  UNROLL_BY(8) for (int64_t e = 0; e < a->experts; e++) {
    const int64_t next = a->begins[e + 1], tiles = (next - first + edge - 1) / edge;
    if (tile >= before && tile < before + tiles) {
      found = 1;
      t->rows = next - first;
      t->top = (tile - before) * edge;
      t->a = first * a->a_row;
      t->b = FAULT(kernel_experts_share_a_matrix, e, 0) * a->columns * a->depth;
      t->out = first * a->columns;
    }
    before += tiles;
    first = next;
  }
  t->depth = a->depth;
  return found;
}

// edge: of a tile. 0: there are fewer tiles of rows than blocks for them.
INLINE int find_expert_tile(const ExpertProductArguments *a, int edge, ExpertTile *t) {
  const int64_t across = (a->columns + edge - 1) / edge, tile = BLOCK / across;
  t->side = BLOCK % across * edge;
  if (a->by_rows) return find_rows_of_expert(a, tile, edge, t);
  const int64_t down = (a->rows + edge - 1) / edge, expert = tile / down, first = a->begins[expert];
  t->top = tile % down * edge;
  t->rows = a->rows;
  t->depth = a->begins[expert + 1] - first;
  t->a = first * a->a_depth;
  t->b = first * a->b_depth;
  t->out = expert * a->rows * a->columns;
  return 1;
}

// Rows that no expert has, by all blocks.
INLINE void clear_rows_of_nobody(const ExpertProductArguments *a) {
  const int64_t n = a->rows_there * a->columns;
  for (int64_t i = a->begins[a->experts] * a->columns + BLOCK * THREADS + THREAD; i < n; i += BLOCKS * THREADS)
    array_put_double(a->out, i, 0);
}
