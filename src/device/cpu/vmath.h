// Vector exp, sigmoid and normal distribution of one SIMD level and real type; a few ulp. Sums over arrays.

// e^x: 2^n · e^r with |r| <= ln 2 / 2, Taylor in r. 0 below the range of normal numbers, infinite above.
INLINE V TYPED(exp)(V x) {
#if BITS == 32
  enum { DEGREE = 7, FRACTION = 23 };
  const float magic = 0x1.8p23f, high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f, least = -87.0f, most = 88.72f;
#else
  enum { DEGREE = 13, FRACTION = 52 };
  const double magic = 0x1.8p52, high = 0x1.62e42fefap-1, low = 0x1.cf79abc9e3b4p-40, least = -708.0, most = 709.7;
#endif
  V clamped = TYPED(max)(TYPED(min)(x, TYPED(splat)(most)), TYPED(splat)(least));
  // Adding 1.5 · 2^FRACTION leaves the rounded n in the low bits.
  V shifted = TYPED(fma)(clamped, TYPED(splat)((REAL)1.44269504088896340736), TYPED(splat)(magic));
  V n = shifted - TYPED(splat)(magic);
  V r = TYPED(fma)(n, TYPED(splat)(-low), TYPED(fma)(n, TYPED(splat)(-high), clamped));
  V p = TYPED(splat)((REAL)inverse_factorial[DEGREE]);
  UNROLL for (int k = DEGREE - 1; k >= 0; k--) p = TYPED(fma)(p, r, TYPED(splat)((REAL)inverse_factorial[k]));
  p = (V)((TYPED(Bits))p + ((TYPED(Bits))shifted << FRACTION));
  p = TYPED(select)(x < TYPED(splat)(least), (V){0}, p);
  p = TYPED(select)(x > TYPED(splat)(most), TYPED(splat)((REAL)INFINITY), p);
  return TYPED(select)(x == x, p, x); // NaN stays
}

// e^x for x < 88 (fp64: 709), as softmax needs it: p(x - n ln 2) · 2^n, n the integer next to x / ln 2. 0 where the
// result would not be a normal number: such are a hundred times slower, and hidden scores are -inf. A NaN stays. Less
// work than exp: for fp32 p is the polynomial of least relative error (4e-9) that begins as Taylor's, 1 + r + r²/2,
// since these are fp32 numbers: a fit of all coefficients is off by 1.7e-8 once they are rounded. fp64 takes Taylor's.
// The product n ln 2 is made of two: one alone is off by 2e-9 n. Either would be a bias, since x is less the maximum in
// forward and less logsumexp in backward, and gradients of a softmax would not add up to 0.
INLINE V TYPED(exp_fast)(V x) {
#if BITS == 32
  enum { DEGREE = 6 };
  static const float c[] = {1, 1, 0.5f, 0.166665345f, 0.0416672379f, 0.00836747605f, 0.00138637458f};
  const float magic = 0x1.8p23f, high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f, least = -87.0f;
  V clamped = TYPED(max)(TYPED(splat)(least), x); // in this order a NaN stays
  V shifted = TYPED(fma)(clamped, TYPED(splat)(1.44269504f), TYPED(splat)(magic)); // has the rounded n in its low bits
  V n = shifted - TYPED(splat)(magic);
  V r = TYPED(fma)(n, TYPED(splat)(-low), TYPED(fma)(n, TYPED(splat)(-high), clamped)), p = TYPED(splat)(c[DEGREE]);
  UNROLL for (int k = DEGREE - 1; k >= 0; k--) p = TYPED(fma)(p, r, TYPED(splat)(c[k]));
#if LEVEL_BYTES == 64
  __mmask16 some = _mm512_cmp_ps_mask((__m512)x, (__m512)TYPED(splat)(least), _CMP_NLT_UQ);
  return (V)_mm512_maskz_scalef_ps(some, (__m512)p, (__m512)n);
#else
  p = (V)((TYPED(Bits))p + ((TYPED(Bits))shifted << 23));
  p = TYPED(select)(x < TYPED(splat)(least), (V){0}, p);
  return TYPED(select)(x == x, p, x);
#endif
#else
  return TYPED(exp)(x);
#endif
}

INLINE V TYPED(sigmoid)(V x) { return TYPED(splat)(1) / (TYPED(splat)(1) + TYPED(exp)(-x)); }

