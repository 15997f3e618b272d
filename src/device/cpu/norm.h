// LAYER_NORM, RMS_NORM, their gradients, and REDUCE, for every dtype: rows in parallel; sums over rows by fixed blocks
// of rows, in order. Of bf16 rows gains, biases, statistics and sums are fp32.

// At most 64 partial sums, whatever the number of threads.
static int64_t TYPED(block_rows)(int64_t rows) {
  int64_t n = (rows + 63) / 64;
  return n < 16 ? 16 : n;
}
static int64_t TYPED(row_blocks)(int64_t rows) {
  return (rows + TYPED(block_rows)(rows) - 1) / TYPED(block_rows)(rows);
}

typedef struct TYPED(Norm) {
  const KernelCall *call;
  int64_t rows, width, sums, row_sum; // sums: partial sums of a block in the workspace, each (width)
  const ELEMENT *dy, *x;
  const ELEMENT *term[2]; // of which x is the sum, to be made here; or NULL
  const ELEMENT *added;   // to dx; or NULL
  const REAL *gain, *bias, *mean, *rstd;
  ELEMENT *out;
  REAL epsilon;
  int layer; // centred
  const REAL *sum,
      *given; // of whole rows of which this is a part: Σ x (NULL: none), and squares or the gradient's sums
  REAL whole;              // the width of such a row
} TYPED(Norm);
#define NORM TYPED(Norm)

// Σ (x - mean), or of its squares, over a row: two chains of additions, or each would wait for the one before.
INLINE REAL TYPED(row_moment)(const ELEMENT *x, int64_t n, REAL mean, int squares) {
  V sum[2] = {{0}, {0}};
  int64_t i = 0;
  for (; i + 2 * WIDTH <= n; i += 2 * WIDTH)
    UNROLL for (int k = 0; k < 2; k++) {
      V d = TYPED(load)(x + i + k * WIDTH) - MATH(splat)(mean);
      sum[k] = squares ? MATH(fma)(d, d, sum[k]) : sum[k] + d;
    }
  for (; i < n; i += WIDTH) {
    V d = MATH(first_lanes)(TYPED(take)(x + i, n - i) - MATH(splat)(mean), n - i);
    sum[0] = squares ? MATH(fma)(d, d, sum[0]) : sum[0] + d;
  }
  return MATH(sum)(sum[0] + sum[1]);
}

INLINE void TYPED(norm_row)(const NORM *p, int64_t r, REAL mean, REAL rstd) {
  const REAL *gain = p->gain, *bias = p->bias;
  int64_t n = p->width;
  const ELEMENT *x = p->x + r * n;
  ELEMENT *y = p->out + r * n;
  V m = MATH(splat)(mean), by = MATH(splat)(rstd);
  if (bias)
    EACH_VECTOR TYPED(put)(
        y + i,
        MATH(fma)((TYPED(take)(x + i, n - i) - m) * by, MATH(take)(gain + i, n - i), MATH(take)(bias + i, n - i)),
        n - i);
  else EACH_VECTOR TYPED(put)(y + i, (TYPED(take)(x + i, n - i) - m) * by * MATH(take)(gain + i, n - i), n - i);
  if (p->layer) ((REAL *)p->call->output[1].data)[r] = mean;
  ((REAL *)p->call->output[1 + p->layer].data)[r] = rstd;
}

static void TYPED(norm_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  int64_t n = p->width;
  RowRange range = row_range(p->rows, n, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const ELEMENT *x = p->x + r * n;
    if (p->term[0]) {
      const ELEMENT *a = p->term[0] + r * n, *b = p->term[1] + r * n;
      ELEMENT *sum = (ELEMENT *)p->call->output[p->call->noutput - 1].data + r * n; // is x
      EACH_VECTOR TYPED(put)(sum + i, TYPED(take)(a + i, n - i) + TYPED(take)(b + i, n - i), n - i);
    }
    REAL mean = p->layer ? TYPED(row_moment)(x, n, 0, 0) / (REAL)n : 0;
    TYPED(norm_row)(p, r, mean, 1 / MATH(root)(TYPED(row_moment)(x, n, mean, 1) / (REAL)n + p->epsilon));
  }
}

static void TYPED(norm)(const KernelCall *call, int layer) {
  const Operand *x = &call->input[0];
  NORM p = {.call = call,
            .rows = operand_extent(x, 0, x->rank - 1),
            .width = x->size[x->rank - 1],
            .x = x->data,
            .layer = layer,
            .gain = call->input[1].data,
            .bias = layer ? call->input[2].data : NULL,
            .out = call->output[0].data};
  p.epsilon = (REAL)((const NormAttr *)call->attr)->epsilon;
  if (((const NormAttr *)call->attr)->sum) {
    p.term[0] = call->input[0].data;
    p.term[1] = call->input[call->ninput - 1].data;
    p.x = call->output[call->noutput - 1].data;
  }
  team_each(call_team(call), row_units(p.rows, p.width), TYPED(norm_unit), &p);
}
static void TYPED(layer_norm)(const KernelCall *call) { TYPED(norm)(call, 1); }
static void TYPED(rms_norm)(const KernelCall *call) { TYPED(norm)(call, 0); }

