// Matrix product of one SIMD level and real type: blocked for the caches, B packed, one register-tile kernel.
// C (m × n, row major) = [C +] A (m × k) · B (k × n). A and B are read through strides, one of which must be 1.
// A whose columns are contiguous is packed.
//
// An element of C is a sum over k in steps of KC in rising order, whatever the blocking of m and n, so a result does
// not depend on the number of threads or on which other rows are in the product.

#if LEVEL_BYTES == 64
#define MR 14 // 28 accumulators, 2 of B, 1 broadcast of 32 registers
#define PACKED_ROW 16 // rows of packed A are whole vectors, since stores that cross lines of a cache cost twice
#define MC (MR * 8)
#define KC 768 // C is read and written once for this many; a panel of B comes from the second-level cache in time
#elif LEVEL_BYTES == 32
#define MR 6
#define PACKED_ROW MR
#define MC (MR * 12)
#define KC 512 // a panel of B, 32 KiB, passes through the first-level cache once for every tile of A
#else
#define MR 4
#define PACKED_ROW MR
#define MC (MR * 24)
#define KC 256
#endif
#define C_AHEAD 96 // of depth before its end, a register tile begins to prefetch its rows of C
#define AHEAD_ROWS 16 // a power of 2, at least MR
#define FEW (MR / 2 + 1) // rows of the smaller register tile, for what is left of m
#define NR (2 * WIDTH)
#define COPIED_ROW (KC + 64 / (int)sizeof(REAL)) // of rows of A that are copied: see rows_collide
#define ROOM_A (MC / MR * PACKED_ROW * COPIED_ROW) // elements of packed or copied A of a thread
#define MOST_STEPS 5       // of KC that are packed at a time
#define PACKED_B (1 << 20) // elements of packed B at a time, of all threads

typedef struct TYPED(Gemm) {
  int64_t m, n, k;
  const REAL *a;
  int64_t a_row, a_column; // strides
  const REAL *b;
  const uint16_t *narrow_b; // of fp32: B in bf16, in the place of b; or NULL
  int64_t b_row, b_column;
  int64_t in_panels; // columns of B that lie in panels of NR; those after them lie as b_row and b_column say
  REAL *c;
  int64_t c_row;
  int add;          // C is added to
  const REAL *bias; // (n), added to every row, or NULL
} TYPED(Gemm);
#define GEMM TYPED(Gemm)

// B is a weight from this element on.
INLINE void TYPED(gemm_weight)(GEMM *g, const Operand *w, int64_t from) {
  CHECK(!w->panels.rows || (w->panels.rows == NR && !from), "panels of %d columns, not of %d", w->panels.rows, NR);
  if (w->panels.rows) g->in_panels = operand_extent(w, 0, w->panels.lead) / NR * NR;
  if (w->dtype == DTYPE_BF16) g->narrow_b = (const uint16_t *)w->data + from;
  else g->b = (const REAL *)w->data + from;
}

// Rows (k) and columns of B that are packed at a time, up to `room` elements: all columns if they fit, since A is
// packed or copied, and C is read and written, for each such block; then as many steps of KC as fit, up to MOST_STEPS.
static int64_t TYPED(gemm_depth)(int64_t n, int64_t k, int64_t room) {
  int64_t all = (n + NR - 1) / NR * NR, steps = room / ((all < 1 ? 1 : all) * KC);
  int64_t most = (steps < 1 ? 1 : steps > MOST_STEPS ? MOST_STEPS : steps) * KC;
  return k < most ? k : most;
}
static int64_t TYPED(gemm_columns)(int64_t n, int64_t depth, int64_t room) {
  int64_t fit = room / (depth < 1 ? 1 : depth) / NR * NR, all = (n + NR - 1) / NR * NR;
  if (fit < 4 * NR) fit = 4 * NR;
  return all < fit ? all : fit;
}

// Elements of packed B of one of `slots` threads that each pack their own.
static int64_t TYPED(gemm_room)(int slots) {
  int64_t room = (PACKED_B + slots - 1) / slots, least = 4 * NR * KC;
  return room < least ? least : room;
}

