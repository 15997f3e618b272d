// Elementwise ops on bf16: chunks of the flat arrays in parallel, fp32 between load and store. Outputs may be the memory of an
// input of the same index.

static void each_chunk(const KernelCall *call, void (*body)(void *, int, int64_t)) {
  cpu_parallel(call->team, chunk_units(operand_elements(&call->output[0])), body, (void *)(uintptr_t)call);
}
#define CHUNK_OF(argument, unit)                                                                                       \
  const KernelCall *call = argument;                                                                                   \
  RowRange range = chunk_range(operand_elements(&call->output[0]), unit);                                              \
  int64_t n = range.to - range.from
#define INPUT(k) ((const uint16_t *)call->input[k].data + range.from)
#define OUTPUT(k) ((uint16_t *)call->output[k].data + range.from)
#define EACH_VECTOR for (int64_t i = 0; i < n; i += WIDTH)

static void bias_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  int64_t n = operand_elements(&call->input[1]), rows = operand_elements(&call->input[0]) / n;
  RowRange range = row_range(rows, n, unit);
  const float *bias = call->input[1].data;
  for (int64_t r = range.from; r < range.to; r++) {
    const uint16_t *x = (const uint16_t *)call->input[0].data + r * n;
    uint16_t *y = (uint16_t *)call->output[0].data + r * n;
    EACH_VECTOR put_bf16(y + i, take_bf16(x + i, n - i) + take_f32(bias + i, n - i), n - i);
  }
}
static void bias_bf16(const KernelCall *call) {
  int64_t width = operand_elements(&call->input[1]);
  if (width) cpu_parallel(call->team, row_units(operand_elements(&call->input[0]) / width, width), bias_unit, (void *)(uintptr_t)call);
}

// The loops of activations, once a kind, so that no vector asks for it.
#define EACH_KIND(loop)                                                                                                \
  switch (((const ActivationAttr *)call->attr)->kind) {                                                                \
  case ACTIVATION_GELU: loop(ACTIVATION_GELU); break;                                                                  \
  case ACTIVATION_GELU_TANH: loop(ACTIVATION_GELU_TANH); break;                                                        \
  case ACTIVATION_SILU: loop(ACTIVATION_SILU); break;                                                                  \
  default: loop(ACTIVATION_RELU);                                                                                      \
  }

static void activation_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const uint16_t *x = INPUT(0);
  uint16_t *y = OUTPUT(0);
#define LOOP(kind) EACH_VECTOR put_bf16(y + i, act_fast(kind, take_bf16(x + i, n - i)), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void activation_bf16(const KernelCall *call) { each_chunk(call, activation_unit); }

static void activation_grad_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const uint16_t *x = INPUT(0), *dy = INPUT(1);
  uint16_t *dx = OUTPUT(0);
#define LOOP(kind) EACH_VECTOR put_bf16(dx + i, act_slope_fast(kind, take_bf16(x + i, n - i)) * take_bf16(dy + i, n - i), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void activation_grad_bf16(const KernelCall *call) { each_chunk(call, activation_grad_unit); }

static void gated_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const uint16_t *gate = INPUT(0), *up = INPUT(1);
  uint16_t *y = OUTPUT(0);
#define LOOP(kind) EACH_VECTOR put_bf16(y + i, act_fast(kind, take_bf16(gate + i, n - i)) * take_bf16(up + i, n - i), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void gated_bf16(const KernelCall *call) { each_chunk(call, gated_unit); }

static void gated_grad_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const uint16_t *gate = INPUT(0), *up = INPUT(1), *dy = INPUT(2);
  uint16_t *dgate = OUTPUT(0), *dup = OUTPUT(1);
#define LOOP(kind)                                                                                                     \
  EACH_VECTOR {                                                                                                        \
    V g = take_bf16(gate + i, n - i), u = take_bf16(up + i, n - i), d = take_bf16(dy + i, n - i);                      \
    put_bf16(dgate + i, act_slope_fast(kind, g) * u * d, n - i);                                                        \
    put_bf16(dup + i, act_fast(kind, g) * d, n - i);                                                                    \
  }
  EACH_KIND(LOOP)
