// ATTENTION and its gradient in tiles of queries × keys: never more than one tile of scores a thread (Dao et al.,
// "FlashAttention", 2022). Tiles that causality or documents hide are skipped.

enum { TYPED(TILE) = 64 };
#define TILE TYPED(TILE)

typedef struct TYPED(Attention) {
  const KernelCall *call;
  const AttentionAttr *attr;
  int64_t b, s, g, r, d, tiles; // tiles: of s
  const REAL *q, *k, *v, *out, *dout; // (b, s, g, r, d), (b, s, g, d) twice, (b, s, g, r, d) twice
  const REAL *logsumexp;              // (b, g, r, s)
  REAL *dq, *dk, *dv;
  int64_t q_row, k_row; // strides between positions
  PhiloxKey key;
  uint32_t threshold;
  REAL keep; // 1 / (1 - p)
  size_t slot_bytes;
} TYPED(Attention);
#define ATTENTION TYPED(Attention)

// A thread's part of the workspace.
typedef struct TYPED(AttentionTile) {
  REAL score[TILE * TILE], dscore[TILE * TILE], factor[TILE * TILE]; // (queries, keys)
  REAL maximum[TILE], sum[TILE], delta[TILE];
  INTEGER key_position[TILE], key_document[TILE], query_position[TILE], query_document[TILE];
  int64_t b, g, r, s0, rows, t0, columns; // the tile at work
  int aligned;                            // its keys' positions follow each other from a multiple of 4
  REAL *accumulator;                      // (queries, d)
  void *product;                          // workspace of gemm
} TYPED(AttentionTile);
#define TILE_STATE TYPED(AttentionTile)

static size_t TYPED(attention_slot)(int64_t d) {
  size_t product = TYPED(gemm_workspace)(TILE > d ? TILE : d, TILE > d ? TILE : d, 1);
  size_t bytes = sizeof(TILE_STATE) + sizeof(REAL) * (size_t)(TILE * d) + product;
  return (bytes + 3 * 64) / 64 * 64;
}

static size_t TYPED(attention_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return TYPED(attention_slot)(input[0].size[4]) * (size_t)threads;
}

static TILE_STATE *TYPED(attention_state)(const ATTENTION *a, int slot) {
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  TILE_STATE *t = (TILE_STATE *)(void *)base;
  t->accumulator = (REAL *)(void *)(base + (sizeof *t + 63) / 64 * 64);
  t->product = t->accumulator + TILE * a->d;
  return t;
}

static ATTENTION TYPED(attention_of)(const KernelCall *call) {
  const Operand *q = &call->input[0];
  ATTENTION a = {.call = call, .attr = call->attr, .b = q->size[0], .s = q->size[1], .g = q->size[2], .r = q->size[3], .d = q->size[4]};
  a.q = q->data;
  a.k = call->input[1].data;
  a.v = call->input[2].data;
  a.tiles = (a.s + TILE - 1) / TILE;
  a.q_row = a.g * a.r * a.d;
  a.k_row = a.g * a.d;
  a.keep = 1;
  if (a.attr->dropout > 0) {
    a.key = philox_key(call->parameters->seed, call->parameters->step, a.attr->stream);
    a.threshold = keep_threshold(a.attr->dropout);
    a.keep = (REAL)(1 / (1 - a.attr->dropout));
  }
  a.slot_bytes = TYPED(attention_slot)(a.d);
  return a;
}

static int64_t TYPED(query_at)(const ATTENTION *a, const TILE_STATE *t) {
  return (((t->b * a->s + t->s0) * a->g + t->g) * a->r + t->r) * a->d;
}
static int64_t TYPED(keys_at)(const ATTENTION *a, const TILE_STATE *t) { return ((t->b * a->s + t->t0) * a->g + t->g) * a->d; }
// Rows of d elements in row-major order as B of a product: too few of its uses to pay for packing. See GEMM.
static int64_t TYPED(panel_of)(const ATTENTION *a) { return a->d % NR ? 0 : NR; }
static int64_t TYPED(rows_at)(const ATTENTION *a, const TILE_STATE *t) { return ((t->b * a->g + t->g) * a->r + t->r) * a->s + t->s0; }

