// ATTENTION and its gradient in tiles of queries × keys: never more than one tile of scores a thread (Dao et al.,
// "FlashAttention", 2022). Tiles that causality or documents hide are skipped.
//
// Scores lie with keys as rows, (keys, queries). So keys need not be transposed, a tile of queries is transposed once
// for many tiles of keys, and maxima and sums over keys are vectors of queries. Transposed queries are multiplied by
// the scale. All that products read is copied first: a head's rows lie g · d elements apart, which costs more at each
// of the products than a copy does once.

// Tiles of queries that a unit of the forward pass has, for which a tile of keys is copied once; tiles of keys that a
// block of the backward pass has, for which a tile of queries is transposed and copied once. With fp32 and d = 64 eight
// need 350 KB and 700 KB of the second-level cache: CPUs with AVX-512 have at least 1 MiB, others less.
enum { TYPED(QUERY_TILES) = LEVEL_BYTES == 64 ? 8 : 4, TYPED(KEY_TILES) = LEVEL_BYTES == 64 ? 8 : 4 };
#define QUERY_TILES TYPED(QUERY_TILES)
#define KEY_TILES TYPED(KEY_TILES)

// A thread's part of the workspace. `width` is d rounded up to whole panels. Panels: (n / NR, rows, NR) of (rows, n).
typedef struct TYPED(AttentionTile) {
  REAL score[TILE * TILE], dscore[TILE * TILE], factor[TILE * TILE]; // (keys, queries)
  REAL maximum[QUERY_TILES * TILE], sum[QUERY_TILES * TILE];         // forward, per query
  REAL logsumexp[TILE], delta[TILE];                                 // backward, per query
  SIDE query[QUERY_TILES], key[KEY_TILES];
  int64_t width;
  REAL *transposed;      // panels of xᵀ (d, queries). Forward: QUERY_TILES of q. Backward: of q, then of dout
  REAL *keys, *values;   // (keys, d), panels (keys, width); backward: (keys, d) both, KEY_TILES of them
  REAL *accumulator;     // forward: (QUERY_TILES, queries, width)
  REAL *key_panels;      // backward, the rest too: panels (keys, width), KEY_TILES of them
  REAL *queries, *douts; // panels (queries, width)
  REAL *dq, *dk, *dv;    // (queries, width), (KEY_TILES, keys, width) twice
  REAL *deltas;          // (r, s): products of rows of dout and out
} TYPED(AttentionTile);
#define TILE_STATE TYPED(AttentionTile)
_Static_assert(TILE % NR == 0, "whole panels of a tile's queries");

static int64_t TYPED(attention_width)(int64_t d) { return (d + NR - 1) / NR * NR; }

// Lays a thread's part out from `base` on, NULL to measure it. Returns its bytes.
static size_t TYPED(attention_slot)(const ATTENTION *a, int backward, char *base) {
  int64_t width = TYPED(attention_width)(a->d), across = TILE * a->d, along = TILE * width;
  TILE_STATE unused, *t = base ? (TILE_STATE *)(void *)base : &unused;
  size_t used = (sizeof *t + 63) / 64 * 64;
  t->width = width;
  struct { REAL **at; int64_t forward, backward; } part[] = {
      {&t->transposed, QUERY_TILES * across, 2 * across},
      {&t->keys, across, KEY_TILES * across},
      {&t->values, along, KEY_TILES * across},
      {&t->accumulator, QUERY_TILES * along, 0},
      {&t->key_panels, 0, KEY_TILES * along},
      {&t->queries, 0, along},
      {&t->douts, 0, along},
      {&t->dq, 0, along},
      {&t->dk, 0, KEY_TILES * along},
      {&t->dv, 0, KEY_TILES * along},
      {&t->deltas, 0, a->r * a->s},
  };
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    *part[i].at = base ? (REAL *)(void *)(base + used) : NULL;
    used += (sizeof(REAL) * (size_t)(backward ? part[i].backward : part[i].forward) + 63) / 64 * 64;
  }
  return used;
}
static size_t TYPED(attention_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  ATTENTION a = TYPED(attention_sizes)(input);
  return TYPED(attention_slot)(&a, 0, NULL) * (size_t)threads;
}
static size_t TYPED(attention_grad_workspace)(const Operand *input, const Operand *output, const void *attr,
                                              int threads) {
  ATTENTION a = TYPED(attention_sizes)(input);
  return TYPED(attention_slot)(&a, 1, NULL) * (size_t)threads;
}
static TILE_STATE *TYPED(attention_state)(const ATTENTION *a, int backward, int slot) {
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  TYPED(attention_slot)(a, backward, base);
  return (TILE_STATE *)(void *)base;
}

