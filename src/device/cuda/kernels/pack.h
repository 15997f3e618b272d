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

// The same of an array of any dtype; 0 where there is none. To write a row of one, `end` is where the row ends in it.
INLINE void NAME(take_array)(REAL *value, Array x, int64_t at, int64_t n) {
  const REAL *from = (const REAL *)x.data + at;
  if (x.dtype == REAL_DTYPE && x.data && at + NAME(PACK) <= n && (uintptr_t)from % 16 == 0)
    for (int k = 0; k < NAME(PACK) / NAME(REALS); k++) {
      const NAME(Reals) reals = ((const NAME(Reals) *)from)[k];
      for (int i = 0; i < NAME(REALS); i++) value[k * NAME(REALS) + i] = reals.e[i];
    }
  else
    for (int i = 0; i < NAME(PACK); i++) value[i] = x.data && at + i < n ? ARRAY(x, at + i) : (REAL)0;
}

INLINE void NAME(give_array)(Array x, int64_t at, int64_t end, const REAL *value) {
  REAL *to = (REAL *)x.data + at;
  if (x.dtype == REAL_DTYPE && at + NAME(PACK) <= end && (uintptr_t)to % 16 == 0)
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
