// Kernels that work on storage only: FILL, ACCUMULATE, SUM_SQUARES, the optimizers, versions.

// In place: version, newer, weights, turn.
static void TYPED(next_version_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  memcpy(OUTPUT(0), operand_load(&call->input[3], 0) == TURN_NEXT ? INPUT(1) : INPUT(2), sizeof(ELEMENT) * (size_t)n);
}
static void TYPED(next_version)(const KernelCall *call) {
  if (operand_load(&call->input[3], 0) != TURN_STAYS) TYPED(each_chunk)(call, TYPED(next_version_unit));
  else op_def(OP_NEXT_VERSION)->reference(call);
}

static void TYPED(fill_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  REAL value = (REAL)((const FillAttr *)call->attr)->value, *y = OUTPUT(0);
  for (int64_t i = 0; i < n; i++) y[i] = value;
}
static void TYPED(fill)(const KernelCall *call) {
  if (((const FillAttr *)call->attr)->value == 0 || operand_is_whole(&call->output[0]))
    TYPED(each_chunk)(call, TYPED(fill_unit));
  else op_def(OP_FILL)->reference(call);
}
static void TYPED(accumulate)(const KernelCall *call) {
  KernelCall added = cpu_call_without_absent(call);
  TYPED(add)(&added);
}

enum { TYPED(SQUARES) = 4096 }; // elements of one partial sum
static size_t TYPED(sum_squares_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * (size_t)(operand_elements(&input[0]) / TYPED(SQUARES) + 1);
}

typedef struct TYPED(Squares) { const REAL *x; int64_t n; double *partial; } TYPED(Squares);
static void TYPED(sum_squares_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(Squares) *q = argument;
  const REAL *x = q->x + unit * TYPED(SQUARES);
  int64_t n = q->n - unit * TYPED(SQUARES) < TYPED(SQUARES) ? q->n - unit * TYPED(SQUARES) : TYPED(SQUARES), i = 0;
  double lane[16] = {0}, sum = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
  for (; i < n; i++) sum += (double)x[i] * (double)x[i];
  for (int k = 0; k < 16; k++) sum += lane[k];
  q->partial[unit] = sum;
}

static void TYPED(sum_squares)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t n = operand_valid_prefix(x), units = (n + TYPED(SQUARES) - 1) / TYPED(SQUARES);
  if (n < 0) {
    op_def(OP_SUM_SQUARES)->reference(call);
    return;
  }
  TYPED(Squares) q = {x->data, n, call->workspace};
  team_each(call_team(call), units, TYPED(sum_squares_unit), &q);
  double sum = 0;
  for (int64_t i = 0; i < units; i++) sum += q.partial[i];
  operand_store(&call->output[0], 0, sum);
}

// In place: w, m, v, gradient, lr, factor, skip, step.
static void TYPED(adamw_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const Operand *in = call->input;
  const OptimizerAttr *attr = call->attr;
  double lr = operand_load(&in[4], 0), step = operand_load(&in[7], 0);
  REAL factor = FAULT(clip_factor_is_ignored, (REAL)operand_load(&in[5], 0), 1), b1 = (REAL)attr->beta1,
       b2 = (REAL)attr->beta2, c1 = (REAL)(1 - attr->beta1), c2 = (REAL)(1 - attr->beta2),
       decay = (REAL)(lr * attr->decay), epsilon = (REAL)attr->epsilon,
       rate = (REAL)(lr / (1 - pow(attr->beta1, step))), root = (REAL)(1 / sqrt(1 - pow(attr->beta2, step)));
  const REAL *w = INPUT(0), *m = INPUT(1), *v = INPUT(2), *g = INPUT(3);
  REAL *w1 = OUTPUT(0), *m1 = OUTPUT(1), *v1 = OUTPUT(2);
  IVDEP for (int64_t i = 0; i < n; i++) {
    REAL d = g[i] * factor, moment = b1 * m[i] + c1 * d, square = b2 * v[i] + c2 * d * d;
    w1[i] = w[i] - decay * w[i] - rate * moment / (TYPED(root)(square) * root + epsilon);
    m1[i] = moment;
    v1[i] = square;
  }
}

static void TYPED(adamw)(const KernelCall *call) {
  if (FAULT(skip_updates, operand_load(&call->input[6], 0) == 0, 1)) TYPED(each_chunk)(call, TYPED(adamw_unit));
  else op_def(OP_ADAMW)->reference(call);
}

// In place: w, m?, gradient, lr, factor, skip, step.
static void TYPED(sgd_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const Operand *in = call->input;
  const OptimizerAttr *attr = call->attr;
  REAL lr = (REAL)operand_load(&in[3], 0), factor = (REAL)operand_load(&in[4], 0), decay = (REAL)attr->decay,
       momentum = (REAL)attr->momentum;
  const REAL *w = INPUT(0), *g = INPUT(2);
  REAL *w1 = OUTPUT(0);
  if (!in[1].data) {
    IVDEP for (int64_t i = 0; i < n; i++) w1[i] = w[i] - lr * (g[i] * factor + decay * w[i]);
    return;
  }
  const REAL *m = INPUT(1);
  REAL *m1 = OUTPUT(1);
  IVDEP for (int64_t i = 0; i < n; i++) {
    REAL moment = momentum * m[i] + (g[i] * factor + decay * w[i]);
    w1[i] = w[i] - lr * moment;
    m1[i] = moment;
  }
}
static void TYPED(sgd)(const KernelCall *call) {
  if (operand_load(&call->input[5], 0) == 0) TYPED(each_chunk)(call, TYPED(sgd_unit));
  else op_def(OP_SGD)->reference(call);
}

// In place: w, m, gradient, lr, factor, skip, step.
static void TYPED(lion_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const Operand *in = call->input;
  const OptimizerAttr *attr = call->attr;
  double lr = operand_load(&in[3], 0);
  REAL rate = (REAL)lr, factor = (REAL)operand_load(&in[4], 0), decay = (REAL)(lr * attr->decay),
       b1 = (REAL)attr->beta1, b2 = (REAL)attr->beta2, c1 = (REAL)(1 - attr->beta1), c2 = (REAL)(1 - attr->beta2);
  const REAL *w = INPUT(0), *m = INPUT(1), *g = INPUT(2);
  REAL *w1 = OUTPUT(0), *m1 = OUTPUT(1);
  IVDEP for (int64_t i = 0; i < n; i++) {
    REAL d = g[i] * factor, direction = b1 * m[i] + c1 * d, step = direction > 0 ? rate : direction < 0 ? -rate : 0;
    w1[i] = w[i] - decay * w[i] - step;
    m1[i] = b2 * m[i] + c2 * d;
  }
}
static void TYPED(lion)(const KernelCall *call) {
  if (operand_load(&call->input[5], 0) == 0) TYPED(each_chunk)(call, TYPED(lion_unit));
  else op_def(OP_LION)->reference(call);
}