// Bytes of workspace for a product of n columns on `slots` threads; also for a smaller k.
static size_t TYPED(gemm_workspace)(int64_t n, int64_t k, int slots) {
  int64_t all = (n + NR - 1) / NR * NR * (k < MOST_STEPS * KC ? k : MOST_STEPS * KC), room = TYPED(gemm_room)(slots);
  int64_t packed_b = slots > CPU_MOST_PARTING ? (all < PACKED_B ? all : PACKED_B) : slots * (all < room ? all : room);
  return (size_t)slots * (sizeof(REAL) * (size_t)(ROOM_A) + 64) + sizeof(REAL) * (size_t)packed_b;
}

// B (depth × up to NR columns) → panel (depth, NR), zero padded.
static void TYPED(pack_b)(REAL *restrict to, const REAL *restrict b, int64_t row, int64_t column, int64_t depth,
                          int64_t columns) {
  if (column == 1 && columns == NR) {
    for (int64_t k = 0; k < depth; k++) {
      for (int j = 0; j < NR; j += 64 / (int)sizeof(REAL)) __builtin_prefetch(b + (k + 16) * row + j); // rows lie apart
      V x = TYPED(load)(b + k * row), y = TYPED(load)(b + k * row + WIDTH);
      TYPED(store)(to + k * NR, x);
      TYPED(store)(to + k * NR + WIDTH, y);
    }
    return;
  }
  const int line = 64 / (int)sizeof(REAL);
  int64_t k = 0, whole = row == 1 ? columns / WIDTH * WIDTH : 0;
  for (; k + line <= (whole ? depth : 0); k += line) // lines of as many columns of B as a vector holds
    for (int64_t j = 0; j < whole; j += WIDTH)
      for (int i = 0; i < line; i += 4)
        TYPED(transpose_rows)(to + (k + i) * NR + j, NR, b + j * column + k + i, column);
  for (int64_t i = 0; i < depth; i++) // what is left
    for (int64_t j = i < k ? whole + FAULT(packing_skips_a_column, 0, 1) : 0; j < NR; j++)
      to[i * NR + j] = j < columns ? b[j * column + i * row] : 0;
}

// A (rows ≤ MC × depth ≤ KC) → tiles (depth, PACKED_ROW), KC · PACKED_ROW elements apart. The first MR columns of
// a tile are rows of A, or 0 past the last row; the others are padding that is never read.
static void TYPED(pack_a)(REAL *restrict to, const REAL *restrict a, int64_t row, int64_t column, int64_t rows,
                          int64_t depth) {
  int64_t whole = row == 1 ? rows / MR * MR : 0, padded = (rows + MR - 1) / MR * MR;
  for (int64_t k = 0; k < depth; k++) { // along the contiguous dim, for all tiles
    const REAL *from = a + k * column;
    REAL *at = to + k * PACKED_ROW;
    int64_t i = 0;
#if LEVEL_BYTES == 64
    for (; i + PACKED_ROW <= (row == 1 ? rows : 0); i += MR, at += PACKED_ROW * KC)
      for (int j = 0; j < PACKED_ROW; j += WIDTH) TYPED(store)(at + j, TYPED(load)(from + i + j));
#endif
    for (; i < whole; i += MR, at += PACKED_ROW * KC) memcpy(at, from + i, sizeof(REAL) * MR);
    for (; i < padded; i++) at[(i - whole) / MR * PACKED_ROW * KC + i % MR] = i < rows ? from[i * row] : 0;
  }
}

// Rows of A whose distance is a multiple of 4096 B lie in the same sets of a first-level cache (64 sets of 64 B), and
// push each other out. Such rows are copied, COPIED_ROW apart. The sums are the same.
static int TYPED(rows_collide)(const GEMM *g) {
  return g->a_column == 1 && g->a_row * (int64_t)sizeof(REAL) % 4096 == 0 && g->m >= MR && g->n >= 4 * NR;
}
static void TYPED(copy_rows)(REAL *restrict to, const REAL *restrict a, int64_t row, int64_t rows, int64_t depth) {
  const int line = 64 / (int)sizeof(REAL);
  for (int64_t i = 0; i < rows; i++, a += row, to += COPIED_ROW) {
    for (int64_t k = 0; i + 2 < rows && k < depth; k += line) __builtin_prefetch(a + 2 * row + k);
    memcpy(to, a, sizeof(REAL) * (size_t)depth);
  }
}

