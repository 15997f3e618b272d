// Product of bf16 matrices: C (m × n, row major, bf16 or fp32) = [C +] A (m × k) · B (k × n); A and B are read through strides,
// one of which must be 1.
//
// An element of C is a sum over k in blocks whose size only k gives, in rising order, in fp32, and is rounded once; so a
// result does not depend on the number of threads or on which other rows are in the product.

typedef struct Product {
  int64_t m, n, k;
  const uint16_t *a;
  int64_t a_row, a_column; // strides
  const uint16_t *b;
  int64_t b_row, b_column;
  void *c;
  int64_t c_row;
  int wide, add;     // C is fp32; C (then fp32) is added to
  const float *bias; // (n), added to every row of a C that is bf16; NULL: none
} Product;

enum {
  PACKED_B = 1 << 21,    // elements of packed B at a time, about
  PACKED_DEPTH = 8 * KC, // and rows of it, where sums may wait in C
  PACK_PANELS = 4,       // of one unit of packing
  NEAR_B = 256 << 10,    // bytes of packed B that all tiles of A meet before the next: it stays in the level 2 cache
  WIDE_DEPTH = 512,      // rows of B of one block where C is read and written once a block
  SCRATCH_COLUMNS = 512, // of a unit whose sums wait in fp32
  SCRATCH_ROW = SCRATCH_COLUMNS + 16
};

typedef struct Blocks {
  int64_t depth;          // rows (k) of one block
  int64_t packed_depth;   // of what is packed at a time
  int64_t columns;        // of what is packed at a time
  int scratch;            // sums wait in a slot's memory
} Blocks;

static Blocks blocks_of(int64_t n, int64_t k, int wide) {
  int64_t most = wide && KC > (int)WIDE_DEPTH ? (int)WIDE_DEPTH : (int)KC, count = (k + most - 1) / most;
  Blocks b = {.depth = count > 1 ? step_up((k + count - 1) / count) : step_up(k), .packed_depth = k, .scratch = count > 1 && !wide};
  if (wide && k > PACKED_DEPTH) b.packed_depth = PACKED_DEPTH / b.depth * b.depth;
  int64_t room = PACKED_B / (b.packed_depth < 1 ? 1 : b.packed_depth) / NR * NR, all = (n + NR - 1) / NR * NR;
  if (room < 8 * NR) room = 8 * NR;
  b.columns = all < room ? all : room;
  return b;
}

// Bytes of a thread's part of the workspace: tiles of A, sums.
static size_t slot_bytes(int scratch) {
  return sizeof(Packed) * (size_t)(MC * KA) + (scratch ? sizeof(float) * (size_t)(MC * SCRATCH_ROW) : 0);
}

// Bytes of workspace for a product of that size (or smaller in m) on `slots` threads.
static size_t product_workspace(int64_t n, int64_t k, int wide, int slots) {
  Blocks b = blocks_of(n, k, wide);
  return (size_t)slots * slot_bytes(b.scratch) + sizeof(Packed) * (size_t)(b.columns * step_up(b.packed_depth)) + 64;
}

typedef struct ProductJob {
  const Product *g;
  Blocks blocks;
  int64_t j0, columns, k0, depth;            // this block of B
  int64_t row_blocks, column_blocks, panels; // units: row_blocks × column_blocks; panels of the block
  char *slots;
  Packed *packed;                            // (panels, step_up(depth), NR)
} ProductJob;

static int64_t pack_units(int64_t columns) { return (columns + PACK_PANELS * NR - 1) / (PACK_PANELS * NR); }
static void pack_unit(void *argument, int slot, int64_t unit) {
  const ProductJob *job = argument;
  const Product *g = job->g;
  int64_t j = unit * PACK_PANELS * NR, columns = job->columns - j < PACK_PANELS * NR ? job->columns - j : PACK_PANELS * NR;
  pack_b(job->packed + j * step_up(job->depth), g->b + job->k0 * g->b_row + (job->j0 + j) * g->b_column, g->b_row, g->b_column,
         job->depth, columns);
}

