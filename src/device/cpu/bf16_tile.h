// The register tile of bf16 products and the packing that it wants, in three kinds: AMX, AVX512_BF16, and fp32
// arithmetic. Sums are fp32 always.
//
// Packed B: panels (depth / PAIR, NR, PAIR), zero padded to NR columns and a multiple of STEP rows, one after the
// other. Packed A: tiles of MR rows, MR · KA elements apart: (MR, KA), or (depth / PAIR, MR, PAIR) where `A_COLUMNS`
// and A's columns are contiguous. Zero padded likewise.

#if LEVEL_BF16 == 2
typedef uint16_t Packed;
enum { MR = 32, NR = 32, STEP = 32, PAIR = 2, TILES = 8, KC = 1024, A_COLUMNS = 0 };
#elif LEVEL_BF16 == 1
typedef uint16_t Packed;
enum { MR = 14, NR = 32, STEP = 2, PAIR = 2, TILES = 16, KC = 512, A_COLUMNS = 1 };
#else
typedef float Packed;
enum {
  MR = LEVEL_BYTES == 64   ? 14
       : LEVEL_BYTES == 32 ? 6
                           : 4,
  NR = 2 * WIDTH,
  STEP = 1,
  PAIR = 1,
  TILES = 112 / MR,
  KC = 512,
  A_COLUMNS = 1
};
#endif
enum {
  KA =
      KC + 64 / (int)sizeof(Packed), // row stride of a packed tile: an odd number of cache lines, so rows differ in set
  MC = MR * TILES
};

static int64_t step_up(int64_t n) { return (n + STEP - 1) / STEP * STEP; }

// ---- packing

#if LEVEL_BF16
// Two rows of 32 → 32 pairs. Columns past the mask are 0; y NULL: a row of zeros.
INLINE void pack_pairs(uint16_t *to, const uint16_t *x, const uint16_t *y, __mmask32 mask) {
  __m512i a = _mm512_maskz_loadu_epi16(mask, x), b = y ? _mm512_maskz_loadu_epi16(mask, y) : _mm512_setzero_si512();
  __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high));
  _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high));
}

// to (16 × 16 pairs) = from (16 × 16 pairs)ᵀ; strides in elements
INLINE void transpose_pairs(uint16_t *to, int64_t to_row, const uint16_t *from, int64_t from_row) {
  UNROLL for (int q = 0; q < 4; q++) {
    __m512i r[4];
    UNROLL for (int i = 0; i < 4; i++) { // lane l: row i + 4 l, pairs 4 q …
      const uint16_t *p = from + i * from_row + 8 * q;
      r[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
      r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i *)(const void *)(p + 4 * from_row)), 1);
      r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i *)(const void *)(p + 8 * from_row)), 2);
      r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const __m128i *)(const void *)(p + 12 * from_row)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]),
            c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    uint16_t *at = to + 4 * q * to_row;
    _mm512_storeu_si512(at, _mm512_unpacklo_epi64(a, c));
    _mm512_storeu_si512(at + to_row, _mm512_unpackhi_epi64(a, c));
    _mm512_storeu_si512(at + 2 * to_row, _mm512_unpacklo_epi64(b, d));
    _mm512_storeu_si512(at + 3 * to_row, _mm512_unpackhi_epi64(b, d));
  }
}

// 16 columns of a panel from B whose depth is contiguous: to + half the panel, pairs 2 NR apart.
static void pack_half(uint16_t *to, const uint16_t *b, int64_t column, int64_t depth, int64_t columns) {
  int64_t k = 0, padded = step_up(depth);
  if (columns >= 16)
    for (; k + 32 <= depth; k += 32) transpose_pairs(to + k * NR, 2 * NR, b + k, column);
  for (; k < padded; k += 32) { // an edge: through a copy with zeros around it
    uint16_t rows[16 * 32] = {0}, pairs[16 * 32];
    int64_t n = depth - k < 32 ? depth - k : 32, out = padded - k < 32 ? padded - k : 32;
    for (int64_t j = 0; j < 16 && j < columns; j++) memcpy(rows + 32 * j, b + j * column + k, sizeof *b * (size_t)n);
    transpose_pairs(pairs, 32, rows, 32);
    for (int64_t p = 0; p < out / 2; p++) memcpy(to + (k + 2 * p) * NR, pairs + 32 * p, sizeof *b * 32);
  }
}

