// LAYER_NORM, RMS_NORM, their gradients, and REDUCE: rows in parallel; sums over rows by fixed blocks of rows, in order.

// Sums over rows go through at most 64 partial sums, whatever the number of threads.
static int64_t TYPED(block_rows)(int64_t rows) {
  int64_t n = (rows + 63) / 64;
  return n < 16 ? 16 : n;
}
static int64_t TYPED(row_blocks)(int64_t rows) { return (rows + TYPED(block_rows)(rows) - 1) / TYPED(block_rows)(rows); }

typedef struct TYPED(Norm) {
  const KernelCall *call;
  int64_t rows, width, sums; // sums: partial sums of a block in the workspace, each (width)
  const REAL *dy, *x, *gain, *bias, *mean, *rstd;
  REAL *out;
  REAL epsilon;
} TYPED(Norm);
#define NORM TYPED(Norm)

static size_t TYPED(norm_grad_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  const Operand *x = &input[1];
  int64_t width = x->size[x->rank - 1], rows = operand_extent(x, 0, x->rank - 1);
  return sizeof(REAL) * (size_t)(2 * width * TYPED(row_blocks)(rows));
}

static void TYPED(layer_norm_unit)(void *argument, int slot, int64_t unit) {
  const NORM *n = argument;
  const REAL *restrict gain = n->gain, *restrict bias = n->bias;
  RowRange range = row_range(n->rows, n->width, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const REAL *restrict x = n->x + r * n->width;
    REAL *restrict y = n->out + r * n->width;
    REAL mean = TYPED(total)(x, n->width) / (REAL)n->width;
    for (int64_t i = 0; i < n->width; i++) y[i] = x[i] - mean;
    REAL rstd = 1 / TYPED(root)(TYPED(dot)(y, y, n->width) / (REAL)n->width + n->epsilon);
    if (bias)
      for (int64_t i = 0; i < n->width; i++) y[i] = y[i] * rstd * gain[i] + bias[i];
    else
      for (int64_t i = 0; i < n->width; i++) y[i] = y[i] * rstd * gain[i];
    ((REAL *)n->call->output[1].data)[r] = mean;
    ((REAL *)n->call->output[2].data)[r] = rstd;
  }
}

static void TYPED(layer_norm)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  NORM n = {.call = call, .rows = operand_extent(x, 0, x->rank - 1), .width = x->size[x->rank - 1], .x = x->data,
            .gain = call->input[1].data, .bias = call->input[2].data, .out = call->output[0].data};
  n.epsilon = (REAL)((const NormAttr *)call->attr)->epsilon;
  cpu_parallel(call->team, row_units(n.rows, n.width), TYPED(layer_norm_unit), &n);
}

static void TYPED(rms_norm_unit)(void *argument, int slot, int64_t unit) {
  const NORM *n = argument;
  const REAL *restrict gain = n->gain;
  RowRange range = row_range(n->rows, n->width, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const REAL *restrict x = n->x + r * n->width;
    REAL *restrict y = n->out + r * n->width;
    REAL rstd = 1 / TYPED(root)(TYPED(dot)(x, x, n->width) / (REAL)n->width + n->epsilon);
    for (int64_t i = 0; i < n->width; i++) y[i] = x[i] * rstd * gain[i];
    ((REAL *)n->call->output[1].data)[r] = rstd;
  }
}

static void TYPED(rms_norm)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  NORM n = {.call = call, .rows = operand_extent(x, 0, x->rank - 1), .width = x->size[x->rank - 1], .x = x->data,
            .gain = call->input[1].data, .out = call->output[0].data};
  n.epsilon = (REAL)((const NormAttr *)call->attr)->epsilon;
  cpu_parallel(call->team, row_units(n.rows, n.width), TYPED(rms_norm_unit), &n);
}

