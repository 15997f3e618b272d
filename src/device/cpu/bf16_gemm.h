// Product of bf16 matrices: C (m × n, row major, bf16 or fp32) = [C +] A (m × k) · B (k × n); A and B are read through
// strides, one of which must be 1.
//
// An element of C is a sum over k in blocks whose size only k gives, in rising order, in fp32, and is rounded once; so
// a result does not depend on the number of threads, nor on which other rows are in the product. (AMX adds a block to
// the sum that is there, product by product, the other kinds sum it from 0 and add it then: a tile at the edge of an
// fp32 C is computed as a whole one, in a copy. With AMX that copy has never been run.) Not gemm.h with other loads:
// AMX reads A and B in its own pairs and tiles, and sums wait in fp32 where C is bf16.
//
// Example: m 100, n 96, k 3000 with AMX (tiles of 32 × 32, KC 1024). k is cut into three blocks of 1024, 1024 and 952
// (3000 / 3, up to a multiple of 32). B is packed once for all threads: 3 panels of 32 columns. A's rows are 4 tiles,
// 32, 32, 32 and 4 with zeros below. Each element of C is ((block 1) + block 2) + block 3 in fp32; where C is bf16 the
// first two sums wait in the thread's scratch, where it is fp32 in C itself.

typedef struct Product {
  int64_t m, n, k;
  const uint16_t *a;
  int64_t a_row, a_column; // strides
  const uint16_t *b;
  int64_t b_row, b_column;
  void *c;
  int64_t c_row;
  int wide, add;     // C is fp32; C is added to
  const float *bias; // (n), added to every row of a C that is bf16; NULL: none
} Product;

enum {
  PACKED_B = 1 << 21,    // elements of packed B at a time, about, of all threads
  PACKED_DEPTH = 8 * KC, // and rows of it where C is fp32, since C holds the sums of the rows before then
  PACK_PANELS = 4,       // of one unit of packing
  NEAR_B = 256 << 10,    // bytes of packed B that all tiles of A meet before the next: it stays in the level 2 cache
  WIDE_DEPTH = LEVEL_BF16 == 2 ? KC : 512, // rows of B of one block where C is read and written once a block
  SCRATCH_COLUMNS = 512, // of a unit whose sums wait in fp32
  SCRATCH_ROW = SCRATCH_COLUMNS + 16
};

typedef struct Blocks {
  int64_t depth;          // rows (k) of one block
  int64_t packed_depth;   // of what is packed at a time
  int64_t columns;        // of what is packed at a time
  int scratch;            // sums wait in a slot's memory
} Blocks;

// room: elements of packed B at a time, about.
static Blocks blocks_of(int64_t n, int64_t k, int wide, int64_t room) {
  int64_t most = wide && KC > (int)WIDE_DEPTH ? (int)WIDE_DEPTH : (int)KC, count = (k + most - 1) / most;
  Blocks b = {.depth = count > 1 ? step_up((k + count - 1) / count) : step_up(k),
              .packed_depth = k,
              .scratch = count > 1 && !wide};
  int64_t all = (n + NR - 1) / NR * NR;
  if (wide && k > PACKED_DEPTH) { // many columns rather than a great depth: A is read once for each block of columns
    int64_t columns = all < room / b.depth ? (all < NR ? NR : all) : room / b.depth;
    b.packed_depth = room / columns / b.depth * b.depth;
  }
  int64_t fit = room / (b.packed_depth < 1 ? 1 : step_up(b.packed_depth)) / NR * NR;
  if (fit < 8 * NR) fit = 8 * NR;
  b.columns = all < fit ? all : fit;
  return b;
}

// Bytes of a thread's part of the workspace: tiles of A, sums.
static size_t slot_bytes(int scratch) {
  return sizeof(Packed) * (size_t)(MC * KA) + (scratch ? sizeof(float) * (size_t)(MC * SCRATCH_ROW) : 0);
}

