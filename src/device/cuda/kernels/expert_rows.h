// Rows of experts of one dtype, as op/dispatch.c defines them.

// A block a token and expert, and a row that no token has.
KERNEL(NAME(dispatch), ExpertArguments) {
  const int64_t row = a.index[BLOCK], token = BLOCK / a.experts;
  UNLESS_FAULT(kernel_rows_of_nobody_stay) if (BLOCK >= a.begins[a.experts] && BLOCK < a.rows_there)
    for (int64_t i = THREAD; i < a.width; i += THREADS) ((ELEMENT *)a.y)[BLOCK * a.width + i] = NARROW((REAL)0);
  if (row < 0) return;
  const REAL weight = a.weights.data ? ARRAY(a.weights, BLOCK) : (REAL)1;
  for (int64_t i = THREAD; i < a.width; i += THREADS)
    ((ELEMENT *)a.y)[row * a.width + i] = NARROW(weight * WIDEN(((const ELEMENT *)a.x)[token * a.width + i]));
}

// A block a token; experts in rising order.
KERNEL(NAME(combine), ExpertArguments) {
  for (int64_t i = THREAD; i < a.width; i += THREADS) {
    REAL sum = 0;
    for (int64_t e = 0; e < a.experts; e++) {
      const int64_t at = BLOCK * a.experts + e, row = a.index[at];
      if (row < 0) continue;
      const REAL weight = a.weights.data ? ARRAY(a.weights, at) : (REAL)1;
      sum += weight * WIDEN(((const ELEMENT *)a.x)[row * a.width + i]);
    }
    ((ELEMENT *)a.y)[BLOCK * a.width + i] = NARROW(sum);
  }
}

// x: the gradient of what combine gave; rows: what it read; weights: their gradient. A block a token and expert.
KERNEL(NAME(combine_grad), ExpertArguments) {
  SHARED(REAL, scratch, WARP);
  const int64_t row = a.index[BLOCK], token = BLOCK / a.experts;
  REAL dot = 0;
  for (int64_t i = THREAD; i < a.width && row >= 0; i += THREADS)
    dot += WIDEN(((const ELEMENT *)a.x)[token * a.width + i]) * ARRAY(a.rows, row * a.width + i);
  dot = BLOCK_SUM(dot, scratch);
  if (THREAD == 0) PUT(a.weights, BLOCK, dot);
}

// A block a token and expert.
KERNEL(NAME(reorder_rows), PartArguments) {
  const int64_t row = a.index[BLOCK];
  if (row < 0) return;
  const int64_t there = a.there[BLOCK], from = a.home ? row : there, to = a.home ? there : row;
  for (int64_t i = THREAD; i < a.width; i += THREADS)
    ((ELEMENT *)a.y)[to * a.width + i] = ((const ELEMENT *)a.x)[from * a.width + i];
}