// One row: dx, and dgain += dy n, dbias += dy (dbias NULL for RMS_NORM, where the mean is 0 and does not move).
static void TYPED(norm_grad_row)(const NORM *n, int64_t r, REAL *restrict dgain, REAL *restrict dbias) {
  const REAL *restrict dy = n->dy + r * n->width, *restrict x = n->x + r * n->width, *restrict gain = n->gain;
  REAL *restrict dx = n->out + r * n->width;
  REAL mean = n->mean ? n->mean[r] : 0, rstd = n->rstd[r];
  V va = {0}, vb = {0};
  int64_t i = 0;
  REAL a = 0, b = 0;
  for (; i + WIDTH <= n->width; i += WIDTH) {
    V d = TYPED(load)(dy + i), h = (TYPED(load)(x + i) - TYPED(splat)(mean)) * TYPED(splat)(rstd), dg = d * TYPED(load)(gain + i);
    TYPED(store)(dgain + i, TYPED(fma)(d, h, TYPED(load)(dgain + i)));
    if (dbias) TYPED(store)(dbias + i, d + TYPED(load)(dbias + i));
    va += dg;
    vb = TYPED(fma)(dg, h, vb);
  }
  for (; i < n->width; i++) {
    REAL h = (x[i] - mean) * rstd;
    dgain[i] += dy[i] * h;
    if (dbias) dbias[i] += dy[i];
    a += dy[i] * gain[i];
    b += dy[i] * gain[i] * h;
  }
  a = n->mean ? (a + TYPED(sum)(va)) / (REAL)n->width : 0;
  b = (b + TYPED(sum)(vb)) / (REAL)n->width;
  for (i = 0; i < n->width; i++) dx[i] = (dy[i] * gain[i] - a - (x[i] - mean) * rstd * b) * rstd;
}

static void TYPED(norm_grad_unit)(void *argument, int slot, int64_t unit) {
  const NORM *n = argument;
  int64_t rows = TYPED(block_rows)(n->rows), end = (unit + 1) * rows < n->rows ? (unit + 1) * rows : n->rows;
  REAL *dgain = (REAL *)n->call->workspace + unit * n->sums * n->width, *dbias = n->sums > 1 ? dgain + n->width : NULL;
  memset(dgain, 0, sizeof(REAL) * (size_t)(n->sums * n->width));
  for (int64_t r = unit * rows; r < end; r++) TYPED(norm_grad_row)(n, r, dgain, dbias);
}

// out (width) = sum over blocks of partial (blocks, stride)
static void TYPED(add_blocks)(REAL *restrict out, const REAL *restrict partial, int64_t blocks, int64_t stride, int64_t width) {
  memset(out, 0, sizeof(REAL) * (size_t)width);
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < width; i++) out[i] += partial[b * stride + i];
}

static void TYPED(norm_grad)(const KernelCall *call, int layer) {
  const Operand *x = &call->input[1];
  NORM n = {.call = call, .rows = operand_extent(x, 0, x->rank - 1), .width = x->size[x->rank - 1], .sums = call->noutput - 1,
            .dy = call->input[0].data, .x = x->data, .gain = call->input[2].data, .out = call->output[0].data};
  n.mean = layer ? call->input[3].data : NULL;
  n.rstd = call->input[layer ? 4 : 3].data;
  int64_t blocks = TYPED(row_blocks)(n.rows);
  cpu_parallel(call->team, blocks, TYPED(norm_grad_unit), &n);
  for (int k = 0; k < n.sums; k++)
    TYPED(add_blocks)(call->output[1 + k].data, (REAL *)call->workspace + k * n.width, blocks, n.sums * n.width, n.width);
}
static void TYPED(layer_norm_grad)(const KernelCall *call) { TYPED(norm_grad)(call, 1); }
static void TYPED(rms_norm_grad)(const KernelCall *call) { TYPED(norm_grad)(call, 0); }

static size_t TYPED(reduce_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t width = operand_elements(&output[0]), rows = operand_extent(&input[0], 0, ((const ReduceAttr *)attr)->dims);
  return sizeof(REAL) * (size_t)(width * TYPED(row_blocks)(rows));
}

static void TYPED(reduce_unit)(void *argument, int slot, int64_t unit) {
  const NORM *n = argument;
  int64_t rows = TYPED(block_rows)(n->rows), end = (unit + 1) * rows < n->rows ? (unit + 1) * rows : n->rows;
  REAL *restrict sum = (REAL *)n->call->workspace + unit * n->width;
  memset(sum, 0, sizeof(REAL) * (size_t)n->width);
  for (int64_t r = unit * rows; r < end; r++) {
    const REAL *restrict x = n->x + r * n->width;
    for (int64_t i = 0; i < n->width; i++) sum[i] += x[i];
  }
}

static void TYPED(reduce)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  NORM n = {.call = call, .x = x->data, .width = operand_elements(&call->output[0])};
  n.rows = operand_extent(x, 0, ((const ReduceAttr *)call->attr)->dims);
  cpu_parallel(call->team, TYPED(row_blocks)(n.rows), TYPED(reduce_unit), &n);
  TYPED(add_blocks)(call->output[0].data, call->workspace, TYPED(row_blocks)(n.rows), n.width, n.width);
}