// Elements of packed B of one of `slots` threads that each pack their own.
static int64_t part_room(int slots) {
  int64_t room = (PACKED_B + slots - 1) / slots, least = 8 * NR * PACKED_DEPTH;
  _Static_assert(8 * NR * PACKED_DEPTH <= PACKED_B, "a wide C never packs more than its room");
  return room < least ? least : room;
}

// Bytes of workspace for a product of n columns on `slots` threads; also for a smaller k, which may pack more columns.
static size_t product_workspace(int64_t n, int64_t k, int wide, int slots) {
  int parts = slots > CPU_MOST_PARTING ? 1 : slots;
  int64_t depth = step_up(k), all = (n + NR - 1) / NR * NR * depth, most = wide ? 0 : 8 * NR * depth,
          room = part_room(parts);
  if (most < room) most = room;
  return (size_t)slots * (slot_bytes(blocks_of(n, k, wide, room).scratch) + 64) +
         (size_t)parts * sizeof(Packed) * (size_t)(all < most ? all : most);
}

typedef struct ProductJob {
  const Product *g;
  Blocks blocks;
  int64_t j0, columns, k0, depth;            // this block of B
  int64_t threads;
  int64_t row_blocks, column_blocks, panels; // units: row_blocks × column_blocks; panels of the block
  char *slots;
  Packed *packed;                            // (panels, step_up(depth), NR)
} ProductJob;

static int64_t pack_units(int64_t columns) { return (columns + PACK_PANELS * NR - 1) / (PACK_PANELS * NR); }
static void pack_unit(void *argument, int slot, int64_t unit) {
  const ProductJob *job = argument;
  const Product *g = job->g;
  int64_t j = unit * PACK_PANELS * NR,
          columns = job->columns - j < PACK_PANELS * NR ? job->columns - j : PACK_PANELS * NR;
  pack_b(job->packed + j * step_up(job->depth), g->b + job->k0 * g->b_row + (job->j0 + j) * g->b_column, g->b_row,
         g->b_column, job->depth, columns);
}

// One row of a tile of sums to bf16, where it is added to or not; whole cache lines where they can be.
INLINE void narrow_tile_row(uint16_t *to, const float *sum, const float *bias, int add, int64_t columns) {
#if LEVEL_BF16
  if (columns >= NR && !add) {
    __m512 low = _mm512_loadu_ps(sum), high = _mm512_loadu_ps(sum + 16);
    if (bias) low = _mm512_add_ps(low, _mm512_loadu_ps(bias)), high = _mm512_add_ps(high, _mm512_loadu_ps(bias + 16));
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    return;
  }
#endif
  for (int64_t x = 0; x < columns; x += WIDTH) {
    V v = load_f32(sum + x);
    if (bias) v += take_f32(bias + x, columns - x);
    if (FAULT(narrow_accumulate_forgets, add, 0)) v += take_bf16(to + x, columns - x);
    put_bf16(to + x, v, columns - x);
  }
}

// rows × columns of fp32, whose rows lie apart, from one place to another.
static void copy_sums(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, sizeof *to * (size_t)columns);
}

// One tile of C: rows i of the unit (from i0), the panel at columns j of C; `sum`: where a tile waits.
static void product_tile(const Product *g, TileA a, const Packed *b, int64_t depth, int64_t i, int64_t j, int64_t rows,
                         int64_t columns, float *sum, int64_t sum_row, int waits, int first, int last,
                         const Ahead *ahead) {
  int add = g->add || !first;
  float *c = g->wide ? (float *)g->c + i * g->c_row + j : NULL;
  if (g->wide && rows == MR && columns == NR) micro_ahead(depth, a.data, a.row, b, c, g->c_row, add, ahead);
  else if (g->wide) {
    if (FAULT(edges_forget_the_sum, add, 0)) copy_sums(sum, sum_row, c, g->c_row, rows, columns);
    micro(depth, a.data, a.row, b, sum, sum_row, add);
    copy_sums(c, g->c_row, sum, sum_row, rows, columns);
  } else {
    micro(depth, a.data, a.row, b, sum, sum_row, waits && !first);
    for (int64_t r = 0; (!waits || last) && r < rows; r++)
      narrow_tile_row((uint16_t *)g->c + (i + r) * g->c_row + j, sum + r * sum_row, g->bias ? g->bias + j : NULL,
                      g->add, columns);
  }
}

