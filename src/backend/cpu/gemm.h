// Matrix product of one SIMD level and real type: packed, blocked for the caches, one register-tile kernel.
// C (m × n, row major) = [C +] A (m × k) · B (k × n). A and B are read through strides, one of which must be 1.
//
// An element of C is a sum over k in steps of KC in rising order, whatever the blocking of m and n, so a result does not
// depend on the number of threads or on which other rows are in the product.

#if LEVEL_BYTES == 64
#define MR 14 // 28 accumulators, 2 of B, 1 broadcast of 32 registers
#define MC (MR * 8)
#elif LEVEL_BYTES == 32
#define MR 6
#define MC (MR * 16)
#else
#define MR 4
#define MC (MR * 24)
#endif
#define NR (2 * WIDTH)
#define KC 256
#define KA (KC + 64 / (int)sizeof(REAL)) // row stride of a packed A tile: an odd number of cache lines, so rows differ in set
#define PACKED_B (1 << 20)               // elements of packed B at a time, about

typedef struct TYPED(Gemm) {
  int64_t m, n, k;
  const REAL *a;
  int64_t a_row, a_column; // strides
  const REAL *b;
  int64_t b_row, b_column;
  REAL *c;
  int64_t c_row;
  int add; // C is added to
} TYPED(Gemm);
#define GEMM TYPED(Gemm)

// Columns of B that are packed at a time, and rows (k) of it.
static int64_t TYPED(gemm_columns)(int64_t n, int64_t k) {
  int64_t room = PACKED_B / (k < 1 ? 1 : k) / NR * NR, all = (n + NR - 1) / NR * NR;
  if (room < 8 * NR) room = 8 * NR;
  return all < room ? all : room;
}
static int64_t TYPED(gemm_depth)(int64_t k) { return k < 16 * KC ? k : 16 * KC; }

// Bytes of workspace for a product of that size (or smaller in m) on `slots` threads.
static size_t TYPED(gemm_workspace)(int64_t m, int64_t n, int64_t k, int slots) {
  int64_t b = TYPED(gemm_columns)(n, k) * TYPED(gemm_depth)(k), a = (int64_t)slots * MC * KA;
  return sizeof(REAL) * (size_t)(a + b) + 64;
}

// B (depth × up to NR columns) → panel (depth, NR), zero padded.
static void TYPED(pack_b)(REAL *restrict to, const REAL *restrict b, int64_t row, int64_t column, int64_t depth, int64_t columns) {
  if (column == 1) {
    if (columns == NR)
      for (int64_t k = 0; k < depth; k++)
        for (int j = 0; j < NR; j++) to[k * NR + j] = b[k * row + j];
    else
      for (int64_t k = 0; k < depth; k++)
        for (int j = 0; j < NR; j++) to[k * NR + j] = j < columns ? b[k * row + j] : 0;
    return;
  }
  for (int64_t j = 0; j < NR; j += 4) {
    int64_t k = 0;
    if (j + 4 <= columns && row == 1)
      for (; k + 4 <= depth; k += 4) TYPED(transpose4)(to + k * NR + j, NR, b + j * column + k, column);
    for (; k < depth; k++)
      for (int64_t i = j; i < j + 4; i++) to[k * NR + i] = i < columns ? b[i * column + k * row] : 0;
  }
}

// A (rows ≤ MC × depth ≤ KC) → tiles of MR rows, KA · MR elements apart: (MR, KA) when A's rows are contiguous, else
// (depth, MR). Missing rows are 0.
static void TYPED(pack_a)(REAL *restrict to, const REAL *restrict a, int64_t row, int64_t column, int64_t rows, int64_t depth) {
  int64_t whole = rows / MR * MR, padded = (rows + MR - 1) / MR * MR;
  if (column == 1) {
    for (int64_t i = 0; i < rows; i++) {
      const REAL *from = a + i * row;
      REAL *at = to + i * KA;
      int64_t k = 0;
      for (; k + WIDTH <= depth; k += WIDTH) TYPED(store)(at + k, TYPED(load)(from + k));
      for (; k < depth; k++) at[k] = from[k];
    }
    for (int64_t i = rows; i < padded; i++)
      for (int64_t k = 0; k < depth; k++) to[i * KA + k] = 0;
    return;
  }
  for (int64_t k = 0; k < depth; k++) { // along the contiguous dim, for all tiles
    const REAL *from = a + k * column;
    REAL *at = to + k * MR;
    if (row == 1)
      for (int64_t i = 0; i < whole; i += MR, at += MR * KA) memcpy(at, from + i, sizeof(REAL) * MR);
    else
      for (int64_t i = 0; i < whole; i += MR, at += MR * KA)
        for (int r = 0; r < MR; r++) at[r] = from[(i + r) * row];
    for (int64_t i = whole; i < padded; i++) at[i - whole] = i < rows ? from[i * row] : 0;
  }
}

