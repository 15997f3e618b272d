// ROUTE, ROUTE_GRAD, DISPATCH, COMBINE and COMBINE_GRAD, for every dtype. Routing computes in double, step by step as
// the reference kernels do, so that both choose the same experts. Rows are found by tables that are made of the mask in
// one pass, then copied or summed in units, tokens or rows.

static size_t TYPED(dispatch_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return cpu_rows_bytes(&input[1]);
}
static size_t TYPED(combine_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return cpu_rows_bytes(&input[0]);
}
static size_t TYPED(combine_grad_workspace)(const Operand *input, const Operand *output, const void *attr,
                                            int threads) {
  return cpu_rows_bytes(&input[2]);
}

typedef struct TYPED(RowsJob) { const KernelCall *call; CpuRows rows; } TYPED(RowsJob);

// A token's row of x to all its experts.
static void TYPED(dispatch_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(RowsJob) *job = argument;
  const KernelCall *call = job->call;
  const CpuRows *rows = &job->rows;
  int64_t n = call->input[0].size[2];
  RowRange range = row_range(rows->tokens, n, unit);
  const REAL *weights = call->input[2].data;
  for (int64_t t = range.from; t < range.to; t++) {
    const ELEMENT *x = (const ELEMENT *)call->input[0].data + t * n;
    for (int64_t c = rows->first[t]; c < rows->first[t + 1]; c++) {
      ELEMENT *to = (ELEMENT *)call->output[0].data + (int64_t)rows->choice[c].row * n;
      if (!weights) {
        memcpy(to, x, sizeof *x * (size_t)n);
        continue;
      }
      V weight = MATH(splat)(weights[t * rows->experts + rows->choice[c].expert]);
      EACH_VECTOR TYPED(put)(to + i, weight * TYPED(take)(x + i, n - i), n - i);
    }
  }
}
static void TYPED(dispatch)(const KernelCall *call) {
  TYPED(RowsJob) job = {call, cpu_rows(&call->input[1], call->workspace)};
  team_each(call_team(call), row_units(job.rows.tokens, call->input[0].size[2]), TYPED(dispatch_unit), &job);
  cpu_clear_rows(&call->output[0], job.rows.first[job.rows.tokens]);
}

// Sums over a token's experts in their order.
static void TYPED(combine_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(RowsJob) *job = argument;
  const KernelCall *call = job->call;
  const CpuRows *rows = &job->rows;
  int64_t n = call->output[0].size[2];
  RowRange range = row_range(rows->tokens, n, unit);
  const REAL *weights = call->input[2].data;
  for (int64_t t = range.from; t < range.to; t++) {
    ELEMENT *to = (ELEMENT *)call->output[0].data + t * n;
    EACH_VECTOR {
      V sum = {0};
      for (int64_t c = rows->first[t]; c < rows->first[t + 1]; c++) {
        V row = TYPED(take)((const ELEMENT *)call->input[1].data + (int64_t)rows->choice[c].row * n + i, n - i);
        REAL weight = weights ? weights[t * rows->experts + rows->choice[c].expert] : 1;
        sum = MATH(fma)(MATH(splat)(weight), row, sum);
      }
      TYPED(put)(to + i, sum, n - i);
    }
  }
}
static void TYPED(combine)(const KernelCall *call) {
  TYPED(RowsJob) job = {call, cpu_rows(&call->input[0], call->workspace)};
  team_each(call_team(call), row_units(job.rows.tokens, call->output[0].size[2]), TYPED(combine_unit), &job);
}

static void TYPED(combine_grad_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(RowsJob) *job = argument;
  const KernelCall *call = job->call;
  const CpuRows *rows = &job->rows;
  int64_t n = call->input[0].size[2];
  RowRange range = row_range(rows->tokens, n, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    const ELEMENT *dout = (const ELEMENT *)call->input[0].data + t * n;
    REAL *to = (REAL *)call->output[0].data + t * rows->experts;
    memset(to, 0, sizeof *to * (size_t)rows->experts);
    for (int64_t c = rows->first[t]; c < rows->first[t + 1]; c++) {
      const ELEMENT *row = (const ELEMENT *)call->input[1].data + (int64_t)rows->choice[c].row * n;
      V dot = {0};
      EACH_VECTOR dot = MATH(fma)(TYPED(take)(dout + i, n - i), TYPED(take)(row + i, n - i), dot);
      to[rows->choice[c].expert] = MATH(sum)(dot);
    }
  }
}
static void TYPED(combine_grad)(const KernelCall *call) {
  TYPED(RowsJob) job = {call, cpu_rows(&call->input[2], call->workspace)};
  team_each(call_team(call), row_units(job.rows.tokens, call->input[0].size[2]), TYPED(combine_grad_unit), &job);
}

