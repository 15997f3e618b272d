// Ops that look at tokens' ids or positions, on bf16: EMBEDDING, EMBEDDING_GRAD (whose sums are fp32), ROPE, TAKE.

static void embedding_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *table = &call->input[0], *ids = &call->input[1];
  int64_t width = operand_extent(table, 1, table->rank);
  size_t bytes = sizeof(uint16_t) * (size_t)width;
  RowRange range = row_range(operand_elements(ids), width, unit);
  for (int64_t i = range.from; i < range.to; i++) {
    int64_t row = index_local(&table->map[0], integer_load(ids, i));
    uint16_t *to = (uint16_t *)call->output[0].data + i * width;
    if (row < 0) memset(to, 0, bytes);
    else memcpy(to, (const uint16_t *)table->data + row * width, bytes);
  }
}
static void embedding_bf16(const KernelCall *call) {
  const Operand *table = &call->input[0];
  cpu_parallel(call->team, row_units(operand_elements(&call->input[1]), operand_extent(table, 1, table->rank)), embedding_unit,
               (void *)(uintptr_t)call);
}

// A range of the table's rows: reads all ids, adds the tokens of its rows in their order.
static void embedding_grad_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *ids = &call->input[0], *out = &call->output[0];
  int64_t tokens = operand_elements(ids), n = operand_extent(out, 1, out->rank);
  int64_t from = out->size[0] * unit / 16, to = out->size[0] * (unit + 1) / 16;
  float *sum = out->data;
  if (!((const EmbeddingAttr *)call->attr)->accumulate) memset(sum + from * n, 0, sizeof(float) * (size_t)((to - from) * n));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t row = index_local(&out->map[0], integer_load(ids, t));
    if (row < from || row >= to) continue;
    const uint16_t *dy = (const uint16_t *)call->input[1].data + t * n;
    float *at = sum + row * n;
    EACH_VECTOR put_f32(at + i, take_f32(at + i, n - i) + take_bf16(dy + i, n - i), n - i);
  }
}
static void embedding_grad_bf16(const KernelCall *call) {
  cpu_parallel(call->team, 16, embedding_grad_unit, (void *)(uintptr_t)call);
}

// Workspace: frequencies (d / 2, padded) in double, then for each slot cos and sin in double and in fp32.
static int64_t rope_pairs(const Operand *x) { return (x->size[x->rank - 1] / 2 + 15) / 16 * 16; }
static size_t rope_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)(rope_pairs(&input[0]) * (1 + 4 * threads));
}

// A position's angles once, for all its heads.
static void rope_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *x = &call->input[0];
  int64_t d = x->size[x->rank - 1], n = d / 2, width = operand_extent(x, 2, x->rank), pairs = rope_pairs(x);
  const double *frequency = call->workspace;
  double *cosine = (double *)call->workspace + pairs * (1 + 4 * slot), *sine = cosine + pairs;
  float *c = (float *)(void *)(sine + pairs), *s = c + pairs, sign = ((const RopeAttr *)call->attr)->inverse ? -1 : 1;
  RowRange range = row_range(operand_extent(x, 0, 2), width, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    double position = (double)integer_load(&call->input[1], t);
    for (int64_t i = 0; i < pairs; i += WIDTH_F64) sincos_f64(splat_f64(position) * load_f64(frequency + i), sine + i, cosine + i);
    for (int64_t i = 0; i < pairs; i++) {
      c[i] = (float)cosine[i];
      s[i] = sign * (float)sine[i];
    }
    for (int64_t h = 0; h < width; h += d) {
      const uint16_t *a = (const uint16_t *)x->data + t * width + h;
      uint16_t *y = (uint16_t *)call->output[0].data + t * width + h;
      EACH_VECTOR {
        V low = take_bf16(a + i, n - i), high = take_bf16(a + n + i, n - i), cos_i = load_f32(c + i), sin_i = load_f32(s + i);
        put_bf16(y + i, low * cos_i - high * sin_i, n - i);
        put_bf16(y + n + i, high * cos_i + low * sin_i, n - i);
      }
    }
  }
}

static void rope_bf16(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t d = x->size[x->rank - 1], pairs = rope_pairs(x);
  double *frequency = call->workspace;
  for (int64_t i = 0; i < pairs; i++) frequency[i] = i < d / 2 ? rope_frequency(call->attr, i, d) : 0;
  cpu_parallel(call->team, row_units(operand_extent(x, 0, 2), operand_extent(x, 2, x->rank)), rope_unit, (void *)(uintptr_t)call);
}

static void take_positions_bf16(const KernelCall *call) {
  const Operand *x = &call->input[0];
  size_t bytes = sizeof(uint16_t) * (size_t)operand_extent(x, 2, x->rank);
  for (int64_t b = 0; b < x->size[0]; b++) {
    int64_t s = index_local(&x->map[1], integer_load(&call->input[1], b));
    char *to = (char *)call->output[0].data + (size_t)b * bytes;
    if (s < 0) memset(to, 0, bytes);
    else memcpy(to, (const char *)x->data + (size_t)(b * x->size[1] + s) * bytes, bytes);
  }
}
