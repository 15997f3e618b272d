// The parts of attention in tiles of queries × keys that do not depend on the dtype: which tile is where, what it can
// see, dropout.
//
// A tile is up to TILE queries or keys of one document that follow each other. Tiles begin at the document's first
// token in the row, and the last one of a document has fewer. Keys are met in rising order. So the result of a document
// is the same bits wherever it lies in a row, and alone. Which queries share a tile does not matter: each is a column
// of its own (bf16: a row).

enum { TYPED(TILE) = 64 };
#define TILE TYPED(TILE)

typedef struct TYPED(Attention) {
  const KernelCall *call;
  const AttentionAttr *attr;
  int64_t b, s, t, g, r, d;
  int64_t unit_rows; // queries whose tiles a unit of the forward pass has: those that begin there
  const ELEMENT *q, *k, *v, *out, *dout; // (b, s, g, r, d), (b, t, g, d) twice, (b, s, g, r, d) twice
  const REAL *logsumexp;                 // (b, g, r, s)
  ELEMENT *dq, *dk, *dv;
  int64_t q_row, k_row; // strides between positions
  PhiloxKey key;
  uint32_t threshold;
  REAL keep; // 1 / (1 - p)
  size_t slot_bytes;
} TYPED(Attention);
#define ATTENTION TYPED(Attention)

typedef struct TYPED(Extent) { INTEGER least, most; } TYPED(Extent);

// One side of a tile: up to TILE queries or keys that follow each other.
typedef struct TYPED(TileSide) {
  int64_t from, count;
  INTEGER position[TILE], document;
  TYPED(Extent) positions;
  int aligned; // its positions follow each other from a multiple of 4
} TYPED(TileSide);
#define SIDE TYPED(TileSide)

// The tile at work, of query head r of key-value head g of sample b.
typedef struct TYPED(TilePlace) {
  int64_t b, g, r;
  const SIDE *query, *key;
} TYPED(TilePlace);
#define PLACE TYPED(TilePlace)

static ATTENTION TYPED(attention_sizes)(const Operand *input) {
  const int64_t *q = input[0].size;
  ATTENTION a = {.b = q[0], .s = q[1], .t = input[1].size[1], .g = q[2], .r = q[3], .d = q[4]};
  a.q_row = a.g * a.r * a.d;
  a.k_row = a.g * a.d;
  return a;
}

static ATTENTION TYPED(attention_of)(const KernelCall *call) {
  ATTENTION a = TYPED(attention_sizes)(call->input);
  a.call = call;
  a.attr = call->attr;
  a.q = call->input[0].data;
  a.k = call->input[1].data;
  a.v = call->input[2].data;
  a.keep = 1;
  if (a.attr->dropout > 0) {
    a.key = philox_key(call->parameters->seed, call->parameters->step, a.attr->stream);
    a.threshold = keep_threshold(a.attr->dropout);
    a.keep = (REAL)(1 / (1 - a.attr->dropout));
  }
  return a;
}

static int64_t TYPED(query_at)(const ATTENTION *a, const PLACE *t) {
  return (((t->b * a->s + t->query->from) * a->g + t->g) * a->r + t->r) * a->d;
}
static int64_t TYPED(keys_at)(const ATTENTION *a, const PLACE *t) {
  return ((t->b * a->t + t->key->from) * a->g + t->g) * a->d;
}
static int64_t TYPED(rows_at)(const ATTENTION *a, const PLACE *t) {
  return ((t->b * a->g + t->g) * a->r + t->r) * a->s + t->query->from;
}

static TYPED(Extent) TYPED(extent)(const INTEGER *x, int64_t n) {
  TYPED(Extent) e = {x[0], x[0]};
  for (int64_t i = 1; i < n; i++) {
    e.least = x[i] < e.least ? x[i] : e.least;
    e.most = x[i] > e.most ? x[i] : e.most;
  }
  return e;
}

// Where the tile from `from` on ends: after TILE of the n tokens of sample b, or where another document begins.
// documents: (b, n).
static int64_t TYPED(tile_end)(const Operand *documents, int64_t b, int64_t n, int64_t from) {
  int64_t end = from + FAULT(tiles_begin_at_the_row, TILE, TILE - from % TILE), to = from + 1;
  int64_t document = integer_load(documents, b * n + from);
  if (end > n) end = n;
  while (to < end && integer_load(documents, b * n + to) == document) to++;
  return to;
}
// Where the first tile begins that begins at `row` or after it.
static int64_t TYPED(tile_at)(const Operand *documents, int64_t b, int64_t n, int64_t row) {
  int64_t from = row, document = integer_load(documents, b * n + row);
  while (from && integer_load(documents, b * n + from - 1) == document) from--;
  while (from < row) from = TYPED(tile_end)(documents, b, n, from);
  return from;
}