// to (rows, d) = from (rows, d), whose rows lie `row` apart.
static void TYPED(copy_tile)(REAL *to, const REAL *from, int64_t row, int64_t rows, int64_t d) {
  for (int64_t i = 0; i < rows; i++) memcpy(to + i * d, from + i * row, sizeof(REAL) * (size_t)d);
}
// The same as panels (rows, NR), the last one padded with zeros.
static void TYPED(panel_tile)(REAL *to, const REAL *from, int64_t row, int64_t rows, int64_t d) {
  for (int64_t j = 0; j < d; j += NR)
    TYPED(pack_b)(to + j * rows, from + j, row, 1, rows, d - j < NR ? d - j : NR);
}
// Panels of factor · fromᵀ (d, rows).
static void TYPED(transpose_tile)(REAL *to, const REAL *from, int64_t row, int64_t rows, int64_t d, REAL factor) {
  for (int64_t j = 0; j < rows; j += NR)
    TYPED(pack_b)(to + j * d, from + j * row, 1, row, d, rows - j < NR ? rows - j : NR);
  int64_t n = (rows + NR - 1) / NR * NR * d;
  if (factor != 1) EACH_VECTOR TYPED(store)(to + i, TYPED(load)(to + i) * TYPED(splat)(factor));
}

// to (n) [+]= factor · from (n)
INLINE void TYPED(scale_row)(REAL *to, const REAL *from, int64_t n, REAL factor, int add) {
  EACH_VECTOR {
    V x = TYPED(take)(from + i, n - i) * TYPED(splat)(factor);
    TYPED(put)(to + i, add ? x + TYPED(take)(to + i, n - i) : x, n - i);
  }
}

// c (m, n) [+]= a (m, k) · panels b (k, n). Rows of a lie a_row apart; 0: a lies as (k, TILE). Everything is in a
// cache, so the register tiles of gemm.h are called as they are. They read up to MR - 1 rows after the last of a, and
// write whole panels.
static void TYPED(tile_product)(const REAL *a, int64_t a_row, int64_t m, int64_t k, const REAL *b, int64_t n, REAL *c,
                                int64_t c_row, int add) {
  TYPED(Tile)
  q = {.depth = k,
       .a_row = a_row,
       .a_column = TILE,
       .c_row = c_row,
       .columns = NR,
       .add = add};
  for (int64_t j = 0; j < n; j += NR, b += NR * k) {
    q.b = b;
    q.ahead = (const char *)b;
    for (int64_t i = 0; i < m; i += q.rows) {
      q.rows = m - i < MR ? m - i : MR;
      q.a = a + i * (a_row ? a_row : 1);
      q.c = c + i * c_row + j;
      if (q.rows > FEW) (a_row ? TYPED(micro_rows) : TYPED(micro_columns))(&q);
      else (a_row ? TYPED(micro_few_rows) : TYPED(micro_few_columns))(&q);
    }
  }
}

