// ATTENTION and its gradient on bf16 in tiles of queries × keys (Dao et al., "FlashAttention", 2022): scores, sums and
// accumulators are fp32; probabilities and gradients of scores are rounded to bf16 for the products that read them.
// Tiles that causality or documents hide are skipped. Not attention.h with other loads: products of bf16 want all
// packed that they read. Forward has scores as (queries, keys), exponentials to base e. Backward has dk and dv of all
// keys of a head at once, and packs as many tiles of its keys as there are without documents: short documents have more
// tiles, of which those that are packed last take the places of others.

enum {
  TILE_ROWS = (TILE + MR - 1) / MR * MR, // of fp32 tiles in memory
  SCORE_ROW = TILE + 16,                // strides
  FACTOR_ROW = TILE + 32,
  QUERY_TILES = 4                       // of a unit of the forward pass
};

// A thread's part of the workspace.
typedef struct AttentionTile {
  Packed a[MR * KA];                                                 // a tile of a product's left side
  float score[TILE_ROWS * SCORE_ROW], dscore[TILE_ROWS * SCORE_ROW]; // (queries, keys); backward: (keys, queries)
  float factor[TILE * TILE];                                         // dropout: 0 or keep, laid out as the scores
  uint16_t p[TILE * FACTOR_ROW], ds[TILE * FACTOR_ROW];
  float maximum[QUERY_TILES * TILE], sum[QUERY_TILES * TILE], delta[TILE], logsumexp[TILE];
  SIDE query[QUERY_TILES], key; // backward: one tile of queries
} AttentionTile;

static int64_t panels_of(int64_t n) { return (n + NR - 1) / NR; }
// Elements of a packed tile: (d × TILE keys), and (TILE × d).
static int64_t packed_across(const ATTENTION *a) { return panels_of(TILE) * NR * step_up(a->d); }
static int64_t width_of(const ATTENTION *a) { return panels_of(a->d) * NR; } // of a row of an accumulator
static int64_t packed_along(const ATTENTION *a) { return width_of(a) * step_up(TILE); }
static int64_t accumulator_size(const ATTENTION *a) { return TILE_ROWS * width_of(a); }
static int64_t key_places(const ATTENTION *a) { return (a->t + TILE - 1) / TILE; } // of packed tiles of keys
// Of dk or dv: a row for each key, and those that the last register tile writes after them.
static int64_t key_accumulator_size(const ATTENTION *a) { return (a->t + MR) * width_of(a); }

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t forward_slot(const ATTENTION *a) {
  return rounded(sizeof(AttentionTile)) + rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a))) +
         sizeof(float) * (size_t)(QUERY_TILES * accumulator_size(a)) + 64;
}
static size_t backward_slot(const ATTENTION *a) {
  return rounded(sizeof(AttentionTile)) +
         rounded(sizeof(Packed) * (size_t)(2 * packed_across(a) + (2 + key_places(a)) * packed_along(a))) +
         rounded(sizeof(float) * (size_t)(accumulator_size(a) + 2 * key_accumulator_size(a))) +
         sizeof(int64_t) * (size_t)key_places(a) + 64;
}
static size_t attention_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  ATTENTION a = TYPED(attention_sizes)(input);
  return (size_t)threads * rounded(forward_slot(&a));
}
static size_t attention_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  ATTENTION a = TYPED(attention_sizes)(input);
  return (size_t)threads * rounded(backward_slot(&a));
}

// c [+]= a (m × depth) · packed b (depth × n); c has room for m and n padded to MR and NR. depth <= KC.
static void tile_product(AttentionTile *t, const uint16_t *a, int64_t row, int64_t column, int64_t m, int64_t depth,
                         const Packed *b, int64_t n, float *c, int64_t c_row, int add) {
  for (int64_t i = 0; i < m; i += MR) {
    TileA at;
    tiles_of(&at, t->a, a + i * row, row, column, m - i < MR ? m - i : MR, depth);
    for (int64_t j = 0; j < n; j += NR)
      micro(step_up(depth), at.data, at.row, b + j * step_up(depth), c + i * c_row + j, c_row, add);
  }
}

// n elements of an output from `at` on, bf16 or, of wide results, fp32.
static void store_row(const Operand *to, int64_t at, const float *from, int64_t n) {
  if (to->dtype == DTYPE_F32) memcpy((float *)to->data + at, from, (size_t)n * sizeof *from);
  else narrow_row((uint16_t *)to->data + at, from, n);
}

// ---- forward

