// Ops that look at tokens' ids or positions, for every dtype: EMBEDDING, EMBEDDING_GRAD (of bf16 its sums are fp32),
// ROPE, TAKE.

// A row of a table whose rows lie in panels.
static void TYPED(embedding_in_panels)(const Operand *table, int64_t row, int64_t width, ELEMENT *to) {
  const int64_t first = panels_place(table->panels, table->size[0], width, row * width),
                next = width > 1 ? panels_place(table->panels, table->size[0], width, row * width + 1) : first;
  const ELEMENT *from = (const ELEMENT *)table->data + first;
  for (int64_t i = 0; i < width; i++) to[i] = from[i * FAULT(lookups_read_rows_of_panels, next - first, 1)];
}

static void TYPED(embedding_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *table = &call->input[0], *ids = &call->input[1];
  int64_t width = operand_extent(table, 1, table->rank);
  size_t bytes = sizeof(ELEMENT) * (size_t)width;
  RowRange range = row_range(operand_elements(ids), width, unit);
  for (int64_t i = range.from; i < range.to; i++) {
    int64_t row = index_local(&table->map[0], integer_load(ids, i));
    ELEMENT *to = (ELEMENT *)call->output[0].data + i * width;
    if (row < 0) memset(to, 0, bytes);
    else if (table->panels.rows) TYPED(embedding_in_panels)(table, row, width, to);
    else memcpy(to, (const ELEMENT *)table->data + row * width, bytes);
  }
}
static void TYPED(embedding)(const KernelCall *call) {
  const Operand *table = &call->input[0];
  team_each(call_team(call), row_units(operand_elements(&call->input[1]), operand_extent(table, 1, table->rank)),
            TYPED(embedding_unit), (void *)(uintptr_t)call);
}

// A range of the table's rows: reads all ids, adds the tokens of its rows in their order.
static void TYPED(embedding_grad_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *ids = &call->input[0], *out = &call->output[0];
  int64_t tokens = operand_elements(ids), n = operand_extent(out, 1, out->rank);
  int64_t from = out->size[0] * unit / 16, to = out->size[0] * (unit + 1) / 16;
  REAL *sum = out->data;
  if (!call_adds(call, ((const EmbeddingAttr *)call->attr)->accumulate))
    memset(sum + from * n, 0, sizeof(REAL) * (size_t)((to - from) * n));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t row = index_local(&out->map[0], integer_load(ids, t));
    if (row < from || row >= to) continue;
    const ELEMENT *dy = (const ELEMENT *)call->input[1].data + t * n;
    REAL *at = sum + row * n;
    EACH_VECTOR MATH(put)(at + i, MATH(take)(at + i, n - i) + TYPED(take)(dy + i, n - i), n - i);
  }
}
static void TYPED(embedding_grad)(const KernelCall *call) {
  team_each(call_team(call), 16, TYPED(embedding_grad_unit), (void *)(uintptr_t)call);
}

// Workspace: frequencies (d / 2, padded) in double, then for each slot cos and sin in double and in REAL.
static int64_t TYPED(rope_pairs)(const Operand *x) { return (x->size[x->rank - 1] / 2 + 15) / 16 * 16; }
static size_t TYPED(rope_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)(TYPED(rope_pairs)(&input[0]) * (1 + 4 * threads));
}

// A position's angles once, for all its heads.
static void TYPED(rope_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *x = &call->input[0];
  int64_t d = x->size[x->rank - 1], n = d / 2, width = operand_extent(x, 2, x->rank), pairs = TYPED(rope_pairs)(x);
  const double *frequency = call->workspace;
  double *cosine = (double *)call->workspace + pairs * (1 + 4 * slot), *sine = cosine + pairs;
  REAL *c = (REAL *)(void *)(sine + pairs), *s = c + pairs, sign = ((const RopeAttr *)call->attr)->inverse ? -1 : 1;
  RowRange range = row_range(operand_extent(x, 0, 2), width, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    double position = (double)integer_load(&call->input[1], t);
    for (int64_t i = 0; i < pairs; i += WIDTH_F64)
      sincos_f64(splat_f64(position) * load_f64(frequency + i), sine + i, cosine + i);
    for (int64_t i = 0; i < pairs; i++) {
      c[i] = (REAL)cosine[i];
      s[i] = sign * (REAL)sine[i];
    }
    for (int64_t h = 0; h < width; h += d) {
      const ELEMENT *a = (const ELEMENT *)x->data + t * width + h;
      ELEMENT *y = (ELEMENT *)call->output[0].data + t * width + h;
      EACH_VECTOR {
        V low = TYPED(take)(a + i, n - i), high = TYPED(take)(a + n + i, n - i), cos_i = MATH(load)(c + i),
          sin_i = MATH(load)(s + i);
        TYPED(put)(y + i, low * cos_i - high * sin_i, n - i);
        TYPED(put)(y + n + i, high * cos_i + low * sin_i, n - i);
      }
    }
  }
}

static void TYPED(rope)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t d = x->size[x->rank - 1], pairs = TYPED(rope_pairs)(x);
  double *frequency = call->workspace;
  for (int64_t i = 0; i < pairs; i++) frequency[i] = i < d / 2 ? rope_frequency(call->attr, i, d) : 0;
  team_each(call_team(call), row_units(operand_extent(x, 0, 2), operand_extent(x, 2, x->rank)), TYPED(rope_unit),
            (void *)(uintptr_t)call);
}

// Few positions, so in the calling thread.
static void TYPED(take_positions)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  size_t bytes = sizeof(ELEMENT) * (size_t)operand_extent(x, 2, x->rank);
  int64_t wanted = call->input[1].size[1];
  for (int64_t i = 0; i < x->size[0] * wanted; i++) {
    int64_t s = index_local(&x->map[1], integer_load(&call->input[1], i));
    char *to = (char *)call->output[0].data + (size_t)i * bytes;
    if (s < 0) memset(to, 0, bytes);
    else memcpy(to, (const char *)x->data + (size_t)(i / wanted * x->size[1] + s) * bytes, bytes);
  }
}
