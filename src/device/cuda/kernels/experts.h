// Products of each expert's rows, with sums of one dtype: tiles as those of product.h.
enum { NAME(EXPERT_PART) = 4, NAME(EXPERT_SIDE) = TILE / NAME(EXPERT_PART), NAME(EXPERT_PITCH) = TILE + 1 };

INLINE void NAME(load_expert_tile)(REAL *tile, Array x, int64_t from, int64_t first, int64_t rows, int64_t row,
                                   int64_t k, int64_t depth, int64_t step) {
  for (int at = THREAD; at < TILE * TILE_DEPTH; at += THREADS) {
    const int i = step == 1 ? at / TILE_DEPTH : at % TILE, j = step == 1 ? at % TILE_DEPTH : at / TILE;
    const int inside = first + i < rows && k + j < depth;
    tile[j * NAME(EXPERT_PITCH) + i] = inside ? ARRAY(x, from + (first + i) * row + (k + j) * step) : (REAL)0;
  }
}

// The product of a block: of an expert, from these elements of the operands on.
typedef struct NAME(ExpertTile) {
  int64_t expert, top, side, a, b, out, rows, depth;
} NAME(ExpertTile);

// 0: there are fewer tiles of rows than blocks for them.
INLINE int NAME(find_tile)(const ExpertProductArguments *a, NAME(ExpertTile) *t) {
  const int64_t across = (a->columns + TILE - 1) / TILE;
  int64_t tile = BLOCK / across;
  t->side = BLOCK % across * TILE;
  if (a->by_rows) { // as many rows of each expert as it has
    int64_t first = a->begins[0];
    for (t->expert = 0; t->expert < a->experts; t->expert++) {
      const int64_t next = a->begins[t->expert + 1], tiles = (next - first + TILE - 1) / TILE;
      t->rows = next - first;
      t->top = tile * TILE;
      if (tile < tiles) break;
      tile -= tiles;
      first = next;
    }
    if (t->expert == a->experts) return 0;
    t->depth = a->depth;
    t->a = first * a->a_row;
    t->b = FAULT(kernel_experts_share_a_matrix, t->expert, 0) * a->columns * a->depth;
    t->out = first * a->columns;
    return 1;
  }
  const int64_t down = (a->rows + TILE - 1) / TILE, first = a->begins[tile / down];
  t->expert = tile / down;
  t->top = tile % down * TILE;
  t->rows = a->rows;
  t->depth = a->begins[t->expert + 1] - first;
  t->a = first * a->a_depth;
  t->b = first * a->b_depth;
  t->out = t->expert * a->rows * a->columns;
  return 1;
}

// Rows that no expert has, by all blocks.
INLINE void NAME(clear_rows)(const ExpertProductArguments *a) {
  const int64_t n = a->rows_there * a->columns;
  for (int64_t i = a->begins[a->experts] * a->columns + BLOCK * THREADS + THREAD; i < n; i += BLOCKS * THREADS)
    PUT(a->out, i, (REAL)0);
}

KERNEL(NAME(grouped), ExpertProductArguments) {
  SHARED(REAL, left, TILE_DEPTH * (TILE + 1));
  SHARED(REAL, right, TILE_DEPTH * (TILE + 1));
  NAME(ExpertTile) t = {0};
  if (a.by_rows) NAME(clear_rows)(&a);
  if (!NAME(find_tile)(&a, &t)) return;
  const int row = THREAD / NAME(EXPERT_SIDE), column = THREAD % NAME(EXPERT_SIDE);
  REAL sum[NAME(EXPERT_PART)][NAME(EXPERT_PART)] = {{0}};
  for (int64_t k = 0; k < t.depth; k += TILE_DEPTH) {
    NAME(load_expert_tile)(left, a.a, t.a, t.top, t.rows, a.a_row, k, t.depth, a.a_depth);
    NAME(load_expert_tile)(right, a.b, t.b, t.side, a.columns, a.b_column, k, t.depth, a.b_depth);
    BARRIER();
    for (int j = 0; j < TILE_DEPTH; j++)
      for (int i = 0; i < NAME(EXPERT_PART); i++)
        for (int n = 0; n < NAME(EXPERT_PART); n++)
          sum[i][n] += left[j * NAME(EXPERT_PITCH) + row + i * NAME(EXPERT_SIDE)] *
                       right[j * NAME(EXPERT_PITCH) + column + n * NAME(EXPERT_SIDE)];
    BARRIER();
  }
  for (int i = 0; i < NAME(EXPERT_PART); i++)
    for (int n = 0; n < NAME(EXPERT_PART); n++) {
      const int64_t r = t.top + row + i * NAME(EXPERT_SIDE), c = t.side + column + n * NAME(EXPERT_SIDE);
      if (r >= t.rows || c >= a.columns) continue;
      const int64_t at = t.out + r * a.columns + c;
      PUT(a.out, at, (a.added.data ? ARRAY(a.added, at) : (REAL)0) + sum[i][n]);
    }
}