// score = keys (keys, d) · transposed queries, -inf where hidden.
static void TYPED(tile_scores)(const ATTENTION *a, TILE_STATE *t, const PLACE *at, const REAL *keys,
                               const REAL *transposed, int visible) {
  int64_t n = at->query->count;
  TYPED(tile_product)(keys, a->d, at->key->count, a->d, transposed, n, t->score, TILE, 0);
  for (int64_t k = 0; visible != 2 && k < at->key->count; k++)
    TYPED(mask_row)
    (t->score + k * TILE, n, 0, a->attr->causal, at->key->position[k], at->query->position);
}

// Vectors of queries that a loop over keys holds in registers. Loops work on whole ones: values after the last query
// are garbage, which no product reads into a result.
#define TOGETHER (TILE / WIDTH < 4 ? TILE / WIDTH : 4)

// Online softmax of one tile: score = e^(score - maximum), with maxima and sums over all keys so far; rescale (TILE):
// the factor of what was accumulated before.
static void TYPED(online_softmax)(TILE_STATE *t, const PLACE *at, REAL *maximum, REAL *sums, REAL *rescale) {
  int64_t keys = at->key->count;
  for (int64_t c = 0; c < at->query->count; c += TOGETHER * WIDTH) {
    V most[TOGETHER], sum[TOGETHER], least = TYPED(splat)((REAL)-INFINITY);
    UNROLL for (int u = 0; u < TOGETHER; u++) most[u] = TYPED(load)(maximum + c + u * WIDTH);
    for (int64_t k = 0; k < keys; k++)
      UNROLL for (int u = 0; u < TOGETHER; u++)
        most[u] = TYPED(max)(most[u], TYPED(load)(t->score + k * TILE + c + u * WIDTH));
    UNROLL for (int u = 0; u < TOGETHER; u++) {
      int64_t i = c + u * WIDTH;
      V old = TYPED(load)(maximum + i);
      TYPED(store)(maximum + i, most[u]);
      most[u] = TYPED(select)(most[u] > least, most[u], (V){0}); // of a query that sees no key yet
      V rescales = TYPED(exp_fast)(old - most[u]);
      TYPED(store)(rescale + i, rescales);
      sum[u] = TYPED(load)(sums + i) * rescales;
    }
    for (int64_t k = 0; k < keys; k++)
      UNROLL for (int u = 0; u < TOGETHER; u++) {
        REAL *p = t->score + k * TILE + c + u * WIDTH;
        V e = TYPED(exp_fast)(TYPED(load)(p) - most[u]);
        TYPED(store)(p, e);
        sum[u] += e;
      }
    UNROLL for (int u = 0; u < TOGETHER; u++) TYPED(store)(sums + c + u * WIDTH, sum[u]);
  }
}

// One tile of keys for tile `place` of the unit's queries: online softmax, then accumulator += p v.
static void TYPED(forward_tile)(const ATTENTION *a, TILE_STATE *t, const PLACE *at, int64_t place, int visible) {
  REAL *accumulator = t->accumulator + place * TILE * t->width, rescale[TILE];
  TYPED(tile_scores)(a, t, at, t->keys, t->transposed + place * TILE * a->d, visible);
  TYPED(online_softmax)(t, at, t->maximum + place * TILE, t->sum + place * TILE, rescale);
  for (int64_t i = 0; i < at->query->count; i++)
    if (FAULT(attention_forgets_to_rescale, rescale[i], 1) != 1)
      for (int64_t e = 0; e < a->d; e++) accumulator[i * t->width + e] *= rescale[i];
  if (a->attr->dropout > 0) {
    TYPED(tile_factors)(a, at, t->factor, 1, TILE);
    for (int64_t k = 0; k < at->key->count; k++)
      for (int64_t i = 0; i < at->query->count; i++) t->score[k * TILE + i] *= t->factor[k * TILE + i];
  }
  TYPED(tile_product)
  (t->score, 0, at->query->count, at->key->count, t->values, a->d, accumulator, t->width, 1);
}

