// Products of few rows by a matrix whose depth is contiguous, as those of a decode step. B is read once, so it is not
// packed: a few lines of it are transposed in registers, and each row meets them there. Written for ELEMENT in memory,
// ROW of the rows, and REAL in registers.
//
// An element of C is what the register tiles of gemm.h and bf16_tile.h make it: a chain of fused products over k from 0
// in each block of the depth. So the number of rows decides nothing but the speed.

enum {
  TYPED(FEW_MOST) = 8,                             // rows; with more, packing B once is faster
  TYPED(FEW_VECTORS) = 4,                          // of a strip's columns: as many chains for a row
  TYPED(FEW_COLUMNS) = TYPED(FEW_VECTORS) * WIDTH, // of a strip, which is two panels wide
  TYPED(FEW_DEPTH) = 8,                            // of k at a time
  TYPED(FEW_TOGETHER) = 4,                         // rows whose sums are in registers beside the lines
  TYPED(FEW_LINE) = 64 / (int)sizeof(ELEMENT)      // of k: a line of a cache
};

// One block of the depth of one strip of columns.
typedef struct TYPED(FewRows) {
  int64_t rows, depth;
  const ROW *a;
  int64_t a_row;
  const ELEMENT *b; // (columns, depth)
  int64_t b_column, columns;
  int fetch;        // the strip that follows in memory is whole, and read next
} TYPED(FewRows);

// FEW_DEPTH of k of as many columns as a vector holds.
INLINE void TYPED(few_lines)(V line[TYPED(FEW_DEPTH)], const ELEMENT *b, int64_t column) {
#ifdef FEW_PAIRS // two neighbours of a column are moved as one number of 32 bits, and parted afterwards
  V pair[TYPED(FEW_DEPTH) / 2];
  transpose_four(pair, b, column * (int64_t)sizeof *b);
  UNROLL for (int i = 0; i < TYPED(FEW_DEPTH) / 2; i++) {
    line[2 * i] = (V)((MATH(Bits))pair[i] << 16);
    line[2 * i + 1] = (V)((MATH(Bits))pair[i] & 0xffff0000u);
  }
#elif BITS == 32
  transpose_four(line, b, column * (int64_t)sizeof *b);
  transpose_four(line + 4, b + 4, column * (int64_t)sizeof *b);
#else
  for (int i = 0; i < TYPED(FEW_DEPTH); i++) {
    REAL x[WIDTH];
    for (int j = 0; j < WIDTH; j++) x[j] = b[j * column + i];
    line[i] = TYPED(load)(x);
  }
#endif
}

// The same of `depth` of k, and of `columns`; zeroes past them.
static void TYPED(few_edge)(V line[TYPED(FEW_DEPTH)], const ELEMENT *b, int64_t column, int64_t depth,
                            int64_t columns) {
  if (columns > WIDTH) columns = WIDTH;
  columns += FAULT(few_rows_skip_a_column, 0, -1);
  for (int64_t i = 0; i < depth; i++) {
    REAL x[WIDTH] = {0};
    for (int64_t j = 0; j < columns; j++) x[j] = TYPED(widen)(b[j * column + i]);
    line[i] = MATH(load)(x);
  }
}

// `rows` (a constant) rows of x (rows, FEW_DEPTH) by the lines: sums of a vector of columns, FEW_VECTORS apart,
// continue. Chains of several rows advance together, so that none waits for its last product alone.
INLINE void TYPED(few_chains)(V *sum, const REAL *x, const V *line, int rows) {
  V t[TYPED(FEW_TOGETHER)];
  UNROLL for (int r = 0; r < rows; r++) t[r] = sum[r * TYPED(FEW_VECTORS)];
  UNROLL for (int i = 0; i < TYPED(FEW_DEPTH); i++)
    UNROLL for (int r = 0; r < rows; r++)
      t[r] = MATH(fma)(MATH(splat)(x[r * TYPED(FEW_DEPTH) + i]), line[i], t[r]);
  UNROLL for (int r = 0; r < rows; r++) sum[r * TYPED(FEW_VECTORS)] = t[r];
}

// The strip that is read next is fetched meanwhile in the order of its addresses, as much as is read: the lines of a
// strip are read column by column, which memory itself would give much slower.
typedef struct TYPED(FewAhead) { const ELEMENT *at; int64_t k; } TYPED(FewAhead);
INLINE void TYPED(few_fetch)(TYPED(FewAhead) *ahead, const TYPED(FewRows) *q) {
  if (!q->fetch) return;
  UNROLL for (int i = 0; i < TYPED(FEW_DEPTH) * WIDTH / TYPED(FEW_LINE); i++) {
    __builtin_prefetch(ahead->at + ahead->k, 0, 2);
    ahead->k += TYPED(FEW_LINE);
    if (ahead->k >= q->depth) ahead->k = 0, ahead->at += q->b_column;
  }
}

