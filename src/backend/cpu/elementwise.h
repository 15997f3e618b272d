// Elementwise ops: chunks of the flat arrays in parallel. Outputs may be the memory of an input of the same index.

static void TYPED(each_chunk)(const KernelCall *call, void (*body)(void *, int, int64_t)) {
  cpu_parallel(call->team, chunk_units(operand_elements(&call->output[0])), body, (void *)(uintptr_t)call);
}
#define CHUNK_OF(argument, unit)                                                                                       \
  const KernelCall *call = argument;                                                                                   \
  RowRange range = chunk_range(operand_elements(&call->output[0]), unit);                                              \
  int64_t n = range.to - range.from
#define INPUT(k) ((const REAL *)call->input[k].data + range.from)
#define OUTPUT(k) ((REAL *)call->output[k].data + range.from)

static void TYPED(bias_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  int64_t width = operand_elements(&call->input[1]), rows = operand_elements(&call->input[0]) / width;
  RowRange range = row_range(rows, width, unit);
  const REAL *bias = call->input[1].data;
  for (int64_t r = range.from; r < range.to; r++) {
    const REAL *x = (const REAL *)call->input[0].data + r * width;
    REAL *y = (REAL *)call->output[0].data + r * width;
    IVDEP for (int64_t i = 0; i < width; i++) y[i] = x[i] + bias[i];
  }
}
static void TYPED(bias)(const KernelCall *call) {
  int64_t width = operand_elements(&call->input[1]);
  if (width) cpu_parallel(call->team, row_units(operand_elements(&call->input[0]) / width, width), TYPED(bias_unit), (void *)(uintptr_t)call);
}

static void TYPED(activation_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  int kind = ((const ActivationAttr *)call->attr)->kind;
  const REAL *x = INPUT(0);
  REAL *y = OUTPUT(0);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) TYPED(store)(y + i, TYPED(act)(kind, TYPED(load)(x + i)));
  if (i < n) TYPED(store_part)(y + i, TYPED(act)(kind, TYPED(load_part)(x + i, n - i)), n - i);
}
static void TYPED(activation)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(activation_unit)); }

static void TYPED(activation_grad_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  int kind = ((const ActivationAttr *)call->attr)->kind;
  const REAL *x = INPUT(0), *dy = INPUT(1);
  REAL *dx = OUTPUT(0);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) TYPED(store)(dx + i, TYPED(act_slope)(kind, TYPED(load)(x + i)) * TYPED(load)(dy + i));
  if (i < n) TYPED(store_part)(dx + i, TYPED(act_slope)(kind, TYPED(load_part)(x + i, n - i)) * TYPED(load_part)(dy + i, n - i), n - i);
}
static void TYPED(activation_grad)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(activation_grad_unit)); }

static void TYPED(gated_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  int kind = ((const ActivationAttr *)call->attr)->kind;
  const REAL *gate = INPUT(0), *up = INPUT(1);
  REAL *y = OUTPUT(0);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) TYPED(store)(y + i, TYPED(act)(kind, TYPED(load)(gate + i)) * TYPED(load)(up + i));
  if (i < n) TYPED(store_part)(y + i, TYPED(act)(kind, TYPED(load_part)(gate + i, n - i)) * TYPED(load_part)(up + i, n - i), n - i);
}
static void TYPED(gated)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(gated_unit)); }

static void TYPED(gated_grad_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  int kind = ((const ActivationAttr *)call->attr)->kind;
  const REAL *gate = INPUT(0), *up = INPUT(1), *dy = INPUT(2);
  REAL *dgate = OUTPUT(0), *dup = OUTPUT(1);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    V g = TYPED(load)(gate + i), d = TYPED(load)(dy + i);
    TYPED(store)(dgate + i, TYPED(act_slope)(kind, g) * TYPED(load)(up + i) * d);
    TYPED(store)(dup + i, TYPED(act)(kind, g) * d);
  }
  if (i < n) {
    V g = TYPED(load_part)(gate + i, n - i), d = TYPED(load_part)(dy + i, n - i);
    TYPED(store_part)(dgate + i, TYPED(act_slope)(kind, g) * TYPED(load_part)(up + i, n - i) * d, n - i);
    TYPED(store_part)(dup + i, TYPED(act)(kind, g) * d, n - i);
  }
}
static void TYPED(gated_grad)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(gated_grad_unit)); }

