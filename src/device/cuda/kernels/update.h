// Updates of one element of a parameter of one dtype, as op/adamw.c, op/sgd.c, op/lion.c and op/muon.c define them.

// Of split weights (base/dtype.h) w is the upper half.
INLINE REAL NAME(weight)(const OptimizerArguments *a, int64_t i) {
  const ELEMENT w = ((const ELEMENT *)a->w)[i];
  if (sizeof(ELEMENT) != 2 || !a->low) return WIDEN(w);
  const uint32_t low = a->low[i];
  return (REAL)float_of(((uint32_t)w << 16) + low - ((low & 0x8000u) << 1));
}

INLINE void NAME(put_weight)(const OptimizerArguments *a, int64_t i, REAL w) {
  if (sizeof(ELEMENT) == 2 && a->new_low) {
    uint32_t u = bits_of((float)w);
    if ((u & 0x7fffffffu) > 0x7f800000u) u = (u & 0xffff0000u) | 0x00400000u;
    a->new_low[i] = (uint16_t)u;
    ((uint16_t *)a->new_w)[i] = (uint16_t)((u + 0x8000u) >> 16);
    return;
  }
  const ELEMENT stored = NARROW(w);
  ((ELEMENT *)a->new_w)[i] = stored;
  if (a->copy.data) PUT(a->copy, i, WIDEN(stored));
}

// Numbers of a step, the same for all elements. root: of the second moment's correction.
typedef struct NAME(Update) {
  REAL factor, rate, shrink, root, epsilon, decay, beta1, beta2, rest1, rest2;
  int skip;
} NAME(Update);

INLINE NAME(Update) NAME(update_of)(const OptimizerArguments *a) {
  NAME(Update) u;
  const double rate = a->rate.data ? array_double(a->rate, 0) : 0;
  u.skip = array_double(a->skip, 0) != 0;
  u.factor = (REAL)array_double(a->factor, 0);
  u.rate = (REAL)rate;
  u.shrink = (REAL)(rate * a->decay);
  u.root = 1;
  u.epsilon = (REAL)a->epsilon;
  u.decay = (REAL)a->decay;
  u.beta1 = (REAL)a->beta1;
  u.beta2 = (REAL)a->beta2;
  u.rest1 = (REAL)(1 - a->beta1);
  u.rest2 = (REAL)(1 - a->beta2);
  return u;
}

// Every thread of the block comes here. correction: 2 shared elements.
INLINE void NAME(correct)(NAME(Update) *u, const OptimizerArguments *a, double *correction) {
  const double step = array_double(a->step, 0), rate = array_double(a->rate, 0);
  if (THREAD < 2) correction[THREAD] = 1 - pow(THREAD ? a->beta2 : a->beta1, step);
  UNLESS_FAULT(kernel_correction_is_read_early) BARRIER();
  u->rate = (REAL)(rate / correction[0]);
  u->root = (REAL)(1 / sqrt(correction[1]));
}

// g: of the gradient as it is; w and moments become the new ones.
INLINE void NAME(adamw_element)(const NAME(Update) *u, REAL gradient, REAL *w, REAL *m, REAL *v) {
  const REAL g = gradient * u->factor;
  *m = u->beta1 * *m + u->rest1 * g;
  *v = u->beta2 * *v + u->rest2 * g * g;
  *w -= u->shrink * *w;
  *w -= u->rate * *m / (REAL_SQRT(*v) * u->root + u->epsilon);
}

INLINE void NAME(sgd_element)(const NAME(Update) *u, REAL momentum, REAL gradient, REAL *w, REAL *m) {
  const REAL g = gradient * u->factor + u->decay * *w;
  *m = momentum * *m + g;
  *w -= u->rate * *m;
}

INLINE void NAME(lion_element)(const NAME(Update) *u, REAL gradient, REAL *w, REAL *m) {
  const REAL g = gradient * u->factor, direction = u->beta1 * *m + u->rest1 * g;
  const int sign = (direction > 0) - FAULT(kernel_lion_only_rises, (direction < 0), 0);
  *w -= u->rate * ((REAL)sign + u->decay * *w);
  *m = u->beta2 * *m + u->rest2 * g;
}

// Returns what is made orthogonal.
INLINE REAL NAME(muon_element)(const NAME(Update) *u, REAL keep, REAL rest, REAL gradient, REAL *m) {
  const REAL g = gradient * u->factor;
  *m = keep * *m + rest * g;
  return FAULT(kernel_muon_looks_not_ahead, keep * *m + rest * g, *m);
}