#undef LOOP
}
static void gated_grad_bf16(const KernelCall *call) { each_chunk(call, gated_grad_unit); }

// Sums of any number of inputs are rounded once.
static void add_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  uint16_t *y = OUTPUT(0);
  EACH_VECTOR {
    V sum = take_bf16(INPUT(0) + i, n - i);
    for (int k = 1; k < call->ninput; k++) sum += take_bf16(INPUT(k) + i, n - i);
    put_bf16(y + i, sum, n - i);
  }
}
static void add_bf16(const KernelCall *call) { each_chunk(call, add_unit); }

static void mul_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  EACH_VECTOR put_bf16(OUTPUT(0) + i, take_bf16(INPUT(0) + i, n - i) * take_bf16(INPUT(1) + i, n - i), n - i);
}
static void mul_bf16(const KernelCall *call) { each_chunk(call, mul_unit); }

static void scale_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  V factor = splat_f32((float)((const ScaleAttr *)call->attr)->factor);
  EACH_VECTOR put_bf16(OUTPUT(0) + i, factor * take_bf16(INPUT(0) + i, n - i), n - i);
}
static void scale_bf16(const KernelCall *call) { each_chunk(call, scale_unit); }

static void identity_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  memcpy(OUTPUT(0), INPUT(0), sizeof(uint16_t) * (size_t)n);
}
static void identity_bf16(const KernelCall *call) {
  if (call->input[0].data != call->output[0].data) each_chunk(call, identity_unit);
}

static void cast_unit(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  widen_row((float *)call->output[0].data + range.from, INPUT(0), n);
}
static void cast_bf16(const KernelCall *call) {
  if (call->output[0].dtype == DTYPE_F32) each_chunk(call, cast_unit);
  else op_def(OP_CAST)->reference(call);
}

// One position's features at a time, 4 · PHILOX_BATCH of them by one batch of random bits.
static void dropout_unit(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const Operand *x = &call->input[0];
  const DropoutAttr *attr = call->attr;
  const CallParameters *parameters = call->parameters;
  PhiloxKey key = philox_key(parameters->seed, parameters->step, attr->stream);
  int64_t width = operand_extent(x, 2, x->rank), first = dropout_first_feature(x);
  uint32_t threshold = keep_threshold(attr->probability);
  float keep = (float)(1 / (1 - attr->probability));
  RowRange range = row_range(x->size[0] * x->size[1], width, unit);
  for (int64_t r = range.from; r < range.to; r++) {
    const uint16_t *from = (const uint16_t *)x->data + r * width;
    uint16_t *to = (uint16_t *)call->output[0].data + r * width;
    uint32_t sample = (uint32_t)(parameters->sample_base + index_map(&x->map[0], r / x->size[1]));
    uint32_t position = (uint32_t)index_map(&x->map[1], r % x->size[1]), bits[4 * PHILOX_BATCH];
    int64_t skip = first % 4;
    for (int64_t at = 0, n; at < width; at += n, skip = 0) {
      float factor[4 * PHILOX_BATCH];
      n = 4 * PHILOX_BATCH - skip < width - at ? 4 * PHILOX_BATCH - skip : width - at;
      philox_batch(key, sample, position, (uint32_t)((first + at) / 4), 0, 1, 0, bits);
      for (int64_t j = 0; j < n; j++) factor[j] = bits[skip + j] >= threshold ? keep : 0;
      EACH_VECTOR put_bf16(to + at + i, take_bf16(from + at + i, n - i) * take_f32(factor + i, n - i), n - i);
    }
  }
}
static void dropout_bf16(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t width = operand_extent(x, 2, x->rank);
  if (dropout_first_feature(x) < 0 || !width) op_def(OP_DROPOUT)->reference(call);
  else cpu_parallel(call->team, row_units(x->size[0] * x->size[1], width), dropout_unit, (void *)(uintptr_t)call);
}
