// ATTENTION and its gradient on bf16 in tiles of queries × keys (Dao et al., "FlashAttention", 2022): scores, sums and
// accumulators are fp32; probabilities and gradients of scores are rounded to bf16 for the products that read them. Tiles
// that causality or documents hide are skipped.

enum {
  TILE = 64,                            // queries, keys
  TILE_ROWS = (TILE + MR - 1) / MR * MR, // of fp32 tiles in memory
  SCORE_ROW = TILE + 16,                // strides
  FACTOR_ROW = TILE + 32,
  QUERY_TILES = 4                       // of a unit of the forward pass
};

typedef struct Attention {
  const KernelCall *call;
  const AttentionAttr *attr;
  int64_t b, s, g, r, d, tiles; // tiles: of s
  int64_t width;                // d, padded to NR
  const uint16_t *q, *k, *v, *out, *dout; // (b, s, g, r, d), (b, s, g, d) twice, (b, s, g, r, d) twice
  const float *logsumexp;                 // (b, g, r, s)
  uint16_t *dq, *dk, *dv;
  int64_t q_row, k_row; // strides between positions
  PhiloxKey key;
  uint32_t threshold;
  float keep; // 1 / (1 - p)
  size_t slot_bytes;
} Attention;

// A thread's part of the workspace.
typedef struct AttentionTile {
  Packed a[MR * KA];                                                 // a tile of a product's left side
  float score[TILE_ROWS * SCORE_ROW], dscore[TILE_ROWS * SCORE_ROW]; // (queries, keys); backward: (keys, queries)
  float factor[TILE * TILE];                                         // dropout: 0 or keep, laid out as the scores
  uint16_t p[TILE * FACTOR_ROW], ds[TILE * FACTOR_ROW];
  float maximum[QUERY_TILES * TILE], sum[QUERY_TILES * TILE], delta[TILE], logsumexp[TILE];
  int32_t key_position[TILE], key_document[TILE], query_position[TILE], query_document[TILE];
  int64_t b, g, r, s0, rows, t0, columns; // the tile at work
} AttentionTile;

static int64_t panels_of(int64_t n) { return (n + NR - 1) / NR; }
// Elements of a packed tile: (d × TILE keys), and (TILE × d).
static int64_t packed_across(const Attention *a) { return panels_of(TILE) * NR * step_up(a->d); }
static int64_t packed_along(const Attention *a) { return a->width * step_up(TILE); }
static int64_t accumulator_size(const Attention *a) { return TILE_ROWS * a->width; }

static Attention attention_sizes(const Operand *q) {
  Attention a = {.b = q->size[0], .s = q->size[1], .g = q->size[2], .r = q->size[3], .d = q->size[4]};
  a.tiles = (a.s + TILE - 1) / TILE;
  a.width = panels_of(a.d) * NR;
  a.q_row = a.g * a.r * a.d;
  a.k_row = a.g * a.d;
  return a;
}
static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t forward_slot(const Attention *a) {
  return rounded(sizeof(AttentionTile)) + rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a))) +
         sizeof(float) * (size_t)(QUERY_TILES * accumulator_size(a)) + 64;
}
static size_t backward_slot(const Attention *a) {
  return rounded(sizeof(AttentionTile)) + rounded(sizeof(Packed) * (size_t)(2 * packed_across(a) + (2 + a->tiles) * packed_along(a))) +
         sizeof(float) * (size_t)((1 + 2 * a->tiles) * accumulator_size(a)) + 64;
}
static size_t attention_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Attention a = attention_sizes(&input[0]);
  return (size_t)threads * rounded(forward_slot(&a));
}
static size_t attention_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Attention a = attention_sizes(&input[0]);
  return (size_t)threads * rounded(backward_slot(&a));
}

static Attention attention_of(const KernelCall *call) {
  Attention a = attention_sizes(&call->input[0]);
  a.call = call;
  a.attr = call->attr;
  a.q = call->input[0].data;
  a.k = call->input[1].data;
  a.v = call->input[2].data;
  a.keep = 1;
  if (a.attr->dropout > 0) {
    a.key = philox_key(call->parameters->seed, call->parameters->step, a.attr->stream);
    a.threshold = keep_threshold(a.attr->dropout);
    a.keep = (float)(1 / (1 - a.attr->dropout));
  }
  return a;
}

