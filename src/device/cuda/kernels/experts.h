// Products of each expert's rows, with sums of one dtype: tiles as those of product.h. Tensor cores (tiles.h) make most
// of those in bf16 and fp16.
enum { NAME(EXPERT_PART) = 4, NAME(EXPERT_SIDE) = TILE / NAME(EXPERT_PART), NAME(EXPERT_PITCH) = TILE + 1 };

INLINE void NAME(load_expert_tile)(REAL *tile, Array x, int64_t from, int64_t first, int64_t rows, int64_t row,
                                   int64_t k, int64_t depth, int64_t step) {
  for (int at = THREAD; at < TILE * TILE_DEPTH; at += THREADS) {
    const int i = step == 1 ? at / TILE_DEPTH : at % TILE, j = step == 1 ? at % TILE_DEPTH : at / TILE;
    const int inside = first + i < rows && k + j < depth;
    tile[j * NAME(EXPERT_PITCH) + i] = inside ? ARRAY(x, from + (first + i) * row + (k + j) * step) : (REAL)0;
  }
}

KERNEL(NAME(grouped), ExpertProductArguments) {
  SHARED(REAL, left, TILE_DEPTH * (TILE + 1));
  SHARED(REAL, right, TILE_DEPTH * (TILE + 1));
  ExpertTile t = {0, 0, 0, 0, 0, 0, 0};
  if (a.by_rows) clear_rows_of_nobody(&a);
  if (!find_expert_tile(&a, TILE, &t)) return;
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
