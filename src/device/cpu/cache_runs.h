// CACHE_ATTENTION as the kernels of all dtypes see it: runs of queries that share a tile, and where their keys lie.

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

static int64_t TYPED(cache_most_runs)(const ATTENTION *a) { return a->b * a->s * ((a->r + TILE - 1) / TILE); }
static size_t TYPED(cache_runs_bytes)(const ATTENTION *a) {
  return (sizeof(TYPED(CacheRun)) * (size_t)TYPED(cache_most_runs)(a) + 63) / 64 * 64;
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
    memset((ELEMENT *)a->call->output[0].data + t * width, 0, sizeof(ELEMENT) * (size_t)(n * width));
  }
}

static int64_t TYPED(cache_query_at)(const ATTENTION *a, const TYPED(CacheRun) * run, int64_t g, int64_t row) {
  return (((run->token + row / run->heads) * a->g + g) * a->r + run->head + row % run->heads) * a->d;
}

// The queries of a key-value head of a run: their positions, and they themselves to `rows` (queries, d).
static void TYPED(cache_take_queries)(const ATTENTION *a, const TYPED(CacheRun) * run, int64_t g, SIDE *side,
                                      ELEMENT *rows) {
  side->from = 0;
  side->count = run->tokens * run->heads;
  for (int64_t i = 0; i < side->count; i++) {
    side->position[i] = ((const int32_t *)a->call->input[4].data)[run->token + i / run->heads];
    memcpy(rows + i * a->d, a->q + TYPED(cache_query_at)(a, run, g, i), sizeof(ELEMENT) * (size_t)a->d);
  }
  side->positions = TYPED(extent)(side->position, side->count);
}

static void TYPED(cache_set_keys)(SIDE *side, int64_t from, int64_t all) {
  side->from = from;
  side->count = all - from < TILE ? all - from : TILE;
  for (int64_t i = 0; i < side->count; i++) side->position[i] = (INTEGER)(from + i);
}

// Where the row of a position's key or value begins, of one key-value head. *rows: of the positions from there on that
// lie one after the other, k_row apart; at most `most`.
static int64_t TYPED(cache_at)(const ATTENTION *a, int64_t b, int64_t g, int64_t request, int64_t position,
                               int64_t most, int64_t *rows) {
  int64_t page = ((const CacheAttr *)a->call->attr)->page, left = page - position % page;
  *rows = most < left ? most : left;
  return (b * a->t + cache_row(a->call, b, request, position)) * a->k_row + g * a->d;
}

// Rows are a few lines of a cache each, and lie apart: which one comes next, no prefetcher of a core foresees.
#define CACHE_AHEAD 4 // rows
INLINE void TYPED(cache_fetch)(const void *row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row + i);
}

// The call's sizes and runs. tiles: a copy of the call, whose workspace becomes that of the slots. The caller sets
// c.a.attr to &c.attr.
static TYPED(CacheAttention) TYPED(cache_begin)(KernelCall *tiles) {
  TYPED(CacheAttention) c = {.a = TYPED(cache_sizes)(tiles->input)};
  c.attr = (AttentionAttr){.scale = ((const CacheAttr *)tiles->attr)->scale, .causal = 1};
  c.a.t = tiles->input[1].size[1];
  c.a.q = tiles->input[0].data;
  c.a.call = tiles;
  c.run = tiles->workspace;
  tiles->workspace = (char *)tiles->workspace + TYPED(cache_runs_bytes)(&c.a); // slots lie after the runs
  TYPED(cache_find_runs)(&c);
  return c;
}