// Φ(x) = (1 + erf(x / √2)) / 2.
INLINE V TYPED(normal_cdf)(V x) {
#if BITS == 32
  // |z| < 1: erf(z) / z as a polynomial in z²; beyond: erfc(z) e^{z²} (1 + z) as one in 1 / (1 + z). Chebyshev fits.
  static const float small[] = {0.965468739f,    -0.140536097f,   0.0198524971f,  -0.00228541954f,
                                0.000217513542f, -1.7669068e-05f, 1.23060548e-06f};
  static const float large[] = {0.7437004f,      0.123066967f,     -0.008060002f,   -0.00442819343f, 0.000802174568f,
                                0.000166897586f, -8.97865087e-05f, 2.39776213e-06f, 6.25112984e-06f};
  V one = TYPED(splat)(1), z = x * TYPED(splat)(0.70710678f), zz = z * z, a = TYPED(max)(z, -z);
  V u = zz + zz - one, p = TYPED(splat)(small[6]);
  UNROLL for (int k = 5; k >= 0; k--) p = TYPED(fma)(p, u, TYPED(splat)(small[k]));
  V near = TYPED(fma)(z * p, TYPED(splat)(0.5f), TYPED(splat)(0.5f));
  V t = one / (one + a), q = TYPED(splat)(large[8]);
  u = TYPED(fma)(t, TYPED(splat)(44.0f / 9), TYPED(splat)(-13.0f / 9)); // [1/11, 1/2] → [-1, 1]
  UNROLL for (int k = 7; k >= 0; k--) q = TYPED(fma)(q, u, TYPED(splat)(large[k]));
  V tail = TYPED(splat)(0.5f) * q * t * TYPED(exp)(-zz);
  return TYPED(select)(a < one, near, TYPED(select)(x < (V){0}, tail, one - tail));
#else
  union { V v; REAL x[WIDTH]; } w = {.v = x};
  for (int i = 0; i < WIDTH; i++) w.x[i] = 0.5 * erfc(-0.70710678118654752440 * w.x[i]);
  return w.v;
#endif
}

// Sums over an array, in an order that only its length gives.
static REAL TYPED(dot)(const REAL *a, const REAL *b, int64_t n) {
  V s0 = {0}, s1 = {0};
  int64_t i = 0;
  for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
    s0 = TYPED(fma)(TYPED(load)(a + i), TYPED(load)(b + i), s0);
    s1 = TYPED(fma)(TYPED(load)(a + i + WIDTH), TYPED(load)(b + i + WIDTH), s1);
  }
  REAL tail = 0;
  for (; i < n; i++) tail += a[i] * b[i];
  return TYPED(sum)(s0 + s1) + tail;
}
static REAL TYPED(greatest)(const REAL *a, int64_t n) {
  V most = TYPED(splat)((REAL)-INFINITY);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) most = TYPED(max)(most, TYPED(load)(a + i));
  union { V v; REAL x[WIDTH]; } u = {.v = most};
  REAL m = u.x[0];
  for (int k = 1; k < WIDTH; k++) m = u.x[k] > m ? u.x[k] : m;
  for (; i < n; i++) m = a[i] > m ? a[i] : m;
  return m;
}

// a[i] = e^(a[i] + shift); returns the sum. One partial vector at the end.
static REAL TYPED(exp_sum)(REAL *a, int64_t n, REAL shift) {
  V sum = {0};
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    V e = TYPED(exp)(TYPED(load)(a + i) + TYPED(splat)(shift));
    TYPED(store)(a + i, e);
    sum += e;
  }
  REAL tail = 0;
  if (i < n) {
    TYPED(store_part)(a + i, TYPED(exp)(TYPED(load_part)(a + i, n - i) + TYPED(splat)(shift)), n - i);
    for (; i < n; i++) tail += a[i];
  }
  return TYPED(sum)(sum) + tail;
}

#if BITS == 64
// sin and cos of up to about 10^6: reduced by multiples of π/2 in three parts, Taylor in |r| <= π/4.
INLINE void TYPED(sincos)(V x, double *sine, double *cosine) {
  V shifted = TYPED(fma)(x, TYPED(splat)(0.63661977236758134308), TYPED(splat)(0x1.8p52));
  V n = shifted - TYPED(splat)(0x1.8p52);
  V r = TYPED(fma)(n, TYPED(splat)(-0x1.921fb544p0), x);
  r = TYPED(fma)(n, TYPED(splat)(-0x4.2d18469p-36), r);
  r = TYPED(fma)(n, TYPED(splat)(-0x8.98cc51701b839p-68), r);
  V rr = r * r, s = TYPED(splat)(inverse_factorial[17]), c = TYPED(splat)(inverse_factorial[16]);
  UNROLL for (int k = 15; k >= 1; k -= 2) s = TYPED(splat)(inverse_factorial[k]) - rr * s;
  UNROLL for (int k = 14; k >= 0; k -= 2) c = TYPED(splat)(inverse_factorial[k]) - rr * c;
  s *= r;
  TYPED(Bits) bits = (TYPED(Bits))shifted;
  I odd = (I)((TYPED(Bits)){0} - (bits & 1));
  V sin_x = TYPED(select)(odd, c, s), cos_x = TYPED(select)(odd, s, c);
  TYPED(store)(sine, (V)((TYPED(Bits))sin_x ^ (bits & 2) << 62));
  TYPED(store)(cosine, (V)((TYPED(Bits))cos_x ^ ((bits + 1) & 2) << 62));
}
#endif