// FEW_DEPTH of k for all columns of a strip, which lie at b, `column` apart; `rows` is a constant where it is 1.
INLINE void TYPED(few_step)(V *sum, const TYPED(FewRows) *q, TYPED(FewAhead) *ahead, int64_t k, const ELEMENT *b,
                            int64_t column, int64_t rows) {
  REAL x[TYPED(FEW_MOST) * TYPED(FEW_DEPTH)];
  for (int64_t r = 0; r < rows; r++)
    UNROLL for (int i = 0; i < TYPED(FEW_DEPTH); i++)
      x[r * TYPED(FEW_DEPTH) + i] = WIDEN_ROW(q->a[r * q->a_row + k + i]);
  for (int v = 0; v < TYPED(FEW_VECTORS); v++, b += WIDTH * column) {
    V line[TYPED(FEW_DEPTH)];
    int64_t left = q->columns - v * WIDTH, r = 0;
    if (left <= 0) break;
    TYPED(few_fetch)(ahead, q);
    if (left >= WIDTH) TYPED(few_lines)(line, b, column);
    else TYPED(few_edge)(line, b, column, TYPED(FEW_DEPTH), left);
    for (; r + TYPED(FEW_TOGETHER) <= rows; r += TYPED(FEW_TOGETHER))
      TYPED(few_chains)(sum + v + r * TYPED(FEW_VECTORS), x + r * TYPED(FEW_DEPTH), line, TYPED(FEW_TOGETHER));
    for (; r + 2 <= rows; r += 2)
      TYPED(few_chains)(sum + v + r * TYPED(FEW_VECTORS), x + r * TYPED(FEW_DEPTH), line, 2);
    for (; r < rows; r++) TYPED(few_chains)(sum + v + r * TYPED(FEW_VECTORS), x + r * TYPED(FEW_DEPTH), line, 1);
  }
}
INLINE void TYPED(few_steps)(V *sum, const TYPED(FewRows) *q, TYPED(FewAhead) *ahead, int64_t k, int64_t end,
                             const ELEMENT *b, int64_t column) {
  for (; k < end; k += TYPED(FEW_DEPTH), b += TYPED(FEW_DEPTH)) {
    if (q->rows == 1) TYPED(few_step)(sum, q, ahead, k, b, column, 1);
    else TYPED(few_step)(sum, q, ahead, k, b, column, q->rows);
  }
}

// Columns of B whose distance is a multiple of 2048 B lie in two sets of a first-level cache, and push each other out
// before their lines are read to the end. A line of each of them is copied at a time. The sums are the same.
INLINE int TYPED(few_collide)(const TYPED(FewRows) *q) { return q->b_column * (int64_t)sizeof(ELEMENT) % 2048 == 0; }
static int64_t TYPED(few_copied)(V *sum, const TYPED(FewRows) *q, TYPED(FewAhead) *ahead) {
  ELEMENT lines[TYPED(FEW_COLUMNS) * TYPED(FEW_LINE)] __attribute__((aligned(64)));
  int64_t k = 0;
  for (; k + TYPED(FEW_LINE) <= q->depth; k += TYPED(FEW_LINE)) {
    for (int64_t j = 0; j < q->columns; j++)
      memcpy(lines + j * TYPED(FEW_LINE), q->b + j * q->b_column + FAULT(few_rows_copy_the_first_line, k, 0),
             sizeof *lines * TYPED(FEW_LINE));
    TYPED(few_steps)(sum, q, ahead, k, k + TYPED(FEW_LINE), lines, TYPED(FEW_LINE));
  }
  return k;
}

// The rest of k.
static void TYPED(few_rest)(V *sum, const TYPED(FewRows) *q, int64_t k) {
  for (int v = 0; v * WIDTH < q->columns; v++) {
    V line[TYPED(FEW_DEPTH)];
    int64_t left = q->columns - v * WIDTH, depth = q->depth - k;
    TYPED(few_edge)(line, q->b + v * WIDTH * q->b_column + k, q->b_column, depth, left);
    for (int64_t r = 0; r < q->rows; r++)
      for (int64_t i = 0; i < depth; i++)
        sum[r * TYPED(FEW_VECTORS) + v] = MATH(fma)(MATH(splat)(WIDEN_ROW(q->a[r * q->a_row + k + i])), line[i],
                                                    sum[r * TYPED(FEW_VECTORS) + v]);
  }
}

// Sums (rows, FEW_COLUMNS) over the block, from 0.
static void TYPED(few_rows)(const TYPED(FewRows) *q, REAL *sums) {
  V sum[TYPED(FEW_MOST) * TYPED(FEW_VECTORS)];
  TYPED(FewAhead) ahead = {.at = q->b + TYPED(FEW_COLUMNS) * q->b_column};
  int64_t k = 0, whole = q->depth / TYPED(FEW_DEPTH) * TYPED(FEW_DEPTH);
  for (int64_t i = 0; i < q->rows * TYPED(FEW_VECTORS); i++) sum[i] = (V){0};
  if (TYPED(few_collide)(q)) k = TYPED(few_copied)(sum, q, &ahead);
  TYPED(few_steps)(sum, q, &ahead, k, whole, q->b + k, q->b_column);
  k = whole;
  if (k < q->depth) TYPED(few_rest)(sum, q, k);
  for (int64_t i = 0; i < q->rows * TYPED(FEW_VECTORS); i++) MATH(store)(sums + i * WIDTH, sum[i]);
}

// Strips of a unit, of which threads take one after the other.
INLINE int64_t TYPED(few_unit_strips)(int64_t strips, Team *team) {
  int64_t units = 8 * team_size(team), each = strips / units;
  return each < 1 ? 1 : each;
}