static void TYPED(read_positions)(const Operand *documents, const IndexMap *map, int64_t row, int64_t from, int64_t n,
                                  INTEGER *position, INTEGER *document) {
  for (int64_t i = 0; i < n; i++) {
    position[i] = (INTEGER)index_map(map, from + i);
    document[i] = (INTEGER)integer_load(documents, row + from + i);
  }
}
static void TYPED(set_queries)(const ATTENTION *a, TILE_STATE *t, int64_t tile) {
  t->s0 = tile * TILE;
  t->rows = a->s - t->s0 < TILE ? a->s - t->s0 : TILE;
  TYPED(read_positions)(&a->call->input[3], &a->call->input[0].map[1], t->b * a->s, t->s0, t->rows, t->query_position, t->query_document);
}
static void TYPED(set_keys)(const ATTENTION *a, TILE_STATE *t, int64_t tile) {
  t->t0 = tile * TILE;
  t->columns = a->s - t->t0 < TILE ? a->s - t->t0 : TILE;
  TYPED(read_positions)(&a->call->input[3], &a->call->input[1].map[1], t->b * a->s, t->t0, t->columns, t->key_position, t->key_document);
  t->aligned = t->key_position[0] % 4 == 0;
  for (int64_t j = 1; j < t->columns; j++) t->aligned &= t->key_position[j] == t->key_position[0] + j;
}

typedef struct TYPED(Extent) { INTEGER least, most; } TYPED(Extent);
static TYPED(Extent) TYPED(extent)(const INTEGER *x, int64_t n) {
  TYPED(Extent) e = {x[0], x[0]};
  for (int64_t i = 1; i < n; i++) {
    e.least = x[i] < e.least ? x[i] : e.least;
    e.most = x[i] > e.most ? x[i] : e.most;
  }
  return e;
}

// 0: no key is visible to any query, 1: some may be, 2: all are.
static int TYPED(tile_visible)(const ATTENTION *a, const TILE_STATE *t) {
  TYPED(Extent) q = TYPED(extent)(t->query_position, t->rows), k = TYPED(extent)(t->key_position, t->columns);
  TYPED(Extent) qd = TYPED(extent)(t->query_document, t->rows), kd = TYPED(extent)(t->key_document, t->columns);
  if ((a->attr->causal && k.least > q.most) || kd.least > qd.most || kd.most < qd.least) return 0;
  return (!a->attr->causal || k.most <= q.least) && qd.least == qd.most && kd.least == kd.most && kd.least == qd.least ? 2 : 1;
}

// score = scale q kᵀ, -inf where hidden.
static void TYPED(tile_scores)(const ATTENTION *a, TILE_STATE *t, int visible) {
  GEMM g = {.m = t->rows, .n = t->columns, .k = a->d, .a = a->q + TYPED(query_at)(a, t), .a_row = a->q_row, .a_column = 1,
            .b = a->k + TYPED(keys_at)(a, t), .b_row = 1, .b_column = a->k_row, .c = t->score, .c_row = TILE};
  TYPED(gemm)(&g, t->product, NULL);
  REAL scale = (REAL)a->attr->scale;
  INTEGER causal = a->attr->causal ? 0 : -1;
  for (int64_t i = 0; i < t->rows; i++) {
    REAL *score = t->score + i * TILE;
    INTEGER position = t->query_position[i], document = t->query_document[i];
    if (visible == 2) {
      for (int64_t j = 0; j < t->columns; j++) score[j] *= scale;
    } else {
      for (int64_t j = 0; j < t->columns; j++) {
        INTEGER seen = ((t->key_position[j] <= position) | (causal != 0)) & (t->key_document[j] == document);
        score[j] = seen ? score[j] * scale : (REAL)-INFINITY;
      }
    }
  }
}