// One row of a tile of sums to bf16; whole cache lines where they can be.
INLINE void narrow_tile_row(uint16_t *to, const float *sum, const float *bias, int64_t columns) {
#if LEVEL_BF16
  if (columns >= NR) {
    __m512 low = _mm512_loadu_ps(sum), high = _mm512_loadu_ps(sum + 16);
    if (bias) low = _mm512_add_ps(low, _mm512_loadu_ps(bias)), high = _mm512_add_ps(high, _mm512_loadu_ps(bias + 16));
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    return;
  }
#endif
  for (int64_t x = 0; x < columns; x += WIDTH) {
    V v = load_f32(sum + x);
    if (bias) v += take_f32(bias + x, columns - x);
    put_bf16(to + x, v, columns - x);
  }
}

// A tile of sums (rows × columns of it) to C at row i, column j.
static void store_tile(const Product *g, const float *sum, int64_t sum_row, int64_t i, int64_t j, int64_t rows, int64_t columns, int add) {
  for (int64_t r = 0; r < rows; r++, sum += sum_row) {
    int64_t at = (i + r) * g->c_row + j;
    if (!g->wide) narrow_tile_row((uint16_t *)g->c + at, sum, g->bias ? g->bias + j : NULL, columns);
    else if (add)
      for (int64_t x = 0; x < columns; x++) ((float *)g->c)[at + x] += sum[x];
    else memcpy((float *)g->c + at, sum, sizeof(float) * (size_t)columns);
  }
}

// One tile of C: rows i of the unit (from i0), the panel at columns j of C; `sum`: where a tile waits.
static void product_tile(const Product *g, TileA a, const Packed *b, int64_t depth, int64_t i, int64_t j, int64_t rows, int64_t columns,
                         float *sum, int64_t sum_row, int waits, int first, int last) {
  if (g->wide && rows == MR && columns == NR) {
    micro(depth, a.data, a.row, b, (float *)g->c + i * g->c_row + j, g->c_row, g->add || !first);
    return;
  }
  micro(depth, a.data, a.row, b, sum, sum_row, waits && !first);
  if (!waits || last) store_tile(g, sum, sum_row, i, j, rows, columns, g->add || !first);
}

// Rows of one block of MC against a range of panels, some of which are near at a time.
static void product_unit(void *argument, int slot, int64_t unit) {
  const ProductJob *job = argument;
  const Product *g = job->g;
  int64_t i0 = unit / job->column_blocks * MC, m = g->m - i0 < MC ? g->m - i0 : MC, part = unit % job->column_blocks;
  int64_t p0 = job->panels * part / job->column_blocks, p1 = job->panels * (part + 1) / job->column_blocks;
  int64_t near = NEAR_B / (int64_t)sizeof(Packed) / NR / job->blocks.depth, waits = job->blocks.scratch;
  if (near < 1) near = 1;
  Packed *memory = (Packed *)(void *)(job->slots + (size_t)slot * slot_bytes(job->blocks.scratch));
  float *scratch = (float *)(void *)(memory + MC * KA), tile[MR * NR] __attribute__((aligned(64)));
  TileA a[TILES];
  tiles_begin();
  for (int64_t k = 0; k < job->depth; k += job->blocks.depth) {
    int64_t depth = job->depth - k < job->blocks.depth ? job->depth - k : job->blocks.depth;
    int first = !job->k0 && !k, last = k + depth == job->depth;
    tiles_of(a, memory, g->a + i0 * g->a_row + (job->k0 + k) * g->a_column, g->a_row, g->a_column, m, depth);
    for (int64_t from = p0; from < p1; from += near)
      for (int64_t i = 0; i < m; i += MR)
        for (int64_t p = from; p < from + near && p < p1; p++) {
          int64_t columns = job->columns - p * NR < NR ? job->columns - p * NR : NR;
          float *sum = waits ? scratch + i * SCRATCH_ROW + (p - p0) * NR : tile;
          product_tile(g, a[i / MR], job->packed + p * NR * step_up(job->depth) + k * NR, step_up(depth), i0 + i, job->j0 + p * NR,
                       m - i < MR ? m - i : MR, columns, sum, waits ? SCRATCH_ROW : NR, waits != 0, first, last);
        }
  }
  tiles_end();
}