static int64_t query_at(const Attention *a, const AttentionTile *t) {
  return (((t->b * a->s + t->s0) * a->g + t->g) * a->r + t->r) * a->d;
}
static int64_t keys_at(const Attention *a, const AttentionTile *t) { return ((t->b * a->s + t->t0) * a->g + t->g) * a->d; }
static int64_t rows_at(const Attention *a, const AttentionTile *t) { return ((t->b * a->g + t->g) * a->r + t->r) * a->s + t->s0; }

static void read_positions(const Operand *documents, const IndexMap *map, int64_t row, int64_t from, int64_t n, int32_t *position, int32_t *document) {
  for (int64_t i = 0; i < n; i++) {
    position[i] = (int32_t)index_map(map, from + i);
    document[i] = (int32_t)integer_load(documents, row + from + i);
  }
}
static void set_queries(const Attention *a, AttentionTile *t, int64_t tile) {
  t->s0 = tile * TILE;
  t->rows = a->s - t->s0 < TILE ? a->s - t->s0 : TILE;
  read_positions(&a->call->input[3], &a->call->input[0].map[1], t->b * a->s, t->s0, t->rows, t->query_position, t->query_document);
}
static void set_keys(const Attention *a, AttentionTile *t, int64_t tile) {
  t->t0 = tile * TILE;
  t->columns = a->s - t->t0 < TILE ? a->s - t->t0 : TILE;
  read_positions(&a->call->input[3], &a->call->input[1].map[1], t->b * a->s, t->t0, t->columns, t->key_position, t->key_document);
}

typedef struct Extent { int32_t least, most; } Extent;
static Extent extent(const int32_t *x, int64_t n) {
  Extent e = {x[0], x[0]};
  for (int64_t i = 1; i < n; i++) {
    e.least = x[i] < e.least ? x[i] : e.least;
    e.most = x[i] > e.most ? x[i] : e.most;
  }
  return e;
}

// 0: no key is visible to any query, 1: some may be, 2: all are.
static int tile_visible(const Attention *a, const AttentionTile *t) {
  Extent q = extent(t->query_position, t->rows), k = extent(t->key_position, t->columns);
  Extent qd = extent(t->query_document, t->rows), kd = extent(t->key_document, t->columns);
  if ((a->attr->causal && k.least > q.most) || kd.least > qd.most || kd.most < qd.least) return 0;
  return (!a->attr->causal || k.most <= q.least) && qd.least == qd.most && kd.least == kd.most && kd.least == qd.least ? 2 : 1;
}

// c [+]= a (m × depth) · packed b (depth × n); c has room for m and n padded to MR and NR. depth <= KC.
static void tile_product(AttentionTile *t, const uint16_t *a, int64_t row, int64_t column, int64_t m, int64_t depth, const Packed *b, int64_t n,
                         float *c, int64_t c_row, int add) {
  for (int64_t i = 0; i < m; i += MR) {
    TileA at;
    tiles_of(&at, t->a, a + i * row, row, column, m - i < MR ? m - i : MR, depth);
    for (int64_t j = 0; j < n; j += NR) micro(step_up(depth), at.data, at.row, b + j * step_up(depth), c + i * c_row + j, c_row, add);
  }
}

// The bits of attention_keep; across: factor[query][key], else [key][query].
static void tile_factors(const Attention *a, AttentionTile *t, int across) {
  const Operand *q = &a->call->input[0];
  int64_t sample = a->call->parameters->sample_base + index_map(&q->map[0], t->b);
  int64_t head = index_map(&q->map[2], t->g) * q->map[3].global + index_map(&q->map[3], t->r);
  for (int64_t i = 0; i < t->rows; i++) {
    int64_t first = -1; // position of the batch's first bits
    uint32_t bits[4 * PHILOX_BATCH];
    for (int64_t j = 0; j < t->columns; j++) {
      int64_t p = t->key_position[j];
      if (first < 0 || p < first || p >= first + 4 * PHILOX_BATCH) {
        first = p / 4 * 4;
        philox_batch(a->key, (uint32_t)sample, (uint32_t)head, (uint32_t)t->query_position[i], (uint32_t)(first / 4), 0, 1, bits);
      }
      t->factor[across ? i * TILE + j : j * TILE + i] = bits[p - first] >= a->threshold ? a->keep : 0;
    }
  }
}

