// ATTENTION and its gradient in tiles of queries × keys: never more than one tile of scores a thread (Dao et al.,
// "FlashAttention", 2022). Tiles that causality or documents hide are skipped. A tile of keys is transposed once for
// several tiles of queries: forward for QUERY_TILES, backward for all of a head.

enum { TYPED(QUERY_TILES) = 4 }; // of a unit of the forward pass
#define QUERY_TILES TYPED(QUERY_TILES)

// A thread's part of the workspace.
typedef struct TYPED(AttentionTile) {
  REAL score[TILE * TILE], dscore[TILE * TILE], factor[TILE * TILE]; // (queries, keys)
  REAL maximum[QUERY_TILES * TILE], sum[QUERY_TILES * TILE];
  PLACE at;
  REAL *accumulator;   // (QUERY_TILES, queries, d)
  REAL *keys, *values; // transposed: panels (d, NR) of TILE keys
  REAL *delta;         // (s), backward: products of rows of dout and out
  void *product;       // workspace of gemm
} TYPED(AttentionTile);
#define TILE_STATE TYPED(AttentionTile)
_Static_assert(TILE % NR == 0, "whole panels of a tile's keys");

static size_t TYPED(attention_slot)(int64_t d) {
  size_t product = TYPED(gemm_workspace)(TILE > d ? TILE : d, TILE > d ? TILE : d, 1);
  size_t bytes = sizeof(TILE_STATE) + sizeof(REAL) * (size_t)((QUERY_TILES + 2) * TILE * d) + product;
  return (bytes + 3 * 64) / 64 * 64;
}

static size_t TYPED(attention_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return TYPED(attention_slot)(input[0].size[4]) * (size_t)threads;
}
// Backward has a number for each query of a head beside it.
static size_t TYPED(attention_grad_slot)(const ATTENTION *a) {
  return TYPED(attention_slot)(a->d) + (sizeof(REAL) * (size_t)a->s + 63) / 64 * 64;
}
static size_t TYPED(attention_grad_workspace)(const Operand *input, const Operand *output, const void *attr,
                                              int threads) {
  ATTENTION a = TYPED(attention_sizes)(input);
  return TYPED(attention_grad_slot)(&a) * (size_t)threads;
}

static TILE_STATE *TYPED(attention_state)(const ATTENTION *a, int slot) {
  char *base = (char *)a->call->workspace + (size_t)slot * a->slot_bytes;
  TILE_STATE *t = (TILE_STATE *)(void *)base;
  t->accumulator = (REAL *)(void *)(base + (sizeof *t + 63) / 64 * 64);
  t->keys = t->accumulator + QUERY_TILES * TILE * a->d;
  t->values = t->keys + TILE * a->d;
  t->product = t->values + TILE * a->d;
  return t;
}

// Whether a product reads rows of d elements where they lie as its B (Gemm.b_panel): a tile uses them too seldom to
// pack them.
static int64_t TYPED(panel_of)(const ATTENTION *a) { return a->d % NR ? 0 : NR; }

// to = xᵀ of the keys of a tile (keys, d), as panels that products read.
static void TYPED(turn_keys)(const ATTENTION *a, const TILE_STATE *t, const REAL *x, REAL *to) {
  for (int64_t j = 0; j < t->at.columns; j += NR)
    TYPED(pack_b)
  (to + j * a->d, x + TYPED(keys_at)(a, &t->at) + j * a->k_row, 1, a->k_row, a->d,
   t->at.columns - j < NR ? t->at.columns - j : NR);
}

// c (queries, TILE) = rows of x (queries, d) · turned keys.
static void TYPED(tile_product)(const ATTENTION *a, TILE_STATE *t, const REAL *x, const REAL *turned, REAL *c) {
  GEMM g = {.m = t->at.rows,
            .n = (t->at.columns + NR - 1) / NR * NR,
            .k = a->d,
            .a = x + TYPED(query_at)(a, &t->at),
            .a_row = a->q_row,
            .a_column = 1,
            .b = turned,
            .b_row = NR,
            .b_column = 1,
            .b_panel = NR * a->d,
            .c = c,
            .c_row = TILE};
  TYPED(gemm)(&g, t->product, NULL);
}

// score = scale q kᵀ, -inf where hidden.
static void TYPED(tile_scores)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(tile_product)(a, t, a->q, t->keys, t->score);
  for (int64_t i = 0; i < t->at.rows; i++)
    TYPED(mask_row)
    (t->score + i * TILE, t->at.columns, (REAL)a->attr->scale, visible, 1, a->attr->causal, t->at.query_position[i],
     t->at.query_document[i], t->at.key_position, t->at.key_document);
}

