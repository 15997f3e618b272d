// Norms of rows of one dtype, as op/layer_norm.c and op/rms_norm.c define them, and sums over rows.
#include "device/cuda/kernels/pack.h"
#define X(from, i) WIDEN(((const ELEMENT *)(from))[i])

// The row that is to be normalised: x, or x + added, which is stored first. A thread reads what it has stored itself.
INLINE const ELEMENT *NAME(row_of)(const NormArguments *a) {
  const int64_t row = BLOCK * a->width;
  const ELEMENT *x = (const ELEMENT *)a->x + row;
  if (!a->added) return x;
  const ELEMENT *added = (const ELEMENT *)a->added + row;
  ELEMENT *sum = (ELEMENT *)a->sum + row;
  EACH_PACK_OF_ROW(at, a->width) {
    NAME(Pack) p, q;
    NAME(take)(&p, x, at, a->width);
    NAME(take)(&q, added, at, a->width);
    for (int i = 0; i < NAME(PACK); i++) p.e[i] = NARROW(PACKED(p, i) + PACKED(q, i));
    NAME(give)(sum, &p, at, a->width);
  }
  return sum;
}

// y = (x - mean) rstd gain + bias of a row
INLINE void NAME(normalised)(const NormArguments *a, const ELEMENT *x, REAL mean, REAL rstd) {
  ELEMENT *y = (ELEMENT *)a->y + BLOCK * a->width;
  EACH_PACK_OF_ROW(at, a->width) {
    NAME(Pack) p;
    REAL gain[NAME(PACK)], bias[NAME(PACK)];
    NAME(take)(&p, x, at, a->width);
    NAME(take_array)(gain, a->gain, at, a->width);
    NAME(take_array)(bias, a->bias, at, a->width);
    for (int i = 0; i < NAME(PACK); i++) p.e[i] = NARROW((PACKED(p, i) - mean) * rstd * gain[i] + bias[i]);
    NAME(give)(y, &p, at, a->width);
  }
}

// A block a row.
KERNEL(NAME(layer_norm), NormArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = NAME(row_of)(&a);
  REAL mean = 0, squares = 0;
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(Pack) p;
    NAME(take)(&p, x, at, a.width);
    for (int i = 0; i < NAME(PACK); i++) mean += PACKED(p, i);
  }
  mean = BLOCK_SUM(mean, scratch) / (REAL)a.width;
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(Pack) p;
    NAME(take)(&p, x, at, a.width);
    for (int i = 0; i < NAME(PACK); i++) {
      const REAL c = at + i < a.width ? PACKED(p, i) - mean : (REAL)0;
      squares += c * c;
    }
  }
  const REAL rstd = 1 / REAL_SQRT(BLOCK_SUM(squares, scratch) / (REAL)a.width + (REAL)a.epsilon);
  NAME(normalised)(&a, x, mean, rstd);
  if (THREAD) return;
  PUT(a.mean, BLOCK, mean);
  PUT(a.rstd, BLOCK, rstd);
}

// A block a row.
KERNEL(NAME(rms_norm), NormArguments) {
  SHARED(REAL, scratch, WARP);
  const ELEMENT *x = NAME(row_of)(&a);
  REAL squares = 0;
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(Pack) p;
    NAME(take)(&p, x, at, a.width);
    for (int i = 0; i < NAME(PACK); i++) squares += PACKED(p, i) * PACKED(p, i);
  }
  const REAL rstd = 1 / REAL_SQRT(BLOCK_SUM(squares, scratch) / (REAL)a.width + (REAL)a.epsilon);
  NAME(normalised)(&a, x, 0, rstd);
  if (THREAD == 0) PUT(a.rstd, BLOCK, rstd);
}

// A pack of a row's gradient and of the row. dy gain and the normalised x are computed in each pass: to keep them would
// take more registers.
typedef struct NAME(NormGrad) { NAME(Pack) dy, x; REAL mean, rstd; } NAME(NormGrad);
#define SCALED(g, i) (PACKED(g.dy, i) * gain[i])
#define NORMAL(g, i) ((PACKED(g.x, i) - g.mean) * g.rstd)