// One row of scores against n others, scaled; hidden ones are -inf. `before`: the row's position must not be before others'.
INLINE void mask_row(float *score, int64_t n, float scale, int visible, int before, int causal, int32_t position, int32_t document,
                     const int32_t *positions, const int32_t *documents) {
  if (visible == 2) {
    for (int64_t j = 0; j < n; j++) score[j] *= scale;
    return;
  }
  for (int64_t j = 0; j < n; j++) {
    int32_t seen = ((before ? positions[j] <= position : position <= positions[j]) | !causal) & (documents[j] == document);
    score[j] = seen ? score[j] * scale : -INFINITY;
  }
}

// ---- forward

// to = factor e^(x + shift) in bf16; returns the sum of the exponentials, of all of them.
static float dropout_row(uint16_t *to, const float *x, const float *factor, int64_t n, float shift) {
  V sum = {0};
  EACH_VECTOR {
    V e = in_row(exp_fast(take_f32(x + i, n - i) + splat_f32(shift)), n - i);
    sum += e;
    put_bf16(to + i, e * take_f32(factor + i, n - i), n - i);
  }
  return sum_f32(sum);
}

// Online softmax of one tile of scores: p in bf16, accumulator rows shrunk where the maximum grew.
static void forward_rows(const Attention *a, AttentionTile *t, int visible, float *accumulator, float *maximum, float *sum) {
  for (int64_t i = 0; i < t->rows; i++) {
    float *score = t->score + i * SCORE_ROW, *o = accumulator + i * a->width;
    uint16_t *p = t->p + i * FACTOR_ROW;
    mask_row(score, t->columns, (float)a->attr->scale, visible, 1, a->attr->causal, t->query_position[i], t->query_document[i],
             t->key_position, t->key_document);
    float old = maximum[i], tile = greatest_row(score, t->columns), new = tile > old ? tile : old;
    if (new == -INFINITY) {
      memset(p, 0, sizeof *p * (size_t)t->columns);
      continue;
    }
    if (new > old) {
      float shrink = old == -INFINITY ? 0 : expf(old - new);
      for (int64_t e = 0; e < a->width; e++) o[e] *= shrink;
      sum[i] *= shrink;
      maximum[i] = new;
    }
    sum[i] += a->attr->dropout > 0 ? dropout_row(p, score, t->factor + i * TILE, t->columns, -new) : exp_row(p, score, t->columns, -new, 1);
  }
}

