// Vector types and their few operations for one SIMD level and one real type. Defined by the includer: REAL, INTEGER
// (signed, as wide), UNSIGNED, BITS of both, TYPED(name) and MATH(name), the names of this type, LEVEL_BYTES.
//
// Kernels of other files are written once for all dtypes: ELEMENT is what lies in memory and TYPED(name) are functions
// of that; REAL is what they compute in and MATH(name) are functions of that. The two differ for bf16, whose arithmetic
// is fp32.

typedef REAL TYPED(Vector) __attribute__((vector_size(LEVEL_BYTES)));
typedef REAL TYPED(Unaligned) __attribute__((vector_size(LEVEL_BYTES), may_alias, aligned(sizeof(REAL))));
typedef INTEGER TYPED(Lanes) __attribute__((vector_size(LEVEL_BYTES))); // masks: 0 or -1
typedef UNSIGNED TYPED(Bits) __attribute__((vector_size(LEVEL_BYTES)));

#define V MATH(Vector)
#define I MATH(Lanes)
#define WIDTH ((int)(LEVEL_BYTES / sizeof(REAL)))

INLINE V TYPED(load)(const REAL *p) { return *(const TYPED(Unaligned) *)p; }
INLINE void TYPED(store)(REAL *p, V v) { *(TYPED(Unaligned) *)p = v; }
INLINE REAL TYPED(widen)(REAL x) { return x; } // one element
INLINE V TYPED(splat)(REAL x) { return x - (V){0}; }
INLINE V TYPED(select)(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }

// The first n lanes; the others are 0.
INLINE V TYPED(load_part)(const REAL *p, int64_t n) {
  union { V v; REAL x[WIDTH]; } u = {.v = {0}};
  for (int64_t i = 0; i < n; i++) u.x[i] = p[i];
  return u.v;
}
INLINE void TYPED(store_part)(REAL *p, V v, int64_t n) {
  union { V v; REAL x[WIDTH]; } u = {.v = v};
  for (int64_t i = 0; i < n; i++) p[i] = u.x[i];
}

// A vector of which `left` elements exist.
INLINE V TYPED(take)(const REAL *p, int64_t left) {
  return __builtin_expect(left >= WIDTH, 1) ? TYPED(load)(p) : TYPED(load_part)(p, left);
}
INLINE void TYPED(put)(REAL *p, V v, int64_t left) {
  if (__builtin_expect(left >= WIDTH, 1)) TYPED(store)(p, v);
  else TYPED(store_part)(p, v, left);
}
#define EACH_VECTOR for (int64_t i = 0; i < n; i += WIDTH)

// v with 0 in the lanes past `left`.
INLINE V TYPED(first_lanes)(V v, int64_t left) {
  if (left >= WIDTH) return v;
  union { V v; REAL x[WIDTH]; } u = {.v = v};
  for (int64_t i = left; i < WIDTH; i++) u.x[i] = 0;
  return u.v;
}

// Sum of the lanes, halves first: the same order at every call.
INLINE REAL TYPED(sum)(V v) {
  union { V v; REAL x[WIDTH]; } u = {.v = v};
  for (int half = WIDTH / 2; half; half /= 2)
    for (int i = 0; i < half; i++) u.x[i] += u.x[i + half];
  return u.x[0];
}

#if LEVEL_BYTES == 64 && BITS == 32
INLINE V TYPED(fma)(V a, V b, V c) { return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE V TYPED(max)(V a, V b) { return (V)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE V TYPED(min)(V a, V b) { return (V)_mm512_min_ps((__m512)a, (__m512)b); }
#elif LEVEL_BYTES == 64
INLINE V TYPED(fma)(V a, V b, V c) { return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE V TYPED(max)(V a, V b) { return (V)_mm512_max_pd((__m512d)a, (__m512d)b); }
INLINE V TYPED(min)(V a, V b) { return (V)_mm512_min_pd((__m512d)a, (__m512d)b); }
#elif LEVEL_BYTES == 32 && BITS == 32
INLINE V TYPED(fma)(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V TYPED(max)(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE V TYPED(min)(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
#elif LEVEL_BYTES == 32
INLINE V TYPED(fma)(V a, V b, V c) { return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE V TYPED(max)(V a, V b) { return (V)_mm256_max_pd((__m256d)a, (__m256d)b); }
INLINE V TYPED(min)(V a, V b) { return (V)_mm256_min_pd((__m256d)a, (__m256d)b); }
#else
#if defined(__aarch64__) && BITS == 32 // every 64-bit ARM fuses
INLINE V TYPED(fma)(V a, V b, V c) { return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#elif defined(__aarch64__)
INLINE V TYPED(fma)(V a, V b, V c) { return (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#else
INLINE V TYPED(fma)(V a, V b, V c) { return a * b + c; }
#endif
INLINE V TYPED(max)(V a, V b) { return TYPED(select)(a > b, a, b); }
INLINE V TYPED(min)(V a, V b) { return TYPED(select)(a < b, a, b); }
#endif
#if BITS == 32
INLINE float TYPED(root)(float x) { return __builtin_sqrtf(x); }
#else
INLINE double TYPED(root)(double x) { return __builtin_sqrt(x); }
#endif