// Columns of B → panels.
static void pack_b(uint16_t *restrict to, const uint16_t *restrict b, int64_t row, int64_t column, int64_t depth,
                   int64_t columns) {
  int64_t padded = step_up(depth), panel = padded * NR;
  if (column == 1) { // row by row through all panels: memory is read in its order
    for (int64_t k = 0; k < padded; k += 2)
      for (int64_t j = 0; j < columns; j += NR) {
        const uint16_t *x = b + k * row + j;
        uint16_t *at = to + j / NR * panel + k * NR;
        if (k < depth)
          pack_pairs(at, x, k + 1 < depth ? x + row : NULL, columns - j >= NR ? ~0u : (1u << (columns - j)) - 1);
        else memset(at, 0, sizeof *to * 2 * NR);
      }
    return;
  }
  for (int64_t j = 0; j < columns; j += NR, to += panel) {
    pack_half(to, b + j * column, column, depth, columns - j);
    if (columns - j > 16) pack_half(to + 32, b + (j + 16) * column, column, depth, columns - j - 16);
    else
      for (int64_t p = 0; p < padded / 2; p++) memset(to + p * 2 * NR + 32, 0, sizeof *to * 32);
  }
}
#else
static void pack_b(float *restrict to, const uint16_t *restrict b, int64_t row, int64_t column, int64_t depth,
                   int64_t columns) {
  for (int64_t j = 0; j < columns; j += NR, to += depth * NR) {
    if (column == 1 && columns - j >= NR) {
      for (int64_t k = 0; k < depth; k++) {
        store_f32(to + k * NR, load_bf16(b + k * row + j));
        store_f32(to + k * NR + WIDTH, load_bf16(b + k * row + j + WIDTH));
      }
      continue;
    }
    // Blocks of as many columns of B as a vector holds and LINE of its rows: widened, then transposed.
    enum { LINE = 16 };
    int64_t k = 0, lanes = row != 1 ? 0 : columns - j < NR ? (columns - j) / WIDTH * WIDTH : NR;
    for (; k + LINE <= (lanes ? depth : 0); k += LINE)
      for (int64_t i = 0; i < lanes; i += WIDTH) {
        float wide[WIDTH * LINE] __attribute__((aligned(64)));
        for (int r = 0; r < WIDTH; r++) widen_row(wide + r * LINE, b + (j + i + r) * column + k, LINE);
        for (int x = 0; x < LINE; x += 4) transpose_rows_f32(to + (k + x) * NR + i, NR, wide + x, LINE);
      }
    for (int64_t x = 0; x < depth; x++) // what is left
      for (int64_t i = x < k ? lanes + FAULT(packing_skips_a_column_bf16, 0, 1) : 0; i < NR; i++)
        to[x * NR + i] = j + i < columns ? bf16_to_float(b[(j + i) * column + x * row]) : 0;
  }
}
#endif

// One tile of A whose depth is contiguous.
static void pack_a_rows(Packed *restrict to, const uint16_t *restrict a, int64_t row, int64_t rows, int64_t depth) {
  int64_t padded = step_up(depth);
  for (int64_t i = 0; i < MR; i++) {
    Packed *at = to + i * KA;
    int64_t n = i < rows ? depth : 0;
#if LEVEL_BF16
    memcpy(at, a + (n ? i * row : 0), sizeof *at * (size_t)n);
#else
    widen_row(at, a + (n ? i * row : 0), n);
#endif
    memset(at + n, 0, sizeof *at * (size_t)(padded - n));
  }
}

