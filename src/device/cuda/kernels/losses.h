// Softmax, cross entropy of given logits, and squared errors, as op/softmax.c, op/cross_entropy.c and
// op/squared_error.c define them. A block a row, but of squared errors.
#define X(from, i) WIDEN(((const ELEMENT *)(from))[i])
#define EACH_COLUMN for (int64_t i = THREAD; i < a.width; i += THREADS)

// The maximum of a row, and Σ exp(x - maximum).
typedef struct NAME(Sums) { REAL maximum, sum; } NAME(Sums);
INLINE NAME(Sums) NAME(sums_of)(const ELEMENT *x, int64_t width, REAL *scratch) {
  NAME(Sums) s = {MINUS_INFINITY, 0};
  for (int64_t i = THREAD; i < width; i += THREADS) s.maximum = X(x, i) > s.maximum ? X(x, i) : s.maximum;
  s.maximum = BLOCK_MAX(s.maximum, scratch);
  for (int64_t i = THREAD; i < width; i += THREADS) s.sum += REAL_EXP(X(x, i) - s.maximum);
  s.sum = BLOCK_SUM(s.sum, scratch);
  return s;
}

KERNEL(NAME(softmax), SoftmaxArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = (const ELEMENT *)a.x + BLOCK * a.width;
  ELEMENT *y = (ELEMENT *)a.y + BLOCK * a.width;
  const NAME(Sums) s = NAME(sums_of)(x, a.width, scratch);
  EACH_COLUMN y[i] = NARROW(REAL_EXP(X(x, i) - s.maximum) / s.sum);
}

// x: what softmax gave
KERNEL(NAME(softmax_grad), SoftmaxArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = (const ELEMENT *)a.x + BLOCK * a.width, *dy = (const ELEMENT *)a.dy + BLOCK * a.width;
  ELEMENT *dx = (ELEMENT *)a.y + BLOCK * a.width;
  REAL dot = 0;
  EACH_COLUMN dot += X(x, i) * X(dy, i);
  dot = BLOCK_SUM(dot, scratch);
  EACH_COLUMN dx[i] = NARROW(X(x, i) * (X(dy, i) - FAULT(kernel_softmax_gradient_of_its_own, dot, 0)));
}

// A label outside of the classes (-1) counts nothing.
KERNEL(NAME(cross_entropy), CrossEntropyArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = (const ELEMENT *)a.logits + BLOCK * a.width;
  ELEMENT *dx = (ELEMENT *)a.dlogits + BLOCK * a.width;
  const NAME(Sums) s = NAME(sums_of)(x, a.width, scratch);
  const int64_t label = a.labels ? array_integer(a.target, BLOCK) : -1;
  const REAL most = s.maximum + REAL_LOG(s.sum), seed = (REAL)array_double(a.seed, 0);
  REAL weight = 0, loss = 0;
  EACH_COLUMN {
    const REAL target = a.labels ? (REAL)(i == label) : ARRAY(a.target, BLOCK * a.width + i);
    weight += target;
    if (target != 0) loss += target * (most - X(x, i));
  }
  weight = BLOCK_SUM(weight, scratch);
  loss = BLOCK_SUM(loss, scratch);
  EACH_COLUMN {
    const REAL target = a.labels ? (REAL)(i == label) : ARRAY(a.target, BLOCK * a.width + i);
    dx[i] = NARROW(seed * (FAULT(kernel_no_label_has_a_gradient, weight, 1) * REAL_EXP(X(x, i) - s.maximum) / s.sum -
                           target));
  }
  if (THREAD == 0) a.losses[BLOCK] = loss;
}

// Padding counts nothing.
INLINE int NAME(is_inside)(const SquaredErrorArguments *a, int64_t i) {
  int64_t rest = i / a->width;
  int inside = 1;
  for (int d = (int)a->rank - 1; d >= 0; d--) {
    inside &= rest % a->size[d] < a->valid[d];
    rest /= a->size[d];
  }
  return inside;
}

KERNEL(NAME(squared_error), SquaredErrorArguments) {
  SHARED(double, scratch, WARP);
  const int64_t end = (BLOCK + 1) * a.each < a.n ? (BLOCK + 1) * a.each : a.n;
  const REAL seed = (REAL)array_double(a.seed, 0);
  double sum = 0;
  for (int64_t i = BLOCK * a.each + THREAD; i < end; i += THREADS) {
    const int inside = a.rank == 0 || FAULT(kernel_padding_has_an_error, NAME(is_inside)(&a, i), 1);
    const REAL difference = inside ? X(a.y, i) - ARRAY(a.target, i) : (REAL)0;
    sum += (double)difference * difference;
    ((ELEMENT *)a.dy)[i] = NARROW(2 * seed * difference);
  }
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0) a.partial[BLOCK] = sum;
}

#undef X
#undef EACH_COLUMN
