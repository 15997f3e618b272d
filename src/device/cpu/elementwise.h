// Elementwise ops, for every dtype: chunks of the flat arrays in parallel. Outputs may be the memory of an input of the
// same index.

static void TYPED(each_chunk)(const KernelCall *call, void (*body)(void *, int, int64_t)) {
  team_each(call_team(call), chunk_units(operand_elements(&call->output[0])), body, (void *)(uintptr_t)call);
}
#define CHUNK_OF(argument, unit)                                                                                       \
  const KernelCall *call = argument;                                                                                   \
  RowRange range = chunk_range(operand_elements(&call->output[0]), unit);                                              \
  int64_t n = range.to - range.from
#define INPUT(k) ((const ELEMENT *)call->input[k].data + range.from)
#define OUTPUT(k) ((ELEMENT *)call->output[k].data + range.from)

static void TYPED(bias_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  int64_t n = operand_elements(&call->input[1]), rows = operand_elements(&call->input[0]) / n;
  RowRange range = row_range(rows, n, unit);
  const REAL *bias = call->input[1].data;
  for (int64_t r = range.from; r < range.to; r++) {
    const ELEMENT *x = (const ELEMENT *)call->input[0].data + r * n;
    ELEMENT *y = (ELEMENT *)call->output[0].data + r * n;
    EACH_VECTOR TYPED(put)(y + i, TYPED(take)(x + i, n - i) + MATH(take)(bias + i, n - i), n - i);
  }
}
static void TYPED(bias)(const KernelCall *call) {
  int64_t width = operand_elements(&call->input[1]);
  if (width)
    team_each(call_team(call), row_units(operand_elements(&call->input[0]) / width, width), TYPED(bias_unit),
              (void *)(uintptr_t)call);
}

// The loops of activations, once a kind, so that no vector asks for it.
#define EACH_KIND(loop)                                                                                                \
  switch (((const ActivationAttr *)call->attr)->kind) {                                                                \
  case ACTIVATION_GELU: loop(ACTIVATION_GELU); break;                                                                  \
  case ACTIVATION_GELU_TANH: loop(ACTIVATION_GELU_TANH); break;                                                        \
  case ACTIVATION_SILU: loop(ACTIVATION_SILU); break;                                                                  \
  case ACTIVATION_SIGMOID: loop(ACTIVATION_SIGMOID); break;                                                            \
  default: loop(ACTIVATION_RELU);                                                                                      \
  }

static void TYPED(activation_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *x = INPUT(0);
  ELEMENT *y = OUTPUT(0);
#define LOOP(kind) EACH_VECTOR TYPED(put)(y + i, TYPED(act)(kind, TYPED(take)(x + i, n - i)), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void TYPED(activation)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(activation_unit)); }

static void TYPED(activation_grad_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *x = INPUT(0), *dy = INPUT(1);
  ELEMENT *dx = OUTPUT(0);
#define LOOP(kind)                                                                                                     \
  EACH_VECTOR TYPED(put)(dx + i, TYPED(act_slope)(kind, TYPED(take)(x + i, n - i)) * TYPED(take)(dy + i, n - i), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void TYPED(activation_grad)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(activation_grad_unit)); }

static void TYPED(gated_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *gate = INPUT(0), *up = INPUT(1);
  ELEMENT *y = OUTPUT(0);
#define LOOP(kind)                                                                                                     \
  EACH_VECTOR TYPED(put)(y + i, TYPED(act)(kind, TYPED(take)(gate + i, n - i)) * TYPED(take)(up + i, n - i), n - i)
  EACH_KIND(LOOP)
#undef LOOP
}
static void TYPED(gated)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(gated_unit)); }

static void TYPED(gated_grad_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *gate = INPUT(0), *up = INPUT(1), *dy = INPUT(2);
  ELEMENT *dgate = OUTPUT(0), *dup = OUTPUT(1);
#define LOOP(kind)                                                                                                     \
  EACH_VECTOR {                                                                                                        \
    V g = TYPED(take)(gate + i, n - i), u = TYPED(take)(up + i, n - i), d = TYPED(take)(dy + i, n - i);                \
    TYPED(put)(dgate + i, TYPED(act_slope)(kind, g) * u * d, n - i);                                                   \
    TYPED(put)(dup + i, TYPED(act)(kind, g) * d, n - i);                                                               \
  }
  EACH_KIND(LOOP)
#undef LOOP
}
static void TYPED(gated_grad)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(gated_grad_unit)); }

