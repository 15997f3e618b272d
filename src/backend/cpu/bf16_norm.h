// LAYER_NORM, RMS_NORM, their gradients and REDUCE on bf16 rows; gains, biases, statistics and sums over rows are fp32. Sums
// over rows go by fixed blocks of rows, in order.

// At most 64 partial sums, whatever the number of threads.
static int64_t block_rows(int64_t rows) {
  int64_t n = (rows + 63) / 64;
  return n < 16 ? 16 : n;
}
static int64_t row_blocks(int64_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

typedef struct Norm {
  const KernelCall *call;
  int64_t rows, width, sums; // sums: partial sums of a block in the workspace, each (width)
  const uint16_t *dy, *x;
  const float *gain, *bias, *mean, *rstd;
  uint16_t *out;
  float epsilon;
  int layer; // centred
} Norm;

INLINE V in_row(V v, int64_t left) { // lanes past the row are 0
  if (left < WIDTH) {
    union { V v; float x[WIDTH]; } u = {.v = v};
    for (int64_t i = left; i < WIDTH; i++) u.x[i] = 0;
    return u.v;
  }
  return v;
}

static void norm_unit(void *argument, int slot, int64_t unit) {
  const Norm *p = argument;
  int64_t n = p->width;
  RowRange range = row_range(p->rows, n, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const uint16_t *x = p->x + r * n;
    uint16_t *y = p->out + r * n;
    V sum = {0}, squares = {0};
    float mean = 0;
    if (p->layer) {
      EACH_VECTOR sum += take_bf16(x + i, n - i);
      mean = sum_f32(sum) / (float)n;
    }
    EACH_VECTOR {
      V d = in_row(take_bf16(x + i, n - i) - splat_f32(mean), n - i);
      squares = fma_f32(d, d, squares);
    }
    float rstd = 1 / root_f32(sum_f32(squares) / (float)n + p->epsilon);
    EACH_VECTOR {
      V d = (take_bf16(x + i, n - i) - splat_f32(mean)) * splat_f32(rstd) * take_f32(p->gain + i, n - i);
      if (p->bias) d += take_f32(p->bias + i, n - i);
      put_bf16(y + i, d, n - i);
    }
    if (p->layer) ((float *)p->call->output[1].data)[r] = mean;
    ((float *)p->call->output[1 + p->layer].data)[r] = rstd;
  }
}

static void norm_bf16(const KernelCall *call, int layer) {
  const Operand *x = &call->input[0];
  Norm p = {.call = call, .rows = operand_extent(x, 0, x->rank - 1), .width = x->size[x->rank - 1], .x = x->data, .layer = layer,
            .gain = call->input[1].data, .bias = layer ? call->input[2].data : NULL, .out = call->output[0].data};
  p.epsilon = (float)((const NormAttr *)call->attr)->epsilon;
  cpu_parallel(call->team, row_units(p.rows, p.width), norm_unit, &p);
}
static void layer_norm_bf16(const KernelCall *call) { norm_bf16(call, 1); }
static void rms_norm_bf16(const KernelCall *call) { norm_bf16(call, 0); }

static size_t norm_grad_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  const Operand *x = &input[1];
  return sizeof(float) * (size_t)(2 * x->size[x->rank - 1] * row_blocks(operand_extent(x, 0, x->rank - 1)));
}

