// Updates of a parameter of one dtype, as op/adamw.c, op/sgd.c, op/lion.c and op/muon.c define them; an element a
// thread.
#define EACH_ELEMENT for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS)

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

KERNEL_OF_MANY(NAME(adamw), NAME(adamw_many), NAME(adamw_piece), OptimizerArguments) {
  SHARED(double, correction, 2);
  const double step = array_double(a.step, 0);
  if (THREAD < 2) correction[THREAD] = 1 - pow(THREAD ? a.beta2 : a.beta1, step);
  UNLESS_FAULT(kernel_correction_is_read_early) BARRIER();
  const int skip = FAULT(kernel_skips_nothing, array_double(a.skip, 0) != 0, 0);
  const double lr = array_double(a.rate, 0);
  const REAL factor = (REAL)array_double(a.factor, 0), beta1 = (REAL)a.beta1, beta2 = (REAL)a.beta2,
             rest1 = (REAL)(1 - a.beta1), rest2 = (REAL)(1 - a.beta2), shrink = (REAL)(lr * a.decay),
             rate = (REAL)(lr / correction[0]), root = (REAL)(1 / sqrt(correction[1])), epsilon = (REAL)a.epsilon;
  for (int64_t i = block * THREADS + THREAD; i < a.n; i += blocks * THREADS) {
    REAL w = NAME(weight)(&a, i), m = ARRAY(a.moment[0], i), v = ARRAY(a.moment[1], i);
    if (!skip) {
      const REAL g = ARRAY(a.gradient, i) * factor;
      m = beta1 * m + rest1 * g;
      v = beta2 * v + rest2 * g * g;
      w -= shrink * w;
      w -= rate * m / (REAL_SQRT(v) * root + epsilon);
    }
    NAME(put_weight)(&a, i, w);
    PUT(a.new_moment[0], i, m);
    PUT(a.new_moment[1], i, v);
  }
}

KERNEL(NAME(sgd), OptimizerArguments) {
  const int skip = array_double(a.skip, 0) != 0;
  const REAL factor = (REAL)array_double(a.factor, 0), rate = (REAL)array_double(a.rate, 0);
  EACH_ELEMENT {
    REAL w = NAME(weight)(&a, i), m = a.moment[0].data ? ARRAY(a.moment[0], i) : (REAL)0;
    if (!skip) {
      const REAL g = ARRAY(a.gradient, i) * factor + (REAL)a.decay * w;
      m = a.moment[0].data ? (REAL)a.momentum * m + g : g;
      w -= rate * m;
    }
    NAME(put_weight)(&a, i, w);
    if (a.moment[0].data) PUT(a.new_moment[0], i, m);
  }
}

// moment[0]: the average of gradients
KERNEL(NAME(lion), OptimizerArguments) {
  const int skip = array_double(a.skip, 0) != 0;
  const REAL factor = (REAL)array_double(a.factor, 0), rate = (REAL)array_double(a.rate, 0), beta1 = (REAL)a.beta1,
             beta2 = (REAL)a.beta2, rest1 = (REAL)(1 - a.beta1), rest2 = (REAL)(1 - a.beta2);
  EACH_ELEMENT {
    REAL w = NAME(weight)(&a, i), m = ARRAY(a.moment[0], i);
    if (!skip) {
      const REAL g = ARRAY(a.gradient, i) * factor, direction = beta1 * m + rest1 * g;
      const int sign = (direction > 0) - FAULT(kernel_lion_only_rises, (direction < 0), 0);
      w -= rate * ((REAL)sign + (REAL)a.decay * w);
      m = beta2 * m + rest2 * g;
    }
    NAME(put_weight)(&a, i, w);
    PUT(a.new_moment[0], i, m);
  }
}

// moment[0]: momentum, of the gradient; copy: what is made orthogonal
KERNEL(NAME(muon_momentum), OptimizerArguments) {
  const int skip = array_double(a.skip, 0) != 0;
  const REAL factor = (REAL)array_double(a.factor, 0), keep = (REAL)a.momentum, rest = (REAL)(1 - a.momentum);
  EACH_ELEMENT {
    REAL m = ARRAY(a.moment[0], i), u = 0;
    if (!skip) {
      const REAL g = ARRAY(a.gradient, i) * factor;
      m = keep * m + rest * g;
      u = FAULT(kernel_muon_looks_not_ahead, keep * m + rest * g, m);
    }
    PUT(a.new_moment[0], i, m);
    PUT(a.copy, i, u);
  }
}

// gradient: made orthogonal; momentum: its scale
KERNEL(NAME(muon), OptimizerArguments) {
  const int skip = array_double(a.skip, 0) != 0;
  const REAL rate = (REAL)array_double(a.rate, 0), decay = (REAL)a.decay, scale = (REAL)a.momentum;
  EACH_ELEMENT {
    REAL w = NAME(weight)(&a, i);
    if (!skip) w -= rate * (decay * w + scale * ARRAY(a.gradient, i));
    NAME(put_weight)(&a, i, w);
  }
}

#undef EACH_ELEMENT
