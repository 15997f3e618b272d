// Packs of elements of one dtype: 16 bytes, which a thread moves at a time, as far as they are aligned.
enum { NAME(PACK) = 16 / sizeof(ELEMENT), NAME(REALS) = 16 / sizeof(REAL) };
typedef struct NAME(Pack) { ALIGNED16 ELEMENT e[16 / sizeof(ELEMENT)]; } NAME(Pack);
typedef struct NAME(Reals) { ALIGNED16 REAL e[16 / sizeof(REAL)]; } NAME(Reals);

// Elements from `at` on of n; those past the end are 0.
INLINE void NAME(take)(NAME(Pack) *pack, const void *from, int64_t at, int64_t n) {
  const ELEMENT *x = (const ELEMENT *)from + at;
  if (at + NAME(PACK) <= n && (uintptr_t)x % 16 == 0) *pack = *(const NAME(Pack) *)x;
  else
    for (int i = 0; i < NAME(PACK); i++) pack->e[i] = at + i < n ? x[i] : (ELEMENT)0;
}

INLINE void NAME(give)(void *to, const NAME(Pack) *pack, int64_t at, int64_t n) {
  ELEMENT *y = (ELEMENT *)to + at;
  const int whole = at + FAULT(kernel_pack_past_the_end, NAME(PACK), 1) <= n;
  if (whole && (uintptr_t)y % 16 == 0) *(NAME(Pack) *)y = *pack;
  else
    for (int i = 0; i < NAME(PACK) && at + i < n; i++) y[i] = pack->e[i];
}

// A pack of an array of any dtype, from `at` on; 0 where data is NULL, and from `n` on.
INLINE void NAME(take_array)(REAL *value, Array x, int64_t at, int64_t n) {
  const int whole = x.data && x.dtype == REAL_DTYPE && at + NAME(PACK) <= n;
  if (whole && (uintptr_t)((const REAL *)x.data + at) % 16 == 0)
    for (int k = 0; k < NAME(PACK) / NAME(REALS); k++) {
      const NAME(Reals) reals = ((const NAME(Reals) *)((const REAL *)x.data + at))[k];
      for (int i = 0; i < NAME(REALS); i++) value[k * NAME(REALS) + i] = reals.e[i];
    }
  else
    for (int i = 0; i < NAME(PACK); i++) value[i] = x.data && at + i < n ? ARRAY(x, at + i) : (REAL)0;
}

// The same into an array. at, end: of the whole array; nothing is written from `end` on.
INLINE void NAME(give_array)(Array x, int64_t at, int64_t end, const REAL *value) {
  REAL *to = (REAL *)x.data + at;
  const int whole = at + NAME(PACK) <= end;
  if (whole && NAME(PACK) == 4 && x.dtype == DTYPE_BF16 && at % 4 == 0 && (uintptr_t)x.data % 8 == 0) {
    Four16 four; // gradients of logits
    for (int i = 0; i < 4; i++) four.e[i] = narrow_bf16((float)value[i % NAME(PACK)]);
    ((Four16 *)x.data)[at / 4] = four;
  } else if (whole && x.dtype == REAL_DTYPE && (uintptr_t)to % 16 == 0)
    for (int k = 0; k < NAME(PACK) / NAME(REALS); k++) {
      NAME(Reals) reals;
      for (int i = 0; i < NAME(REALS); i++) reals.e[i] = value[k * NAME(REALS) + i];
      ((NAME(Reals) *)to)[k] = reals;
    }
  else
    for (int i = 0; i < NAME(PACK) && at + i < end; i++) PUT(x, at + i, value[i]);
}

#define PACKED(x, i) WIDEN(x.e[i])
// The elements of a row of n at which a thread of a block that has the row takes packs.
#define EACH_PACK_OF_ROW(at, n)                                                                                        \
  for (int64_t at = (int64_t)THREAD * NAME(PACK); at < n; at += (int64_t)THREADS * NAME(PACK))
