// CACHE_ATTENTION in the tiles of attention.h: per query the arithmetic, and so the bits, of ATTENTION over a document.
// The query heads of a key-value head, of tokens of one request that follow each other, are the queries of a tile. The
// cache may be narrower than the queries.
#include "device/cpu/cache_runs.h"

// A thread's tile, and rows as they are gathered.
static size_t TYPED(cache_slot)(const ATTENTION *a) {
  return TYPED(attention_slot)(a, 0, NULL) + (sizeof(REAL) * (size_t)(TILE * a->d) + 63) / 64 * 64;
}

static size_t TYPED(cache_attention_workspace)(const Operand *input, const Operand *output, const void *attr,
                                               int threads) {
  ATTENTION a = TYPED(cache_sizes)(input);
  return TYPED(cache_runs_bytes)(&a) + TYPED(cache_slot)(&a) * (size_t)threads;
}

// A row of the cache, of any dtype.
INLINE void TYPED(cache_widen)(REAL *restrict to, const void *from, Dtype dtype, int64_t d) {
  const uint16_t *narrow = from;
  const float *single = from;
  switch (dtype) {
  case DTYPE_F32:
    for (int64_t e = 0; e < d; e++) to[e] = single[e];
    break;
  case DTYPE_BF16:
    for (int64_t e = 0; e < d; e++) to[e] = bf16_to_float(narrow[e]);
    break;
  case DTYPE_F16:
    for (int64_t e = 0; e < d; e++) to[e] = f16_to_float(narrow[e]);
    break;
  default: memcpy(to, from, sizeof(REAL) * (size_t)d);
  }
}

// to (keys, d): those of one key-value head from position key->from on. which: 1 keys, 2 values.
static void TYPED(cache_gather)(const ATTENTION *a, int which, int64_t b, int64_t g, int64_t request, const SIDE *key,
                                REAL *to) {
  const Operand *cache = &a->call->input[which];
  const int64_t size = (int64_t)dtype_size(cache->dtype), d = a->d;
  for (int64_t i = 0, rows; i < key->count; i += rows) {
    int64_t at = TYPED(cache_at)(a, b, g, request, FAULT(stale_page_is_read, key->from, 0) + i, key->count - i, &rows);
    const char *row = (const char *)cache->data + at * size;
    for (int64_t j = 0; j < rows; j++, to += d, row += a->k_row * size) {
      if (j + CACHE_AHEAD < rows) TYPED(cache_fetch)(row + CACHE_AHEAD * a->k_row * size, d * size);
      TYPED(cache_widen)(to, row, cache->dtype, d);
    }
  }
}

// Of one run, the queries of one key-value head.
static void TYPED(cache_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(CacheAttention) *c = argument;
  const ATTENTION *a = &c->a;
  const TYPED(CacheRun) *run = &c->run[unit / a->g];
  TILE_STATE *t = TYPED(attention_state)(a, 0, slot);
  REAL *rows = (REAL *)(void *)((char *)t + TYPED(attention_slot)(a, 0, NULL)); // (TILE, d)
  int64_t g = unit % a->g, b = run->token / a->s, request = TYPED(cache_token_request)(a->call, run->token);
  PLACE at = {.b = b, .g = g, .query = t->query, .key = t->key};
  TYPED(cache_take_queries)(a, run, g, t->query, t->keys);
  TYPED(transpose_tile)(t->transposed, t->keys, a->d, t->query->count, a->d, (REAL)a->attr->scale);
  memset(t->accumulator, 0, sizeof(REAL) * (size_t)(TILE * t->width));
  for (int64_t i = 0; i < TILE; i++) {
    t->maximum[i] = (REAL)-INFINITY;
    t->sum[i] = 0;
  }
  int64_t all = t->query->positions.most + 1;
  for (int64_t from = 0; from < all; from += TILE) {
    TYPED(cache_set_keys)(t->key, from, all);
    TYPED(cache_gather)(a, 1, b, g, request, t->key, t->keys);
    TYPED(cache_gather)(a, 2, b, g, request, t->key, rows);
    TYPED(panel_tile)(t->values, rows, a->d, t->key->count, a->d);
    TYPED(forward_tile)(a, t, &at, 0, from + t->key->count - 1 <= t->query->positions.least ? 2 : 1);
  }
  for (int64_t i = 0; i < t->query->count; i++)
    TYPED(scale_row)
    ((REAL *)a->call->output[0].data + TYPED(cache_query_at)(a, run, g, i), t->accumulator + i * t->width, a->d,
     1 / t->sum[i], 0);
}

static void TYPED(cache_attention)(const KernelCall *call) {
  KernelCall tiles = *call;
  TYPED(CacheAttention) c = TYPED(cache_begin)(&tiles);
  c.a.attr = &c.attr;
  c.a.slot_bytes = TYPED(cache_slot)(&c.a);
  team_each(call_team(call), c.runs * c.a.g, TYPED(cache_unit), &c);
}