// `count` tiles of queries, those of t->query, of one head against all keys.
static void TYPED(attention_queries)(const ATTENTION *a, TILE_STATE *t, PLACE *at, int64_t count) {
  memset(t->accumulator, 0, sizeof(REAL) * (size_t)(count * TILE * t->width));
  for (int64_t i = 0; i < count * TILE; i++) {
    t->maximum[i] = (REAL)-INFINITY;
    t->sum[i] = 0;
  }
  for (int64_t i = 0; i < count; i++) {
    at->query = &t->query[i];
    TYPED(transpose_tile)
    (t->transposed + i * TILE * a->d, a->q + TYPED(query_at)(a, at), a->q_row, at->query->count, a->d,
     (REAL)a->attr->scale);
  }
  for (int64_t j = 0; j < a->t; j += t->key->count) {
    int copied = 0;
    TYPED(set_keys)(a, at->b, j, t->key);
    for (int64_t i = 0; i < count; i++) {
      at->query = &t->query[i];
      int visible = TYPED(tile_visible)(a, at);
      if (!visible) continue;
      if (!copied) {
        TYPED(copy_tile)(t->keys, a->k + TYPED(keys_at)(a, at), a->k_row, t->key->count, a->d);
        TYPED(panel_tile)(t->values, a->v + TYPED(keys_at)(a, at), a->k_row, t->key->count, a->d);
      }
      copied = 1;
      TYPED(forward_tile)(a, t, at, i, visible);
    }
  }
  for (int64_t i = 0; i < count; i++) {
    at->query = &t->query[i];
    REAL *out = (REAL *)a->call->output[0].data + TYPED(query_at)(a, at),
         *rows = (REAL *)a->call->output[1].data + TYPED(rows_at)(a, at), *o = t->accumulator + i * TILE * t->width;
    for (int64_t k = 0; k < at->query->count; k++, o += t->width) {
      REAL sum = t->sum[i * TILE + k], inverse = sum > 0 ? 1 / sum : 0;
      TYPED(scale_row)(out + k * a->q_row, o, a->d, inverse, 0);
      rows[k] = t->maximum[i * TILE + k] + (REAL)log((double)sum);
    }
  }
}

// The tiles of queries that begin in the unit's rows, of one head, a few at a time.
static void TYPED(attention_unit)(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  TILE_STATE *t = TYPED(attention_state)(a, 0, slot);
  int64_t units = (a->s + a->unit_rows - 1) / a->unit_rows, head = unit / units, row = unit % units * a->unit_rows,
          end = a->s - row < a->unit_rows ? a->s : row + a->unit_rows, count;
  PLACE at = {.b = head / a->r / a->g, .g = head / a->r % a->g, .r = head % a->r, .key = t->key};
  int64_t from = TYPED(tile_at)(&a->call->input[3], at.b, a->s, row);
  while ((count = TYPED(take_queries)(a, at.b, &from, end, t->query, QUERY_TILES)))
    TYPED(attention_queries)(a, t, &at, count);
}

static void TYPED(attention)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  Team *team = call_team(call);
  a.slot_bytes = TYPED(attention_slot)(&a, 0, NULL);
  int64_t heads = a.b * a.g * a.r, tiles = (a.s + TILE - 1) / TILE, of_unit = QUERY_TILES;
  while (of_unit > 1 && heads * (tiles / of_unit) < 4 * team_size(team)) of_unit /= 2;
  a.unit_rows = of_unit * TILE;
  team_each(team, heads * ((a.s + a.unit_rows - 1) / a.unit_rows), TYPED(attention_unit), &a);
}