#if LEVEL_BF16 == 2
// A's block that this thread will probably pack next: that of the next depth, or of another unit.
static Lines next_block(const ProductJob *job, int64_t unit, int64_t k) {
  const Product *g = job->g;
  k += job->blocks.depth;
  if (k >= job->depth) k = 0, unit += job->threads;
  int64_t i0 = unit / job->column_blocks * MC, m = g->m - i0 < MC ? g->m - i0 : MC;
  if (m <= 0 || g->a_column == 1) return (Lines){0};
  int64_t depth = job->depth - k < job->blocks.depth ? job->depth - k : job->blocks.depth;
  return (Lines){g->a + i0 * g->a_row + (job->k0 + k) * g->a_column, g->a_column * (int64_t)sizeof *g->a, depth,
                 (m * (int64_t)sizeof *g->a + 63) / 64};
}

// The memory to prefetch during tile (i, p) of a unit, where panels [from, to) are near: a tile of C; a part of the
// panels that are near next, and of `block`, which are spread over all tiles.
INLINE Ahead ahead_of(const ProductJob *job, Lines block, int64_t i0, int64_t m, int64_t k, int64_t i, int64_t p,
                      const int64_t part[2], int64_t from, int64_t to) {
  const Product *g = job->g;
  int64_t tiles = (m + MR - 1) / MR, lines = 2 * MR / tiles, next = p + to - from,
          number = (from - part[0]) * tiles + i / MR * (to - from) + p - from, count = (part[1] - part[0]) * tiles;
  int64_t next_i = p + 1 < to ? i : i + MR < m ? i + MR : 0, next_p = p + 1 < to ? p + 1 : i + MR < m ? from : to;
  Ahead x = {.rows = next < part[1] ? lines : 0, .a_row = 32, .a_step = NR};
  x.a = job->packed + next * NR * step_up(job->depth) + k * NR + i / MR * lines * 32;
  if (next_p < part[1])
    x.c = (Lines){(const float *)g->c + (i0 + next_i) * g->c_row + job->j0 + next_p * NR,
                  g->c_row * (int64_t)sizeof(float), MR, 2};
  if (block.at) {
    int64_t row = block.rows * number / count;
    x.next = (Lines){(const char *)block.at + row * block.row_bytes, block.row_bytes,
                     block.rows * (number + 1) / count - row, block.lines};
  }
  return x;
}
#endif

// Rows of one block of MC against a range of panels, some of which are near at a time.
static void product_unit(void *argument, int slot, int64_t unit) {
  const ProductJob *job = argument;
  const Product *g = job->g;
  int64_t i0 = unit / job->column_blocks * MC, m = g->m - i0 < MC ? g->m - i0 : MC, part = unit % job->column_blocks;
  int64_t p0 = job->panels * part / job->column_blocks, p1 = job->panels * (part + 1) / job->column_blocks;
  int64_t near = NEAR_B / (int64_t)sizeof(Packed) / NR / job->blocks.depth, waits = job->blocks.scratch;
  if (near < 1) near = 1;
  Packed *memory = (Packed *)(void *)(job->slots + (size_t)slot * slot_bytes(job->blocks.scratch));
  float *scratch = (float *)(void *)(memory + MC * KA), tile[MR * NR] __attribute__((aligned(64))) = {0};
  TileA a[TILES];
  tiles_begin();
  for (int64_t k = 0; k < job->depth; k += job->blocks.depth) {
    int64_t depth = job->depth - k < job->blocks.depth ? job->depth - k : job->blocks.depth;
    int first = !job->k0 && !k, last = k + depth == job->depth;
    tiles_of(a, memory, g->a + i0 * g->a_row + (job->k0 + k) * g->a_column, g->a_row, g->a_column, m, depth);
#if LEVEL_BF16 == 2
    Lines next = next_block(job, unit, k);
    const int64_t part_of[2] = {p0, p1};
#endif
    for (int64_t from = p0; from < p1; from += near) {
      int64_t to = from + near < p1 ? from + near : p1;
      for (int64_t i = 0; i < m; i += MR)
        for (int64_t p = from; p < to; p++) {
          int64_t columns = job->columns - p * NR < NR ? job->columns - p * NR : NR;
          float *sum = waits ? scratch + i * SCRATCH_ROW + (p - p0) * NR : tile;
          Ahead ahead = {.rows = 0};
#if LEVEL_BF16 == 2
          if (g->wide) ahead = ahead_of(job, next, i0, m, k, i, p, part_of, from, to);
#endif
          product_tile(g, a[i / MR], job->packed + p * NR * step_up(job->depth) + k * NR, step_up(depth), i0 + i,
                       job->j0 + p * NR, m - i < MR ? m - i : MR, columns, sum, waits ? SCRATCH_ROW : NR, waits != 0,
                       first, last, &ahead);
        }
    }
  }
  tiles_end();
}