static void TYPED(add_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  REAL *y = OUTPUT(0);
  const REAL *a = INPUT(0);
  if (call->ninput == 1 && a != y) memcpy(y, a, sizeof(REAL) * (size_t)n);
  for (int k = 1; k < call->ninput; k++) {
    const REAL *x = INPUT(k), *sum = k == 1 ? a : y;
    IVDEP for (int64_t i = 0; i < n; i++) y[i] = sum[i] + x[i];
  }
}
static void TYPED(add)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(add_unit)); }
static void TYPED(accumulate)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(add_unit)); }

static void TYPED(mul_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const REAL *a = INPUT(0), *b = INPUT(1);
  REAL *y = OUTPUT(0);
  IVDEP for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}
static void TYPED(mul)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(mul_unit)); }

static void TYPED(scale_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  REAL factor = (REAL)((const ScaleAttr *)call->attr)->factor;
  const REAL *x = INPUT(0);
  REAL *y = OUTPUT(0);
  IVDEP for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}
static void TYPED(scale)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(scale_unit)); }

static void TYPED(identity_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  memcpy(OUTPUT(0), INPUT(0), sizeof(REAL) * (size_t)n);
}
static void TYPED(identity)(const KernelCall *call) {
  if (call->input[0].data != call->output[0].data) TYPED(each_chunk)(call, TYPED(identity_unit));
}

static void TYPED(cast_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const REAL *x = INPUT(0);
  void *y = call->output[0].data;
  if (call->output[0].dtype == DTYPE_F32)
    for (int64_t i = 0; i < n; i++) ((float *)y + range.from)[i] = (float)x[i];
  else if (call->output[0].dtype == DTYPE_F64)
    for (int64_t i = 0; i < n; i++) ((double *)y + range.from)[i] = (double)x[i];
  else
    for (int64_t i = 0; i < n; i++) ((uint16_t *)y + range.from)[i] = bf16_from_float((float)x[i]);
}
static void TYPED(cast)(const KernelCall *call) {
  Dtype to = call->output[0].dtype;
  if (call->input[0].dtype != DTYPE_REAL) op_def(OP_CAST)->reference(call); // from ids
  else if (to == DTYPE_F32 || to == DTYPE_F64 || (to == DTYPE_BF16 && DTYPE_REAL == DTYPE_F32)) TYPED(each_chunk)(call, TYPED(cast_unit));
  else op_def(OP_CAST)->reference(call);
}

static void TYPED(fill_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  REAL value = (REAL)((const FillAttr *)call->attr)->value, *y = OUTPUT(0);
  for (int64_t i = 0; i < n; i++) y[i] = value;
}
static void TYPED(fill)(const KernelCall *call) {
  if (((const FillAttr *)call->attr)->value == 0 || operand_is_whole(&call->output[0])) TYPED(each_chunk)(call, TYPED(fill_unit));
  else op_def(OP_FILL)->reference(call);
}

// One position's features at a time, 4 · PHILOX_BATCH of them by one batch of random bits.
static void TYPED(dropout_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *x = &call->input[0];
  const DropoutAttr *attr = call->attr;
  const CallParameters *parameters = call->parameters;
  PhiloxKey key = philox_key(parameters->seed, parameters->step, attr->stream);
  int64_t width = operand_extent(x, 2, x->rank), first = dropout_first_feature(x);
  uint32_t threshold = keep_threshold(attr->probability);
  REAL keep = (REAL)(1 / (1 - attr->probability));
  RowRange range = row_range(x->size[0] * x->size[1], width, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const REAL *from = (const REAL *)x->data + r * width;
    REAL *to = (REAL *)call->output[0].data + r * width;
    uint32_t sample = (uint32_t)(parameters->sample_base + index_map(&x->map[0], r / x->size[1]));
    uint32_t position = (uint32_t)index_map(&x->map[1], r % x->size[1]), bits[4 * PHILOX_BATCH];
    int64_t skip = first % 4;
    for (int64_t i = 0, n; i < width; i += n, skip = 0) {
      n = 4 * PHILOX_BATCH - skip < width - i ? 4 * PHILOX_BATCH - skip : width - i;
      philox_batch(key, sample, position, (uint32_t)((first + i) / 4), 0, 1, 0, bits);
      IVDEP for (int64_t j = 0; j < n; j++) to[i + j] = bits[skip + j] >= threshold ? from[i + j] * keep : 0;
    }
  }
}
static void TYPED(dropout)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t width = operand_extent(x, 2, x->rank);
  if (dropout_first_feature(x) < 0 || !width) op_def(OP_DROPOUT)->reference(call);
  else cpu_parallel(call->team, row_units(x->size[0] * x->size[1], width), TYPED(dropout_unit), (void *)(uintptr_t)call);
}