// The operands of a register tile.
typedef struct TYPED(Tile) {
  int64_t depth;
  const REAL *a;
  int64_t a_row;    // stride of rows that are contiguous
  int64_t a_column; // or stride of columns that are: of packed ones PACKED_ROW
  const REAL *b;      // a panel: rows of NR
  REAL *c;
  int64_t c_row, rows, columns;
  const REAL *bias; // (columns) or NULL
  int add;
  const char *ahead;  // memory that is prefetched meanwhile, a line after the other
  int64_t ahead_step; // bytes of it for one of depth
  int64_t ahead_row;  // if rows of A are prefetched: bytes from one to the next
} TYPED(Tile);

// A row of C. bias: of the columns.
INLINE void TYPED(row_store)(REAL *c, V *t, int add, const V *bias) {
  if (bias) t[0] += bias[0], t[1] += bias[1];
  if (add) t[0] += TYPED(load)(c), t[1] += TYPED(load)(c + WIDTH);
  TYPED(store)(c, t[0]);
  TYPED(store)(c + WIDTH, t[1]);
}

INLINE void TYPED(tile_store)(const TYPED(Tile) *q, V t[][2], int most) {
  const int64_t rows = q->rows, c_row = q->c_row; // not read again after stores, which might change them
  const int add = q->add;
  REAL *c = q->c;
  if (q->columns == NR && rows == most && !q->bias) {
    if (add) UNROLL for (int i = 0; i < most; i++, c += c_row) TYPED(row_store)(c, t[i], 1, NULL);
    else UNROLL for (int i = 0; i < most; i++, c += c_row) TYPED(row_store)(c, t[i], 0, NULL);
    return;
  }
  if (q->columns == NR) {
    V bias[2] = {q->bias ? TYPED(load)(q->bias) : (V){0}, q->bias ? TYPED(load)(q->bias + WIDTH) : (V){0}};
    const int has_bias = q->bias != NULL;
    UNROLL for (int i = 0; i < most; i++, c += c_row)
      if (i < rows) TYPED(row_store)(c, t[i], add, has_bias ? bias : NULL);
    return;
  }
  union { V v[MR][2]; REAL x[MR][NR]; } u;
  UNROLL for (int i = 0; i < most; i++) { u.v[i][0] = t[i][0]; u.v[i][1] = t[i][1]; }
  for (int64_t i = 0; i < q->rows; i++)
    for (int64_t j = 0; j < q->columns; j++) {
      REAL *p = q->c + i * q->c_row + j, x = u.x[i][j] + (q->bias ? q->bias[j] : 0);
      *p = q->add ? *p + x : x;
    }
}

// Where a register tile is in depth. a: every third row, or there would be more pointers than registers.
typedef struct TYPED(MicroPlace) {
  int64_t k;
  const REAL *a[MR / 3 + 1], *column, *b;
  const char *ahead;
  const REAL *c; // the row of C that is prefetched next
} TYPED(MicroPlace);

// The layout of A: its columns are contiguous; or its rows are; or its rows are, and those that are read next are
// prefetched.
enum { TYPED(COLUMNS), TYPED(ROWS), TYPED(ROWS_AND_NEXT) };