// All threads of the team pack B together, about `room` elements at a time, and then multiply. They wait for each other
// after both. team NULL: in the calling thread.
static void product_together(const Product *g, void *workspace, int64_t room, Team *team) {
  int size = team_size(team);
  ProductJob job = {.g = g, .threads = size, .blocks = blocks_of(g->n, g->k, g->wide, room)};
  job.slots = (char *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
  job.packed = (Packed *)(void *)(job.slots + (size_t)team_slots(team) * slot_bytes(job.blocks.scratch));
  if (g->k == 0 && !g->add)
    for (int64_t i = 0; i < g->m; i++)
      memset((char *)g->c + (size_t)(i * g->c_row) * (g->wide ? 4 : 2), 0, (size_t)g->n * (g->wide ? 4 : 2));
  job.row_blocks = (g->m + MC - 1) / MC;
  if (!job.row_blocks) return;
  for (job.j0 = 0; job.j0 < g->n; job.j0 += job.blocks.columns) {
    job.columns = g->n - job.j0 < job.blocks.columns ? g->n - job.j0 : job.blocks.columns;
    job.panels = (job.columns + NR - 1) / NR;
    job.column_blocks = size == 1 ? 1 : (4 * size + job.row_blocks - 1) / job.row_blocks;
    int64_t least = job.blocks.scratch ? (job.panels + SCRATCH_COLUMNS / NR - 1) / (SCRATCH_COLUMNS / NR) : 1;
    if (job.column_blocks < least) job.column_blocks = least;
    if (job.column_blocks > job.panels) job.column_blocks = job.panels;
    for (job.k0 = 0; job.k0 < g->k; job.k0 += job.blocks.packed_depth) {
      job.depth = g->k - job.k0 < job.blocks.packed_depth ? g->k - job.k0 : job.blocks.packed_depth;
      team_each(team, pack_units(job.columns), pack_unit, &job);
      team_each(team, job.row_blocks * job.column_blocks, product_unit, &job);
    }
  }
}

// Few rows: units of strips, each read and multiplied at once (few_rows.h). Not with bf16 instructions, which add
// pairs.
typedef struct FewJob { const Product *g; int64_t strips, each, depth; } FewJob; // depth: of a block

static int product_is_few(const Product *g) {
  return !LEVEL_BF16 && g->m > 0 && g->m <= FEW_MOST_bf16 && g->k > 0 && g->b_row == 1 && g->a_column == 1;
}

static void product_few_strip(const FewJob *job, int64_t j) {
  enum { COLUMNS = FEW_COLUMNS_bf16 };
  const Product *g = job->g;
  float sums[FEW_MOST_bf16 * COLUMNS], before[FEW_MOST_bf16 * COLUMNS];
  int64_t columns = g->n - j < COLUMNS ? g->n - j : COLUMNS;
  for (int64_t k = 0; k < g->k; k += job->depth) {
    int last = k + job->depth >= g->k;
    few_rows_bf16(&(FewRows_bf16){.rows = g->m, .depth = last ? g->k - k : job->depth, .a = g->a + k,
                                  .a_row = g->a_row, .b = g->b + j * g->b_column + k, .b_column = g->b_column,
                                  .columns = columns, .fetch = j + 2 * COLUMNS <= g->n}, sums);
    for (int64_t r = 0; r < g->m; r++) {
      float *sum = sums + r * COLUMNS, *c = g->wide ? (float *)g->c + r * g->c_row + j : before + r * COLUMNS;
      int add = g->wide ? g->add || k : k > 0;
      for (int64_t i = 0; i < columns; i++) c[i] = add ? c[i] + sum[i] : sum[i];
      if (!g->wide && last)
        narrow_tile_row((uint16_t *)g->c + r * g->c_row + j, c, g->bias ? g->bias + j : NULL, g->add, columns);
    }
  }
}

static void product_few_unit(void *argument, int slot, int64_t unit) {
  const FewJob *job = argument;
  int64_t end = (unit + 1) * job->each < job->strips ? (unit + 1) * job->each : job->strips;
  for (int64_t p = unit * job->each; p < end; p++) product_few_strip(job, p * FEW_COLUMNS_bf16);
}

static void product_few(const Product *g, Team *team) {
  FewJob job = {.g = g,
                .strips = (g->n + FEW_COLUMNS_bf16 - 1) / FEW_COLUMNS_bf16,
                .depth = blocks_of(g->n, g->k, g->wide, PACKED_B).depth};
  job.each = few_unit_strips_bf16(job.strips, team);
  team_each(team, (job.strips + job.each - 1) / job.each, product_few_unit, &job);
}

static void product_part(void *argument, int slot, int64_t part) {
  const CpuParts *p = argument;
  Product g = *(const Product *)p->product;
  int64_t from, to, size = g.wide ? 4 : 2;
  cpu_part(p, part, &from, &to);
  if (p->by_rows) {
    g.m = to - from;
    g.a += FAULT(row_parts_repeat_rows_bf16, from, 0) * g.a_row;
    g.c = (char *)g.c + from * g.c_row * size;
  } else {
    g.n = to - from;
    g.b += FAULT(column_parts_repeat_columns_bf16, from, 0) * g.b_column;
    g.c = (char *)g.c + from * size;
    if (g.bias) g.bias += from;
  }
  product_together(&g, p->workspace + (size_t)slot * p->bytes, p->room, NULL);
}

// team NULL: in the calling thread. workspace: product_workspace(n, k, wide, team slots) bytes.
//
// Few threads take a part of C each and pack what it needs themselves, as in gemm.h; both A and B are packed, so the
// larger of them is parted. Not where rows of A are contiguous (NT, NN): by fp32 arithmetic, products of C's shape lost
// 1 to 6 points of their share of the peak, since packing turns rows into columns there, and was done twice.
static void product(const Product *g, void *workspace, Team *team) {
  if (product_is_few(g)) {
    product_few(g, team);
    return;
  }
  int size = team_size(team), slots = team_slots(team), by_rows = g->m > g->n;
  int64_t step = by_rows ? MR : NR, all = by_rows ? g->m : g->n, tiles = (all + step - 1) / step;
  if (g->a_column == 1 || size == 1 || slots > CPU_MOST_PARTING || !g->k || tiles < 2 * size) {
    product_together(g, workspace, PACKED_B, team);
    return;
  }
  CpuParts parts = {.product = g,
                    .count = size,
                    .by_rows = by_rows,
                    .tiles = tiles,
                    .step = step,
                    .all = all,
                    .workspace = workspace,
                    .bytes = product_workspace(g->n, g->k, g->wide, slots) / (size_t)slots,
                    .room = part_room(slots)};
  team_each(team, parts.count, product_part, &parts);
}