// Tiles of A whose rows are contiguous, columns `column` apart; MR · KA elements each.
static void pack_a_columns(Packed *restrict to, const uint16_t *restrict a, int64_t column, int64_t rows,
                           int64_t depth) {
#if LEVEL_BF16 == 2
  uint16_t pairs[16 * 64];
  for (int64_t k = 0; k < depth; k += 32)
    for (int64_t r = 0; r < rows; r += MR) {
      __mmask32 mask = rows - r >= 32 ? ~0u : (1u << (rows - r)) - 1;
      for (int64_t i = 0; i < 32; i += 2) {
        const uint16_t *x = a + (k + i) * column + r;
        if (k + i < depth) pack_pairs(pairs + 32 * i, x, k + i + 1 < depth ? x + column : NULL, mask);
        else memset(pairs + 32 * i, 0, sizeof *pairs * 64);
      }
      transpose_pairs(to + r * KA + k, KA, pairs, 64);
      transpose_pairs(to + (r + 16) * KA + k, KA, pairs + 32, 64);
    }
#elif LEVEL_BF16 == 1
  for (int64_t k = 0; k < depth; k += 2)
    for (int64_t r = 0; r < rows; r += MR) {
      __mmask16 mask = (__mmask16)((1u << (rows - r < MR ? rows - r : MR)) - 1);
      __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, a + k * column + r)), y = _mm512_setzero_si512();
      if (k + 1 < depth) y = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, a + (k + 1) * column + r));
      _mm512_mask_storeu_epi32(to + r * KA + k * MR, (1u << MR) - 1, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
    }
#else
  // By whole vectors, which may reach into the next rows of `a`, as far as there are some, and into the next column of
  // the tile, which is written after them. No row after the last one has a place in C.
  enum { VECTORS = (MR + WIDTH - 1) / WIDTH * WIDTH };
  const int64_t last = (depth - 1) * column + rows; // elements of `a` up to the end of its last row
  for (int64_t k = 0; k < depth; k++)
    for (int64_t r = 0; r < rows; r += MR) {
      const uint16_t *x = a + k * column + r;
      float *at = to + r * KA + k * MR;
      if (k * column + r + VECTORS <= last) widen_row(at, x, VECTORS);
      else
        for (int64_t i = 0; i < MR; i++) at[i] = r + i < rows ? bf16_to_float(x[i]) : 0;
    }
#endif
}

// ---- the tile

// Memory that is prefetched while a tile is computed (AMX only): at each of its steps of 32, `rows` lines at `a`, a_row
// elements apart and moving on by a_step elements for one of k; and two blocks of lines, spread over all steps.
typedef struct Lines {
  const void *at; // NULL: none
  int64_t row_bytes, rows, lines; // rows of `lines` · 64 B
} Lines;
typedef struct Ahead {
  const uint16_t *a;
  int64_t a_row, a_step, rows;
  Lines c, next; // a tile of C, which will be written; anything else
} Ahead;

#if LEVEL_BF16 == 2
static void tiles_begin(void) {
  static const struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config __attribute__((aligned(64))) = {
      .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&config);
}
static void tiles_end(void) { _tile_release(); }

INLINE void fetch_lines(const Lines *x, int64_t k, int64_t depth, int write) {
  if (!x->at) return;
  for (int64_t r = x->rows * k / depth, end = x->rows * (k + 32) / depth; r < end; r++)
    for (int64_t line = 0; line < x->lines; line++) {
      const char *at = (const char *)x->at + r * x->row_bytes + 64 * line;
      if (write) __builtin_prefetch(at, 1);
      else _mm_prefetch(at, _MM_HINT_T1);
    }
}
INLINE void fetch_ahead(const Ahead *x, int64_t k, int64_t depth) {
  for (int64_t r = 0; r < x->rows; r++) _mm_prefetch((const char *)(x->a + r * x->a_row + k * x->a_step), _MM_HINT_T1);
  fetch_lines(&x->c, k, depth, 1);
  fetch_lines(&x->next, k, depth, 0);
}