// One register tile: c (rows × columns) [+]= packed a · packed b. a_row, a_column: strides in the packed tile.
INLINE void TYPED(micro)(int64_t depth, const REAL *a, int64_t a_row, int64_t a_column, const REAL *b, REAL *c, int64_t c_row,
                         int64_t rows, int64_t columns, int add) {
  V t[MR][2];
  UNROLL for (int i = 0; i < MR; i++) t[i][0] = t[i][1] = (V){0};
  for (int64_t k = 0; k < depth; k++) {
    V b0 = TYPED(load)(b + k * NR), b1 = TYPED(load)(b + k * NR + WIDTH);
    UNROLL for (int i = 0; i < MR; i++) {
      V x = TYPED(splat)(a[i * a_row + k * a_column]);
      t[i][0] = TYPED(fma)(x, b0, t[i][0]);
      t[i][1] = TYPED(fma)(x, b1, t[i][1]);
    }
  }
  if (columns == NR) {
    UNROLL for (int i = 0; i < MR; i++) {
      if (i < rows) {
        REAL *p = c + i * c_row;
        if (add) {
          t[i][0] += TYPED(load)(p);
          t[i][1] += TYPED(load)(p + WIDTH);
        }
        TYPED(store)(p, t[i][0]);
        TYPED(store)(p + WIDTH, t[i][1]);
      }
    }
    return;
  }
  union { V v[MR][2]; REAL x[MR][NR]; } u;
  UNROLL for (int i = 0; i < MR; i++) { u.v[i][0] = t[i][0]; u.v[i][1] = t[i][1]; }
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) c[i * c_row + j] = add ? c[i * c_row + j] + u.x[i][j] : u.x[i][j];
}
static __attribute__((noinline)) void TYPED(micro_rows)(int64_t depth, const REAL *a, const REAL *b, REAL *c, int64_t c_row,
                                                        int64_t rows, int64_t columns, int add) {
  TYPED(micro)(depth, a, KA, 1, b, c, c_row, rows, columns, add);
}
static __attribute__((noinline)) void TYPED(micro_columns)(int64_t depth, const REAL *a, const REAL *b, REAL *c, int64_t c_row,
                                                           int64_t rows, int64_t columns, int add) {
  TYPED(micro)(depth, a, 1, MR, b, c, c_row, rows, columns, add);
}

typedef struct TYPED(GemmJob) {
  const GEMM *g;
  int64_t j0, columns, k0, depth;      // this block of B
  int64_t row_blocks, column_blocks, panels; // units: row_blocks × column_blocks; panels of the block
  REAL *packed_b, *packed_a;           // (panels, depth, NR); (slots, MC / MR, MR · KA)
} TYPED(GemmJob);

static void TYPED(gemm_pack)(void *argument, int slot, int64_t panel) {
  const TYPED(GemmJob) *job = argument;
  const GEMM *g = job->g;
  int64_t j = panel * NR, columns = job->columns - j < NR ? job->columns - j : NR;
  TYPED(pack_b)(job->packed_b + panel * NR * job->depth, g->b + job->k0 * g->b_row + (job->j0 + j) * g->b_column, g->b_row,
                g->b_column, job->depth, columns);
}

// Rows of one block of MC against a range of panels.
static void TYPED(gemm_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(GemmJob) *job = argument;
  const GEMM *g = job->g;
  int64_t i0 = unit / job->column_blocks * MC, m = g->m - i0 < MC ? g->m - i0 : MC, part = unit % job->column_blocks;
  int64_t p0 = job->panels * part / job->column_blocks, p1 = job->panels * (part + 1) / job->column_blocks;
  REAL *tiles = job->packed_a + (int64_t)slot * MC * KA;
  for (int64_t k = 0; k < job->depth; k += KC) {
    int64_t depth = job->depth - k < KC ? job->depth - k : KC;
    const REAL *a = g->a + (job->k0 + k) * g->a_column;
    TYPED(pack_a)(tiles, a + i0 * g->a_row, g->a_row, g->a_column, m, depth);
    int add = g->add || job->k0 || k;
    for (int64_t p = p0; p < p1; p++) {
      const REAL *b = job->packed_b + (p * job->depth + k) * NR;
      int64_t j = p * NR, columns = job->columns - j < NR ? job->columns - j : NR;
      for (int64_t i = 0; i < m; i += MR)
        (g->a_column == 1 ? TYPED(micro_rows) : TYPED(micro_columns))(depth, tiles + i * KA, b,
                                                                      g->c + (i0 + i) * g->c_row + job->j0 + j, g->c_row,
                                                                      m - i < MR ? m - i : MR, columns, add);
    }
  }
}

// team NULL: in the calling thread. workspace: gemm_workspace(m, n, k, team size) bytes.
static void TYPED(gemm)(const GEMM *g, void *workspace, Team *team) {
  int slots = team_size(team);
  TYPED(GemmJob) job = {.g = g};
  job.packed_a = (REAL *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
  job.packed_b = job.packed_a + (int64_t)slots * MC * KA;
  if (g->k == 0 && !g->add)
    for (int64_t i = 0; i < g->m; i++) memset(g->c + i * g->c_row, 0, sizeof(REAL) * (size_t)g->n);
  int64_t nc = TYPED(gemm_columns)(g->n, g->k), kc = TYPED(gemm_depth)(g->k);
  job.row_blocks = (g->m + MC - 1) / MC;
  if (!job.row_blocks) return;
  for (job.j0 = 0; job.j0 < g->n; job.j0 += nc) {
    job.columns = g->n - job.j0 < nc ? g->n - job.j0 : nc;
    job.panels = (job.columns + NR - 1) / NR;
    job.column_blocks = slots == 1 ? 1 : (4 * slots + job.row_blocks - 1) / job.row_blocks;
    if (job.column_blocks > job.panels) job.column_blocks = job.panels;
    for (job.k0 = 0; job.k0 < g->k; job.k0 += kc) {
      job.depth = g->k - job.k0 < kc ? g->k - job.k0 : kc;
      cpu_parallel(team, job.panels, TYPED(gemm_pack), &job);
      cpu_parallel(team, job.row_blocks * job.column_blocks, TYPED(gemm_unit), &job);
    }
  }
}
