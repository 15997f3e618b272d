// Products of bf16 or fp16 by tensor cores, with sums in fp32. A block of four warps makes a tile of MMA_TILE x
// MMA_TILE, each warp a quarter. Tiles of the operands are on their way to shared memory while earlier ones are
// multiplied.
//
// An operand has its rows (b: its columns) or its depth side by side in memory; in the first case it is `turned`. The
// tile has the same order, in chunks of 16 bytes. Chunks lie so that the eight that are read or written at a time are
// in different banks.
#pragma once
#include "device/cuda/kernels/kernel.h"

typedef struct Chunk { ALIGNED16 uint16_t x[8]; } Chunk;
enum {
  CHUNK = 8,
  TILE_CHUNKS = MMA_TILE * MMA_DEPTH / CHUNK,
  THREAD_CHUNKS = TILE_CHUNKS / MMA_THREADS,
  ROW_CHUNKS = MMA_TILE / CHUNK,    // of a turned tile
  DEPTH_CHUNKS = MMA_DEPTH / CHUNK, // of one that is not
  QUARTER = MMA_TILE / 2,
  DOWN = QUARTER / 16, // products of a warp
  ACROSS = QUARTER / 8,
  SUMS_PITCH = QUARTER + 8 // of rows of sums
};

// Σ a b of a tile: from these elements of the operands on. steps: elements between rows, or depths of a turned operand.
// rows, columns: what is left of them; others count as 0.
typedef struct TileProduct {
  const uint16_t *a, *b;
  int64_t a_step, b_step;
  int rows, columns, depth;
} TileProduct;

// The chunk of a row and depth, of which one is a multiple of CHUNK.
INLINE int chunk_of(int row, int k, int turned) {
  return turned ? k * ROW_CHUNKS + (row / CHUNK ^ k % 8) : row * DEPTH_CHUNKS + (k / CHUNK ^ row / 2 % DEPTH_CHUNKS);
}

// This thread's chunks of a tile at depth k, of which `data` is the first.
INLINE void load_chunks(Chunk *tile, const uint16_t *data, int64_t step, int rows, int k, int depth, int turned) {
  const int row = turned ? THREAD % ROW_CHUNKS * CHUNK : THREAD / DEPTH_CHUNKS;
  const int below = turned ? THREAD / ROW_CHUNKS : THREAD % DEPTH_CHUNKS * CHUNK;
  Chunk *to = tile + chunk_of(row, below, turned);
  UNROLL for (int i = 0; i < THREAD_CHUNKS; i++) {
    const int outer = (turned ? k + below : row) + i * (MMA_THREADS / (turned ? ROW_CHUNKS : DEPTH_CHUNKS));
    const int there = outer < (turned ? depth : rows), left = turned ? rows - row : depth - k - below;
    const int bytes = !there || left <= 0 ? 0 : left < CHUNK ? left * 2 : 16;
    COPY_LATER(to[i * MMA_THREADS].x, data, FAULT(kernel_tail_is_not_masked, bytes, 16));
    data += step * (MMA_THREADS / (turned ? ROW_CHUNKS : DEPTH_CHUNKS));
  }
}

// From an operand's first element to this thread's first chunk.
INLINE int64_t own_chunk(int64_t step, int turned) {
  return turned ? THREAD / ROW_CHUNKS * step + THREAD % ROW_CHUNKS * CHUNK
                : THREAD / DEPTH_CHUNKS * step + THREAD % DEPTH_CHUNKS * CHUNK;
}

// Fragments of 16 rows at a depth of 16. second, deep: whether this lane says where a row of the later eight lies, and
// of the later half of the depth.
INLINE void load_fragments(uint32_t x[4], const Chunk *tile, int row, int k, int turned, int second, int deep) {
  const int own = THREAD % 8;
  row += second * 8 + (turned ? 0 : own);
  k += deep * 8 + (turned ? own : 0);
  if (turned) WARP_LOAD_TURNED(x, tile[chunk_of(row, k, 1)].x);
  else WARP_LOAD(x, tile[chunk_of(row, k, 0)].x);
}