// A few tiles of queries of one head against all keys; each tile of keys is packed once for all of them.
static void attention_unit(void *argument, int slot, int64_t unit) {
  const Attention *a = argument;
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  AttentionTile *t = (AttentionTile *)(void *)base;
  Packed *keys = (Packed *)(void *)(base + rounded(sizeof *t)), *values = keys + packed_across(a);
  float *accumulator = (float *)(void *)((char *)keys + rounded(sizeof(Packed) * (size_t)(packed_across(a) + packed_along(a))));
  int64_t groups = (a->tiles + QUERY_TILES - 1) / QUERY_TILES, head = unit / groups, from = unit % groups * QUERY_TILES;
  int64_t count = a->tiles - from < QUERY_TILES ? a->tiles - from : QUERY_TILES;
  t->r = head % a->r;
  t->g = head / a->r % a->g;
  t->b = head / a->r / a->g;
  memset(accumulator, 0, sizeof(float) * (size_t)(count * accumulator_size(a)));
  for (int64_t i = 0; i < count * TILE; i++) t->maximum[i] = -INFINITY, t->sum[i] = 0;
  tiles_begin();
  for (int64_t j = 0; j < a->tiles; j++) {
    int packed = 0;
    set_keys(a, t, j);
    for (int64_t i = 0; i < count; i++) {
      set_queries(a, t, from + i);
      int visible = tile_visible(a, t);
      if (!visible) continue;
      if (!packed) {
        pack_b(keys, a->k + keys_at(a, t), 1, a->k_row, a->d, t->columns);
        pack_b(values, a->v + keys_at(a, t), a->k_row, 1, t->columns, a->d);
        packed = 1;
      }
      float *o = accumulator + i * accumulator_size(a);
      tile_product(t, a->q + query_at(a, t), a->q_row, 1, t->rows, a->d, keys, t->columns, t->score, SCORE_ROW, 0);
      if (a->attr->dropout > 0) tile_factors(a, t, 1);
      forward_rows(a, t, visible, o, t->maximum + i * TILE, t->sum + i * TILE);
      tile_product(t, t->p, FACTOR_ROW, 1, t->rows, t->columns, values, a->d, o, a->width, 1);
    }
  }
  tiles_end();
  for (int64_t i = 0; i < count; i++) {
    set_queries(a, t, from + i);
    uint16_t *out = (uint16_t *)a->call->output[0].data + query_at(a, t);
    float *o = accumulator + i * accumulator_size(a), *rows = (float *)a->call->output[1].data + rows_at(a, t);
    for (int64_t k = 0; k < t->rows; k++, o += a->width) {
      float sum = t->sum[i * TILE + k], inverse = sum > 0 ? 1 / sum : 0;
      for (int64_t e = 0; e < a->d; e++) o[e] *= inverse;
      narrow_row(out + k * a->q_row, o, a->d);
      rows[k] = t->maximum[i * TILE + k] + logf(sum);
    }
  }
}

static void attention_bf16(const KernelCall *call) {
  Attention a = attention_of(call);
  if (a.d > KC) {
    op_def(OP_ATTENTION)->reference(call);
    return;
  }
  a.slot_bytes = rounded(forward_slot(&a));
  cpu_parallel(call->team, a.b * a.g * a.r * ((a.tiles + QUERY_TILES - 1) / QUERY_TILES), attention_unit, &a);
}

// ---- backward: scores lie with keys as rows, so that three of the five products read them as they are

