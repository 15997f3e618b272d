// Products with sums of one dtype. A block of BLOCK_THREADS makes a tile of TILE × TILE, a thread PART × PART of it;
// tiles of the operands lie in shared memory. A sum runs over rising k.
enum { NAME(PART) = 4, NAME(SIDE) = TILE / NAME(PART), NAME(PITCH) = TILE + 1 };

// One operand's tile: elements (i, k) from `first` row on, 0 outside of it. Neighbouring threads read neighbours.
INLINE void NAME(load_tile)(REAL *tile, Array x, int64_t first, int64_t rows, int64_t row, int64_t k, int64_t depth,
                            int64_t step) {
  for (int at = THREAD; at < TILE * TILE_DEPTH; at += THREADS) {
    const int i = step == 1 ? at / TILE_DEPTH : at % TILE, j = step == 1 ? at % TILE_DEPTH : at / TILE;
    const int inside = first + i < rows && k + j < FAULT(kernel_depth_past_the_end, depth, depth + 1);
    tile[j * NAME(PITCH) + i] = inside ? ARRAY(x, (first + i) * row + (k + j) * step) : (REAL)0;
  }
}

KERNEL(NAME(product), ProductArguments) {
  SHARED(REAL, left, TILE_DEPTH * (TILE + 1));
  SHARED(REAL, right, TILE_DEPTH * (TILE + 1));
  const int64_t across = (a.columns + TILE - 1) / TILE, top = BLOCK / across * TILE, side = BLOCK % across * TILE;
  const int row = THREAD / NAME(SIDE), column = THREAD % NAME(SIDE);
  REAL sum[NAME(PART)][NAME(PART)] = {{0}};
  for (int64_t k = 0; k < a.depth; k += TILE_DEPTH) {
    NAME(load_tile)(left, a.a, top, a.rows, FAULT(kernel_wrong_leading_dimension, a.a_row, a.a_row + 1), k, a.depth,
                    a.a_depth);
    NAME(load_tile)(right, a.b, side, a.columns, a.b_column, k, a.depth, a.b_depth);
    UNLESS_FAULT(kernel_tile_is_read_early) BARRIER();
    for (int j = 0; j < TILE_DEPTH; j++) {
      REAL x[NAME(PART)], y[NAME(PART)];
      for (int i = 0; i < NAME(PART); i++) {
        x[i] = left[j * NAME(PITCH) + row + i * NAME(SIDE)];
        y[i] = right[j * NAME(PITCH) + column + i * NAME(SIDE)];
      }
      for (int i = 0; i < NAME(PART); i++)
        for (int n = 0; n < NAME(PART); n++) sum[i][n] += x[i] * y[n];
    }
    UNLESS_FAULT(kernel_tile_is_written_early) BARRIER();
  }
  for (int i = 0; i < NAME(PART); i++)
    for (int n = 0; n < NAME(PART); n++) {
      const int64_t r = top + row + i * NAME(SIDE), c = side + column + n * NAME(SIDE);
      if (r >= a.rows || c >= a.columns) continue;
      REAL value = sum[i][n];
      if (a.added.data) value += ARRAY(a.added, r * a.columns + c);
      if (a.bias.data) value += ARRAY(a.bias, c);
      PUT(a.out, r * a.columns + c, value);
    }
}