// Adds a tile's products to a warp's sums.
INLINE void multiply_chunks(float sum[DOWN][ACROSS][4], const Chunk *left, const Chunk *right, int is_f16, int a_turned,
                            int b_turned) {
  const int warp = THREAD / WARP, top = warp / 2 * QUARTER, side = warp % 2 * QUARTER;
  const int low = THREAD / 8 % 2, high = THREAD / 16 % 2; // which of four matrices of 8 x 8
  UNROLL for (int k = 0; k < MMA_DEPTH; k += 16) {
    uint32_t x[DOWN][4], y[ACROSS / 2][4];
    UNROLL for (int i = 0; i < DOWN; i++)
      load_fragments(x[i], left, top + i * 16, k, a_turned, FAULT(kernel_fragment_of_another_lane, low, high),
                     FAULT(kernel_fragment_of_another_lane, high, low));
    UNROLL for (int j = 0; j < ACROSS / 2; j++) load_fragments(y[j], right, side + j * 16, k, b_turned, high, low);
    UNROLL for (int i = 0; i < DOWN; i++)
      UNROLL for (int j = 0; j < ACROSS; j++) {
        if (is_f16) WARP_MMA_F16(sum[i][j], x[i], y[j / 2] + j % 2 * 2);
        else WARP_MMA_BF16(sum[i][j], x[i], y[j / 2] + j % 2 * 2);
      }
  }
}

// A warp's sums. is_f16 and what is turned are known where this is called.
INLINE void add_products(float sum[DOWN][ACROSS][4], TileProduct p, Chunk *left, Chunk *right, int is_f16, int a_turned,
                         int b_turned) {
  const int warp = THREAD / WARP, has_any = warp / 2 * QUARTER < p.rows && warp % 2 * QUARTER < p.columns;
  const int tiles = (p.depth + MMA_DEPTH - 1) / MMA_DEPTH;
  const int64_t a_next = a_turned ? p.a_step * MMA_DEPTH : MMA_DEPTH,
                b_next = b_turned ? p.b_step * MMA_DEPTH : MMA_DEPTH;
  p.a += own_chunk(p.a_step, a_turned);
  p.b += own_chunk(p.b_step, b_turned);
  int from = 0, to = 0; // stages that are multiplied and loaded next
  for (int t = 1 - MMA_STAGES; t < tiles; t++) {
    if (t >= 0) {
      COPIES_WAIT(MMA_STAGES - 2);
      // now all threads' copies of tile t are there, and nobody reads the one before, whose place is taken next
      UNLESS_FAULT(kernel_fragments_are_read_early) BARRIER();
    }
    if (t + MMA_STAGES - 1 < tiles) {
      const int k = (t + MMA_STAGES - 1) * MMA_DEPTH;
      load_chunks(left + to * TILE_CHUNKS, p.a, p.a_step, p.rows, k, p.depth, a_turned);
      load_chunks(right + to * TILE_CHUNKS, p.b, p.b_step, p.columns, k, p.depth, b_turned);
      p.a += a_next;
      p.b += b_next;
      to = to + 1 == MMA_STAGES ? 0 : to + 1;
    }
    COPIES_END(); // of no copies, too: the newest MMA_STAGES - 2 groups are those of later tiles
    if (t < 0) continue;
    if (has_any)
      multiply_chunks(sum, left + from * TILE_CHUNKS, right + from * TILE_CHUNKS, is_f16, a_turned, b_turned);
    from = from + 1 == MMA_STAGES ? 0 : from + 1;
  }
}

// Two neighbours of a row, or the first of them.
INLINE void put_two(Array out, int64_t at, float x, float y, int both) {
  uint16_t *narrow = (uint16_t *)out.data + at;
  if (both && out.dtype == DTYPE_BF16 && (uintptr_t)narrow % 4 == 0)
    *(uint32_t *)(void *)narrow = narrow_bf16(x) | (uint32_t)narrow_bf16(y) << 16;
  else if (both && out.dtype == DTYPE_F16 && (uintptr_t)narrow % 4 == 0)
    *(uint32_t *)(void *)narrow = narrow_f16(x) | (uint32_t)narrow_f16(y) << 16;
  else {
    array_put_float(out, at, x);
    if (both) array_put_float(out, at + 1, y);
  }
}

// Where a product's sums go, with what is added to them. at: of the tile in out and added; width: of their rows; side:
// the tile's first column.
typedef struct TileOutput {
  Array out, added, bias;
  int64_t at, width, side;
  int rows, columns;
} TileOutput;