// Products up to depth `end`. fetch_c: each step prefetches a row of C.
INLINE void TYPED(micro_steps)(const TYPED(Tile) * q, TYPED(MicroPlace) * at, int64_t end, V t[][2], int most, int kind,
                               int fetch_c) {
  int columns = kind == TYPED(COLUMNS);
  int64_t a_row = columns ? 1 : q->a_row, a_column = q->a_column, c_row = q->c_row,
          step = q->ahead_step;
  TYPED(MicroPlace) p = *at;
  UNROLL_TWICE for (; p.k < end; p.k++, p.b += NR, p.column += a_column, p.ahead += step) {
    // One line a step: in a burst they would wait for each other.
    __builtin_prefetch(kind == TYPED(ROWS_AND_NEXT) ? p.ahead + (p.k & (AHEAD_ROWS - 1)) * q->ahead_row : p.ahead, 0,
                       2);
    if (fetch_c) {
      __builtin_prefetch(p.c, 1);
      __builtin_prefetch(p.c + NR - 1, 1);
      p.c += c_row;
    }
    V b0 = TYPED(load)(p.b), b1 = TYPED(load)(p.b + WIDTH);
    UNROLL for (int i = 0; i < most; i++) {
      V x = TYPED(splat)(*(columns ? p.column + i : p.a[i / 3] + p.k + i % 3 * a_row));
      t[i][0] = TYPED(fma)(x, b0, t[i][0]);
      t[i][1] = TYPED(fma)(x, b1, t[i][1]);
    }
  }
  *at = p;
}

// Sums of one register tile of `most` rows, which is at most MR. C is prefetched shortly before it is needed:
// earlier, it would be pushed out again.
INLINE void TYPED(micro)(const TYPED(Tile) *q, int most, int kind) {
  V t[MR][2];
  TYPED(MicroPlace) at = {.column = q->a, .b = q->b, .ahead = q->ahead, .c = q->c};
  UNROLL for (int i = 0; i < most; i++) {
    t[i][0] = t[i][1] = (V){0};
    at.a[i / 3] = q->a + i / 3 * 3 * (kind == TYPED(COLUMNS) ? 1 : q->a_row);
  }
  int64_t late = q->depth - C_AHEAD;
  if (late > 0) {
    TYPED(micro_steps)(q, &at, late, t, most, kind, 0);
    TYPED(micro_steps)(q, &at, late + most, t, most, kind, 1);
  }
  TYPED(micro_steps)(q, &at, q->depth, t, most, kind, 0);
  TYPED(tile_store)(q, t, most);
}
#define NOINLINE static __attribute__((noinline))
NOINLINE void TYPED(micro_rows)(const TYPED(Tile) *q) { TYPED(micro)(q, MR, TYPED(ROWS)); }
NOINLINE void TYPED(micro_rows_and_next)(const TYPED(Tile) *q) { TYPED(micro)(q, MR, TYPED(ROWS_AND_NEXT)); }
NOINLINE void TYPED(micro_few_rows)(const TYPED(Tile) *q) { TYPED(micro)(q, FEW, TYPED(ROWS)); }
NOINLINE void TYPED(micro_columns)(const TYPED(Tile) *q) { TYPED(micro)(q, MR, TYPED(COLUMNS)); }
NOINLINE void TYPED(micro_few_columns)(const TYPED(Tile) *q) { TYPED(micro)(q, FEW, TYPED(COLUMNS)); }

typedef struct TYPED(GemmJob) {
  const GEMM *g;
  int64_t j0, columns, k0, depth;      // this block of B
  int64_t row_blocks, column_blocks, panels; // units: row_blocks × column_blocks; panels of the block
  REAL *packed_b, *packed_a;           // (panels, depth, NR); (slots, ROOM_A)
} TYPED(GemmJob);

// Columns of B from j on lie in a panel. It holds all of them, also where a product leaves out its last ones.
INLINE int TYPED(is_panel)(const GEMM *g, int64_t j) { return j < g->in_panels; }
// Panel p of the block at depth k: packed, or where it lies if it needs no packing.
INLINE const REAL *TYPED(panel_of)(const TYPED(GemmJob) *job, int64_t p, int64_t k) {
  const GEMM *g = job->g;
  const int64_t j = job->j0 + p * NR;
  if (TYPED(is_panel)(g, j) && g->b) return g->b + j * g->k + (job->k0 + k) * NR;
  return job->packed_b + (p * job->depth + k) * NR;
}