// Probabilities and scores of one token, for each slot.
static size_t TYPED(route_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(double) * 2 * (size_t)(input->size[2] * threads);
}

static void TYPED(route_softmax)(const ELEMENT *logits, int64_t n, double *p) {
  double maximum = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) {
    p[i] = (double)TYPED(widen)(logits[i]);
    if (p[i] > maximum) maximum = p[i]; // as fmax, from which gcc 12 for ARM64 ends with an internal error
  }
  for (int64_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - maximum);
  for (int64_t i = 0; i < n; i++) p[i] /= sum;
}

static void TYPED(route_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const RouteAttr *attr = call->attr;
  int64_t n = call->input[0].size[2];
  const REAL *bias = call->input[1].data;
  double *p = (double *)call->workspace + 2 * n * slot, *score = p + n;
  RowRange range = row_range(operand_extent(&call->input[0], 0, 2), 16 * n, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    REAL *weights = (REAL *)call->output[0].data + t * n;
    uint8_t *mask = (uint8_t *)call->output[1].data + t * n;
    double sum = 0;
    TYPED(route_softmax)((const ELEMENT *)call->input[0].data + t * n, n, p);
    for (int64_t i = 0; i < n; i++) {
      score[i] = p[i] + (bias ? (double)bias[i] : 0);
      mask[i] = 0;
    }
    for (int k = 0; k < attr->k; k++) {
      int64_t best = -1;
      for (int64_t i = 0; i < n; i++)
        if (!mask[i] && (best < 0 || score[i] > score[best])) best = i;
      mask[best] = 1;
      sum += p[best];
    }
    for (int64_t i = 0; i < n; i++) weights[i] = mask[i] ? (REAL)(p[i] / (attr->normalize ? sum : 1)) : 0;
  }
}
static void TYPED(route)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  team_each(call_team(call), row_units(operand_extent(x, 0, 2), 16 * x->size[2]), TYPED(route_unit),
            (void *)(uintptr_t)call);
}

static void TYPED(route_grad_unit)(void *argument, int slot, int64_t unit) {
  const KernelCall *call = argument;
  const RouteAttr *attr = call->attr;
  int64_t n = call->input[0].size[2];
  double *p = (double *)call->workspace + 2 * n * slot;
  RowRange range = row_range(operand_extent(&call->input[0], 0, 2), 16 * n, unit);
  for (int64_t t = range.from; t < range.to; t++) {
    const uint8_t *mask = (const uint8_t *)call->input[1].data + t * n;
    const REAL *dweights = (const REAL *)call->input[2].data + t * n;
    ELEMENT *to = (ELEMENT *)call->output[0].data + t * n;
    double sum = 0, dot = 0;
    TYPED(route_softmax)((const ELEMENT *)call->input[0].data + t * n, n, p);
    for (int64_t i = 0; i < n; i++) sum += mask[i] ? p[i] : 0;
    for (int64_t i = 0; i < n && attr->normalize; i++) p[i] = mask[i] ? p[i] / sum : 0;
    for (int64_t i = 0; i < n; i++) dot += mask[i] ? p[i] * (double)dweights[i] : 0;
    for (int64_t i = 0; i < n; i++) {
      double dx = p[i] * ((mask[i] ? (double)dweights[i] : 0) - dot);
      TYPED(put)(to + i, MATH(splat)((REAL)dx), 1);
    }
  }
}
static void TYPED(route_grad)(const KernelCall *call) {
  const Operand *x = &call->input[0];
  team_each(call_team(call), row_units(operand_extent(x, 0, 2), 16 * x->size[2]), TYPED(route_grad_unit),
            (void *)(uintptr_t)call);
}