// The tile from `from` on, of the n queries or keys of sample b.
static void TYPED(set_side)(SIDE *side, const Operand *documents, const IndexMap *map, int64_t b, int64_t n,
                            int64_t from) {
  side->from = from;
  side->count = TYPED(tile_end)(documents, b, n, from) - from;
  for (int64_t i = 0; i < side->count; i++)
    side->position[i] =
        (INTEGER)FAULT(zigzag_of_attention_fast, index_map(map, from + i), index_map(map, 0) + from + i);
  side->document = (INTEGER)integer_load(documents, b * n + FAULT(document_border_fast, from, from ? from - 1 : 0));
  side->positions = TYPED(extent)(side->position, side->count);
  side->aligned = side->position[0] % 4 == 0;
  for (int64_t i = 1; i < side->count; i++) side->aligned &= side->position[i] == side->position[0] + i;
}
static void TYPED(set_queries)(const ATTENTION *a, int64_t b, int64_t from, SIDE *side) {
  TYPED(set_side)(side, &a->call->input[3], &a->call->input[0].map[1], b, a->s, from);
}
static void TYPED(set_keys)(const ATTENTION *a, int64_t b, int64_t from, SIDE *side) {
  TYPED(set_side)(side, &a->call->input[4], &a->call->input[1].map[1], b, a->t, from);
}

// The next tiles of queries of a unit, up to `most`, from row *from on, of those that begin before `end`. Returns how
// many; *from is then where the one after them begins.
static int64_t TYPED(take_queries)(const ATTENTION *a, int64_t b, int64_t *from, int64_t end, SIDE *side,
                                   int64_t most) {
  int64_t count = 0;
  for (; count < most && *from < end; *from += side[count++].count) TYPED(set_queries)(a, b, *from, &side[count]);
  return count;
}

// 0: no key is visible to any query, 1: some may be, 2: all are.
static int TYPED(tile_visible)(const ATTENTION *a, const PLACE *t) {
  TYPED(Extent) q = t->query->positions, k = t->key->positions;
  if ((a->attr->causal && k.least > q.most) || FAULT(mask_documents_fast, t->query->document != t->key->document, 0))
    return FAULT(hidden_tiles_are_computed, 0, 1);
  return !a->attr->causal || k.most <= q.least ? 2 : 1;
}

// factor[i · query + j · key] = 0 or 1 / (1 - p) for query i and key j; the bits of attention_keep.
static void TYPED(tile_factors)(const ATTENTION *a, const PLACE *t, REAL *factor, int64_t query, int64_t key) {
  const Operand *q = &a->call->input[0];
  int64_t sample =
      a->call->parameters->sample_base + FAULT(address_of_attention_sample, index_map(&q->map[0], t->b), t->b);
  int64_t head = FAULT(address_of_attention_head, index_map(&q->map[2], t->g), t->g) * q->map[3].global +
                 index_map(&q->map[3], t->r);
  uint64_t counter = (uint32_t)sample | (uint64_t)head << 32;
  uint32_t threshold = a->threshold, bits[4 * PHILOX_BATCH];
  _Static_assert(TILE <= 4 * PHILOX_BATCH, "one batch for a row of a tile");
  const SIDE *queries = t->query, *keys = t->key;
  for (int64_t i = 0; i < queries->count; i++) {
    int64_t first = -1; // position of the batch's first bits
    uint32_t position = (uint32_t)queries->position[i];
    if (keys->aligned) {
      philox_batch(a->key, counter, 0, position, 0, (uint32_t)(keys->position[0] / 4), 1, bits);
      for (int64_t j = 0; j < keys->count; j++) factor[i * query + j * key] = bits[j] >= threshold ? a->keep : 0;
      continue;
    }
    for (int64_t j = 0; j < keys->count; j++) {
      int64_t p = keys->position[j];
      if (first < 0 || p < first || p >= first + 4 * PHILOX_BATCH) {
        first = p / 4 * 4;
        philox_batch(a->key, counter, 0, position, 0, (uint32_t)(first / 4), 1, bits);
      }
      factor[i * query + j * key] = bits[p - first] >= threshold ? a->keep : 0;
    }
  }
}

// The shift of the exponents of a query's scores: 0 for a query that sees no key anywhere, since -inf - -inf is NaN.
INLINE REAL TYPED(shift_of)(REAL logsumexp) {
  return logsumexp == (REAL)-INFINITY ? FAULT(attention_to_nothing, 0, logsumexp) : logsumexp;
}

// One row of scores against n others: hidden ones are -inf. `before`: the row's position must not be before others'.
INLINE void TYPED(mask_row)(REAL *score, int64_t n, int before, int causal, INTEGER position,
                            const INTEGER *positions) {
  INTEGER late = FAULT(mask_causal_fast, 0, 1);
  for (int64_t j = 0; j < n; j++) {
    INTEGER order = before ? positions[j] <= position + late : position - late <= positions[j];
    score[j] = (order | !causal) ? score[j] : (REAL)-INFINITY;
  }
}