// factor = 0 or 1 / (1 - p); the bits of attention_keep.
static void TYPED(tile_factors)(const ATTENTION *a, TILE_STATE *t) {
  const Operand *q = &a->call->input[0];
  int64_t sample = a->call->parameters->sample_base + index_map(&q->map[0], t->b);
  int64_t head = index_map(&q->map[2], t->g) * q->map[3].global + index_map(&q->map[3], t->r);
  uint32_t threshold = a->threshold;
  for (int64_t i = 0; i < t->rows; i++) {
    int64_t first = -1; // position of the batch's first bits
    uint32_t bits[4 * PHILOX_BATCH];
    _Static_assert(TILE <= 4 * PHILOX_BATCH, "one batch for a row of a tile");
    if (t->aligned) {
      philox_batch(a->key, (uint32_t)sample, (uint32_t)head, (uint32_t)t->query_position[i], (uint32_t)(t->key_position[0] / 4), 0, 1, bits);
      for (int64_t j = 0; j < t->columns; j++) t->factor[i * TILE + j] = bits[j] >= threshold ? a->keep : 0;
      continue;
    }
    for (int64_t j = 0; j < t->columns; j++) {
      int64_t p = t->key_position[j];
      if (first < 0 || p < first || p >= first + 4 * PHILOX_BATCH) {
        first = p / 4 * 4;
        philox_batch(a->key, (uint32_t)sample, (uint32_t)head, (uint32_t)t->query_position[i], (uint32_t)(first / 4), 0, 1, bits);
      }
      t->factor[i * TILE + j] = bits[p - first] >= threshold ? a->keep : 0;
    }
  }
}

// One tile of keys: online softmax, then accumulator += p v.
static void TYPED(forward_tile)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(tile_scores)(a, t, visible);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, t);
  for (int64_t i = 0; i < t->rows; i++) {
    REAL *p = t->score + i * TILE, *o = t->accumulator + i * a->d;
    REAL old = t->maximum[i], tile = TYPED(greatest)(p, t->columns), new = tile > old ? tile : old;
    if (new == (REAL)-INFINITY) {
      memset(p, 0, sizeof(REAL) * (size_t)t->columns);
      continue;
    }
    REAL sum = TYPED(exp_sum)(p, t->columns, -new);
    if (new > old) {
      REAL shrink = old == (REAL)-INFINITY ? 0 : (REAL)exp((double)(old - new));
      for (int64_t e = 0; e < a->d; e++) o[e] *= shrink;
      t->sum[i] *= shrink;
      t->maximum[i] = new;
    }
    t->sum[i] += sum;
    if (a->attr->dropout > 0)
      for (int64_t j = 0; j < t->columns; j++) p[j] *= t->factor[i * TILE + j];
  }
  GEMM g = {.m = t->rows, .n = a->d, .k = t->columns, .a = t->score, .a_row = TILE, .a_column = 1, .b = a->v + TYPED(keys_at)(a, t),
            .b_row = a->k_row, .b_column = 1, .b_panel = TYPED(panel_of)(a), .c = t->accumulator, .c_row = a->d, .add = 1};
  TYPED(gemm)(&g, t->product, NULL);
}

// All keys of one tile of queries of one head.
static void TYPED(attention_unit)(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  TILE_STATE *t = TYPED(attention_state)(a, slot);
  int64_t tile = unit % a->tiles, head = unit / a->tiles;
  t->r = head % a->r;
  t->g = head / a->r % a->g;
  t->b = head / a->r / a->g;
  TYPED(set_queries)(a, t, tile);
  memset(t->accumulator, 0, sizeof(REAL) * (size_t)(t->rows * a->d));
  for (int64_t i = 0; i < t->rows; i++) {
    t->maximum[i] = (REAL)-INFINITY;
    t->sum[i] = 0;
  }
  for (int64_t j = 0; j < a->tiles; j++) {
    TYPED(set_keys)(a, t, j);
    int visible = TYPED(tile_visible)(a, t);
    if (visible) TYPED(forward_tile)(a, t, visible);
  }
  REAL *out = (REAL *)a->call->output[0].data + TYPED(query_at)(a, t), *rows = (REAL *)a->call->output[1].data + TYPED(rows_at)(a, t);
  for (int64_t i = 0; i < t->rows; i++) {
    REAL inverse = t->sum[i] > 0 ? 1 / t->sum[i] : 0;
    for (int64_t e = 0; e < a->d; e++) out[i * a->q_row + e] = t->accumulator[i * a->d + e] * inverse;
    rows[i] = t->maximum[i] + (REAL)log((double)t->sum[i]);
  }
}