// p and ds of one tile, (keys, queries), in bf16: p = dropout of the probabilities, ds = scale p (dp - delta).
static void backward_rows(const Attention *a, AttentionTile *t, int visible) {
  V scale = splat_f32((float)a->attr->scale);
  int64_t n = t->rows;
  for (int64_t k = 0; k < t->columns; k++) {
    float *score = t->score + k * SCORE_ROW, *dscore = t->dscore + k * SCORE_ROW, *factor = t->factor + k * TILE;
    mask_row(score, n, (float)a->attr->scale, visible, 0, a->attr->causal, t->key_position[k], t->key_document[k], t->query_position,
             t->query_document);
    EACH_VECTOR {
      V p = exp_fast(take_f32(score + i, n - i) - take_f32(t->logsumexp + i, n - i)), dp = take_f32(dscore + i, n - i), kept = p;
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
  Packed *keys;                                          // (tiles) packed (keys × d)
  float *dq, *dk, *dv;                                   // accumulators: one tile, (tiles) twice
} Backward;

static void backward_tile(const Attention *a, AttentionTile *t, const Backward *w, int64_t j, int visible) {
  int64_t k = keys_at(a, t);
  float *dk = w->dk + j * accumulator_size(a), *dv = w->dv + j * accumulator_size(a);
  tile_product(t, a->k + k, a->k_row, 1, t->columns, a->d, w->q_across, t->rows, t->score, SCORE_ROW, 0);
  tile_product(t, a->v + k, a->k_row, 1, t->columns, a->d, w->dout_across, t->rows, t->dscore, SCORE_ROW, 0);
  if (a->attr->dropout > 0) tile_factors(a, t, 0);
  backward_rows(a, t, visible);
  tile_product(t, t->p, FACTOR_ROW, 1, t->columns, t->rows, w->dout_along, a->d, dv, a->width, 1);
  tile_product(t, t->ds, FACTOR_ROW, 1, t->columns, t->rows, w->q_along, a->d, dk, a->width, 1);
  tile_product(t, t->ds, 1, FACTOR_ROW, t->rows, t->columns, w->keys + j * packed_along(a), a->d, w->dq, a->width, 1);
}

// A tile of queries against all keys.
static void backward_queries(const Attention *a, AttentionTile *t, const Backward *w, int64_t tile) {
  set_queries(a, t, tile);
  int64_t q = query_at(a, t);
  pack_b(w->q_across, a->q + q, 1, a->q_row, a->d, t->rows);
  pack_b(w->dout_across, a->dout + q, 1, a->q_row, a->d, t->rows);
  pack_b(w->q_along, a->q + q, a->q_row, 1, t->rows, a->d);
  pack_b(w->dout_along, a->dout + q, a->q_row, 1, t->rows, a->d);
  memcpy(t->logsumexp, a->logsumexp + rows_at(a, t), sizeof(float) * (size_t)t->rows);
  for (int64_t row = 0; row < t->rows; row++) {
    const uint16_t *x = a->dout + q + row * a->q_row, *y = a->out + q + row * a->q_row;
    int64_t n = a->d;
    V sum = {0};
    EACH_VECTOR sum = fma_f32(take_bf16(x + i, n - i), take_bf16(y + i, n - i), sum);
    t->delta[row] = sum_f32(sum);
  }
  memset(w->dq, 0, sizeof(float) * (size_t)accumulator_size(a));
  for (int64_t j = 0; j < a->tiles; j++) {
    set_keys(a, t, j);
    int visible = tile_visible(a, t);
    if (visible) backward_tile(a, t, w, j, visible);
  }
  for (int64_t row = 0; row < t->rows; row++) narrow_row(a->dq + q + row * a->q_row, w->dq + row * a->width, a->d);
}

// One key-value head of one sample: all tiles, in one order.
static void attention_grad_unit(void *argument, int slot, int64_t unit) {
  const Attention *a = argument;
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  AttentionTile *t = (AttentionTile *)(void *)base;
  Backward w = {.q_across = (Packed *)(void *)(base + rounded(sizeof *t))};
  w.dout_across = w.q_across + packed_across(a);
  w.q_along = w.dout_across + packed_across(a);
  w.dout_along = w.q_along + packed_along(a);
  w.keys = w.dout_along + packed_along(a);
  w.dq = (float *)(void *)((char *)w.q_across + rounded(sizeof(Packed) * (size_t)(2 * packed_across(a) + (2 + a->tiles) * packed_along(a))));
  w.dk = w.dq + accumulator_size(a);
  w.dv = w.dk + a->tiles * accumulator_size(a);
  t->b = unit / a->g;
  t->g = unit % a->g;
  memset(w.dk, 0, sizeof(float) * (size_t)(2 * a->tiles * accumulator_size(a)));
  for (int64_t j = 0; j < a->tiles; j++) {
    set_keys(a, t, j);
    pack_b(w.keys + j * packed_along(a), a->k + keys_at(a, t), a->k_row, 1, t->columns, a->d);
  }
  tiles_begin();
  for (t->r = 0; t->r < a->r; t->r++)
    for (int64_t i = 0; i < a->tiles; i++) backward_queries(a, t, &w, i);
  tiles_end();
  for (int64_t j = 0; j < a->tiles; j++) {
    set_keys(a, t, j);
    for (int64_t row = 0; row < t->columns; row++) {
      int64_t at = keys_at(a, t) + row * a->k_row, from = j * accumulator_size(a) + row * a->width;
      narrow_row(a->dk + at, w.dk + from, a->d);
      narrow_row(a->dv + at, w.dv + from, a->d);
    }
  }
}

static void attention_grad_bf16(const KernelCall *call) {
  Attention a = attention_of(call);
  if (a.d > KC) {
    op_def(OP_ATTENTION_GRAD)->reference(call);
    return;
  }
  a.out = call->input[4].data;
  a.logsumexp = call->input[5].data;
  a.dout = call->input[6].data;
  a.dq = call->output[0].data;
  a.dk = call->output[1].data;
  a.dv = call->output[2].data;
  a.slot_bytes = rounded(backward_slot(&a));
  cpu_parallel(call->team, a.b * a.g, attention_grad_unit, &a);
}