// Of rows of which each rank has a part: sums of the part, and what follows from those of the whole row.
static void TYPED(norm_sum_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  RowRange range = row_range(p->rows, p->width, unit);
  REAL *out = p->call->output[0].data;
  int squares = ((const NormSumAttr *)p->call->attr)->squares;
  for (int64_t r = range.from; r < range.to; r++)
    out[r] = TYPED(row_moment)(p->x + r * p->width, p->width, p->sum ? p->sum[r] / p->whole : 0, squares);
}

static void TYPED(norm_apply_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  RowRange range = row_range(p->rows, p->width, unit);
  for (int64_t r = range.from; r < range.to; r++)
    TYPED(norm_row)(p, r, p->sum ? p->sum[r] / p->whole : 0, 1 / MATH(root)(p->given[r] / p->whole + p->epsilon));
}

static NORM TYPED(norm_part)(const KernelCall *call, const Operand *x) {
  return (NORM){.call = call,
                .rows = operand_extent(x, 0, x->rank - 1),
                .width = x->size[x->rank - 1],
                .whole = (REAL)FAULT(norm_kernel_of_a_local_row, x->map[x->rank - 1].global, x->size[x->rank - 1]),
                .x = x->data};
}

static void TYPED(norm_sum)(const KernelCall *call) {
  NORM p = TYPED(norm_part)(call, &call->input[0]);
  p.sum = call->input[1].data;
  team_each(call_team(call), row_units(p.rows, p.width), TYPED(norm_sum_unit), &p);
}

static void TYPED(norm_apply)(const KernelCall *call) {
  NORM p = TYPED(norm_part)(call, &call->input[0]);
  p.gain = call->input[1].data;
  p.bias = call->input[2].data;
  p.sum = call->input[3].data;
  p.given = call->input[4].data;
  p.layer = p.sum != NULL;
  p.out = call->output[0].data;
  p.epsilon = (REAL)((const NormAttr *)call->attr)->epsilon;
  team_each(call_team(call), row_units(p.rows, p.width), TYPED(norm_apply_unit), &p);
}

static void TYPED(norm_grad_sums_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  int64_t n = p->width;
  RowRange range = row_range(p->rows, n, unit);
  REAL *out = p->call->output[0].data;
  for (int64_t r = range.from; r < range.to; r++) {
    const ELEMENT *dy = p->dy + r * n, *x = p->x + r * n;
    V mean = MATH(splat)(p->mean ? p->mean[r] : 0), rstd = MATH(splat)(p->rstd[r]), va = {0}, vb = {0};
    EACH_VECTOR {
      V dg = TYPED(take)(dy + i, n - i) * MATH(take)(p->gain + i, n - i);
      va += dg; // 0 past the row
      vb = MATH(fma)(dg, (TYPED(take)(x + i, n - i) - mean) * rstd, vb);
    }
    out[p->mean ? 2 * r : r] = MATH(sum)(vb);
    if (p->mean) out[2 * r + 1] = MATH(sum)(va);
  }
}

static void TYPED(norm_grad_sums)(const KernelCall *call) {
  NORM p = TYPED(norm_part)(call, &call->input[1]);
  p.dy = call->input[0].data;
  p.gain = call->input[2].data;
  p.mean = call->input[3].data;
  p.rstd = call->input[4].data;
  team_each(call_team(call), row_units(p.rows, p.width), TYPED(norm_grad_sums_unit), &p);
}

static size_t TYPED(norm_grad_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  const Operand *x = &input[1];
  const int64_t sums = 2 + ((const NormAttr *)attr)->row_sum;
  return sizeof(REAL) * (size_t)(sums * x->size[x->rank - 1] * TYPED(row_blocks)(operand_extent(x, 0, x->rank - 1)));
}

// One row: dx, and dgain += dy n, dbias += dy (dbias NULL for RMS_NORM, where the mean is 0 and does not move), drows
// += dx (or NULL).
static void TYPED(norm_grad_row)(const NORM *p, int64_t r, REAL *restrict dgain, REAL *restrict dbias,
                                 REAL *restrict drows) {
  const ELEMENT *dy = p->dy + r * p->width, *x = p->x + r * p->width;
  const REAL *gain = p->gain;
  ELEMENT *dx = p->out + r * p->width;
  int64_t n = p->width;
  V mean = MATH(splat)(p->mean ? p->mean[r] : 0), rstd = MATH(splat)(p->rstd[r]), va = {0}, vb = {0};
  EACH_VECTOR {
    V d = TYPED(take)(dy + i, n - i), h = (TYPED(take)(x + i, n - i) - mean) * rstd,
      dg = d * MATH(take)(gain + i, n - i);
    MATH(put)(dgain + i, MATH(fma)(d, h, MATH(take)(dgain + i, n - i)), n - i);
    if (dbias) MATH(put)(dbias + i, d + MATH(take)(dbias + i, n - i), n - i);
    va += dg; // 0 past the row
    vb = MATH(fma)(dg, h, vb);
  }
  REAL dot = MATH(sum)(vb) / (REAL)n, shift = p->mean ? MATH(sum)(va) / (REAL)n : 0;
  if (p->given) {
    dot = p->given[p->mean ? 2 * r : r] / p->whole;
    shift = p->mean ? p->given[2 * r + 1] / p->whole : 0;
  }
  V a = MATH(splat)(shift), b = MATH(splat)(dot);
  EACH_VECTOR {
    V h = (TYPED(take)(x + i, n - i) - mean) * rstd, dg = TYPED(take)(dy + i, n - i) * MATH(take)(gain + i, n - i);
    V d = (dg - a - h * b) * rstd;
    if (p->added) d += TYPED(take)(p->added + r * n + i, n - i);
    TYPED(put)(dx + i, d, n - i);
    if (drows) MATH(put)(drows + i, d + MATH(take)(drows + i, n - i), n - i);
  }
}

