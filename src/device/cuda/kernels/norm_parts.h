// Parts of norms of one dtype, a block a row, as op/norm_parts.c defines them.
#define X(from, i) WIDEN(((const ELEMENT *)(from))[BLOCK * a.width + (i)])
#define EACH_COLUMN for (int64_t i = THREAD; i < a.width; i += THREADS)

KERNEL(NAME(norm_sum), NormPartArguments) {
  SHARED(REAL, scratch, WARP);
  const REAL mean = a.sum.data ? ARRAY(a.sum, BLOCK) / (REAL)FAULT(kernel_norm_of_a_part, a.whole, a.width) : (REAL)0;
  REAL total = 0;
  EACH_COLUMN {
    const REAL x = X(a.x, i) - mean;
    total += a.squared ? x * x : x;
  }
  total = BLOCK_SUM(total, scratch);
  if (THREAD == 0) PUT(a.out, BLOCK, total);
}

KERNEL(NAME(norm_apply), NormPartArguments) {
  const REAL mean = a.sum.data ? ARRAY(a.sum, BLOCK) / (REAL)a.whole : (REAL)0;
  const REAL rstd = 1 / REAL_SQRT(ARRAY(a.squares, BLOCK) / (REAL)a.whole + (REAL)a.epsilon);
  EACH_COLUMN {
    const REAL bias = a.bias.data ? ARRAY(a.bias, i) : (REAL)0;
    ((ELEMENT *)a.y)[BLOCK * a.width + i] = NARROW((X(a.x, i) - mean) * rstd * ARRAY(a.gain, i) + bias);
  }
  if (THREAD) return;
  if (a.sum.data) PUT(a.mean, BLOCK, mean);
  PUT(a.rstd, BLOCK, rstd);
}

KERNEL(NAME(norm_grad_sums), NormPartArguments) {
  SHARED(REAL, scratch, WARP);
  const REAL mean = a.mean.data ? ARRAY(a.mean, BLOCK) : (REAL)0, rstd = ARRAY(a.rstd, BLOCK);
  const int64_t values = a.mean.data ? 2 : 1;
  REAL first = 0, second = 0;
  EACH_COLUMN {
    const REAL d = X(a.dy, i) * ARRAY(a.gain, i);
    first += d;
    second += d * (X(a.x, i) - mean) * rstd;
  }
  first = BLOCK_SUM(first, scratch);
  second = BLOCK_SUM(second, scratch);
  if (THREAD) return;
  PUT(a.out, BLOCK * values, second);
  if (a.mean.data) PUT(a.out, BLOCK * values + 1, first);
}

KERNEL(NAME(norm_grad_apply), NormPartArguments) {
  const REAL mean = a.mean.data ? ARRAY(a.mean, BLOCK) : (REAL)0, rstd = ARRAY(a.rstd, BLOCK);
  const int64_t values = a.mean.data ? 2 : 1;
  const REAL second = ARRAY(a.sum, BLOCK * values) / (REAL)a.whole;
  const REAL first = a.mean.data ? ARRAY(a.sum, BLOCK * values + 1) / (REAL)a.whole : (REAL)0;
  EACH_COLUMN {
    const REAL d = X(a.dy, i) * ARRAY(a.gain, i), normal = (X(a.x, i) - mean) * rstd;
    ((ELEMENT *)a.y)[BLOCK * a.width + i] = NARROW((d - first - normal * second) * rstd);
  }
}

#undef X
#undef EACH_COLUMN