// One tile of keys for tile `place` of the unit's queries: online softmax, then accumulator += p v.
static void TYPED(forward_tile)(const ATTENTION *a, TILE_STATE *t, int64_t place, int visible) {
  REAL *accumulator = t->accumulator + place * TILE * a->d, *maximum = t->maximum + place * TILE,
       *sums = t->sum + place * TILE;
  TYPED(tile_scores)(a, t, visible);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, &t->at, t->factor, TILE, 1);
  for (int64_t i = 0; i < t->at.rows; i++) {
    REAL *p = t->score + i * TILE, *o = accumulator + i * a->d;
    REAL old = maximum[i], tile = TYPED(greatest)(p, t->at.columns), new = tile > old ? tile : old;
    if (new == (REAL)-INFINITY) {
      memset(p, 0, sizeof(REAL) * (size_t)t->at.columns);
      continue;
    }
    REAL sum = TYPED(exp_sum)(p, t->at.columns, -new);
    if (new > old) {
      REAL shrink = old == (REAL)-INFINITY ? 0 : (REAL)exp((double)(old - new));
      for (int64_t e = 0; e < a->d; e++) o[e] *= shrink;
      sums[i] *= shrink;
      maximum[i] = new;
    }
    sums[i] += sum;
    if (a->attr->dropout > 0)
      for (int64_t j = 0; j < t->at.columns; j++) p[j] *= t->factor[i * TILE + j];
  }
  GEMM g = {.m = t->at.rows,
            .n = a->d,
            .k = t->at.columns,
            .a = t->score,
            .a_row = TILE,
            .a_column = 1,
            .b = a->v + TYPED(keys_at)(a, &t->at),
            .b_row = a->k_row,
            .b_column = 1,
            .b_panel = TYPED(panel_of)(a),
            .c = accumulator,
            .c_row = a->d,
            .add = 1};
  TYPED(gemm)(&g, t->product, NULL);
}

// A few tiles of queries of one head against all keys.
static void TYPED(attention_unit)(void *argument, int slot, int64_t unit) {
  const ATTENTION *a = argument;
  TILE_STATE *t = TYPED(attention_state)(a, slot);
  int64_t groups = (a->tiles + a->unit_tiles - 1) / a->unit_tiles, head = unit / groups;
  int64_t first = unit % groups * a->unit_tiles, left = a->tiles - first,
          count = left < a->unit_tiles ? left : a->unit_tiles;
  t->at.r = head % a->r;
  t->at.g = head / a->r % a->g;
  t->at.b = head / a->r / a->g;
  memset(t->accumulator, 0, sizeof(REAL) * (size_t)(count * TILE * a->d));
  for (int64_t i = 0; i < count * TILE; i++) {
    t->maximum[i] = (REAL)-INFINITY;
    t->sum[i] = 0;
  }
  for (int64_t j = 0; j < a->key_tiles; j++) {
    int turned = 0;
    TYPED(set_keys)(a, &t->at, j);
    for (int64_t i = 0; i < count; i++) {
      TYPED(set_queries)(a, &t->at, first + i);
      int visible = TYPED(tile_visible)(a, &t->at);
      if (!visible) continue;
      if (!turned) TYPED(turn_keys)(a, t, a->k, t->keys);
      turned = 1;
      TYPED(forward_tile)(a, t, i, visible);
    }
  }
  for (int64_t i = 0; i < count; i++) {
    TYPED(set_queries)(a, &t->at, first + i);
    REAL *out = (REAL *)a->call->output[0].data + TYPED(query_at)(a, &t->at),
         *rows = (REAL *)a->call->output[1].data + TYPED(rows_at)(a, &t->at), *o = t->accumulator + i * TILE * a->d;
    for (int64_t k = 0; k < t->at.rows; k++, o += a->d) {
      REAL sum = t->sum[i * TILE + k], inverse = sum > 0 ? 1 / sum : 0;
      for (int64_t e = 0; e < a->d; e++) out[k * a->q_row + e] = o[e] * inverse;
      rows[k] = t->maximum[i * TILE + k] + (REAL)log((double)sum);
    }
  }
}

static void TYPED(attention)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_of)(call);
  Team *team = call_team(call);
  a.slot_bytes = TYPED(attention_slot)(a.d);
  a.unit_tiles = QUERY_TILES;
  while (a.unit_tiles > 1 && a.b * a.g * a.r * (a.tiles / a.unit_tiles) < 4 * team_size(team)) a.unit_tiles /= 2;
  team_each(team, a.b * a.g * a.r * ((a.tiles + a.unit_tiles - 1) / a.unit_tiles), TYPED(attention_unit), &a);
}

