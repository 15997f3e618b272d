// Embeddings and rotary positions of one dtype.

// A block a token.
KERNEL(NAME(embedding), EmbeddingArguments) {
  const int64_t row = map_local(&a.map, array_integer(a.ids, BLOCK));
  for (int64_t i = THREAD; i < a.width; i += THREADS)
    ((ELEMENT *)a.y)[BLOCK * a.width + i] =
        row < 0 ? (ELEMENT)0 : ((const ELEMENT *)a.table)[FAULT(kernel_row_after_the_word, row, row + 1) * a.width + i];
}

// Adds to the gradient of a table, which already holds what there is to add to. A block a token and BLOCK_THREADS
// columns: the first token of a word adds all of its rows, in rising order; blocks of later ones end. Chunks of tokens
// in which the word is not are passed over.
KERNEL(NAME(embedding_grad), EmbeddingArguments) {
  SHARED(int64_t, id, BLOCK_THREADS);
  const int64_t blocks = (a.width + THREADS - 1) / THREADS, token = BLOCK / blocks,
                column = BLOCK % blocks * THREADS + THREAD, word = array_integer(a.ids, token);
  const int64_t row = map_local(&a.map, word);
  int earlier = row < 0;
  for (int64_t i = THREAD; i < token; i += THREADS) earlier |= array_integer(a.ids, i) == word;
  if (BARRIER_OR(FAULT(kernel_word_is_added_twice, earlier, row < 0))) return;
  REAL sum = 0;
  for (int64_t first = token; first < a.tokens; first += THREADS) {
    const int64_t mine = first + THREAD < a.tokens ? array_integer(a.ids, first + THREAD) : -1;
    id[THREAD] = mine;
    if (!BARRIER_OR(mine == word)) continue;
    for (int k = 0; k < THREADS && column < a.width; k++)
      if (id[k] == word) sum += WIDEN(((const ELEMENT *)a.table)[(first + k) * a.width + column]);
    BARRIER();
  }
  if (column < a.width) PUT(a.out, row * a.width + column, ARRAY(a.out, row * a.width + column) + sum);
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