static void TYPED(gemm_pack)(void *argument, int slot, int64_t panel) {
  const TYPED(GemmJob) *job = argument;
  const GEMM *g = job->g;
  int64_t j = panel * NR, columns = job->columns - j < NR ? job->columns - j : NR;
  int64_t from = job->k0 * g->b_row + (job->j0 + j) * g->b_column;
  REAL *to = job->packed_b + panel * NR * job->depth;
  const int is_panel = TYPED(is_panel)(g, job->j0 + j);
  if (is_panel && g->b) return;
#if BITS == 32
  if (is_panel) {
    widen_panel(to, g->narrow_b + (job->j0 + j) * g->k + job->k0 * NR, job->depth * NR);
    return;
  }
  if (g->narrow_b) {
    pack_b_narrow(to, g->narrow_b + from, g->b_row, g->b_column, job->depth, columns, NR);
    return;
  }
#endif
  TYPED(pack_b)(to, g->b + from, g->b_row, g->b_column, job->depth, columns);
}

// Panels whose part of C stays in the second-level cache over all steps of k. If A is packed or copied, which costs
// more than that saves, all panels at once, so that this happens once.
static int64_t TYPED(panels_at_once)(const GEMM *g, int64_t m, int64_t panels) {
  int64_t room = (384 << 10) / (m * NR * (int64_t)sizeof(REAL));
  return g->a_column != 1 || TYPED(rows_collide)(g) ? panels : room < 4 ? 4 : room;
}

// Two register tiles of FEW rows at the end waste none, where one of MR would leave too few for another.
static int TYPED(ends_with_few)(int64_t m) { return m > MR && m % MR == 2 * FEW - MR; }

// With the last panel of a step of KC the rows of A that are read next are prefetched, if they are read where they
// lie, a line of each in turn: those of the next step, or of the next block, or of the first block with the next B.
// row: of the tile at work; m: rows of its block; first: its row within the block. Returns 0 if there are none.
static int TYPED(next_rows)(const TYPED(GemmJob) *job, int64_t row, int64_t m, int64_t first, int64_t k,
                             TYPED(Tile) *tile) {
  const GEMM *g = job->g;
  int64_t at = job->k0 + k + KC;
  if (k + KC >= job->depth) row += m, at = job->k0;
  if (row >= g->m) row = first, at = job->k0 + job->depth;
  if (row >= g->m || at >= g->k) return 0;
  tile->ahead = (const char *)(g->a + row * g->a_row + at);
  tile->ahead_step = 64 / AHEAD_ROWS;
  tile->ahead_row = g->a_row * (int64_t)sizeof(REAL);
  return 1;
}

// m <= MC rows, from row i0 on, against the panels p0 to p1 - 1.
static void TYPED(gemm_block)(const TYPED(GemmJob) *job, REAL *tiles, int64_t i0, int64_t m, int64_t p0, int64_t p1) {
  const GEMM *g = job->g;
  int packed = g->a_column != 1;
  int far = job->panels * NR * job->depth * (int64_t)sizeof(REAL) > 1 << 20; // B is not in the second-level cache
  int copied = TYPED(rows_collide)(g);
  for (int64_t k = 0; k < job->depth; k += KC) {
    const REAL *a = g->a + (job->k0 + k) * g->a_column + i0 * g->a_row;
    int first = !job->k0 && !k;
    TYPED(Tile)
    q = {.depth = job->depth - k < KC ? job->depth - k : KC,
         .a_row = g->a_row,
         .a_column = PACKED_ROW,
         .c_row = g->c_row,
         .add = g->add || !first};
    // Rows are read where they lie, but for those that fill no register tile.
    int64_t whole = packed ? 0 : m % MR == FEW || TYPED(ends_with_few)(m) ? m : m / MR * MR;
    REAL *rest = tiles + whole * COPIED_ROW;
    if (whole < m) TYPED(pack_a)(rest, a + whole * g->a_row, g->a_row, g->a_column, m - whole, q.depth);
    if (copied) {
      TYPED(copy_rows)(tiles, a, g->a_row, whole, q.depth);
      a = tiles;
      q.a_row = COPIED_ROW;
    }
    for (int64_t p = p0; p < p1; p++) {
      int64_t j = job->j0 + p * NR;
      q.b = TYPED(panel_of)(job, p, k);
      q.columns = g->n - j < NR ? g->n - j : NR;
      q.bias = g->bias && first ? g->bias + j : NULL;
      const REAL *panel = p + 1 < p1 ? TYPED(panel_of)(job, p + 1, k) : q.b;
      int64_t share =
          (q.depth * NR * MR + m - 1) / m; // elements of the next panel that are prefetched beside one tile of A
      for (int64_t i = 0; i < m; i += q.rows) {
        q.rows = m - i < MR ? m - i : TYPED(ends_with_few)(m - i) && m - i < 2 * MR && whole == m ? FEW : MR;
        q.a = i < whole ? a + i * q.a_row : rest + (i - whole) / MR * PACKED_ROW * KC;
        q.c = g->c + (i0 + i) * g->c_row + j;
        q.ahead = (const char *)(far ? panel + i / MR * share : q.b),
        q.ahead_step = far ? (share * (int64_t)sizeof(REAL) + q.depth - 1) / q.depth : 0;
        int rows = i < whole, next = rows && p + 1 == p1 && TYPED(next_rows)(job, i0 + i, m, i, k, &q);
        if (q.rows > FEW) (next ? TYPED(micro_rows_and_next) : rows ? TYPED(micro_rows) : TYPED(micro_columns))(&q);
        else (rows ? TYPED(micro_few_rows) : TYPED(micro_few_columns))(&q);
      }
    }
  }
}

