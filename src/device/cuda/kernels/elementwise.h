// Elementwise kernels of one dtype: a thread moves 16 bytes of each operand at a time, as far as these are aligned.
#include "device/cuda/kernels/pack.h"

// The elements at which a thread begins to take packs.
#define EACH_PACK(at)                                                                                                  \
  for (int64_t at = (BLOCK * THREADS + THREAD) * NAME(PACK); at < a.n; at += BLOCKS * THREADS * NAME(PACK))

// Value of a result from those of up to three inputs.
#define ELEMENTWISE(name, inputs, value)                                                                               \
  KERNEL(NAME(name), ElementwiseArguments) {                                                                           \
    EACH_PACK(at) {                                                                                                    \
      NAME(Pack) px, py, pz, out;                                                                                      \
      NAME(take)(&px, a.x[0], at, a.n);                                                                                \
      if (inputs > 1) NAME(take)(&py, a.x[1], at, a.n);                                                                \
      else py = px;                                                                                                    \
      if (inputs > 2) NAME(take)(&pz, a.x[2], at, a.n);                                                                \
      else pz = px;                                                                                                    \
      for (int i = 0; i < NAME(PACK); i++) {                                                                           \
        const REAL x = PACKED(px, i), y = PACKED(py, i), z = PACKED(pz, i);                                            \
        (void)x, (void)y, (void)z;                                                                                     \
        out.e[i] = NARROW(value);                                                                                      \
      }                                                                                                                \
      NAME(give)(a.y, &out, at, a.n);                                                                                  \
    }                                                                                                                  \
  }

// Of op/formula.h, in forms that lose nothing in narrow arithmetic. The argument of a slope is bounded, beyond which it
// is 0 or 1; a NaN stays.
INLINE REAL NAME(gelu_tanh_gate)(REAL x) {
  return 1 / (1 + REAL_EXP((REAL)-2 * (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x)));
}
INLINE REAL NAME(sigmoid)(REAL x) { return 1 / (1 + REAL_EXP(-x)); }
INLINE REAL NAME(value_of)(int kind, REAL x) {
  switch (kind) {
  case ACTIVATION_GELU: return (REAL)0.5 * x * REAL_ERFC(x * (REAL)-0.70710678118654752440);
  case ACTIVATION_GELU_TANH: return x * NAME(gelu_tanh_gate)(x);
  case ACTIVATION_SILU: return x * NAME(sigmoid)(x);
  case ACTIVATION_SIGMOID: return NAME(sigmoid)(x);
  default: return x <= 0 ? (REAL)0 : x;
  }
}
INLINE REAL NAME(slope_of)(int kind, REAL x) {
  x = x < -30 ? (REAL)-30 : x > 30 ? (REAL)30 : x;
  switch (kind) {
  case ACTIVATION_GELU:
    return (REAL)0.5 * REAL_ERFC(x * (REAL)-0.70710678118654752440) +
           x * (REAL)0.39894228040143267794 * REAL_EXP((REAL)-0.5 * x * x);
  case ACTIVATION_GELU_TANH: {
    const REAL s = NAME(gelu_tanh_gate)(x);
    return s + 2 * x * s * (1 - s) * (REAL)0.79788456080286535588 * (1 + (REAL)(3 * 0.044715) * x * x);
  }
  case ACTIVATION_SILU: {
    const REAL s = NAME(sigmoid)(x);
    return s * (1 + x * (1 - s));
  }
  case ACTIVATION_SIGMOID: {
    const REAL s = NAME(sigmoid)(x);
    return s * (1 - s);
  }
  default: return x > 0 ? (REAL)1 : (REAL)0;
  }
}

ELEMENTWISE(mul, 2, x * y)
ELEMENTWISE(scale, 1, (REAL)a.value * x)
ELEMENTWISE(unscale, 1, x / ARRAY(a.array, 0))
ELEMENTWISE(activation, 1, NAME(value_of)(a.kind, x))
ELEMENTWISE(activation_grad, 2, NAME(slope_of)(a.kind, x) * y)
ELEMENTWISE(gated, 2, NAME(value_of)(a.kind, x) * y)

// gate, up, dy → dgate, dup
KERNEL(NAME(gated_grad), ElementwiseArguments) {
  EACH_PACK(at) {
    NAME(Pack) gate, up, dy, dgate, dup;
    NAME(take)(&gate, a.x[0], at, a.n);
    NAME(take)(&up, a.x[1], at, a.n);
    NAME(take)(&dy, a.x[2], at, a.n);
    for (int i = 0; i < NAME(PACK); i++) {
      const REAL x = PACKED(gate, i), d = PACKED(dy, i);
      dgate.e[i] = NARROW(NAME(slope_of)(a.kind, x) * PACKED(up, i) * d);
      dup.e[i] = NARROW(NAME(value_of)(a.kind, x) * d);
    }
    NAME(give)(a.y, &dgate, at, a.n);
    NAME(give)(a.z, &dup, at, a.n);
  }
}

