// MERGE, row by row: the weights of the two parts from their logsumexps, in REAL; outputs may be the first part's
// memory.

typedef struct TYPED(Merge) {
  const KernelCall *call;
  int64_t s, heads, d; // heads: g · r
} TYPED(Merge);

// Weights of two parts; returns the logsumexp of both. A part that saw no key (-inf) has weight 0.
INLINE REAL TYPED(merge_weights)(REAL a, REAL b, REAL *of_a, REAL *of_b) {
  REAL most = a > b ? a : b;
  if (most == (REAL)-INFINITY) {
    *of_a = *of_b = 0;
    return most;
  }
  double less = exp((double)((a > b ? b : a) - most));
  REAL greater = (REAL)(1 / (1 + less)), smaller = (REAL)(less / (1 + less));
  *of_a = a > b ? greater : smaller;
  *of_b = a > b ? smaller : greater;
  return most + (REAL)log1p(less);
}

static void TYPED(merge_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(Merge) *m = argument;
  const KernelCall *call = m->call;
  int64_t n = m->d;
  RowRange range = row_range(operand_elements(&call->output[0]) / n, n, unit);
  const REAL *rows_a = call->input[1].data, *rows_b = call->input[3].data;
  for (int64_t row = range.from; row < range.to; row++) {
    int64_t at = (row / m->heads / m->s * m->heads + row % m->heads) * m->s + row / m->heads % m->s; // of (b, g, r, s)
    const ELEMENT *a = (const ELEMENT *)call->input[0].data + row * n,
                  *b = (const ELEMENT *)call->input[2].data + row * n;
    ELEMENT *out = (ELEMENT *)call->output[0].data + row * n;
    REAL of_a, of_b,
        logsumexp = TYPED(merge_weights)(rows_a[at], FAULT(merge_fast, rows_b[at], rows_a[at]), &of_a, &of_b);
    V weight_a = MATH(splat)(of_a), weight_b = MATH(splat)(of_b);
    EACH_VECTOR TYPED(put)
    (out + i, weight_a * TYPED(take)(a + i, n - i) + weight_b * TYPED(take)(b + i, n - i), n - i);
    ((REAL *)call->output[1].data)[at] = logsumexp;
  }
}

static void TYPED(merge)(const KernelCall *call) {
  const int64_t *n = call->input[0].size;
  TYPED(Merge) m = {call, n[1], n[2] * n[3], n[4]};
  if (operand_elements(&call->output[0]))
    team_each(call_team(call), row_units(operand_elements(&call->output[0]) / m.d, m.d), TYPED(merge_unit), &m);
}