// From scores and dp in dscore: score = p, with dropout for dv, and dscore = p (dp - delta).
static void TYPED(gradient_scores)(TILE_STATE *t, const PLACE *at, int dropout) {
  for (int64_t c = 0; c < at->query->count; c += TOGETHER * WIDTH) {
    V logsumexp[TOGETHER], delta[TOGETHER];
    UNROLL for (int u = 0; u < TOGETHER; u++) {
      logsumexp[u] = TYPED(load)(t->logsumexp + c + u * WIDTH);
      delta[u] = TYPED(load)(t->delta + c + u * WIDTH);
    }
    for (int64_t k = 0; k < at->key->count; k++)
      UNROLL for (int u = 0; u < TOGETHER; u++) {
        int64_t i = k * TILE + c + u * WIDTH;
        V p = TYPED(exp_fast)(TYPED(load)(t->score + i) - logsumexp[u]), dp = TYPED(load)(t->dscore + i), kept = p;
        if (dropout) {
          V factor = TYPED(load)(t->factor + i);
          kept = p * factor;
          dp *= factor;
        }
        TYPED(store)(t->score + i, kept);
        TYPED(store)(t->dscore + i, p * (dp - delta[u]));
      }
  }
}

// The parts of dv, dk / scale and dq / scale of tile `place` of a block of keys.
static void TYPED(gradient_tile)(const ATTENTION *a, TILE_STATE *t, const PLACE *at, int64_t place, int visible) {
  int64_t across = place * TILE * a->d, along = place * TILE * t->width, n = at->query->count, keys = at->key->count;
  TYPED(tile_scores)(a, t, at, t->keys + across, t->transposed, visible);
  TYPED(tile_product)(t->values + across, a->d, keys, a->d, t->transposed + TILE * a->d, n, t->dscore, TILE, 0);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, at, t->factor, 1, TILE);
  TYPED(gradient_scores)(t, at, a->attr->dropout > 0);
  TYPED(tile_product)(t->score, TILE, keys, n, t->douts, a->d, t->dv + along, t->width, 1);
  TYPED(tile_product)(t->dscore, TILE, keys, n, t->queries, a->d, t->dk + along, t->width, 1);
  TYPED(tile_product)(t->dscore, 0, n, keys, t->key_panels + along, a->d, t->dq, t->width, 1);
}

// Prepares the operands of a tile of queries, and its logsumexps and deltas.
static void TYPED(gradient_begin)(const ATTENTION *a, TILE_STATE *t, const PLACE *at) {
  int64_t q = TYPED(query_at)(a, at), n = at->query->count;
  TYPED(transpose_tile)(t->transposed, a->q + q, a->q_row, n, a->d, (REAL)a->attr->scale);
  TYPED(transpose_tile)(t->transposed + TILE * a->d, a->dout + q, a->q_row, n, a->d, 1);
  TYPED(panel_tile)(t->queries, a->q + q, a->q_row, n, a->d);
  TYPED(panel_tile)(t->douts, a->dout + q, a->q_row, n, a->d);
  for (int64_t i = 0; i < n; i++) {
    t->logsumexp[i] = TYPED(shift_of)(a->logsumexp[TYPED(rows_at)(a, at) + i]);
    t->delta[i] = t->deltas[at->r * a->s + at->query->from + i];
  }
}

// The tile of queries in t->query against the `count` tiles of a block of keys. dq is stored by the first block, and
// then added to.
static void TYPED(gradient_queries)(const ATTENTION *a, TILE_STATE *t, PLACE *at, int64_t count, int first) {
  int begun = 0;
  for (int64_t j = 0; j < count; j++) {
    at->key = &t->key[j];
    int visible = TYPED(tile_visible)(a, at);
    if (!visible) continue;
    if (!begun) {
      TYPED(gradient_begin)(a, t, at);
      memset(t->dq, 0, sizeof(REAL) * (size_t)(TILE * t->width));
    }
    begun = 1;
    TYPED(gradient_tile)(a, t, at, j, visible);
  }
  first = FAULT(blocks_overwrite_dq, first, 1);
  REAL *dq = a->dq + TYPED(query_at)(a, at);
  for (int64_t i = 0; i < at->query->count; i++, dq += a->q_row)
    if (begun) TYPED(scale_row)(dq, t->dq + i * t->width, a->d, (REAL)a->attr->scale, !first);
    else if (first) memset(dq, 0, sizeof(REAL) * (size_t)a->d);
}