// A warp's rows of sums from `row` of the tile on, of which a lane puts two neighbours.
INLINE void put_rows(const float *sums, const TileOutput *o, int row) {
  const int column = THREAD / WARP % 2 * QUARTER + THREAD % WARP * 2, both = column + 1 < o->columns;
  UNROLL_BY(1) for (int r = 0; r < 16 && row + r < o->rows && column < o->columns; r++) {
    const int64_t here = o->at + (row + r) * o->width + column;
    float x = sums[r * SUMS_PITCH + THREAD % WARP * 2], y = sums[r * SUMS_PITCH + THREAD % WARP * 2 + 1];
    if (o->added.data) x += array_float(o->added, here), y += both ? array_float(o->added, here + 1) : 0;
    if (o->bias.data) {
      x += array_float(o->bias, o->side + column);
      y += both ? array_float(o->bias, o->side + column + 1) : 0;
    }
    put_two(o->out, here, x, y, both);
  }
}

// By way of shared memory, sixteen rows of each warp at a time, so that neighbours of a row are written together.
INLINE void put_sums(float sum[DOWN][ACROSS][4], const TileOutput *o, Chunk *shared) {
  const int warp = THREAD / WARP, g = THREAD % WARP / 4, t = THREAD % 4;
  float *own = (float *)(void *)shared + warp * 16 * SUMS_PITCH;
  UNROLL for (int i = 0; i < DOWN; i++) {
    BARRIER();
    UNROLL for (int j = 0; j < ACROSS; j++)
      UNROLL for (int n = 0; n < 4; n++) own[(g + n / 2 * 8) * SUMS_PITCH + j * 8 + 2 * t + n % 2] = sum[i][j][n];
    BARRIER();
    put_rows(own, o, warp / 2 * QUARTER + i * 16);
  }
}

// a that is turned has a b that is: only these three are products of matrices as they lie (NT, NN, TN).
INLINE void make_tile(const TileProduct *p, const TileOutput *o, int is_f16, int a_turned, int b_turned) {
  float sum[DOWN][ACROSS][4];
  SHARED(Chunk, left, TILE_CHUNKS * MMA_STAGES);
  SHARED(Chunk, right, TILE_CHUNKS * MMA_STAGES);
  UNROLL for (int i = 0; i < DOWN; i++)
    UNROLL for (int j = 0; j < ACROSS; j++)
      UNROLL for (int n = 0; n < 4; n++) sum[i][j][n] = 0;
  if (a_turned) add_products(sum, *p, left, right, is_f16, 1, 1);
  else if (b_turned) add_products(sum, *p, left, right, is_f16, 0, 1);
  else add_products(sum, *p, left, right, is_f16, 0, 0);
  put_sums(sum, o, left);
}

INLINE int at_most_a_tile(int64_t n) { return n < MMA_TILE ? (int)n : MMA_TILE; }

INLINE void grouped_product(const ExpertProductArguments *a, int is_f16) {
  const int a_turned = a->a_depth != 1, b_turned = a->b_depth != 1;
  const Array none = {NULL, 0};
  ExpertTile t = {0, 0, 0, 0, 0, 0, 0};
  if (a->by_rows) clear_rows_of_nobody(a);
  if (!find_expert_tile(a, MMA_TILE, &t)) return;
  const TileProduct p = {(const uint16_t *)a->a.data + t.a + t.top * a->a_row,
                         (const uint16_t *)a->b.data + t.b + t.side * a->b_column,
                         a_turned ? a->a_depth : a->a_row,
                         b_turned ? a->b_depth : a->b_column,
                         at_most_a_tile(t.rows - t.top),
                         at_most_a_tile(a->columns - t.side),
                         (int)t.depth};
  const TileOutput o = {a->out,     a->added, none,   t.out + t.top * a->columns + t.side,
                        a->columns, t.side,   p.rows, p.columns};
  make_tile(&p, &o, is_f16, a_turned, b_turned);
}

INLINE void tiled_product(const ProductArguments *a, int is_f16) {
  const int a_turned = a->a_depth != 1, b_turned = a->b_depth != 1;
  const int64_t across = (a->columns + MMA_TILE - 1) / MMA_TILE, top = BLOCK / across * MMA_TILE,
                side = BLOCK % across * MMA_TILE;
  const TileProduct p = {(const uint16_t *)a->a.data + top * a->a_row,
                         (const uint16_t *)a->b.data + side * a->b_column,
                         a_turned ? a->a_depth : a->a_row,
                         b_turned ? a->b_depth : a->b_column,
                         at_most_a_tile(a->rows - top),
                         at_most_a_tile(a->columns - side),
                         (int)a->depth};
  const TileOutput o = {a->out, a->added, a->bias, top * a->columns + side, a->columns, side, p.rows, p.columns};
  make_tile(&p, &o, is_f16, a_turned, b_turned);
}
