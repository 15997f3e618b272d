// Products with sums of one dtype, without tensor cores (tiles.h has those). A block of BLOCK_THREADS makes a tile of
// TILE × TILE, a thread PART × PART of it; tiles of the operands lie in shared memory. A sum runs over rising k.
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

KERNEL(NAME(trial_fill), TrialArguments) {
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS) {
    uint64_t bits = (a.seed + (uint64_t)i) * 0x9E3779B97F4A7C15u; // splitmix64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    const REAL value = (REAL)((double)(int64_t)(bits >> 11 | 1) / 4503599627370496.0 - 1);
    PUT(a.x, i, a.magnitudes && value < 0 ? -value : value);
  }
}

KERNEL(NAME(trial_compare), TrialArguments) {
  SHARED(double, scratch, WARP);
  double worst = 0;
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS) {
    const double expected = array_double(a.expected, i), off = fabs(array_double(a.x, i) - expected);
    const double most = a.unit * fabs(expected) + a.bound * array_double(a.magnitude, i);
    const double far = off <= 0 ? 0 : off / most;
    worst = far <= worst ? worst : far < (double)INFINITY ? far : (double)INFINITY; // far may be a NaN
  }
  worst = block_max_f64(worst, scratch);
  if (THREAD == 0) a.worst[BLOCK] = worst;
}
