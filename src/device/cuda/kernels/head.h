// Rows of logits with sums of one dtype, a block a row: statistics, loss, and what logits become, in their place.
KERNEL(NAME(head), HeadArguments) {
  SHARED(REAL, scratch, WARP);
  const int64_t row = a.first + BLOCK, target = array_integer(a.targets, row), words = a.map.valid;
  const int64_t local = target < 0 ? -1 : map_local(&a.map, target);
  REAL *logit = (REAL *)a.logits + BLOCK * a.columns;
  REAL statistics[3] = {MINUS_INFINITY, 0, local < 0 ? (REAL)0 : logit[local]};
  if (a.given[0].data) {
    for (int k = 0; k < 3; k++) statistics[k] = a.given[k].data ? ARRAY(a.given[k], row) : (REAL)0;
    BARRIER();
  } else {
    for (int64_t v = THREAD; v < words; v += THREADS)
      statistics[0] = logit[v] > statistics[0] ? logit[v] : statistics[0];
    statistics[0] = BLOCK_MAX(statistics[0], scratch);
    for (int64_t v = THREAD; v < words; v += THREADS) statistics[1] += REAL_EXP(logit[v] - statistics[0]);
    statistics[1] = BLOCK_SUM(statistics[1], scratch);
  }
  if (THREAD == 0) {
    for (int k = 0; k < 3; k++)
      if (a.stored[k].data) PUT(a.stored[k], BLOCK, target < 0 ? (REAL)0 : statistics[k]);
    const REAL loss = target < 0 ? (REAL)0 : statistics[0] + REAL_LOG(statistics[1]) - statistics[2];
    if (a.losses) a.losses[BLOCK] = loss;
  }
  if (a.mode == HEAD_LOSS) return;
  const REAL seed = a.seed.data ? (REAL)array_double(a.seed, 0) : (REAL)1;
  for (int64_t v = THREAD; v < a.columns; v += THREADS) {
    REAL value = 0;
    if (target >= 0 && v < FAULT(kernel_padding_is_a_word, words, a.columns))
      value = a.mode == HEAD_LOGITS ? logit[v]
                                    : (REAL_EXP(logit[v] - statistics[0]) / statistics[1] - (v == local)) * seed;
    logit[v] = value;
    if (a.dlogits.data && v < a.width) PUT(a.dlogits, BLOCK * a.width + v, value);
  }
}

// local maximum, maximum, local sum → local sum relative to the common maximum
KERNEL(NAME(rescale), ScalarArguments) {
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS)
    PUT(a.y[0], i, ARRAY(a.x[2], i) * REAL_EXP(ARRAY(a.x[0], i) - ARRAY(a.x[1], i)));
}
