// Which tile of which expert's product a block makes.
#pragma once
#include "device/cuda/kernels/kernel.h"

// a, b, out: from these elements of the operands on; rows, depth: of the expert's product.
typedef struct ExpertTile { int64_t top, side, a, b, out, rows, depth; } ExpertTile;

// As many rows of each expert as it has. All experts are looked at, so that what is read of one need not wait until
// those before it are known.
INLINE int find_rows_of_expert(const ExpertProductArguments *a, int tile, int edge, ExpertTile *t) {
  int64_t first = a->begins[0], top = 0;
  int expert = -1, before = 0;
  UNROLL_BY(4) for (int e = 0; e < (int)a->experts; e++) {
    const int64_t next = a->begins[e + 1];
    const int tiles = (int)((next - first + edge - 1) / edge);
    if (tile >= before && tile < before + tiles) {
      expert = e;
      top = (tile - before) * (int64_t)edge;
    }
    before += tiles;
    first = next;
  }
  if (expert < 0) return 0;
  first = a->begins[expert];
  t->top = top;
  t->rows = a->begins[expert + 1] - first;
  t->depth = a->depth;
  t->a = first * a->a_row;
  t->b = FAULT(kernel_experts_share_a_matrix, expert, 0) * a->columns * a->depth;
  t->out = first * a->columns;
  return 1;
}

// edge: of a tile. 0: there are fewer tiles of rows than blocks for them.
INLINE int find_expert_tile(const ExpertProductArguments *a, int edge, ExpertTile *t) {
  const int64_t across = (a->columns + edge - 1) / edge, tile = BLOCK / across;
  t->side = BLOCK % across * edge;
  if (a->by_rows) return find_rows_of_expert(a, (int)tile, edge, t);
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