static void TYPED(norm_grad_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  int64_t rows = TYPED(block_rows)(p->rows), end = (unit + 1) * rows < p->rows ? (unit + 1) * rows : p->rows;
  REAL *dgain = (REAL *)p->call->workspace + unit * p->sums * p->width,
       *dbias = p->sums - p->row_sum > 1 ? dgain + p->width : NULL,
       *drows = p->row_sum ? dgain + (p->sums - 1) * p->width : NULL;
  memset(dgain, 0, sizeof(REAL) * (size_t)(p->sums * p->width));
  for (int64_t r = unit * rows; r < end; r++) TYPED(norm_grad_row)(p, r, dgain, dbias, drows);
}

// out (width) = sum over blocks of partial (blocks, stride)
static void TYPED(add_blocks)(REAL *restrict out, const REAL *restrict partial, int64_t blocks, int64_t stride,
                              int64_t width) {
  memset(out, 0, sizeof(REAL) * (size_t)width);
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < width; i++) out[i] += partial[b * stride + i];
}

static void TYPED(norm_grad)(const KernelCall *call, const REAL *mean, const REAL *rstd, const REAL *given) {
  NORM p = TYPED(norm_part)(call, &call->input[1]);
  p.sums = call->noutput - 1;
  p.row_sum = ((const NormAttr *)call->attr)->row_sum;
  p.dy = call->input[0].data;
  p.gain = call->input[2].data;
  p.out = call->output[0].data;
  p.mean = mean;
  p.rstd = rstd;
  p.given = given;
  if (FAULT(norm_gradient_adds_nothing, ((const NormAttr *)call->attr)->accumulate, 0))
    p.added = call->input[call->ninput - 1].data;
  int64_t blocks = TYPED(row_blocks)(p.rows);
  team_each(call_team(call), blocks, TYPED(norm_grad_unit), &p);
  for (int k = 0; k < p.sums; k++)
    TYPED(add_blocks)
    (call->output[1 + k].data, (REAL *)call->workspace + k * p.width, blocks, p.sums * p.width, p.width);
}
static void TYPED(layer_norm_grad)(const KernelCall *call) {
  TYPED(norm_grad)(call, call->input[3].data, call->input[4].data, NULL);
}
static void TYPED(rms_norm_grad)(const KernelCall *call) { TYPED(norm_grad)(call, NULL, call->input[3].data, NULL); }
static void TYPED(norm_grad_apply)(const KernelCall *call) {
  TYPED(norm_grad)(call, call->input[3].data, call->input[4].data, call->input[5].data);
}

static size_t TYPED(reduce_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t width = operand_elements(&output[0]), rows = operand_extent(&input[0], 0, ((const ReduceAttr *)attr)->dims);
  return sizeof(REAL) * (size_t)(width * TYPED(row_blocks)(rows));
}

static void TYPED(reduce_unit)(void *argument, int slot, int64_t unit) {
  const NORM *p = argument;
  int64_t rows = TYPED(block_rows)(p->rows), end = (unit + 1) * rows < p->rows ? (unit + 1) * rows : p->rows,
          n = p->width;
  REAL *sum = (REAL *)p->call->workspace + unit * n;
  memset(sum, 0, sizeof(REAL) * (size_t)n);
  for (int64_t r = unit * rows; r < end; r++) {
    const ELEMENT *x = p->x + r * n;
    EACH_VECTOR MATH(put)(sum + i, MATH(take)(sum + i, n - i) + TYPED(take)(x + i, n - i), n - i);
  }
}

static void TYPED(reduce)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  NORM p = {.call = call, .x = x->data, .width = operand_elements(&call->output[0])};
  p.rows = operand_extent(x, 0, ((const ReduceAttr *)call->attr)->dims);
  team_each(call_team(call), TYPED(row_blocks)(p.rows), TYPED(reduce_unit), &p);
  TYPED(add_blocks)(call->output[0].data, call->workspace, TYPED(row_blocks)(p.rows), p.width, p.width);
}