// The tiles of keys of t->key, of one key-value head, against all queries.
static void TYPED(gradient_block)(const ATTENTION *a, TILE_STATE *t, PLACE *at, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    at->key = &t->key[i];
    const REAL *k = a->k + TYPED(keys_at)(a, at), *v = a->v + TYPED(keys_at)(a, at);
    TYPED(copy_tile)(t->keys + i * TILE * a->d, k, a->k_row, at->key->count, a->d);
    TYPED(copy_tile)(t->values + i * TILE * a->d, v, a->k_row, at->key->count, a->d);
    TYPED(panel_tile)(t->key_panels + i * TILE * t->width, k, a->k_row, at->key->count, a->d);
  }
  memset(t->dk, 0, sizeof(REAL) * (size_t)(count * TILE * t->width));
  memset(t->dv, 0, sizeof(REAL) * (size_t)(count * TILE * t->width));
  for (at->r = 0; at->r < a->r; at->r++)
    for (int64_t i = 0; i < a->s; i += t->query->count) {
      TYPED(set_queries)(a, at->b, i, t->query);
      TYPED(gradient_queries)(a, t, at, count, t->key->from == 0);
    }
  for (int64_t i = 0; i < count; i++) {
    at->key = &t->key[i];
    for (int64_t k = 0; k < at->key->count; k++) {
      int64_t to = TYPED(keys_at)(a, at) + k * a->k_row, from = (i * TILE + k) * t->width;
      TYPED(scale_row)(a->dk + to, t->dk + from, a->d, (REAL)a->attr->scale, 0);
      memcpy(a->dv + to, t->dv + from, sizeof(REAL) * (size_t)a->d);
    }
  }
}

// dq of a head that has no keys is 0.
static void TYPED(no_keys)(const ATTENTION *a, PLACE *at) {
  for (at->r = 0; at->r < a->r; at->r++)
    for (int64_t i = 0; i < a->s; i++)
      memset(a->dq + TYPED(query_at)(a, at) + i * a->q_row, 0, sizeof(REAL) * (size_t)a->d);
}

// One key-value head of one sample: all tiles, in one order.
static void TYPED(attention_grad_unit)(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  TILE_STATE *t = TYPED(attention_state)(a, 1, slot);
  PLACE at = {.b = unit / a->g, .g = unit % a->g, .query = t->query};
  t->query->from = 0;
  for (at.r = 0; at.r < a->r; at.r++)
    for (int64_t i = 0; i < a->s; i++) {
      int64_t row = TYPED(query_at)(a, &at) + i * a->q_row;
      t->deltas[at.r * a->s + i] = TYPED(dot)(a->dout + row, a->out + row, a->d);
    }
  if (FAULT(no_keys_leave_dq, !a->t, 0)) TYPED(no_keys)(a, &at);
  for (int64_t j = 0; j < a->t;) { // a block has tiles of one document, so that sums of dq are its own
    int64_t count = 0;
    do {
      TYPED(set_keys)(a, at.b, j, &t->key[count]);
      j += t->key[count++].count;
    } while (count < KEY_TILES && j < a->t && t->key[count - 1].count == TILE &&
             integer_load(&a->call->input[4], at.b * a->t + j) == t->key->document);
    TYPED(gradient_block)(a, t, &at, count);
  }
}

static void TYPED(attention_grad)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  a.out = call->input[5].data;
  a.logsumexp = call->input[6].data;
  a.dout = call->input[7].data;
  a.dq = call->output[0].data;
  a.dk = call->output[1].data;
  a.dv = call->output[2].data;
  a.slot_bytes = TYPED(attention_slot)(&a, 1, NULL);
  team_each(call_team(call), a.b * a.g, TYPED(attention_grad_unit), &a);
}
