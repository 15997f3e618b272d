// CACHE_ATTENTION in the tiles of attention.h: per query the arithmetic, and so the bits, of ATTENTION over a document.
// The query heads of a key-value head, of tokens of one request that follow each other, are the queries of a tile.

// Tokens of one request, and which query heads of each key-value head.
typedef struct TYPED(CacheRun) { int64_t token, tokens, head, heads; } TYPED(CacheRun);

typedef struct TYPED(CacheAttention) {
  ATTENTION a;
  AttentionAttr attr;
  TYPED(CacheRun) * run;
  int64_t runs;
} TYPED(CacheAttention);

static int64_t TYPED(cache_token_request)(const KernelCall *call, int64_t token) {
  return ((const int32_t *)call->input[3].data)[token];
}

static ATTENTION TYPED(cache_sizes)(const Operand *input) {
  const int64_t *q = input[0].size;
  return (ATTENTION){.b = q[0], .s = q[1], .g = q[2], .r = q[3], .d = q[4], .k_row = q[2] * q[4]};
}

// A thread's tile, and rows as they are gathered.
static size_t TYPED(cache_slot)(const ATTENTION *a) {
  return TYPED(attention_slot)(a, 0, NULL) + (sizeof(REAL) * (size_t)(TILE * a->d) + 63) / 64 * 64;
}

static int64_t TYPED(cache_most_runs)(const ATTENTION *a) { return a->b * a->s * ((a->r + TILE - 1) / TILE); }

static size_t TYPED(cache_attention_workspace)(const Operand *input, const Operand *output, const void *attr,
                                               int threads) {
  ATTENTION a = TYPED(cache_sizes)(input);
  size_t runs = (sizeof(TYPED(CacheRun)) * (size_t)TYPED(cache_most_runs)(&a) + 63) / 64 * 64;
  return runs + TYPED(cache_slot)(&a) * (size_t)threads;
}

// Runs of tokens whose queries fit in a tile; where a token's heads do not, a part of them. Tokens of no request are in
// none.
static void TYPED(cache_find_runs)(TYPED(CacheAttention) * c) {
  const ATTENTION *a = &c->a;
  int64_t heads = a->r < TILE ? a->r : TILE, most = TILE / heads;
  for (int64_t t = 0, n; t < a->b * a->s; t += n) {
    int64_t request = TYPED(cache_token_request)(a->call, t), end = (t / a->s + 1) * a->s;
    for (n = 1; n < most && t + n < end && TYPED(cache_token_request)(a->call, t + n) == request;) n++;
    for (int64_t h = 0; request >= 0 && h < a->r; h += heads)
      c->run[c->runs++] = (TYPED(CacheRun)){t, n, h, a->r - h < heads ? a->r - h : heads};
    if (request >= 0) continue;
    int64_t width = a->g * a->r * a->d;
    memset((REAL *)a->call->output[0].data + t * width, 0, sizeof(REAL) * (size_t)(n * width));
  }
}

static int64_t TYPED(cache_query_at)(const ATTENTION *a, const TYPED(CacheRun) * run, int64_t g, int64_t row) {
  return (((run->token + row / run->heads) * a->g + g) * a->r + run->head + row % run->heads) * a->d;
}

// to (keys, d): those of one key-value head from position `from` on.
static void TYPED(cache_gather)(const ATTENTION *a, const REAL *cache, int64_t b, int64_t g, int64_t request,
                                const SIDE *key, REAL *to) {
  for (int64_t i = 0; i < key->count; i++) {
    int64_t row = b * a->t + cache_row(a->call, b, request, FAULT(stale_page_is_read, key->from, 0) + i);
    memcpy(to + i * a->d, cache + row * a->k_row + g * a->d, sizeof(REAL) * (size_t)a->d);
  }
}

static void TYPED(cache_set_queries)(const ATTENTION *a, TILE_STATE *t, const TYPED(CacheRun) * run, int64_t g) {
  SIDE *side = t->query;
  side->from = 0;
  side->count = run->tokens * run->heads;
  for (int64_t i = 0; i < side->count; i++) {
    side->position[i] = ((const int32_t *)a->call->input[4].data)[run->token + i / run->heads];
    memcpy(t->keys + i * a->d, a->q + TYPED(cache_query_at)(a, run, g, i), sizeof(REAL) * (size_t)a->d);
  }
  side->positions = TYPED(extent)(side->position, side->count);
  TYPED(transpose_tile)(t->transposed, t->keys, a->d, side->count, a->d, (REAL)a->attr->scale);
}

static void TYPED(cache_set_keys)(SIDE *side, int64_t from, int64_t all) {
  side->from = from;
  side->count = all - from < TILE ? all - from : TILE;
  for (int64_t i = 0; i < side->count; i++) side->position[i] = (INTEGER)(from + i);
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
  TYPED(cache_set_queries)(a, t, run, g);
  memset(t->accumulator, 0, sizeof(REAL) * (size_t)(TILE * t->width));
  for (int64_t i = 0; i < TILE; i++) {
    t->maximum[i] = (REAL)-INFINITY;
    t->sum[i] = 0;
  }
  int64_t all = t->query->positions.most + 1;
  for (int64_t from = 0; from < all; from += TILE) {
    TYPED(cache_set_keys)(t->key, from, all);
    TYPED(cache_gather)(a, a->k, b, g, request, t->key, t->keys);
    TYPED(cache_gather)(a, a->v, b, g, request, t->key, rows);
    TYPED(panel_tile)(t->values, rows, a->d, t->key->count, a->d);
    TYPED(forward_tile)(a, t, &at, 0, from + t->key->count - 1 <= t->query->positions.least ? 2 : 1);
  }
  for (int64_t i = 0; i < t->query->count; i++)
    TYPED(scale_row)
    ((REAL *)a->call->output[0].data + TYPED(cache_query_at)(a, run, g, i), t->accumulator + i * t->width, a->d,
     1 / t->sum[i], 0);
}

static void TYPED(cache_attention)(const KernelCall *call) {
  TYPED(CacheAttention) c = {.a = TYPED(cache_sizes)(call->input)};
  c.attr = (AttentionAttr){.scale = ((const CacheAttr *)call->attr)->scale, .causal = 1};
  c.a.t = call->input[1].size[1];
  c.a.attr = &c.attr;
  c.a.q = call->input[0].data;
  c.a.k = call->input[1].data;
  c.a.v = call->input[2].data;
  c.a.slot_bytes = TYPED(cache_slot)(&c.a);
  c.run = call->workspace;
  KernelCall tiles = *call; // slots lie after the runs
  tiles.workspace =
      (char *)call->workspace + (sizeof *c.run * (size_t)TYPED(cache_most_runs)(&c.a) + 63) / 64 * 64;
  c.a.call = &tiles;
  TYPED(cache_find_runs)(&c);
  team_each(call_team(call), c.runs * c.a.g, TYPED(cache_unit), &c);
}