INLINE void NAME(take_norm_grad)(NAME(NormGrad) *g, const NormGradArguments *a, int64_t row, int64_t at) {
  NAME(take)(&g->dy, (const ELEMENT *)a->dy + row * a->width, at, a->width);
  NAME(take)(&g->x, (const ELEMENT *)a->x + row * a->width, at, a->width);
  g->mean = a->mean.data ? ARRAY(a->mean, row) : (REAL)0;
  g->rstd = ARRAY(a->rstd, row);
}

// dx of a pack, from the means over the row of SCALED and of SCALED NORMAL; it is added to drows before it is rounded.
INLINE void NAME(give_norm_grad)(NAME(NormGrad) g, const NormGradArguments *a, const REAL *gain, int64_t row,
                                 int64_t at, REAL first, REAL second, REAL *drows) {
  NAME(Pack) p;
  if (a->added) NAME(take)(&p, (const ELEMENT *)a->added + row * a->width, at, a->width);
  else
    for (int i = 0; i < NAME(PACK); i++) p.e[i] = 0;
  for (int i = 0; i < NAME(PACK); i++) {
    const REAL dx = (SCALED(g, i) - first - NORMAL(g, i) * second) * g.rstd + PACKED(p, i);
    drows[i] += dx;
    p.e[i] = NARROW(dx);
  }
  NAME(give)((ELEMENT *)a->dx + row * a->width, &p, at, a->width);
}

// dx of both norms, a block a row; an RMS norm has no mean.
KERNEL(NAME(norm_grad), NormGradArguments) {
  SHARED(REAL, scratch, WARP);
  REAL first = 0, second = 0, gain[NAME(PACK)], drows[NAME(PACK)];
  NAME(NormGrad) g;
  for (int i = 0; i < NAME(PACK); i++) drows[i] = 0; // nobody's here
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(take_array)(gain, a.gain, at, a.width);
    NAME(take_norm_grad)(&g, &a, BLOCK, at);
    for (int i = 0; i < NAME(PACK); i++) first += SCALED(g, i), second += SCALED(g, i) * NORMAL(g, i);
  }
  first = a.mean.data ? BLOCK_SUM(first, scratch) / (REAL)a.width : (REAL)0;
  second = BLOCK_SUM(second, scratch) / (REAL)a.width;
  EACH_PACK_OF_ROW(at, a.width) {
    NAME(take_array)(gain, a.gain, at, a.width);
    NAME(take_norm_grad)(&g, &a, BLOCK, at);
    NAME(give_norm_grad)(g, &a, gain, BLOCK, at, first, second, drows);
  }
}

// The same with sums over rows for gain and bias, and of dx, of rows that a block has threads for: a block has `each`
// rows, one after the other, and a thread a pack of columns.
KERNEL_LARGE(NAME(norm_grad_whole), NormGradArguments) {
  SHARED(REAL, scratch, WARP);
  const int64_t at = (int64_t)THREAD * NAME(PACK), end = (BLOCK + 1) * a.each < a.rows ? (BLOCK + 1) * a.each : a.rows;
  REAL gain[NAME(PACK)], dgain[NAME(PACK)], dbias[NAME(PACK)], drows[NAME(PACK)];
  NAME(take_array)(gain, a.gain, at, a.width);
  for (int i = 0; i < NAME(PACK); i++) dgain[i] = dbias[i] = drows[i] = 0;
  for (int64_t row = BLOCK * a.each; row < end; row++) {
    NAME(NormGrad) g;
    REAL first = 0, second = 0;
    NAME(take_norm_grad)(&g, &a, row, at);
    for (int i = 0; i < NAME(PACK); i++) {
      dgain[i] += PACKED(g.dy, i) * NORMAL(g, i);
      dbias[i] += PACKED(g.dy, i);
      first += SCALED(g, i);
      second += SCALED(g, i) * NORMAL(g, i);
    }
    first = a.mean.data ? BLOCK_SUM(first, scratch) / (REAL)a.width : (REAL)0;
    second = BLOCK_SUM(second, scratch) / (REAL)a.width;
    NAME(give_norm_grad)(g, &a, gain, row, at, first, second, drows);
  }
  REAL *partial = (REAL *)a.partial + BLOCK * a.sums * a.width + at;
  for (int i = 0; i < NAME(PACK) && at + i < a.width; i++) {
    partial[i] = dgain[i];
    if (a.bias) partial[a.width + i] = dbias[i];
    if (a.row_sum) partial[(a.sums - 1) * a.width + i] = FAULT(kernel_row_sum_of_dy, drows[i], dbias[i]);
  }
}
#undef SCALED
#undef NORMAL

