// An EINSUM with sums of one dtype: a thread an element, or a block an element where these are few and their sums are
// long, or tiles as in products.
INLINE REAL NAME(term)(const EinsumArguments *a, const EinsumPlace *p, int64_t k) {
  const EinsumLoops *l = &a->part[EINSUM_SUMS];
  const REAL x = ARRAY(a->a, p->at[0] + loops_at(l, 0, k));
  return a->b.data ? x * ARRAY(a->b, p->at[1] + loops_at(l, 1, k)) : x;
}

KERNEL(NAME(einsum), EinsumArguments) {
  const int64_t n = a.part[EINSUM_BOTH].all * a.part[EINSUM_ROWS].all * a.part[EINSUM_COLUMNS].all;
  for (int64_t i = BLOCK * THREADS + THREAD; i < n; i += BLOCKS * THREADS) {
    const EinsumPlace p = place_of(&a, i);
    REAL sum = 0;
    for (int64_t k = 0; k < a.part[EINSUM_SUMS].all; k++) sum += NAME(term)(&a, &p, k);
    PUT(a.out, p.at[2], sum);
  }
}

KERNEL(NAME(einsum_long), EinsumArguments) {
  SHARED(REAL, scratch, WARP);
  const EinsumPlace p = place_of(&a, BLOCK);
  REAL sum = 0;
  for (int64_t k = THREAD; k < a.part[EINSUM_SUMS].all; k += FAULT(kernel_einsum_of_each_other_term, 1, 2) * THREADS)
    sum += NAME(term)(&a, &p, k);
  sum = BLOCK_SUM(sum, scratch);
  if (THREAD == 0) PUT(a.out, p.at[2], sum);
}

// A block of BLOCK_THREADS makes a tile of TILE × TILE of one matrix, a thread 4 × 4 of it.
enum { NAME(PART) = 4, NAME(SIDE) = TILE / NAME(PART), NAME(PITCH) = TILE + 1 };

// Loads (row, k) of a tile whose rows begin at at[], 0 outside of it: a thread has one k and PART rows.
INLINE void NAME(load)(REAL *tile, Array x, const int64_t *at, int64_t rows, int64_t k, int inside) {
  const int row = THREAD / TILE_DEPTH, depth = THREAD % TILE_DEPTH;
  for (int i = 0; i < NAME(PART); i++)
    tile[depth * NAME(PITCH) + row + i * NAME(SIDE)] =
        inside && row + i * NAME(SIDE) < rows ? ARRAY(x, at[i] + k) : (REAL)0;
}

KERNEL(NAME(einsum_tiles), EinsumArguments) {
  SHARED(REAL, left, TILE_DEPTH * (TILE + 1));
  SHARED(REAL, right, TILE_DEPTH * (TILE + 1));
  const EinsumLoops *both = &a.part[EINSUM_BOTH], *rows = &a.part[EINSUM_ROWS], *columns = &a.part[EINSUM_COLUMNS],
                    *sums = &a.part[EINSUM_SUMS];
  const int64_t across = (columns->all + TILE - 1) / TILE, tiles = (rows->all + TILE - 1) / TILE * across;
  const int64_t matrix = BLOCK / tiles, top = BLOCK % tiles / across * TILE, side = BLOCK % across * TILE;
  const int64_t x = loops_at(both, 0, matrix), y = loops_at(both, 1, matrix);
  const int row = THREAD / NAME(SIDE), column = THREAD % NAME(SIDE);
  int64_t of_row[NAME(PART)], of_column[NAME(PART)];
  REAL sum[NAME(PART)][NAME(PART)] = {{0}};
  for (int i = 0; i < NAME(PART); i++) {
    of_row[i] = x + loops_at(rows, 0, top + THREAD / TILE_DEPTH + i * NAME(SIDE));
    of_column[i] = y + loops_at(columns, 1, side + THREAD / TILE_DEPTH + i * NAME(SIDE));
  }
  for (int64_t k = 0; k < sums->all; k += TILE_DEPTH) {
    const int64_t mine = k + THREAD % TILE_DEPTH;
    const int inside = mine < FAULT(kernel_einsum_past_the_end, sums->all, sums->all + 1);
    NAME(load)(left, a.a, of_row, rows->all - top, loops_at(sums, 0, mine), inside);
    NAME(load)(right, a.b, of_column, columns->all - side, loops_at(sums, 1, mine), inside);
    BARRIER();
    for (int j = 0; j < TILE_DEPTH; j++)
      for (int i = 0; i < NAME(PART); i++)
        for (int n = 0; n < NAME(PART); n++)
          sum[i][n] += left[j * NAME(PITCH) + row + i * NAME(SIDE)] * right[j * NAME(PITCH) + column + n * NAME(SIDE)];
    BARRIER();
  }
  for (int i = 0; i < NAME(PART); i++)
    for (int n = 0; n < NAME(PART); n++) {
      const int64_t r = top + row + i * NAME(SIDE), c = side + column + n * NAME(SIDE);
      if (r < rows->all && c < columns->all)
        PUT(a.out, loops_at(both, 2, matrix) + loops_at(rows, 2, r) + loops_at(columns, 2, c), sum[i][n]);
    }
}
