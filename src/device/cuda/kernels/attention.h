// Attention with sums of one dtype. A block of ATTENTION_THREADS has one query of one head, or one key; its threads
// score as many of the others at a time, and then each adds up columns of the result. No probability is stored. Width
// is at most ATTENTION_WIDTH, so a thread has at most COLUMNS columns.
enum { NAME(COLUMNS) = ATTENTION_WIDTH / ATTENTION_THREADS };

// The row of q (b, s, g, r, d) that a block of `row` has, and that of k (b, t, g, d) of key t.
typedef struct NAME(Place) { int64_t b, s, g, r, logsumexp; } NAME(Place);
INLINE NAME(Place) NAME(place_of)(const AttentionArguments *a, int64_t row) {
  NAME(Place) p;
  uint32_t at = (uint32_t)row; // as are all blocks of a grid
  p.r = at % (uint32_t)a->r, at /= (uint32_t)a->r;
  p.g = at % (uint32_t)a->g, at /= (uint32_t)a->g;
  p.s = at % (uint32_t)a->s;
  p.b = at / (uint32_t)a->s;
  p.logsumexp = ((p.b * a->g + p.g) * a->r + p.r) * a->s + p.s;
  return p;
}
INLINE int64_t NAME(key_row)(const AttentionArguments *a, int64_t b, int64_t t, int64_t g) {
  return ((b * a->t + t) * a->g + g) * a->d;
}
INLINE REAL NAME(dot)(const REAL *x, Array y, int64_t at, int64_t d) {
  REAL sum = 0;
  for (int64_t i = 0; i < d; i++) sum += x[i] * ARRAY(y, at + i);
  return sum;
}

KERNEL(NAME(attention), AttentionArguments) {
  SHARED(REAL, query, ATTENTION_WIDTH);
  SHARED(REAL, part, ATTENTION_THREADS);
  SHARED(REAL, scratch, WARP);
  const NAME(Place) p = NAME(place_of)(&a, BLOCK);
  REAL maximum = MINUS_INFINITY, sum = 0, out[NAME(COLUMNS)] = {0};
  for (int64_t i = THREAD; i < a.d; i += THREADS) query[i] = ARRAY(a.q, BLOCK * a.d + i);
  for (int64_t first = 0; first < a.t; first += THREADS) {
    const int64_t t = first + THREAD, count = a.t - first < THREADS ? a.t - first : THREADS;
    const int visible = t < a.t && sees(&a, p.b, p.s, t);
    if (!BARRIER_OR(visible)) continue; // and nobody still reads what is written below
    REAL score = MINUS_INFINITY;
    if (visible) score = (REAL)a.scale * NAME(dot)(query, a.k, NAME(key_row)(&a, p.b, t, p.g), a.d);
    const REAL greatest = BLOCK_MAX(score, scratch), top = greatest > maximum ? greatest : maximum;
    const REAL before = sum > 0 ? REAL_EXP(maximum - top) : (REAL)0;
    const REAL mine = visible ? REAL_EXP(score - top) : (REAL)0;
    part[THREAD] = visible ? mine * (REAL)mask_of(&a, p.b, p.g, p.r, p.s, t) : (REAL)0;
    sum = sum * FAULT(kernel_sum_is_not_rescaled, before, 1) + BLOCK_SUM(mine, scratch);
    maximum = top;
    for (int c = 0; c < NAME(COLUMNS); c++) {
      const int64_t i = THREAD + c * THREADS;
      out[c] *= before;
      for (int64_t j = 0; i < a.d && j < count; j++)
        out[c] += part[j] * ARRAY(a.v, NAME(key_row)(&a, p.b, first + j, p.g) + i);
    }
  }
  for (int c = 0; c < NAME(COLUMNS); c++) {
    const int64_t i = THREAD + c * THREADS;
    if (i < a.d) PUT(a.out, BLOCK * a.d + i, sum > 0 ? out[c] / sum : (REAL)0);
  }
  if (THREAD == 0) PUT(a.logsumexp, p.logsumexp, sum > 0 ? maximum + REAL_LOG(sum) : (REAL)MINUS_INFINITY);
}

// delta and dq, of one query.
KERNEL(NAME(attention_grad_query), AttentionArguments) {
  SHARED(REAL, query, ATTENTION_WIDTH);
  SHARED(REAL, dout, ATTENTION_WIDTH);
  SHARED(REAL, part, ATTENTION_THREADS);
  SHARED(REAL, scratch, WARP);
  const NAME(Place) p = NAME(place_of)(&a, BLOCK);
  const REAL logsumexp = ARRAY(a.logsumexp, p.logsumexp);
  REAL delta = 0, dq[NAME(COLUMNS)] = {0};
  for (int64_t i = THREAD; i < a.d; i += THREADS) {
    query[i] = ARRAY(a.q, BLOCK * a.d + i);
    dout[i] = ARRAY(a.dout, BLOCK * a.d + i);
    delta += dout[i] * ARRAY(a.out, BLOCK * a.d + i);
  }
  delta = BLOCK_SUM(delta, scratch);
  if (THREAD == 0) ((REAL *)a.delta)[BLOCK] = delta;
  for (int64_t first = 0; first < a.t; first += THREADS) {
    const int64_t t = first + THREAD, count = a.t - first < THREADS ? a.t - first : THREADS;
    const int visible = t < a.t && sees(&a, p.b, p.s, t);
    if (!BARRIER_OR(visible)) continue;
    part[THREAD] = 0;
    if (visible) {
      const int64_t key = NAME(key_row)(&a, p.b, t, p.g);
      const REAL probability = REAL_EXP((REAL)a.scale * NAME(dot)(query, a.k, key, a.d) - logsumexp);
      const REAL mask = (REAL)mask_of(&a, p.b, p.g, p.r, p.s, t);
      part[THREAD] = (REAL)a.scale * probability * (NAME(dot)(dout, a.v, key, a.d) * mask - delta);
    }
    BARRIER();
    for (int c = 0; c < NAME(COLUMNS); c++) {
      const int64_t i = THREAD + c * THREADS;
      for (int64_t j = 0; i < a.d && j < count; j++)
        dq[c] += part[j] * ARRAY(a.k, NAME(key_row)(&a, p.b, first + j, p.g) + i);
    }
  }
  for (int c = 0; c < NAME(COLUMNS); c++)
    if (THREAD + c * THREADS < a.d) PUT(a.dq, BLOCK * a.d + THREAD + c * THREADS, dq[c]);
}