// c (MR × NR) [+]= a (MR × depth) · panel; depth a multiple of STEP; a_row in elements. B passes by the first-level
// cache, which is left to A: a tile of A meets many panels.
INLINE void micro_ahead(int64_t depth, const uint16_t *a, int64_t a_row, const uint16_t *b, float *c, int64_t c_row,
                        int add, const Ahead *ahead) {
  size_t a_bytes = sizeof *a * (size_t)a_row, c_bytes = sizeof *c * (size_t)c_row;
  if (add) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    _tile_loadd(2, c + 16 * c_row, c_bytes);
    _tile_loadd(3, c + 16 * c_row + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t *a1 = a + 16 * a_row;
  for (int64_t k = 0; k < depth; k += 32, b += 32 * NR) {
    _tile_loadd(4, a + k, a_bytes);
    _tile_stream_loadd(6, b, 4 * NR);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, b + 32, 4 * NR);
    _tile_dpbf16ps(1, 4, 7);
    if (ahead) fetch_ahead(ahead, k, depth);
    _tile_loadd(5, a1 + k, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  _tile_stored(2, c + 16 * c_row, c_bytes);
  _tile_stored(3, c + 16 * c_row + 16, c_bytes);
}
static __attribute__((noinline)) void micro(int64_t depth, const uint16_t *a, int64_t a_row, const uint16_t *b,
                                            float *c, int64_t c_row, int add) {
  micro_ahead(depth, a, a_row, b, c, c_row, add, NULL);
}
#else
static void tiles_begin(void) {}
static void tiles_end(void) {}

INLINE void micro_strided(int64_t depth, const Packed *a, int64_t a_row, int64_t a_step, const Packed *b, float *c,
                          int64_t c_row, int add) {
  V t[MR][2];
  UNROLL for (int i = 0; i < MR; i++) t[i][0] = t[i][1] = (V){0};
  for (int64_t k = 0; k < depth; k += PAIR, a += a_step, b += PAIR * NR) {
#if LEVEL_BF16 == 1
    __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
    UNROLL for (int i = 0; i < MR; i++) {
      int pair;
      memcpy(&pair, a + i * a_row, sizeof pair);
      __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
      t[i][0] = (V)_mm512_dpbf16_ps((__m512)t[i][0], x, b0);
      t[i][1] = (V)_mm512_dpbf16_ps((__m512)t[i][1], x, b1);
    }
#else
    V b0 = load_f32(b), b1 = load_f32(b + WIDTH);
    UNROLL for (int i = 0; i < MR; i++) {
      V x = splat_f32(a[i * a_row]);
      t[i][0] = fma_f32(x, b0, t[i][0]);
      t[i][1] = fma_f32(x, b1, t[i][1]);
    }
#endif
  }
  UNROLL for (int i = 0; i < MR; i++) {
    float *p = c + i * c_row;
    if (add) {
      t[i][0] += load_f32(p);
      t[i][1] += load_f32(p + WIDTH);
    }
    store_f32(p, t[i][0]);
    store_f32(p + WIDTH, t[i][1]);
  }
}
// c (MR × NR) [+]= tile of A · panel; a_row: KA for rows, PAIR for columns.
static __attribute__((noinline)) void micro_rows(int64_t depth, const Packed *a, const Packed *b, float *c,
                                                 int64_t c_row, int add) {
  micro_strided(depth, a, KA, PAIR, b, c, c_row, add);
}
static __attribute__((noinline)) void micro_columns(int64_t depth, const Packed *a, const Packed *b, float *c,
                                                    int64_t c_row, int add) {
  micro_strided(depth, a, PAIR, MR * PAIR, b, c, c_row, add);
}
INLINE void micro(int64_t depth, const Packed *a, int64_t a_row, const Packed *b, float *c, int64_t c_row, int add) {
  (a_row == PAIR ? micro_columns : micro_rows)(depth, a, b, c, c_row, add);
}
INLINE void micro_ahead(int64_t depth, const Packed *a, int64_t a_row, const Packed *b, float *c, int64_t c_row,
                        int add, const Ahead *ahead) {
  micro(depth, a, a_row, b, c, c_row, add);
}
#endif

// A tile of A, packed or where it lies.
typedef struct TileA { const Packed *data; int64_t row; } TileA;

// The tiles of `rows` × depth (<= KC) at `a`; `memory`: MR · KA elements each.
static void tiles_of(TileA *tile, Packed *memory, const uint16_t *a, int64_t row, int64_t column, int64_t rows,
                     int64_t depth) {
  if (column != 1) pack_a_columns(memory, a, column, rows, depth);
  for (int64_t i = 0; i < rows; i += MR, tile++) {
    *tile = (TileA){memory + i * KA, column != 1 && A_COLUMNS ? PAIR : KA};
    if (column != 1) continue;
    int64_t n = rows - i < MR ? rows - i : MR;
    if (LEVEL_BF16 == 2 && n == MR && depth % STEP == 0)
      *tile = (TileA){(const Packed *)(const void *)(a + i * row), row};
    else pack_a_rows(memory + i * KA, a + i * row, row, n, depth);
  }
}