// team NULL: in the calling thread. workspace: product_workspace(n, k, wide, team size) bytes.
static void product(const Product *g, void *workspace, Team *team) {
  int slots = team_size(team);
  ProductJob job = {.g = g, .blocks = blocks_of(g->n, g->k, g->wide)};
  job.slots = (char *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
  job.packed = (Packed *)(void *)(job.slots + (size_t)slots * slot_bytes(job.blocks.scratch));
  if (g->k == 0 && !g->add)
    for (int64_t i = 0; i < g->m; i++) memset((char *)g->c + (size_t)(i * g->c_row) * (g->wide ? 4 : 2), 0, (size_t)g->n * (g->wide ? 4 : 2));
  job.row_blocks = (g->m + MC - 1) / MC;
  if (!job.row_blocks) return;
  for (job.j0 = 0; job.j0 < g->n; job.j0 += job.blocks.columns) {
    job.columns = g->n - job.j0 < job.blocks.columns ? g->n - job.j0 : job.blocks.columns;
    job.panels = (job.columns + NR - 1) / NR;
    job.column_blocks = slots == 1 ? 1 : (4 * slots + job.row_blocks - 1) / job.row_blocks;
    int64_t least = job.blocks.scratch ? (job.panels + SCRATCH_COLUMNS / NR - 1) / (SCRATCH_COLUMNS / NR) : 1;
    if (job.column_blocks < least) job.column_blocks = least;
    if (job.column_blocks > job.panels) job.column_blocks = job.panels;
    for (job.k0 = 0; job.k0 < g->k; job.k0 += job.blocks.packed_depth) {
      job.depth = g->k - job.k0 < job.blocks.packed_depth ? g->k - job.k0 : job.blocks.packed_depth;
      cpu_parallel(team, pack_units(job.columns), pack_unit, &job);
      cpu_parallel(team, job.row_blocks * job.column_blocks, product_unit, &job);
    }
  }
}

// ---- MATMUL

static Product matmul_product(const Operand *input, const Operand *output, const MatmulAttr *attr) {
  const Operand *a = &input[0], *b = &input[1];
  int64_t m = operand_extent(a, 0, attr->m), n, k;
  Product g;
  switch (attr->kind) {
  case MATMUL_NT: // x (m, k), w (n, k) → (m, n)
    k = operand_extent(a, attr->m, a->rank), n = operand_extent(b, 0, attr->n);
    g = (Product){.m = m, .n = n, .k = k, .a_row = k, .a_column = 1, .b_row = 1, .b_column = k};
    break;
  case MATMUL_NN: // dy (m, n), w (n, k) → (m, k): the sum is over n
    n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->n, b->rank);
    g = (Product){.m = m, .n = k, .k = n, .a_row = n, .a_column = 1, .b_row = k, .b_column = 1};
    break;
  default: // dy (m, n), x (m, k) → (n, k): the sum is over m
    n = operand_extent(a, attr->m, a->rank), k = operand_extent(b, attr->m, b->rank);
    g = (Product){.m = n, .n = k, .k = m, .a_row = 1, .a_column = n, .b_row = k, .b_column = 1, .add = attr->accumulate};
  }
  g.a = a->data;
  g.b = b->data;
  g.c = output[0].data;
  g.c_row = g.n;
  g.wide = output[0].dtype == DTYPE_F32;
  return g;
}

static size_t matmul_bf16_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  Product g = matmul_product(input, output, attr);
  return product_workspace(g.n, g.k, g.wide, threads);
}

static void matmul_bf16(const KernelCall *call) {
  Product g = matmul_product(call->input, call->output, call->attr);
  if (((const MatmulAttr *)call->attr)->bias) {
    g.bias = call->input[2].data;
    if (g.wide || !g.k) {
      op_def(OP_MATMUL)->reference(call);
      return;
    }
  }
  if (g.add && call->input[2].data != g.c) memcpy(g.c, call->input[2].data, sizeof(float) * (size_t)(g.m * g.n));
  product(&g, call->workspace, call->team);
}