// score = p, dscore = scale p (dp - delta), and what dv needs, p with dropout, in factor.
static void TYPED(gradient_scores)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(tile_scores)(a, t, visible);
  if (a->attr->dropout > 0) TYPED(tile_factors)(a, &t->at, t->factor, TILE, 1);
  TYPED(tile_product)(a, t, a->dout, t->values, t->dscore);
  const REAL *logsumexp = a->logsumexp + TYPED(rows_at)(a, &t->at);
  REAL scale = (REAL)a->attr->scale;
  for (int64_t i = 0; i < t->at.rows; i++) {
    REAL *p = t->score + i * TILE, *dp = t->dscore + i * TILE, *factor = t->factor + i * TILE;
    REAL delta = t->delta[t->at.s0 + i];
    TYPED(exp_sum)(p, t->at.columns, -TYPED(shift_of)(logsumexp[i]));
    if (a->attr->dropout > 0) {
      for (int64_t j = 0; j < t->at.columns; j++) {
        dp[j] = scale * p[j] * (dp[j] * factor[j] - delta);
        p[j] *= factor[j];
      }
    } else {
      for (int64_t j = 0; j < t->at.columns; j++) dp[j] = scale * p[j] * (dp[j] - delta);
    }
  }
}

static void TYPED(gradient_tile)(const ATTENTION *a, TILE_STATE *t, int visible) {
  TYPED(gradient_scores)(a, t, visible);
  int64_t q = TYPED(query_at)(a, &t->at), k = TYPED(keys_at)(a, &t->at);
  GEMM dv = {.m = t->at.columns,
             .n = a->d,
             .k = t->at.rows,
             .a = t->score,
             .a_row = 1,
             .a_column = TILE,
             .b = a->dout + q,
             .b_row = a->q_row,
             .b_column = 1,
             .b_panel = TYPED(panel_of)(a),
             .c = a->dv + k,
             .c_row = a->k_row,
             .add = 1};
  GEMM dk = dv, dq = {.m = t->at.rows,
                      .n = a->d,
                      .k = t->at.columns,
                      .a = t->dscore,
                      .a_row = TILE,
                      .a_column = 1,
                      .b = a->k + k,
                      .b_row = a->k_row,
                      .b_column = 1,
                      .b_panel = TYPED(panel_of)(a),
                      .c = a->dq + q,
                      .c_row = a->q_row,
                      .add = 1};
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
  t->at.b = unit / a->g;
  t->at.g = unit % a->g;
  for (int64_t s = 0; s < a->s; s++)
    memset(a->dq + ((t->at.b * a->s + s) * a->g + t->at.g) * a->r * a->d, 0, sizeof(REAL) * (size_t)(a->r * a->d));
  for (int64_t s = 0; s < a->t; s++) {
    int64_t k = ((t->at.b * a->t + s) * a->g + t->at.g) * a->d;
    memset(a->dk + k, 0, sizeof(REAL) * (size_t)a->d);
    memset(a->dv + k, 0, sizeof(REAL) * (size_t)a->d);
  }
  t->delta = (REAL *)(void *)((char *)t + TYPED(attention_slot)(a->d));
  for (t->at.r = 0; t->at.r < a->r; t->at.r++) {
    t->at.s0 = 0;
    const REAL *dout = a->dout + TYPED(query_at)(a, &t->at), *out = a->out + TYPED(query_at)(a, &t->at);
    for (int64_t i = 0; i < a->s; i++) t->delta[i] = TYPED(dot)(dout + i * a->q_row, out + i * a->q_row, a->d);
    for (int64_t j = 0; j < a->key_tiles; j++) {
      int turned = 0;
      TYPED(set_keys)(a, &t->at, j);
      for (int64_t i = 0; i < a->tiles; i++) {
        TYPED(set_queries)(a, &t->at, i);
        int visible = TYPED(tile_visible)(a, &t->at);
        if (!visible) continue;
        if (!turned) TYPED(turn_keys)(a, t, a->k, t->keys), TYPED(turn_keys)(a, t, a->v, t->values);
        turned = 1;
        TYPED(gradient_tile)(a, t, visible);
      }
    }
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
  a.slot_bytes = TYPED(attention_grad_slot)(&a);
  team_each(call_team(call), a.b * a.g, TYPED(attention_grad_unit), &a);
}
