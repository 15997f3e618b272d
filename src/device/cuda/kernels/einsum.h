// An EINSUM with sums of one dtype: a thread an element, or a block an element where these are few and their sums are
// long, or tiles as in products.
INLINE REAL NAME(term)(const EinsumArguments *a, const EinsumPlace *p, int64_t k) {
  EinsumPlace q = *p;
  loops_move(&a->part[EINSUM_SUMS], k, q.at);
  const REAL x = ARRAY(a->a, q.at[0]);
  return a->b.data ? x * ARRAY(a->b, q.at[1]) : x;
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

// A block of BLOCK_THREADS makes a tile of TILE × TILE of one matrix, a thread PART × PART of it.
enum { NAME(PART) = 4, NAME(SIDE) = TILE / NAME(PART), NAME(PITCH) = TILE + 1 };

// Loads (row, k) of a tile whose rows begin at at[], 0 outside of it: a thread has one k and PART rows.
INLINE void NAME(load)(REAL *tile, Array x, const int64_t *at, int64_t rows, int64_t k, int inside) {
  const int row = THREAD / TILE_DEPTH, depth = THREAD % TILE_DEPTH;
  for (int i = 0; i < NAME(PART); i++) {
    const int r = row + i * NAME(SIDE);
    tile[depth * NAME(PITCH) + r] = inside && r < rows ? ARRAY(x, at[r] + k) : (REAL)0;
  }
}

KERNEL_LARGE(NAME(einsum_tiles), EinsumArguments) { // a thread keeps more registers than others do
  SHARED(REAL, left, TILE_DEPTH * (TILE + 1));
  SHARED(REAL, right, TILE_DEPTH * (TILE + 1));
  SHARED(int64_t, place, 4 * TILE); // of rows in a and in the output, of columns in b and in the output
  const int64_t across = (a.part[EINSUM_COLUMNS].all + TILE - 1) / TILE,
                tiles = (a.part[EINSUM_ROWS].all + TILE - 1) / TILE * across;
  const int64_t matrix = BLOCK / tiles, top = BLOCK % tiles / across * TILE, side = BLOCK % across * TILE;
  const int64_t rows = a.part[EINSUM_ROWS].all - top, columns = a.part[EINSUM_COLUMNS].all - side;
  const int row = THREAD / NAME(SIDE), column = THREAD % NAME(SIDE), kind = THREAD / TILE;
  REAL sum[NAME(PART)][NAME(PART)] = {{0}};
  EinsumPlace p = {{0, 0, 0}};
  if (kind < 3) loops_move(&a.part[EINSUM_BOTH], matrix, p.at); // once in the output's
  loops_move(&a.part[kind < 2 ? EINSUM_ROWS : EINSUM_COLUMNS], (kind < 2 ? top : side) + THREAD % TILE, p.at);
  place[THREAD] = kind == 0 ? p.at[0] : kind == 2 ? p.at[1] : p.at[2];
  BARRIER();
  for (int64_t k = 0; k < a.part[EINSUM_SUMS].all; k += TILE_DEPTH) {
    const int64_t mine = k + THREAD % TILE_DEPTH;
    const int inside = mine < a.part[EINSUM_SUMS].all + FAULT(kernel_einsum_past_the_end, 0, 1);
    EinsumPlace q = {{0, 0, 0}};
    loops_move(&a.part[EINSUM_SUMS], mine, q.at);
    NAME(load)(left, a.a, place, rows, q.at[0], inside);
    NAME(load)(right, a.b, place + 2 * TILE, columns, q.at[1], inside);
    BARRIER();
    for (int j = 0; j < TILE_DEPTH; j++)
      for (int i = 0; i < NAME(PART); i++)
        for (int n = 0; n < NAME(PART); n++)
          sum[i][n] += left[j * NAME(PITCH) + row + i * NAME(SIDE)] * right[j * NAME(PITCH) + column + n * NAME(SIDE)];
    BARRIER();
  }
  for (int i = 0; i < NAME(PART); i++)
    for (int n = 0; n < NAME(PART); n++) {
      const int r = row + i * NAME(SIDE), c = column + n * NAME(SIDE);
      if (r < rows && c < columns) PUT(a.out, place[TILE + r] + place[3 * TILE + c], sum[i][n]);
    }
}