// to = factor e^(x + shift) in bf16; returns the sum of the exponentials, of all of them.
static float dropout_row(uint16_t *to, const float *x, const float *factor, int64_t n, float shift) {
  V sum = {0};
  EACH_VECTOR {
    V e = first_lanes_f32(exp_fast_f32(take_f32(x + i, n - i) + splat_f32(shift)), n - i);
    sum += e;
    put_bf16(to + i, e * take_f32(factor + i, n - i), n - i);
  }
  return sum_f32(sum);
}

// One row of scores against n others, scaled; -inf where hidden.
static void scale_row(const ATTENTION *a, float *score, int64_t n, int visible, int before, int32_t position,
                      const SIDE *others) {
  for (int64_t j = 0; j < n; j++) score[j] *= (float)a->attr->scale;
  if (visible != 2)
    TYPED(mask_row)
    (score, n, before, a->attr->causal, position, others->position);
}

// Online softmax of one tile of scores: p in bf16, accumulator rows shrunk where the maximum grew.
static void forward_rows(const ATTENTION *a, AttentionTile *t, const PLACE *at, int visible, float *accumulator,
                         float *maximum, float *sum) {
  int64_t n = at->key->count;
  for (int64_t i = 0; i < at->query->count; i++) {
    float *score = t->score + i * SCORE_ROW, *o = accumulator + i * width_of(a);
    uint16_t *p = t->p + i * FACTOR_ROW;
    scale_row(a, score, n, visible, 1, at->query->position[i], at->key);
    float old = maximum[i], tile = greatest_row(score, n), new = tile > old ? tile : old;
    if (new == -INFINITY) {
      memset(p, 0, sizeof *p * (size_t)n);
      continue;
    }
    if (new > old) {
      float shrink = old == -INFINITY ? 0 : expf(old - new);
      for (int64_t e = 0; e < width_of(a); e++) o[e] *= shrink;
      sum[i] *= shrink;
      maximum[i] = new;
    }
    sum[i] += a->attr->dropout > 0 ? dropout_row(p, score, t->factor + i * TILE, n, -new)
                                   : exp_row(p, score, n, -new, 1);
  }
}

typedef struct Forward {
  Packed *keys, *values; // (d × keys), (keys × d) of one tile
  float *accumulator;    // (QUERY_TILES) tiles
} Forward;

// `count` tiles of queries, those of t->query, of one head against all keys; each tile of keys is packed once for all
// of them.
static void attention_queries(const ATTENTION *a, AttentionTile *t, PLACE *at, const Forward *w, int64_t count) {
  memset(w->accumulator, 0, sizeof(float) * (size_t)(count * accumulator_size(a)));
  for (int64_t i = 0; i < count * TILE; i++) t->maximum[i] = -INFINITY, t->sum[i] = 0;
  for (int64_t j = 0; j < a->t; j += t->key.count) {
    int packed = 0;
    TYPED(set_keys)(a, at->b, j, &t->key);
    int64_t rows, columns = t->key.count;
    for (int64_t i = 0; i < count; i++) {
      at->query = &t->query[i];
      rows = at->query->count;
      int visible = TYPED(tile_visible)(a, at);
      if (!visible) continue;
      if (!packed) {
        pack_b(w->keys, a->k + TYPED(keys_at)(a, at), 1, a->k_row, a->d, columns);
        pack_b(w->values, a->v + TYPED(keys_at)(a, at), a->k_row, 1, columns, a->d);
        packed = 1;
      }
      float *o = w->accumulator + i * accumulator_size(a);
      tile_product(t, a->q + TYPED(query_at)(a, at), a->q_row, 1, rows, a->d, w->keys, columns, t->score, SCORE_ROW, 0);
      if (a->attr->dropout > 0) TYPED(tile_factors)(a, at, t->factor, TILE, 1);
      forward_rows(a, t, at, visible, o, t->maximum + i * TILE, t->sum + i * TILE);
      tile_product(t, t->p, FACTOR_ROW, 1, rows, columns, w->values, a->d, o, width_of(a), 1);
    }
  }
  for (int64_t i = 0; i < count; i++) {
    at->query = &t->query[i];
    int64_t out = TYPED(query_at)(a, at);
    float *o = w->accumulator + i * accumulator_size(a),
          *rows = (float *)a->call->output[1].data + TYPED(rows_at)(a, at);
    for (int64_t k = 0; k < at->query->count; k++, o += width_of(a)) {
      float sum = t->sum[i * TILE + k], inverse = sum > 0 ? 1 / sum : 0;
      for (int64_t e = 0; e < a->d; e++) o[e] *= inverse;
      store_row(&a->call->output[0], out + k * a->q_row, o, a->d);
      rows[k] = t->maximum[i * TILE + k] + logf(sum);
    }
  }
}

