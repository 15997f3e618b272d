// CACHE_ATTENTION on bf16 in the tiles of bf16_attention.h: per query the arithmetic, and so the bits, of ATTENTION
// over a document. A key that is not there yet, where ATTENTION's tile has one that the mask hides, is a zero in its
// sums.
#include "device/cpu/cache_runs.h"

// A thread's part of the workspace: after the tile what it packs, the accumulator, and rows as they are gathered.
typedef struct CacheSlot {
  AttentionTile *tile;
  Packed *keys, *values; // (d × TILE), (TILE × d)
  float *accumulator;
  uint16_t *queries, *rows; // (TILE, d) twice
} CacheSlot;

static size_t cache_rows_bytes(const ATTENTION *a) { return rounded(sizeof(uint16_t) * (size_t)(TILE * a->d)) + 64; }
static size_t cache_slot_bytes(const ATTENTION *a) {
  return rounded(sizeof(AttentionTile)) + rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a))) +
         rounded(sizeof(float) * (size_t)accumulator_size(a)) + 2 * cache_rows_bytes(a);
}

static CacheSlot cache_slot_of(const ATTENTION *a, int slot) {
  char *at = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  CacheSlot w = {.tile = (AttentionTile *)(void *)at};
  at += rounded(sizeof(AttentionTile));
  w.keys = (Packed *)(void *)at;
  w.values = w.keys + packed_across(a);
  at += rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a)));
  w.accumulator = (float *)(void *)at;
  at += rounded(sizeof(float) * (size_t)accumulator_size(a));
  w.queries = (uint16_t *)(void *)at;
  w.rows = (uint16_t *)(void *)(at + cache_rows_bytes(a));
  return w;
}

static size_t cache_attention_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  ATTENTION a = TYPED(cache_sizes)(input);
  return TYPED(cache_runs_bytes)(&a) + (size_t)threads * cache_slot_bytes(&a);
}

// to (keys, d): those of one key-value head from position key->from on.
static void cache_gather_bf16(const ATTENTION *a, const uint16_t *cache, const PLACE *at, int64_t request,
                              uint16_t *to) {
  const size_t bytes = sizeof(uint16_t) * (size_t)a->d;
  for (int64_t i = 0, rows; i < at->key->count; i += rows) {
    const uint16_t *row = cache + TYPED(cache_at)(a, at->b, at->g, request,
                                                  FAULT(stale_page_is_read, at->key->from, 0) + i, at->key->count - i,
                                                  &rows);
    for (int64_t j = 0; j < rows; j++, to += a->d, row += a->k_row) {
      if (j + CACHE_AHEAD < rows) TYPED(cache_fetch)(row + CACHE_AHEAD * a->k_row, (int64_t)bytes);
      memcpy(to, row, bytes);
    }
  }
}

// Of one run, the queries of one key-value head.
static void cache_unit_bf16(void *argument, int slot, int64_t unit) {
  const TYPED(CacheAttention) *c = argument;
  const ATTENTION *a = &c->a;
  const TYPED(CacheRun) *run = &c->run[unit / a->g];
  CacheSlot w = cache_slot_of(a, slot);
  AttentionTile *t = w.tile;
  PLACE at = {.b = run->token / a->s, .g = unit % a->g, .query = &t->query[0], .key = &t->key};
  int64_t request = TYPED(cache_token_request)(a->call, run->token);
  TYPED(cache_take_queries)(a, run, at.g, &t->query[0], w.queries);
  int64_t queries = at.query->count, all = at.query->positions.most + 1;
  memset(w.accumulator, 0, sizeof(float) * (size_t)accumulator_size(a));
  for (int64_t i = 0; i < TILE; i++) t->maximum[i] = -INFINITY, t->sum[i] = 0;
  tiles_begin();
  for (int64_t from = 0; from < all; from += TILE) {
    TYPED(cache_set_keys)(&t->key, from, all);
    int64_t keys = t->key.count;
    int visible = from + keys - 1 <= at.query->positions.least ? 2 : 1;
    cache_gather_bf16(a, a->k, &at, request, w.rows);
    pack_b(w.keys, w.rows, 1, a->d, a->d, keys);
    tile_product(t, w.queries, a->d, 1, queries, a->d, w.keys, keys, t->score, SCORE_ROW, 0);
    cache_gather_bf16(a, a->v, &at, request, w.rows);
    pack_b(w.values, w.rows, a->d, 1, keys, a->d);
    forward_rows(a, t, &at, visible, w.accumulator, t->maximum, t->sum);
    tile_product(t, t->p, FACTOR_ROW, 1, queries, keys, w.values, a->d, w.accumulator, width_of(a), 1);
  }
  tiles_end();
  float *o = w.accumulator;
  for (int64_t i = 0; i < queries; i++, o += width_of(a)) {
    float inverse = 1 / t->sum[i];
    for (int64_t e = 0; e < a->d; e++) o[e] *= inverse;
    store_row(&a->call->output[0], TYPED(cache_query_at)(a, run, at.g, i), o, a->d);
  }
}

static void cache_attention_bf16(const KernelCall *call) {
  KernelCall tiles = *call;
  ATTENTION sizes = TYPED(cache_sizes)(call->input);
  if (sizes.d > KC) { // as ATTENTION
    op_def(OP_CACHE_ATTENTION)->reference(call);
    return;
  }
  TYPED(CacheAttention) c = TYPED(cache_begin)(&tiles);
  c.a.attr = &c.attr;
  c.a.k = call->input[1].data;
  c.a.v = call->input[2].data;
  c.a.slot_bytes = cache_slot_bytes(&c.a);
  team_each(call_team(call), c.runs * c.a.g, cache_unit_bf16, &c);
}
