// Attention to a cache with sums of one dtype. A block of ATTENTION_THREADS has one query of one head; its threads
// score as many positions of the request at a time, and then each adds up columns of the result.
enum { NAME(CACHE_COLUMNS) = ATTENTION_WIDTH / ATTENTION_THREADS };

KERNEL(NAME(cache_attention), CacheArguments) {
  SHARED(REAL, query, ATTENTION_WIDTH);
  SHARED(REAL, part, ATTENTION_THREADS);
  SHARED(REAL, scratch, WARP);
  SHARED(int64_t, place, ATTENTION_THREADS); // where the keys and values of these positions begin
  const uint32_t head = (uint32_t)BLOCK / (uint32_t)a.r, token = head / (uint32_t)a.g, g = head % (uint32_t)a.g;
  const int64_t b = token / (uint32_t)a.s, request = array_integer(a.requests, token);
  const int64_t length = request < 0 ? 0 : array_integer(a.positions, token) + FAULT(kernel_cache_hides_a_key, 1, 0);
  const int32_t *pages = a.pages + (b * a.n + (request < 0 ? 0 : request)) * a.m;
  REAL maximum = MINUS_INFINITY, sum = 0, out[NAME(CACHE_COLUMNS)] = {0};
  for (int64_t i = THREAD; i < a.d; i += THREADS) query[i] = ARRAY(a.q, BLOCK * a.d + i);
  for (int64_t first = 0; first < length; first += THREADS) {
    const int64_t t = first + THREAD, count = length - first < THREADS ? length - first : THREADS;
    REAL score = MINUS_INFINITY;
    BARRIER(); // the query is there, and nobody still reads what is written below
    if (t < length) {
      const uint32_t page = (uint32_t)t / (uint32_t)a.page, in_page = (uint32_t)t % (uint32_t)a.page;
      const int64_t key = ((b * a.c + pages[page] * a.page + in_page) * a.g + g) * a.d;
      REAL dot = 0;
      for (int64_t i = 0; i < a.d; i++) dot += query[i] * ARRAY(a.keys, key + i);
      score = (REAL)a.scale * dot;
      place[THREAD] = key;
    }
    const REAL greatest = BLOCK_MAX(score, scratch), top = greatest > maximum ? greatest : maximum;
    const REAL before = sum > 0 ? REAL_EXP(maximum - top) : (REAL)0;
    const REAL mine = t < length ? REAL_EXP(score - top) : (REAL)0;
    part[THREAD] = mine;
    sum = sum * before + BLOCK_SUM(mine, scratch);
    maximum = top;
    for (int c = 0; c < NAME(CACHE_COLUMNS); c++) {
      const int64_t i = THREAD + c * THREADS;
      out[c] *= before;
      for (int64_t j = 0; i < a.d && j < count; j++) out[c] += part[j] * ARRAY(a.values, place[j] + i);
    }
  }
  for (int c = 0; c < NAME(CACHE_COLUMNS); c++) {
    const int64_t i = THREAD + c * THREADS;
    if (i < a.d) PUT(a.out, BLOCK * a.d + i, sum > 0 ? out[c] / sum : (REAL)0);
  }
}