// dk and dv, of one key, whose gradients all queries of its group of heads give.
KERNEL(NAME(attention_grad_key), AttentionArguments) {
  SHARED(REAL, key, ATTENTION_WIDTH);
  SHARED(REAL, value, ATTENTION_WIDTH);
  SHARED(REAL, part, ATTENTION_THREADS);
  SHARED(REAL, slope, ATTENTION_THREADS);
  const uint32_t block = (uint32_t)BLOCK, heads = (uint32_t)a.r; // of a group
  const int64_t g = block % (uint32_t)a.g, t = block / (uint32_t)a.g % (uint32_t)a.t,
                b = block / (uint32_t)a.g / (uint32_t)a.t, all = a.s * a.r;
  REAL dk[NAME(COLUMNS)] = {0}, dv[NAME(COLUMNS)] = {0};
  for (int64_t i = THREAD; i < a.d; i += THREADS) {
    key[i] = ARRAY(a.k, BLOCK * a.d + i);
    value[i] = ARRAY(a.v, BLOCK * a.d + i);
  }
  for (int64_t first = 0; first < all; first += THREADS) {
    const int64_t at = first + THREAD, count = all - first < THREADS ? all - first : THREADS;
    const int visible = at < all && sees(&a, b, (uint32_t)at / heads, t);
    if (!BARRIER_OR(visible)) continue;
    part[THREAD] = slope[THREAD] = 0;
    if (visible) {
      const int64_t s = (uint32_t)at / heads, r = (uint32_t)at % heads, row = ((b * a.s + s) * a.g + g) * a.r + r;
      const REAL logsumexp = ARRAY(a.logsumexp, ((b * a.g + g) * a.r + r) * a.s + s);
      const REAL probability = REAL_EXP((REAL)a.scale * NAME(dot)(key, a.q, row * a.d, a.d) - logsumexp);
      const REAL mask = (REAL)mask_of(&a, b, g, r, s, t);
      part[THREAD] = probability * mask;
      slope[THREAD] = (REAL)a.scale * probability *
                      (NAME(dot)(value, a.dout, row * a.d, a.d) * mask - ((const REAL *)a.delta)[row]);
    }
    BARRIER();
    for (int c = 0; c < NAME(COLUMNS); c++) {
      const int64_t i = THREAD + c * THREADS;
      for (int64_t j = 0; i < a.d && j < count; j++) {
        const uint32_t query = (uint32_t)(first + j), s = query / heads, r = query % heads;
        const int64_t row = (((b * a.s + s) * a.g + g) * a.r + r) * a.d;
        dv[c] += part[j] * ARRAY(a.dout, row + i);
        dk[c] += slope[j] * ARRAY(a.q, row + i);
      }
    }
  }
  for (int c = 0; c < NAME(COLUMNS); c++) {
    const int64_t i = THREAD + c * THREADS;
    if (i >= a.d) continue;
    PUT(a.dk, BLOCK * a.d + i, dk[c]);
    PUT(a.dv, BLOCK * a.d + i, dv[c]);
  }
}

// A block a query of a head. A part that saw no key has weight 0.
KERNEL(NAME(merge), MergeArguments) {
  const int64_t position = BLOCK / a.heads, at = (position / a.s * a.heads + BLOCK % a.heads) * a.s + position % a.s;
  const REAL x = ARRAY(a.logsumexp[0], at), y = ARRAY(a.logsumexp[1], at), most = x > y ? x : y;
  const int none = most == (REAL)MINUS_INFINITY;
  const REAL merged = none ? most : most + REAL_LOG(REAL_EXP(x - most) + REAL_EXP(y - most));
  const REAL of_x = none ? (REAL)0 : REAL_EXP(x - FAULT(kernel_merge_weighs_by_the_greater, merged, most)),
             of_y = none ? (REAL)0 : REAL_EXP(y - merged);
  BARRIER(); // all threads have read what the first one writes in place
  for (int64_t i = BLOCK * a.d + THREAD; i < (BLOCK + 1) * a.d; i += THREADS)
    PUT(a.out[2], i, of_x * ARRAY(a.out[0], i) + of_y * ARRAY(a.out[1], i));
  if (THREAD == 0) PUT(a.logsumexp[2], at, merged);
}