// The tiles of queries that begin in the unit's rows, of one head, a few at a time.
static void attention_unit(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  AttentionTile *t = (AttentionTile *)(void *)base;
  Forward w = {.keys = (Packed *)(void *)(base + rounded(sizeof *t))};
  w.values = w.keys + packed_across(a);
  w.accumulator =
      (float *)(void *)((char *)w.keys + rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a))));
  int64_t units = (a->s + a->unit_rows - 1) / a->unit_rows, head = unit / units, row = unit % units * a->unit_rows,
          end = a->s - row < a->unit_rows ? a->s : row + a->unit_rows, count;
  PLACE at = {.b = head / a->r / a->g, .g = head / a->r % a->g, .r = head % a->r, .key = &t->key};
  int64_t from = TYPED(tile_at)(&a->call->input[3], at.b, a->s, row);
  tiles_begin();
  while ((count = TYPED(take_queries)(a, at.b, &from, end, t->query, QUERY_TILES)))
    attention_queries(a, t, &at, &w, count);
  tiles_end();
}

static void attention_bf16(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  if (a.d > KC) {
    op_def(OP_ATTENTION)->reference(call);
    return;
  }
  a.slot_bytes = rounded(forward_slot(&a));
  a.unit_rows = QUERY_TILES * TILE;
  team_each(call_team(call), a.b * a.g * a.r * ((a.s + a.unit_rows - 1) / a.unit_rows), attention_unit, &a);
}

// ---- backward: scores lie with keys as rows, so that three of the five products read them as they are

// p and ds of one tile, (keys, queries), in bf16: p = dropout of the probabilities, ds = scale p (dp - delta).
static void backward_rows(const ATTENTION *a, AttentionTile *t, const PLACE *at, int visible) {
  V scale = splat_f32((float)a->attr->scale);
  int64_t n = at->query->count;
  for (int64_t k = 0; k < at->key->count; k++) {
    float *score = t->score + k * SCORE_ROW, *dscore = t->dscore + k * SCORE_ROW, *factor = t->factor + k * TILE;
    scale_row(a, score, n, visible, 0, at->key->position[k], at->query);
    EACH_VECTOR {
      V p = exp_fast_f32(take_f32(score + i, n - i) - take_f32(t->logsumexp + i, n - i)),
        dp = take_f32(dscore + i, n - i), kept = p;
      if (a->attr->dropout > 0) {
        V f = take_f32(factor + i, n - i);
        kept = p * f;
        dp *= f;
      }
      put_bf16(t->p + k * FACTOR_ROW + i, kept, n - i);
      put_bf16(t->ds + k * FACTOR_ROW + i, scale * p * (dp - take_f32(t->delta + i, n - i)), n - i);
    }
  }
}

typedef struct Backward { // of one key-value head
  Packed *q_across, *dout_across, *q_along, *dout_along; // packed queries' side: (d × queries) and (queries × d)
  Packed *keys;                                          // (key_places) packed (keys × d)
  int64_t *packed;                                       // (key_places): the first key of the tile there, or -1
  float *dq, *dk, *dv;                                   // accumulators: one tile, (keys + MR, width) twice
} Backward;

// The tile of keys at work, number j of the row, packed.
static const Packed *packed_keys(const ATTENTION *a, const PLACE *at, const Backward *w, int64_t j) {
  int64_t place = j % key_places(a);
  Packed *keys = w->keys + place * packed_along(a);
  int64_t there = w->packed[place];
  if (FAULT(packed_keys_stay, there != at->key->from, there < 0))
    pack_b(keys, a->k + TYPED(keys_at)(a, at), a->k_row, 1, at->key->count, a->d);
  w->packed[place] = at->key->from;
  return keys;
}

static void backward_tile(const ATTENTION *a, AttentionTile *t, const PLACE *at, const Backward *w, int64_t j,
                          int visible) {
  int64_t k = TYPED(keys_at)(a, at), rows = at->query->count, columns = at->key->count;
  float *dk = w->dk + at->key->from * width_of(a), *dv = w->dv + at->key->from * width_of(a);
  tile_product(t, a->k + k, a->k_row, 1, columns, a->d, w->q_across, rows, t->score, SCORE_ROW, 0);
  tile_product(t, a->v + k, a->k_row, 1, columns, a->d, w->dout_across, rows, t->dscore, SCORE_ROW, 0);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, at, t->factor, 1, TILE);
  backward_rows(a, t, at, visible);
  // Rows of p and ds after the last key are zeros to a product: it leaves those of the next tile as they are.
  tile_product(t, t->p, FACTOR_ROW, 1, columns, rows, w->dout_along, a->d, dv, width_of(a), 1);
  tile_product(t, t->ds, FACTOR_ROW, 1, columns, rows, w->q_along, a->d, dk, width_of(a), 1);
  tile_product(t, t->ds, 1, FACTOR_ROW, rows, columns, packed_keys(a, at, w, j), a->d, w->dq, width_of(a), 1);
}