// One row: dx, and dgain += dy n, dbias += dy (dbias NULL for RMS_NORM, where the mean is 0 and does not move).
static void norm_grad_row(const Norm *p, int64_t r, float *restrict dgain, float *restrict dbias) {
  const uint16_t *dy = p->dy + r * p->width, *x = p->x + r * p->width;
  int64_t n = p->width;
  V mean = splat_f32(p->mean ? p->mean[r] : 0), rstd = splat_f32(p->rstd[r]), va = {0}, vb = {0};
  EACH_VECTOR {
    V d = take_bf16(dy + i, n - i), h = (take_bf16(x + i, n - i) - mean) * rstd, dg = d * take_f32(p->gain + i, n - i);
    put_f32(dgain + i, fma_f32(d, h, take_f32(dgain + i, n - i)), n - i);
    if (dbias) put_f32(dbias + i, d + take_f32(dbias + i, n - i), n - i);
    va += dg; // 0 past the row
    vb = fma_f32(dg, h, vb);
  }
  V a = splat_f32(p->mean ? sum_f32(va) / (float)n : 0), b = splat_f32(sum_f32(vb) / (float)n);
  EACH_VECTOR {
    V h = (take_bf16(x + i, n - i) - mean) * rstd, dg = take_bf16(dy + i, n - i) * take_f32(p->gain + i, n - i);
    put_bf16(p->out + r * n + i, (dg - a - h * b) * rstd, n - i);
  }
}

static void norm_grad_unit(void *argument, int slot, int64_t unit) {
  const Norm *p = argument;
  int64_t rows = block_rows(p->rows), end = (unit + 1) * rows < p->rows ? (unit + 1) * rows : p->rows;
  float *dgain = (float *)p->call->workspace + unit * p->sums * p->width, *dbias = p->sums > 1 ? dgain + p->width : NULL;
  memset(dgain, 0, sizeof(float) * (size_t)(p->sums * p->width));
  for (int64_t r = unit * rows; r < end; r++) norm_grad_row(p, r, dgain, dbias);
}

// out (width) = sum over blocks of partial (blocks, stride)
static void add_blocks(float *restrict out, const float *restrict partial, int64_t blocks, int64_t stride, int64_t width) {
  memset(out, 0, sizeof(float) * (size_t)width);
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < width; i++) out[i] += partial[b * stride + i];
}

static void norm_grad_bf16(const KernelCall *call, int layer) {
  const Operand *x = &call->input[1];
  Norm p = {.call = call, .rows = operand_extent(x, 0, x->rank - 1), .width = x->size[x->rank - 1], .sums = call->noutput - 1,
            .dy = call->input[0].data, .x = x->data, .gain = call->input[2].data, .out = call->output[0].data};
  p.mean = layer ? call->input[3].data : NULL;
  p.rstd = call->input[layer ? 4 : 3].data;
  int64_t blocks = row_blocks(p.rows);
  cpu_parallel(call->team, blocks, norm_grad_unit, &p);
  for (int k = 0; k < p.sums; k++)
    add_blocks(call->output[1 + k].data, (float *)call->workspace + k * p.width, blocks, p.sums * p.width, p.width);
}
static void layer_norm_grad_bf16(const KernelCall *call) { norm_grad_bf16(call, 1); }
static void rms_norm_grad_bf16(const KernelCall *call) { norm_grad_bf16(call, 0); }

static size_t reduce_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t width = operand_elements(&output[0]), rows = operand_extent(&input[0], 0, ((const ReduceAttr *)attr)->dims);
  return sizeof(float) * (size_t)(width * row_blocks(rows));
}

static void reduce_unit(void *argument, int slot, int64_t unit) {
  const Norm *p = argument;
  int64_t rows = block_rows(p->rows), end = (unit + 1) * rows < p->rows ? (unit + 1) * rows : p->rows, n = p->width;
  float *sum = (float *)p->call->workspace + unit * n;
  memset(sum, 0, sizeof(float) * (size_t)n);
  for (int64_t r = unit * rows; r < end; r++) {
    const uint16_t *x = p->x + r * n;
    EACH_VECTOR put_f32(sum + i, take_f32(sum + i, n - i) + take_bf16(x + i, n - i), n - i);
  }
}

static void reduce_bf16(const KernelCall *call) {
  const Operand *x = &call->input[0];
  Norm p = {.call = call, .x = x->data, .width = operand_elements(&call->output[0])};
  p.rows = operand_extent(x, 0, ((const ReduceAttr *)call->attr)->dims);
  cpu_parallel(call->team, row_blocks(p.rows), reduce_unit, &p);
  add_blocks(call->output[0].data, call->workspace, row_blocks(p.rows), p.width, p.width);
}