// Sums of any number of inputs are rounded once.
static void TYPED(add_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *a = INPUT(0);
  ELEMENT *y = OUTPUT(0);
  if (call->ninput == 2) {
    const ELEMENT *b = INPUT(1);
    EACH_VECTOR TYPED(put)(y + i, TYPED(take)(a + i, n - i) + TYPED(take)(b + i, n - i), n - i);
    return;
  }
  EACH_VECTOR {
    V sum = TYPED(take)(a + i, n - i);
    for (int k = 1; k < call->ninput; k++) sum += TYPED(take)(INPUT(k) + i, n - i);
    TYPED(put)(y + i, sum, n - i);
  }
}
static void TYPED(add)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(add_unit)); }

static void TYPED(mul_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  EACH_VECTOR TYPED(put)(OUTPUT(0) + i, TYPED(take)(INPUT(0) + i, n - i) * TYPED(take)(INPUT(1) + i, n - i), n - i);
}
static void TYPED(mul)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(mul_unit)); }

static void TYPED(scale_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  V factor = MATH(splat)((REAL)((const ScaleAttr *)call->attr)->factor);
  EACH_VECTOR TYPED(put)(OUTPUT(0) + i, factor * TYPED(take)(INPUT(0) + i, n - i), n - i);
}
static void TYPED(scale)(const KernelCall *call) { TYPED(each_chunk)(call, TYPED(scale_unit)); }

static void TYPED(identity_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  memcpy(OUTPUT(0), INPUT(0), sizeof(ELEMENT) * (size_t)n);
}
static void TYPED(identity)(const KernelCall *call) {
  if (call->input[0].data != call->output[0].data) TYPED(each_chunk)(call, TYPED(identity_unit));
}

static void TYPED(cast_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const ELEMENT *x = INPUT(0);
  void *y = call->output[0].data;
  if (call->output[0].dtype == DTYPE_F32)
    for (int64_t i = 0; i < n; i++) ((float *)y + range.from)[i] = (float)TYPED(widen)(x[i]);
  else if (call->output[0].dtype == DTYPE_F64)
    for (int64_t i = 0; i < n; i++) ((double *)y + range.from)[i] = (double)TYPED(widen)(x[i]);
  else
    for (int64_t i = 0; i < n; i++) ((uint16_t *)y + range.from)[i] = bf16_from_float((float)TYPED(widen)(x[i]));
}
static void TYPED(cast)(const KernelCall *call) {
  Dtype to = call->output[0].dtype;
  if (call->input[0].dtype != DTYPE_ELEMENT) op_def(OP_CAST)->reference(call); // from ids
  else if (to == DTYPE_F32 || to == DTYPE_F64 || (to == DTYPE_BF16 && DTYPE_ELEMENT == DTYPE_F32))
    TYPED(each_chunk)(call, TYPED(cast_unit));
  else op_def(OP_CAST)->reference(call);
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
    const ELEMENT *from = (const ELEMENT *)x->data + r * width;
    ELEMENT *to = (ELEMENT *)call->output[0].data + r * width;
    uint32_t sample =
        (uint32_t)(parameters->sample_base +
                   FAULT(address_of_dropout_sample, index_map(&x->map[0], r / x->size[1]), r / x->size[1]));
    uint32_t position = (uint32_t)index_map(&x->map[1], r % x->size[1]), bits[4 * PHILOX_BATCH];
    int64_t skip = first % 4;
    for (int64_t at = 0, n; at < width; at += n, skip = 0) {
      REAL factor[4 * PHILOX_BATCH];
      n = 4 * PHILOX_BATCH - skip < width - at ? 4 * PHILOX_BATCH - skip : width - at;
      philox_batch(key, sample | (uint64_t)position << 32, 0, (uint32_t)((first + at) / 4), 1, 0, 0, bits);
      for (int64_t j = 0; j < n; j++) factor[j] = bits[skip + j] >= threshold ? keep : 0;
      EACH_VECTOR {
        V by = MATH(take)(factor + i, n - i);
        TYPED(put)(to + at + i, MATH(select)(by > (V){0}, TYPED(take)(from + at + i, n - i) * by, (V){0}), n - i);
      }
    }
  }
}
static void TYPED(dropout)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t width = operand_extent(x, 2, x->rank);
  if (dropout_first_feature(x) < 0 || !width) op_def(OP_DROPOUT)->reference(call);
  else
    team_each(call_team(call), row_units(x->size[0] * x->size[1], width), TYPED(dropout_unit), (void *)(uintptr_t)call);
}
