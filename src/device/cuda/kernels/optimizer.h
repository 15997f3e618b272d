// Updates of a parameter of one dtype; an element a thread.
#include "device/cuda/kernels/update.h"

#define EACH_ELEMENT for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS)

KERNEL_OF_MANY(NAME(adamw), NAME(adamw_many), NAME(adamw_piece), OptimizerArguments) {
  SHARED(double, correction, 2);
  NAME(Update) u = NAME(update_of)(&a);
  NAME(correct)(&u, &a, correction);
  u.skip = FAULT(kernel_skips_nothing, u.skip, 0);
  for (int64_t i = block * THREADS + THREAD; i < a.n; i += blocks * THREADS) {
    REAL w = NAME(weight)(&a, i), m = ARRAY(a.moment[0], i), v = ARRAY(a.moment[1], i);
    if (!u.skip) NAME(adamw_element)(&u, ARRAY(a.gradient, i), &w, &m, &v);
    NAME(put_weight)(&a, i, w);
    PUT(a.new_moment[0], i, m);
    PUT(a.new_moment[1], i, v);
  }
}

// Without a moment the gradient is one that is forgotten.
KERNEL(NAME(sgd), OptimizerArguments) {
  const NAME(Update) u = NAME(update_of)(&a);
  const REAL momentum = a.moment[0].data ? (REAL)a.momentum : (REAL)0;
  EACH_ELEMENT {
    REAL w = NAME(weight)(&a, i), m = a.moment[0].data ? ARRAY(a.moment[0], i) : (REAL)0;
    if (!u.skip) NAME(sgd_element)(&u, momentum, ARRAY(a.gradient, i), &w, &m);
    NAME(put_weight)(&a, i, w);
    if (a.moment[0].data) PUT(a.new_moment[0], i, m);
  }
}

// moment[0]: the average of gradients
KERNEL(NAME(lion), OptimizerArguments) {
  const NAME(Update) u = NAME(update_of)(&a);
  EACH_ELEMENT {
    REAL w = NAME(weight)(&a, i), m = ARRAY(a.moment[0], i);
    if (!u.skip) NAME(lion_element)(&u, ARRAY(a.gradient, i), &w, &m);
    NAME(put_weight)(&a, i, w);
    PUT(a.new_moment[0], i, m);
  }
}

// moment[0]: momentum, of the gradient; copy: what is made orthogonal
KERNEL(NAME(muon_momentum), OptimizerArguments) {
  const NAME(Update) u = NAME(update_of)(&a);
  const REAL keep = (REAL)a.momentum, rest = (REAL)(1 - a.momentum);
  EACH_ELEMENT {
    REAL m = ARRAY(a.moment[0], i), made = 0;
    if (!u.skip) made = NAME(muon_element)(&u, keep, rest, ARRAY(a.gradient, i), &m);
    PUT(a.new_moment[0], i, m);
    PUT(a.copy, i, made);
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