// Sums over rows. A block sums one chunk of rows, over as many columns as a warp has packs of; warp w takes rows w,
// w + warps, … of the chunk.
KERNEL(NAME(columns), ColumnsArguments) {
  enum { WIDTH = WARP * 16 / sizeof(ELEMENT) };
  SHARED(REAL, shared, BLOCK_THREADS * 16 / sizeof(ELEMENT));
  const int64_t across = (a.width + WIDTH - 1) / WIDTH, chunk = BLOCK / across, begins = BLOCK % across * WIDTH;
  const int64_t end = (chunk + 1) * a.each < a.rows ? (chunk + 1) * a.each : a.rows;
  const int64_t at = begins + THREAD % WARP * NAME(PACK), warps = THREADS / WARP;
  REAL sum[NAME(PACK)], product[NAME(PACK)];
  for (int i = 0; i < NAME(PACK); i++) sum[i] = product[i] = 0;
  UNROLL_BY(4)
  for (int64_t row = chunk * a.each + THREAD / WARP; row < end; row += warps) {
    NAME(Pack) dy, x;
    NAME(take)(&dy, (const ELEMENT *)a.dy + row * a.width, at, a.width);
    for (int i = 0; i < NAME(PACK); i++) sum[i] += PACKED(dy, i);
    if (!a.x) continue;
    const REAL mean = a.mean.data ? ARRAY(a.mean, row) : (REAL)0, rstd = ARRAY(a.rstd, row);
    NAME(take)(&x, (const ELEMENT *)a.x + row * a.width, at, a.width);
    for (int i = 0; i < NAME(PACK); i++) product[i] += PACKED(dy, i) * ((PACKED(x, i) - mean) * rstd);
  }
  for (int64_t k = 0; k < a.sums; k++) {
    REAL *mine = shared + THREAD * NAME(PACK);
    for (int i = 0; i < NAME(PACK); i++) mine[i] = k == 0 && a.x ? product[i] : sum[i];
    BARRIER();
    REAL *partial = (REAL *)a.partial + (chunk * a.sums + k) * a.width;
    for (int64_t c = THREAD; c < WIDTH; c += THREADS) {
      REAL total = 0;
      for (int64_t w = 0; w < warps; w++) total += shared[w * WIDTH + c];
      if (FAULT(kernel_column_past_the_end, begins + c < a.width, begins + c <= a.width)) partial[begins + c] = total;
    }
    BARRIER();
  }
}

KERNEL_OF_MANY(NAME(sum_squares), NAME(sum_squares_many), NAME(sum_squares_piece), SumArguments) {
  SHARED(double, scratch, WARP);
  const int64_t end = (block + 1) * a.each < a.n ? (block + 1) * a.each : a.n;
  double sum = 0;
  (void)blocks;
  for (int64_t i = block * a.each + THREAD; i < end; i += THREADS) {
    const double x = X(a.x, i);
    sum += x * x;
  }
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0 && a.out.data) array_put_double(a.out, 0, sum); // all is in one block
  else if (THREAD == 0) a.partial[block] = sum;
}

#undef X
#undef PACKED
#undef EACH_PACK_OF_ROW