KERNEL(NAME(add), AddArguments) {
  EACH_PACK(at) {
    NAME(Pack) term, out;
    REAL sum[16 / sizeof(ELEMENT)];
    for (int i = 0; i < NAME(PACK); i++) sum[i] = 0;
    for (int k = 0; k < a.count; k++) {
      NAME(take)(&term, a.x[k], at, a.n);
      for (int i = 0; i < NAME(PACK); i++) sum[i] += PACKED(term, i);
    }
    for (int i = 0; i < NAME(PACK); i++) out.e[i] = NARROW(sum[i]);
    NAME(give)(a.y, &out, at, a.n);
  }
}

// value in the first `valid` elements, 0 after them.
KERNEL(NAME(fill), ElementwiseArguments) {
  EACH_PACK(at) {
    NAME(Pack) out;
    for (int i = 0; i < NAME(PACK); i++) out.e[i] = NARROW(at + i < a.valid ? (REAL)a.value : (REAL)0);
    NAME(give)(a.y, &out, at, a.n);
  }
}

// x + array[i mod width]
KERNEL(NAME(bias), ElementwiseArguments) {
  EACH_PACK(at) {
    NAME(Pack) x, out;
    NAME(take)(&x, a.x[0], at, a.n);
    int64_t column = at % a.width;
    for (int i = 0; i < NAME(PACK); i++) {
      const REAL b = at + i < a.n ? ARRAY(a.array, column) : (REAL)0;
      out.e[i] = NARROW(PACKED(x, i) + b);
      column = FAULT(kernel_bias_of_one_row, column + 1 < a.width, 1) ? column + 1 : 0;
    }
    NAME(give)(a.y, &out, at, a.n);
  }
}

// x / (1 - probability) where it is kept, else 0. Four neighbours share one drawing.
KERNEL(NAME(dropout), DropoutArguments) {
  EACH_PACK(at) {
    NAME(Pack) x, out;
    Four drawn = {{0, 0, 0, 0}};
    int64_t of = -1;
    NAME(take)(&x, a.x, at, a.n);
    for (int i = 0; i < NAME(PACK); i++) {
      const int64_t row = (at + i) / a.width, feature = a.first + (at + i) % a.width;
      const int64_t block = row * a.width + feature / 4;
      if (at + i < a.n && (block != of || i == 0 || feature == a.first))
        drawn = philox_at(a.mask.key, mask_sample(&a.mask, row / a.s), (uint32_t)map_global(&a.positions, row % a.s),
                          (uint32_t)(feature / 4), 0);
      of = block;
      out.e[i] = NARROW(is_kept(&a.mask, drawn.r[FAULT(kernel_mask_repeats, feature, 0) % 4])
                            ? PACKED(x, i) * (REAL)a.mask.factor
                            : (REAL)0);
    }
    NAME(give)(a.y, &out, at, a.n);
  }
}

// array, to which `added` is added where it is there → to; of other dtypes than the kernel's
KERNEL_OF_MANY(NAME(cast), NAME(cast_many), NAME(cast_piece), ElementwiseArguments) {
  for (int64_t i = block * THREADS + THREAD; i < a.n; i += blocks * THREADS)
    PUT(a.to, i, (a.added.data ? ARRAY(a.added, i) : (REAL)0) + ARRAY(a.array, i));
}

#undef EACH_PACK
#undef PACKED
#undef ELEMENTWISE

// x[0], x[1] or x[2] as array, a turn, says; of any dtype of this size.
KERNEL(NAME(next_version), ElementwiseArguments) {
  const double turn = array_double(a.array, 0);
  const ELEMENT *from = (const ELEMENT *)a.x[turn == TURN_STAYS ? 0 : turn == TURN_NEXT ? 1 : 2];
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS) ((ELEMENT *)a.y)[i] = from[i];
}

// A block a row of y.
KERNEL(NAME(slice), SliceArguments) {
  int64_t rest = BLOCK, from = 0, stride = 1;
  int inside = 1;
  for (int d = (int)a.rank - 1; d >= 0; d--) {
    const int64_t i = rest % a.size[d];
    rest /= a.size[d];
    const int64_t there = i < a.map[d].valid ? map_local(&a.from_map[d], map_global(&a.map[d], i)) : -1;
    inside &= there >= 0;
    from += (there < 0 ? 0 : there) * stride;
    stride *= a.from[d];
  }
  for (int64_t i = THREAD; i < a.width; i += THREADS)
    ((ELEMENT *)a.y)[BLOCK * a.width + i] = inside ? ((const ELEMENT *)a.x)[from * a.width + i] : (ELEMENT)0;
}
