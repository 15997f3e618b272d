// Embeddings and rotary positions of one dtype.
#include "device/cuda/kernels/pack.h"

// A block a token.
KERNEL(NAME(embedding), EmbeddingArguments) {
  const int64_t row = map_local(&a.map, array_integer(a.ids, BLOCK));
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(Pack) p;
    if (row >= 0)
      NAME(take)(&p, (const ELEMENT *)a.table + FAULT(kernel_row_after_the_word, row, row + 1) * a.width, at, a.width);
    else
      for (int i = 0; i < NAME(PACK); i++) p.e[i] = 0;
    NAME(give)((ELEMENT *)a.y + BLOCK * a.width, &p, at, a.width);
  }
}

// The gradient of a table, a block a word: the sum of its tokens' rows in rising order, and what is added.
KERNEL(NAME(embedding_grad), EmbeddingGradArguments) {
  const int64_t word = BLOCK;
  const int32_t first = a.begins[word], end = a.begins[word + 1];
  if (first == end && a.added.data == a.out.data) return;
  EACH_PACK_OF_ROW(at, a.width) {
    REAL sum[NAME(PACK)], added[NAME(PACK)];
    for (int i = 0; i < NAME(PACK); i++) sum[i] = 0;
    UNROLL_BY(4)
    for (int32_t k = first; k < end; k++) {
      NAME(Pack) p;
      NAME(take)(&p, (const ELEMENT *)a.dy + a.token[k] * a.width, at, a.width);
      for (int i = 0; i < NAME(PACK); i++) sum[i] += PACKED(p, i);
    }
    NAME(take_array)(added, a.added, word * a.width + at, (word + 1) * a.width);
    for (int i = 0; i < NAME(PACK); i++) sum[i] += added[i];
    NAME(give_array)(a.out, word * a.width + at, (word + 1) * a.width, sum);
  }
}

// A thread a token and pair, of all heads.
KERNEL(NAME(rope), RopeArguments) {
  const int64_t half = a.width / 2, all = a.tokens * half, at = BLOCK * THREADS + THREAD;
  if (at >= all) return;
  const int64_t token = at / half, pair = at % half;
  const double angle = array_double(a.positions, token) * frequency_of(&a, pair);
  const REAL c = (REAL)cos(angle), s = (REAL)(a.inverse ? -sin(angle) : sin(angle));
  for (int64_t head = 0; head < a.heads; head++) {
    const int64_t low = (token * a.heads + head) * a.width + pair, high = low + half;
    const REAL x = WIDEN(((const ELEMENT *)a.x)[low]), y = WIDEN(((const ELEMENT *)a.x)[high]);
    ((ELEMENT *)a.y)[low] = NARROW(x * c - y * s);
    ((ELEMENT *)a.y)[high] = NARROW(y * c + x * s);
  }
}
#undef PACKED
#undef EACH_PACK_OF_ROW
