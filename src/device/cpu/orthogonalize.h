// MUON_MOMENTUM, MUON and ORTHOGONALIZE, whose products are those of gemm.h.

// m in place, gradient, factor, skip → m, u
static void TYPED(muon_momentum_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  double mu = ((const MuonAttr *)call->attr)->momentum;
  REAL factor = (REAL)operand_load(&call->input[2], 0), keep = (REAL)mu, add = (REAL)(1 - mu);
  const REAL *m = INPUT(0), *g = INPUT(1);
  REAL *m1 = OUTPUT(0), *u = OUTPUT(1);
  IVDEP for (int64_t i = 0; i < n; i++) {
    REAL d = add * (g[i] * factor), moment = keep * m[i] + d;
    m1[i] = moment;
    u[i] = keep * moment + d;
  }
}
static void TYPED(muon_momentum)(const KernelCall *call) {
  if (operand_load(&call->input[3], 0) == 0) TYPED(each_chunk)(call, TYPED(muon_momentum_unit));
  else op_def(OP_MUON_MOMENTUM)->reference(call);
}

// w in place, o, lr, skip
static void TYPED(muon_unit)(void *argument, int slot, int64_t unit) {
  CHUNK_OF(argument, unit);
  const MuonAttr *attr = call->attr;
  double lr = operand_load(&call->input[2], 0);
  REAL decay = (REAL)(lr * attr->decay), rate = (REAL)(lr * attr->scale);
  const REAL *w = INPUT(0), *o = INPUT(1);
  REAL *w1 = OUTPUT(0);
  IVDEP for (int64_t i = 0; i < n; i++) w1[i] = w[i] - decay * w[i] - rate * o[i];
}
static void TYPED(muon)(const KernelCall *call) {
  if (operand_load(&call->input[3], 0) == 0) TYPED(each_chunk)(call, TYPED(muon_unit));
  else op_def(OP_MUON)->reference(call);
}

// y (n) = a x + b y; where b is 0, y is not read
typedef struct TYPED(Combine) { const REAL *x; REAL *y; int64_t n; REAL a, b; } TYPED(Combine);
static void TYPED(axpby_unit)(void *argument, int slot, int64_t unit) {
  const TYPED(Combine) *q = argument;
  RowRange range = chunk_range(q->n, unit);
  int64_t n = range.to - range.from;
  const REAL *x = q->x + range.from;
  REAL *y = q->y + range.from, a = q->a, b = q->b;
  if (b == 0) IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
  else IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b * y[i];
}
static void TYPED(axpby)(Team *team, REAL a, const REAL *x, REAL b, REAL *y, int64_t n) {
  TYPED(Combine) q = {x, y, n, a, b};
  team_each(team, chunk_units(n), TYPED(axpby_unit), &q);
}

static double TYPED(frobenius)(Team *team, const REAL *x, int64_t n, double *partial) {
  int64_t units = (n + TYPED(SQUARES) - 1) / TYPED(SQUARES);
  TYPED(Squares) q = {x, n, partial};
  team_each(team, units, TYPED(sum_squares_unit), &q);
  double sum = 0;
  for (int64_t i = 0; i < units; i++) sum += partial[i];
  return sqrt(sum);
}

// Elements of x and of two squares, partial sums of the norm, and what products need.
static size_t TYPED(orthogonalize_workspace)(const Operand *input, const Operand *output, const void *attr,
                                             int threads) {
  OrthogonalizeShape s = orthogonalize_shape(&input[0], attr);
  int64_t elements = s.rows * s.columns;
  size_t gram = TYPED(gemm_workspace)(s.shorter, s.longer, threads),
         other = TYPED(gemm_workspace)(s.is_wide ? s.longer : s.shorter, s.shorter, threads),
         square = TYPED(gemm_workspace)(s.shorter, s.shorter, threads);
  if (gram < other) gram = other;
  if (gram < square) gram = square;
  return sizeof(REAL) * (size_t)(elements + 2 * s.shorter * s.shorter + 32) +
         sizeof(double) * (size_t)(elements / TYPED(SQUARES) + 2) + gram + 64;
}

// next = 3.4445 x + (−4.775 a + 2.0315 a²) x with a = x xᵀ, or with xᵀ x from the right; a, b (shorter, shorter)
static void TYPED(orthogonalize_step)(const OrthogonalizeShape *s, const REAL *x, REAL *next, REAL *a, REAL *b,
                                      void *workspace, Team *team) {
  int64_t n = s->shorter, r = s->rows, c = s->columns;
  GEMM gram = {.m = n, .n = n, .k = s->longer, .a = x, .b = x, .c = a, .c_row = n};
  if (s->is_wide) gram.a_row = gram.b_column = c, gram.a_column = gram.b_row = 1;
  else gram.a_row = gram.b_column = 1, gram.a_column = gram.b_row = c;
  TYPED(gemm)(&gram, workspace, team);
  GEMM square = {
      .m = n, .n = n, .k = n, .a = a, .a_row = n, .a_column = 1, .b = a, .b_row = n, .b_column = 1, .c = b, .c_row = n};
  TYPED(gemm)(&square, workspace, team);
  TYPED(axpby)(team, (REAL)ORTHOGONALIZE_B, a, (REAL)ORTHOGONALIZE_C, b, n * n);
  TYPED(axpby)(team, (REAL)ORTHOGONALIZE_A, x, 0, next, r * c);
  GEMM product = {.m = r, .n = c, .k = n, .a_column = 1, .b_column = 1, .c = next, .c_row = c, .add = 1};
  product.a = s->is_wide ? b : x;
  product.b = s->is_wide ? x : b;
  product.a_row = s->is_wide ? r : c;
  product.b_row = c;
  TYPED(gemm)(&product, workspace, team);
}

// u → o, a matrix after the other
static void TYPED(orthogonalize)(const KernelCall *call) {
  Team *team = call_team(call);
  OrthogonalizeShape s = orthogonalize_shape(&call->input[0], call->attr);
  int64_t elements = s.rows * s.columns, squares = s.shorter * s.shorter;
  double *partial = call->workspace;
  REAL *x = (REAL *)(partial + (elements / TYPED(SQUARES) + 2) / 2 * 2), *a = x + elements, *b = a + squares;
  void *workspace = (void *)(((uintptr_t)(b + squares) + 63) & ~(uintptr_t)63);
  _Static_assert(ORTHOGONALIZE_STEPS % 2, "the last step writes the output");
  for (int64_t k = 0; k < s.matrices; k++) {
    const REAL *u = (const REAL *)call->input[0].data + k * elements;
    REAL *out = (REAL *)call->output[0].data + k * elements, *now = x, *next = out;
    double norm = TYPED(frobenius)(team, u, elements, partial);
    TYPED(axpby)(team, norm > 0 ? (REAL)(1 / norm) : 0, u, 0, x, elements);
    for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
      TYPED(orthogonalize_step)(&s, now, next, a, b, workspace, team);
      REAL *swap = now;
      now = next;
      next = swap;
    }
  }
}
