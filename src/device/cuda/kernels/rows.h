// Norms of rows of one dtype, a block a row, as op/layer_norm.c and op/rms_norm.c define them, and sums over rows.
#define X(from, i) WIDEN(((const ELEMENT *)(from))[i])
#define EACH_COLUMN for (int64_t i = THREAD; i < a.width; i += THREADS)

// The row that is to be normalised: x, or x + added, which is stored first. A thread reads what it has stored itself.
INLINE const ELEMENT *NAME(row_of)(const NormArguments *a) {
  const int64_t row = BLOCK * a->width;
  const ELEMENT *x = (const ELEMENT *)a->x + row;
  if (!a->added) return x;
  const ELEMENT *added = (const ELEMENT *)a->added + row;
  ELEMENT *sum = (ELEMENT *)a->sum + row;
  for (int64_t i = THREAD; i < a->width; i += THREADS) sum[i] = NARROW(X(x, i) + X(added, i));
  return sum;
}

KERNEL(NAME(layer_norm), NormArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = NAME(row_of)(&a);
  ELEMENT *y = (ELEMENT *)a.y + BLOCK * a.width;
  REAL mean = 0, squares = 0;
  EACH_COLUMN mean += X(x, i);
  mean = BLOCK_SUM(mean, scratch) / (REAL)a.width;
  EACH_COLUMN squares += (X(x, i) - mean) * (X(x, i) - mean);
  const REAL rstd = 1 / REAL_SQRT(BLOCK_SUM(squares, scratch) / (REAL)a.width + (REAL)a.epsilon);
  EACH_COLUMN {
    const REAL bias = a.bias.data ? ARRAY(a.bias, i) : (REAL)0;
    y[i] = NARROW((X(x, i) - mean) * rstd * ARRAY(a.gain, i) + bias);
  }
  if (THREAD) return;
  PUT(a.mean, BLOCK, mean);
  PUT(a.rstd, BLOCK, rstd);
}

KERNEL(NAME(rms_norm), NormArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = NAME(row_of)(&a);
  ELEMENT *y = (ELEMENT *)a.y + BLOCK * a.width;
  REAL squares = 0;
  EACH_COLUMN squares += X(x, i) * X(x, i);
  const REAL rstd = 1 / REAL_SQRT(BLOCK_SUM(squares, scratch) / (REAL)a.width + (REAL)a.epsilon);
  EACH_COLUMN y[i] = NARROW(X(x, i) * rstd * ARRAY(a.gain, i));
  if (THREAD == 0) PUT(a.rstd, BLOCK, rstd);
}

// dx of both norms; an RMS norm has no mean.
KERNEL(NAME(norm_grad), NormGradArguments) {
  SHARED(REAL, scratch, WARP);
  const int64_t row = BLOCK * a.width;
  const ELEMENT *dy = (const ELEMENT *)a.dy + row, *x = (const ELEMENT *)a.x + row;
  const REAL mean = a.mean.data ? ARRAY(a.mean, BLOCK) : (REAL)0, rstd = ARRAY(a.rstd, BLOCK);
  REAL first = 0, second = 0;
  EACH_COLUMN {
    const REAL d = X(dy, i) * ARRAY(a.gain, i);
    first += d;
    second += d * (X(x, i) - mean) * rstd;
  }
  first = a.mean.data ? BLOCK_SUM(first, scratch) / (REAL)a.width : (REAL)0;
  second = BLOCK_SUM(second, scratch) / (REAL)a.width;
  EACH_COLUMN {
    const REAL d = X(dy, i) * ARRAY(a.gain, i), normal = (X(x, i) - mean) * rstd;
    const REAL added = a.added ? X(a.added, row + i) : (REAL)0;
    ((ELEMENT *)a.dx)[row + i] = NARROW((d - first - normal * second) * rstd + added);
  }
}

// A thread a column, of a chunk of rows.
KERNEL(NAME(columns), ColumnsArguments) {
  const int64_t blocks = (a.width + THREADS - 1) / THREADS, chunk = BLOCK / blocks,
                column = BLOCK % blocks * THREADS + THREAD;
  if (FAULT(kernel_column_past_the_end, column >= a.width, column > a.width)) return;
  const int64_t end = (chunk + 1) * a.each < a.rows ? (chunk + 1) * a.each : a.rows;
  REAL sum = 0, product = 0;
  for (int64_t row = chunk * a.each; row < end; row++) {
    const REAL d = X(a.dy, row * a.width + column);
    sum += d;
    if (!a.x) continue;
    const REAL mean = a.mean.data ? ARRAY(a.mean, row) : (REAL)0;
    product += d * (X(a.x, row * a.width + column) - mean) * ARRAY(a.rstd, row);
  }
  REAL *partial = (REAL *)a.partial + chunk * a.sums * a.width + column;
  partial[0] = a.x ? product : sum;
  if (a.sums > 1) partial[a.width] = sum;
}

KERNEL_OF_MANY(NAME(sum_squares), NAME(sum_squares_many), NAME(sum_squares_piece), SumArguments) {
  SHARED(double, scratch, WARP);
  const int64_t end = (block + 1) * a.each < a.n ? (block + 1) * a.each : a.n;
  double sum = 0;
  (void)blocks;
  for (int64_t i = block * a.each + THREAD; i < end; i += THREADS) {
    const double x = X(a.x, i);
    sum += x * x;
  }
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0 && a.out.data) array_put_double(a.out, 0, sum); // all is in one block
  else if (THREAD == 0) a.partial[block] = sum;
}

#undef X
#undef EACH_COLUMN