static void TYPED(attention)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  cpu_parallel(call->team, a.b * a.g * a.r * a.tiles, TYPED(attention_unit), &a);
}

// score = p, dscore = scale p (dp - delta), and what dv needs, p with dropout, in factor.
static void TYPED(gradient_scores)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(tile_scores)(a, t, visible);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, t);
  int64_t q = TYPED(query_at)(a, t);
  GEMM g = {.m = t->rows, .n = t->columns, .k = a->d, .a = a->dout + q, .a_row = a->q_row, .a_column = 1,
            .b = a->v + TYPED(keys_at)(a, t), .b_row = 1, .b_column = a->k_row, .c = t->dscore, .c_row = TILE};
  TYPED(gemm)(&g, t->product, NULL);
  const REAL *logsumexp = a->logsumexp + TYPED(rows_at)(a, t);
  REAL scale = (REAL)a->attr->scale;
  for (int64_t i = 0; i < t->rows; i++) {
    REAL *p = t->score + i * TILE, *dp = t->dscore + i * TILE, *factor = t->factor + i * TILE;
    REAL delta = TYPED(dot)(a->dout + q + i * a->q_row, a->out + q + i * a->q_row, a->d);
    TYPED(exp_sum)(p, t->columns, -logsumexp[i]);
    if (a->attr->dropout > 0) {
      for (int64_t j = 0; j < t->columns; j++) {
        dp[j] = scale * p[j] * (dp[j] * factor[j] - delta);
        p[j] *= factor[j];
      }
    } else {
      for (int64_t j = 0; j < t->columns; j++) dp[j] = scale * p[j] * (dp[j] - delta);
    }
  }
}

static void TYPED(gradient_tile)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(gradient_scores)(a, t, visible);
  int64_t q = TYPED(query_at)(a, t), k = TYPED(keys_at)(a, t);
  GEMM dv = {.m = t->columns, .n = a->d, .k = t->rows, .a = t->score, .a_row = 1, .a_column = TILE, .b = a->dout + q,
             .b_row = a->q_row, .b_column = 1, .b_panel = TYPED(panel_of)(a), .c = a->dv + k, .c_row = a->k_row, .add = 1};
  GEMM dk = dv, dq = {.m = t->rows, .n = a->d, .k = t->columns, .a = t->dscore, .a_row = TILE, .a_column = 1, .b = a->k + k,
                      .b_row = a->k_row, .b_column = 1, .b_panel = TYPED(panel_of)(a), .c = a->dq + q, .c_row = a->q_row, .add = 1};
  dk.a = t->dscore;
  dk.b = a->q + q;
  dk.c = a->dk + k;
  TYPED(gemm)(&dv, t->product, NULL);
  TYPED(gemm)(&dk, t->product, NULL);
  TYPED(gemm)(&dq, t->product, NULL);
}

// One key-value head of one sample: all tiles, in one order.
static void TYPED(attention_grad_unit)(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  TILE_STATE *t = TYPED(attention_state)(a, slot);
  t->b = unit / a->g;
  t->g = unit % a->g;
  for (int64_t s = 0; s < a->s; s++) {
    int64_t k = ((t->b * a->s + s) * a->g + t->g) * a->d;
    memset(a->dk + k, 0, sizeof(REAL) * (size_t)a->d);
    memset(a->dv + k, 0, sizeof(REAL) * (size_t)a->d);
    memset(a->dq + k * a->r, 0, sizeof(REAL) * (size_t)(a->r * a->d));
  }
  for (t->r = 0; t->r < a->r; t->r++)
    for (int64_t i = 0; i < a->tiles; i++) {
      TYPED(set_queries)(a, t, i);
      for (int64_t j = 0; j < a->tiles; j++) {
        TYPED(set_keys)(a, t, j);
        int visible = TYPED(tile_visible)(a, t);
        if (visible) TYPED(gradient_tile)(a, t, visible);
      }
    }
}

static void TYPED(attention_grad)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  a.out = call->input[4].data;
  a.logsumexp = call->input[5].data;
  a.dout = call->input[6].data;
  a.dq = call->output[0].data;
  a.dk = call->output[1].data;
  a.dv = call->output[2].data;
  cpu_parallel(call->team, a.b * a.g, TYPED(attention_grad_unit), &a);
}