// The tile of queries in t->query against all keys.
static void backward_queries(const ATTENTION *a, AttentionTile *t, const PLACE *at, const Backward *w) {
  int64_t q = TYPED(query_at)(a, at), rows = t->query->count;
  pack_b(w->q_across, a->q + q, 1, a->q_row, a->d, rows);
  pack_b(w->dout_across, a->dout + q, 1, a->q_row, a->d, rows);
  pack_b(w->q_along, a->q + q, a->q_row, 1, rows, a->d);
  pack_b(w->dout_along, a->dout + q, a->q_row, 1, rows, a->d);
  for (int64_t row = 0; row < rows; row++)
    t->logsumexp[row] = TYPED(shift_of)(a->logsumexp[TYPED(rows_at)(a, at) + row]);
  for (int64_t row = 0; row < rows; row++) {
    const uint16_t *x = a->dout + q + row * a->q_row, *y = a->out + q + row * a->q_row;
    int64_t n = a->d;
    V sum = {0};
    EACH_VECTOR sum = fma_f32(take_bf16(x + i, n - i), take_bf16(y + i, n - i), sum);
    t->delta[row] = sum_f32(sum);
  }
  memset(w->dq, 0, sizeof(float) * (size_t)accumulator_size(a));
  for (int64_t from = 0, j = 0; from < a->t; from += t->key.count, j++) {
    TYPED(set_keys)(a, at->b, from, &t->key);
    int visible = TYPED(tile_visible)(a, at);
    if (visible) backward_tile(a, t, at, w, j, visible);
  }
  for (int64_t row = 0; row < rows; row++)
    store_row(&a->call->output[0], q + row * a->q_row, w->dq + row * width_of(a), a->d);
}

// Lays out a thread's part of the workspace.
static AttentionTile *backward_begin(const ATTENTION *a, int slot, Backward *w) {
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  size_t packed = sizeof(Packed) * (size_t)(2 * packed_across(a) + (2 + key_places(a)) * packed_along(a));
  w->q_across = (Packed *)(void *)(base + rounded(sizeof(AttentionTile)));
  w->dout_across = w->q_across + packed_across(a);
  w->q_along = w->dout_across + packed_across(a);
  w->dout_along = w->q_along + packed_along(a);
  w->keys = w->dout_along + packed_along(a);
  w->dq = (float *)(void *)((char *)w->q_across + rounded(packed));
  w->dk = w->dq + accumulator_size(a);
  w->dv = w->dk + key_accumulator_size(a);
  size_t sums = sizeof(float) * (size_t)(accumulator_size(a) + 2 * key_accumulator_size(a));
  w->packed = (int64_t *)(void *)((char *)w->dq + rounded(sums));
  memset(w->dk, 0, sizeof(float) * (size_t)(2 * key_accumulator_size(a)));
  for (int64_t i = 0; i < key_places(a); i++) w->packed[i] = -1;
  return (AttentionTile *)(void *)base;
}

// One key-value head of one sample: all tiles, in one order.
static void attention_grad_unit(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  Backward w;
  AttentionTile *t = backward_begin(a, slot, &w);
  PLACE at = {.b = unit / a->g, .g = unit % a->g, .query = t->query, .key = &t->key};
  tiles_begin();
  for (at.r = 0; at.r < a->r; at.r++)
    for (int64_t from = 0; from < a->s; from += t->query->count) {
      TYPED(set_queries)(a, at.b, from, t->query);
      backward_queries(a, t, &at, &w);
    }
  tiles_end();
  t->key.from = 0;
  for (int64_t row = 0; row < a->t; row++) {
    int64_t k = TYPED(keys_at)(a, &at) + row * a->k_row;
    store_row(&a->call->output[1], k, w.dk + row * width_of(a), a->d);
    store_row(&a->call->output[2], k, w.dv + row * width_of(a), a->d);
  }
}

static void attention_grad_bf16(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  if (a.d > KC) {
    op_def(OP_ATTENTION_GRAD)->reference(call);
    return;
  }
  a.out = call->input[5].data;
  a.logsumexp = call->input[6].data;
  a.dout = call->input[7].data;
  a.slot_bytes = rounded(backward_slot(&a));
  team_each(call_team(call), a.b * a.g, attention_grad_unit, &a);
}