// A block of rows against a range of panels.
static void TYPED(gemm_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(GemmJob) *job = argument;
  const GEMM *g = job->g;
  int64_t tiles = (g->m + MR - 1) / MR, block = unit / job->column_blocks, part = unit % job->column_blocks;
  int64_t i0 = tiles * block / job->row_blocks * MR, i1 = tiles * (block + 1) / job->row_blocks * MR;
  int64_t m = (i1 < g->m ? i1 : g->m) - i0;
  int64_t p0 = job->panels * part / job->column_blocks, p1 = job->panels * (part + 1) / job->column_blocks;
  REAL *room = job->packed_a + (int64_t)slot * ROOM_A;
  int64_t step = TYPED(panels_at_once)(g, m, p1 - p0);
  for (int64_t p = p0; p < p1; p += step) TYPED(gemm_block)(job, room, i0, m, p, p + step < p1 ? p + step : p1);
}

// All threads of the team pack B together, `room` elements at a time, and then multiply. They wait for each other after
// both. team NULL: in the calling thread.
static void TYPED(gemm_together)(const GEMM *g, void *workspace, int64_t room, Team *team) {
  int size = team_size(team);
  TYPED(GemmJob) job = {.g = g};
  job.packed_a = (REAL *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
  job.packed_b = job.packed_a + (int64_t)team_slots(team) * ROOM_A;
  if (g->k == 0)
    for (int64_t i = 0; i < g->m; i++)
      for (int64_t j = 0; j < g->n; j++)
        g->c[i * g->c_row + j] = (g->add ? g->c[i * g->c_row + j] : 0) + (g->bias ? g->bias[j] : 0);
  int64_t kc = TYPED(gemm_depth)(g->n, g->k, room), nc = TYPED(gemm_columns)(g->n, kc, room);
  if (!g->m) return;
  int64_t tiles = (g->m + MR - 1) / MR;
  job.row_blocks = (tiles * MR + MC - 1) / MC;
  for (job.j0 = 0; job.j0 < g->n; job.j0 += nc) {
    job.columns = g->n - job.j0 < nc ? g->n - job.j0 : nc;
    job.panels = (job.columns + NR - 1) / NR;
    // Eight units a thread: with few, one thread waits for the last one of another.
    job.column_blocks = size == 1 ? 1 : (8 * size + job.row_blocks - 1) / job.row_blocks;
    if (job.column_blocks > job.panels) job.column_blocks = job.panels;
    for (job.k0 = 0; job.k0 < g->k; job.k0 += kc) {
      job.depth = g->k - job.k0 < kc ? g->k - job.k0 : kc;
      team_each(team, job.panels, TYPED(gemm_pack), &job);
      team_each(team, job.row_blocks * job.column_blocks, TYPED(gemm_unit), &job);
    }
  }
}

// Few rows: units of strips of columns, each read and multiplied at once (few_rows.h, panels.h). A strip is two panels
// wide: its columns lie in both, in one, or in none.
typedef struct TYPED(FewJob) { const GEMM *g; int64_t strips, each; } TYPED(FewJob);

// Sums (rows, FEW_COLUMNS) of the block of depth at k, of columns that lie in one or two panels.
INLINE void TYPED(gemm_panel_sums)(const GEMM *g, int64_t j, int64_t k, int panels, REAL *sums) {
  int64_t depth = g->k - k < KC ? g->k - k : KC, from = j * g->k + FAULT(panels_begin_with_the_depth, k, 0) * NR;
#if BITS == 32
  if (g->narrow_b) {
    panel_rows_narrow(&(PanelRows_narrow){g->m, depth, g->a + k, g->a_row, g->narrow_b + from, g->k * NR}, panels,
                      sums);
    return;
  }
#endif
  TYPED(panel_rows)(&(TYPED(PanelRows)){g->m, depth, g->a + k, g->a_row, g->b + from, g->k * NR}, panels, sums);
}

// The same of columns that do not.
INLINE void TYPED(gemm_few_sums)(const GEMM *g, int64_t j, int64_t k, int64_t columns, REAL *sums) {
  int64_t depth = g->k - k < KC ? g->k - k : KC, from = j * g->b_column + k;
  int fetch = j + 2 * TYPED(FEW_COLUMNS) <= g->n;
#if BITS == 32
  if (g->narrow_b) {
    few_rows_narrow(&(FewRows_narrow){.rows = g->m, .depth = depth, .a = g->a + k, .a_row = g->a_row,
                                      .b = g->narrow_b + from, .b_column = g->b_column, .columns = columns,
                                      .fetch = fetch}, sums);
    return;
  }
#endif
  TYPED(few_rows)(&(TYPED(FewRows)){.rows = g->m, .depth = depth, .a = g->a + k, .a_row = g->a_row, .b = g->b + from,
                                    .b_column = g->b_column, .columns = columns, .fetch = fetch}, sums);
}

static void TYPED(gemm_few_strip)(const GEMM *g, int64_t j, int64_t columns, int panels) {
  enum { COLUMNS = TYPED(FEW_COLUMNS) };
  REAL sums[TYPED(PANEL_ROWS) * COLUMNS];
  for (int64_t k = 0; k < g->k; k += KC) {
    if (panels) TYPED(gemm_panel_sums)(g, j, k, panels, sums);
    else TYPED(gemm_few_sums)(g, j, k, columns, sums);
    const REAL *bias = g->bias && !k ? g->bias + j : NULL;
    for (int64_t r = 0; r < g->m; r++) {
      REAL *c = g->c + r * g->c_row + j, *sum = sums + r * COLUMNS;
      for (int64_t i = 0; bias && i < columns; i++) sum[i] += bias[i];
      for (int64_t i = 0; i < columns; i++) c[i] = g->add || k ? c[i] + sum[i] : sum[i];
    }
  }
}

// Columns that are in no panel.
static void TYPED(gemm_few_rest)(const GEMM *g, int64_t j, int64_t columns) {
  for (int64_t r = 0; r < g->m; r += TYPED(FEW_MOST)) {
    GEMM rows = *g;
    rows.m = g->m - r < TYPED(FEW_MOST) ? g->m - r : TYPED(FEW_MOST);
    rows.a += r * g->a_row;
    rows.c += r * g->c_row;
    TYPED(gemm_few_strip)(&rows, j, columns, 0);
  }
}

static void TYPED(gemm_few_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(FewJob) *job = argument;
  int64_t end = (unit + 1) * job->each < job->strips ? (unit + 1) * job->each : job->strips;
  const GEMM *g = job->g;
  for (int64_t p = unit * job->each; p < end; p++) {
    int64_t j = p * TYPED(FEW_COLUMNS), all = j + TYPED(FEW_COLUMNS) < g->n ? j + TYPED(FEW_COLUMNS) : g->n;
    const int panels = (TYPED(is_panel)(g, j) != 0) + (j + NR < all && TYPED(is_panel)(g, j + NR));
    const int64_t until = panels && j + panels * NR < all ? j + panels * NR : all;
    if (panels) TYPED(gemm_few_strip)(g, j, until - j, panels);
    else TYPED(gemm_few_rest)(g, j, until - j);
    if (until < all) TYPED(gemm_few_rest)(g, until, all - until);
  }
}

static int TYPED(gemm_is_few)(const GEMM *g) {
  const int64_t most = g->in_panels ? TYPED(PANEL_ROWS) : TYPED(FEW_MOST);
  return g->m > 0 && g->m <= most && g->k > 0 && g->b_row == 1 && g->a_column == 1;
}

static void TYPED(gemm_few)(const GEMM *g, Team *team) {
  TYPED(FewJob) job = {.g = g, .strips = (g->n + TYPED(FEW_COLUMNS) - 1) / TYPED(FEW_COLUMNS)};
  job.each = TYPED(few_unit_strips)(job.strips, team);
  team_each(team, (job.strips + job.each - 1) / job.each, TYPED(gemm_few_unit), &job);
}

static void TYPED(gemm_part)(void *argument, int slot, int64_t part) {
  const CpuParts *p = argument;
  GEMM g = *(const GEMM *)p->product;
  int64_t from, to;
  cpu_part(p, part, &from, &to);
  if (p->by_rows) {
    g.m = to - from;
    g.a += FAULT(row_parts_repeat_rows, from, 0) * g.a_row;
    g.c += from * g.c_row;
  } else {
    g.n = to - from;
    if (g.narrow_b) g.narrow_b += from * g.b_column;
    else g.b += from * g.b_column;
    g.in_panels -= FAULT(parts_ask_for_all_panels, from < g.in_panels ? from : g.in_panels, 0);
    g.c += from;
    if (g.bias) g.bias += FAULT(column_parts_repeat_bias, from, 0);
  }
  TYPED(gemm_together)(&g, p->workspace + (size_t)slot * p->bytes, p->room, NULL);
}

// team NULL: in the calling thread. workspace: gemm_workspace(n, k, team slots) bytes.
//
// Few threads take parts of C and pack what these need themselves: what another core has packed would have to be
// fetched from that core's cache, and no thread waits for others within the product. The parts are columns, unless A
// must be packed and is larger than B. Where they are still large enough, there are several for each thread, so that
// one whose core does something else meanwhile takes fewer. More threads pack B together.
static void TYPED(gemm)(const GEMM *g, void *workspace, Team *team) {
  enum { MOST_PARTS = 4, LEAST_COLUMNS = 256, LEAST_PACKED = 768 }; // of a thread; of a part, which packs all of A or B
  enum { FEW_TILES = 10, ROOM_FEW = 48 << 10 }; // of rows; elements of packed B
  int size = team_size(team), slots = team_slots(team), is_packed = g->a_column != 1;
  if (TYPED(gemm_is_few)(g)) {
    TYPED(gemm_few)(g, team);
    return;
  }
  int by_rows = is_packed && g->m > g->n, least = is_packed ? LEAST_PACKED : LEAST_COLUMNS;
  int64_t all = by_rows ? g->m : g->n, tiles = by_rows ? (all + MR - 1) / MR : (all + NR - 1) / NR;
  if (size == 1 || slots > CPU_MOST_PARTING || !g->k || tiles < (by_rows ? 4 : 2) * size) {
    TYPED(gemm_together)(g, workspace, PACKED_B, team);
    return;
  }
  int64_t parts_a_thread = all / least / size;
  if (parts_a_thread < 1) parts_a_thread = 1;
  if (parts_a_thread > MOST_PARTS) parts_a_thread = MOST_PARTS;
  CpuParts parts = {.product = g,
                    .count = size * parts_a_thread,
                    .by_rows = by_rows,
                    .tiles = tiles,
                    .step = by_rows ? MR : NR,
                    .all = all,
                    .workspace = workspace,
                    .bytes = TYPED(gemm_workspace)(g->n, g->k, slots) / (size_t)slots,
                    .room = TYPED(gemm_room)(slots)};
  // With few rows packed B is used a few times only, and stays in the second-level cache until then.
  if (g->m <= FEW_TILES * MR && parts.room > ROOM_FEW) parts.room = ROOM_FEW;
  team_each(team, parts.count, TYPED(gemm_part), &parts);
}
