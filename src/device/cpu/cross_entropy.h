// LOGITS; LINEAR_CROSS_ENTROPY, what it is lowered to, STATISTICS and APPLY, and WEIGHT: logits exist for one chunk of
// rows at a time and become in place what their gradient is but for one factor a row, seed / sum. The factor meets x
// and dx, which have fewer columns: dw = logitsᵀ (factor x), dx = factor (logits w). Rows without a target and columns
// of a padded vocabulary are left out of every product.

typedef struct TYPED(Head) {
  const KernelCall *call;
  int64_t rows, vocab, e, chunk, stride; // vocab: valid; chunk: rows of logits; stride: of a row of logits
  CpuTargets targets;
  int64_t first, n;   // the chunk at work: of the rows with a target
  const int64_t *row; // (n) of it, among all rows
  const REAL *x;      // (n, e) of it
  int gradient, add; // add: dw is added to what is there
  CpuHeadOutputs out;
  double seed;
  const REAL *maximum, *sum, *target; // (rows) each, of APPLY and (no target) WEIGHT; NULL: find them
  REAL *logit;                        // (chunk, stride)
  double *loss;                       // (rows), of those with a target
  REAL *factor;                       // (chunk): of a row's logits, once they are exponentials
  REAL *packed;                       // (chunk, e): x of rows that do not lie one after the other; factor x; their dx
  void *product;                      // workspace of gemm
} TYPED(Head);
#define HEAD TYPED(Head)

static HEAD TYPED(head_sizes)(const Operand *input) {
  HEAD h = {.rows = operand_extent(&input[0], 0, 2),
            .vocab = FAULT(padding_is_a_word_fast, input[1].map[0].valid, input[1].size[0]),
            .e = input[1].size[1]};
  h.stride = (h.vocab + 15) / 16 * 16 + 16;
  // Again with every chunk: either packing of the head reads and writes it, and its gradient is read and written.
  h.chunk = cpu_head_rows(h.rows, h.stride, h.e, sizeof(REAL), 6 * sizeof(REAL));
  return h;
}

// Workspace: rows with a target, loss, logits, packed rows, then that of the greatest of the three products.
static size_t TYPED(head_offset)(const HEAD *h) {
  size_t rows = (sizeof(int64_t) + sizeof(double)) * (size_t)h->rows;
  return (rows + sizeof(REAL) * (size_t)(h->chunk * (h->stride + 1 + h->e)) + 63) / 64 * 64;
}
static size_t TYPED(head_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  HEAD h = TYPED(head_sizes)(input);
  size_t logits = TYPED(gemm_workspace)(h.vocab, h.e, threads), dx = TYPED(gemm_workspace)(h.e, h.vocab, threads),
         dw = TYPED(gemm_workspace)(h.e, h.chunk, threads), most = logits > dx ? logits : dx;
  return TYPED(head_offset)(&h) + (most > dw ? most : dw);
}

static HEAD TYPED(head_of)(const KernelCall *call) {
  HEAD h = TYPED(head_sizes)(call->input);
  h.call = call;
  h.targets = cpu_targets(call, call->workspace);
  h.loss = (double *)(void *)((int64_t *)call->workspace + h.rows);
  h.logit = (REAL *)(void *)(h.loss + h.rows);
  h.factor = h.logit + h.chunk * h.stride;
  h.packed = h.factor + h.chunk;
  h.product = (char *)call->workspace + TYPED(head_offset)(&h);
  return h;
}

// The chunk from h->first on, or there is none.
static int TYPED(head_chunk)(HEAD *h) {
  h->n = cpu_head_chunk(h->targets.count - h->first, h->chunk);
  if (h->n <= 0) return 0;
  h->row = h->targets.row + h->first;
  h->x = cpu_targets_pack(&h->targets, h->first, h->n, h->packed);
  return 1;
}

// Rows of the chunk: statistics and loss; logits become (softmax - one-hot) sum, and the row's factor seed / sum.
static void TYPED(head_unit)(void *argument, int slot, int64_t unit) {
  const HEAD *h = argument;
  RowRange range = row_range(h->n, h->vocab, unit);
  for (int64_t i = range.from; i < range.to; i++) {
    int64_t row = h->row[i], local = index_local(&h->call->input[1].map[0], integer_load(&h->call->input[2], row));
    REAL *logit = h->logit + i * h->stride;
    REAL target = h->target ? h->target[row] : local >= 0 ? logit[local] : 0;
    REAL maximum = h->maximum ? h->maximum[row] : TYPED(greatest)(logit, h->vocab), sum = h->sum ? h->sum[row] : 0;
    if (h->gradient || !h->sum) {
      REAL found = TYPED(exp_sum)(logit, h->vocab, -maximum);
      if (!h->sum) sum = found;
    }
    h->loss[h->first + i] = (double)maximum + log((double)sum) - (double)target;
    if (!h->gradient) continue;
    if (h->out.sum) ((REAL *)h->out.relative_to->data)[row] = maximum, ((REAL *)h->out.sum->data)[row] = sum;
    if (local >= 0) logit[local] -= sum;
    h->factor[i] = (REAL)(h->seed / (double)sum);
  }
}

static void TYPED(head_logits)(const HEAD *h) {
  GEMM g = {.m = h->n,
            .n = h->vocab,
            .k = h->e,
            .a = h->x,
            .a_row = h->e,
            .a_column = 1,
            .b_row = 1,
            .b_column = h->e,
            .c = h->logit,
            .c_row = h->stride};
  TYPED(gemm_weight)(&g, &h->call->input[1], 0);
  TYPED(gemm)(&g, h->product, call_team(h->call));
}

// to = factor from: of n numbers, which may be the same.
INLINE void TYPED(head_times)(REAL *to, const REAL *from, int64_t n, REAL factor) {
  V by = TYPED(splat)(factor);
  EACH_VECTOR TYPED(put)(to + i, by * TYPED(take)(from + i, n - i), n - i);
}

// Rows of x for dw.
static void TYPED(head_scale)(void *argument, int slot, int64_t unit) {
  const HEAD *h = argument;
  RowRange range = row_range(h->n, h->e, unit);
  for (int64_t i = range.from; i < range.to; i++)
    TYPED(head_times)(h->packed + i * h->e, h->x + i * h->e, h->e, FAULT(head_forgets_the_sum_in_dw, h->factor[i], 1));
}

// Where dx is made: in its place if the chunk's rows lie one after the other.
static REAL *TYPED(head_dx)(const HEAD *h) {
  return h->x == h->packed ? h->packed : (REAL *)h->out.dx->data + h->row[0] * h->e;
}

// Rows of dx, from where they were made.
static void TYPED(head_unpack)(void *argument, int slot, int64_t unit) {
  const HEAD *h = argument;
  RowRange range = row_range(h->n, h->e, unit);
  for (int64_t i = range.from; i < range.to; i++)
    TYPED(head_times)((REAL *)h->out.dx->data + h->row[i] * h->e, TYPED(head_dx)(h) + i * h->e, h->e, h->factor[i]);
}

// A row of dlogits as it is kept, with zeroes for words that are padding.
static void TYPED(head_keep)(void *argument, int slot, int64_t i) {
  const HEAD *h = argument;
  int64_t words = h->out.dlogits->size[2];
  REAL *to = (REAL *)h->out.dlogits->data + h->row[i] * words;
  TYPED(head_times)(to, h->logit + i * h->stride, h->vocab, h->factor[i]);
  memset(to + h->vocab, 0, sizeof(REAL) * (size_t)(words - h->vocab));
}

static void TYPED(head_make_dx)(HEAD *h) {
  GEMM dx = {.m = h->n,
             .n = h->e,
             .k = h->vocab,
             .a = h->logit,
             .a_row = h->stride,
             .a_column = 1,
             .b_row = h->e,
             .b_column = 1,
             .c = TYPED(head_dx)(h),
             .c_row = h->e};
  TYPED(gemm_weight)(&dx, &h->call->input[1], 0);
  TYPED(gemm)(&dx, h->product, call_team(h->call));
  team_each(call_team(h->call), row_units(h->n, h->e), TYPED(head_unpack), h);
}

static void TYPED(head_make_dw)(HEAD *h) {
  GEMM dw = {.m = h->vocab,
             .n = h->e,
             .k = h->n,
             .a = h->logit,
             .a_row = 1,
             .a_column = h->stride,
             .b = h->packed,
             .b_row = h->e,
             .b_column = 1,
             .c = h->out.dw->data,
             .c_row = h->e,
             .add = h->add || h->first > 0};
  team_each(call_team(h->call), row_units(h->n, h->e), TYPED(head_scale), h);
  TYPED(gemm)(&dw, h->product, call_team(h->call));
}

// dw first: it reads packed rows, which dx may overwrite.
static void TYPED(head_gradients)(HEAD *h) {
  if (h->out.dlogits) team_each(call_team(h->call), h->n, TYPED(head_keep), h);
  if (h->out.dw) TYPED(head_make_dw)(h);
  if (h->out.dx) TYPED(head_make_dx)(h);
}

static void TYPED(head_run)(HEAD *h) {
  const KernelCall *call = h->call;
  h->out = cpu_head_outputs(call);
  h->gradient = ((const CrossEntropyAttr *)call->attr)->gradient;
  h->add = call_adds(call, ((const CrossEntropyAttr *)call->attr)->accumulate);
  h->seed = h->gradient ? operand_load(&call->input[3], 0) : 0;
  int64_t padding = call->input[1].size[0] - h->vocab,
          filled = FAULT(head_without_targets_leaves_dw, h->targets.count, h->rows) ? h->vocab : 0; // by products
  if (h->out.dw && !h->add)
    memset((REAL *)h->out.dw->data + filled * h->e, 0, sizeof(REAL) * (size_t)((h->vocab - filled + padding) * h->e));
  cpu_head_clear(&h->targets, &h->out);
  for (; TYPED(head_chunk)(h); h->first += h->n) {
    if (FAULT(head_leaves_out_last_rows, 0, h->n < h->chunk)) break;
    if (h->gradient || !h->sum) TYPED(head_logits)(h);
    team_each(call_team(call), row_units(h->n, h->vocab), TYPED(head_unit), h);
    if (h->gradient) TYPED(head_gradients)(h);
  }
  double loss = 0;
  for (int64_t i = 0; i < h->targets.count; i++) loss += h->loss[i];
  if (h->out.loss) operand_store(h->out.loss, 0, loss);
}

static void TYPED(linear_cross_entropy)(const KernelCall *call) {
  HEAD h = TYPED(head_of)(call);
  TYPED(head_run)(&h);
}

static void TYPED(cross_entropy_apply)(const KernelCall *call) {
  HEAD h = TYPED(head_of)(call);
  h.maximum = call->input[4].data;
  h.sum = call->input[5].data;
  h.target = call->input[6].data;
  TYPED(head_run)(&h);
}

static void TYPED(cross_entropy_weight)(const KernelCall *call) {
  HEAD h = TYPED(head_of)(call);
  h.maximum = call->input[4].data;
  h.sum = call->input[5].data;
  TYPED(head_run)(&h);
}

static void TYPED(statistics_unit)(void *argument, int slot, int64_t unit) {
  const HEAD *h = argument;
  RowRange range = row_range(h->n, h->vocab, unit);
  for (int64_t i = range.from; i < range.to; i++) {
    int64_t row = h->row[i], local = index_local(&h->call->input[1].map[0], integer_load(&h->call->input[2], row));
    REAL *logit = h->logit + i * h->stride, maximum = TYPED(greatest)(logit, h->vocab);
    ((REAL *)h->call->output[2].data)[row] = local >= 0 ? logit[local] : 0;
    ((REAL *)h->call->output[0].data)[row] = maximum;
    ((REAL *)h->call->output[1].data)[row] = TYPED(exp_sum)(logit, h->vocab, -maximum);
  }
}

static void TYPED(cross_entropy_statistics)(const KernelCall *call) {
  HEAD h = TYPED(head_of)(call);
  for (int k = 0; k < 3; k++) cpu_targets_clear(&h.targets, &call->output[k]);
  for (; TYPED(head_chunk)(&h); h.first += h.n) {
    TYPED(head_logits)(&h);
    team_each(call_team(call), row_units(h.n, h.vocab), TYPED(statistics_unit), &h);
  }
}

// ---- LOGITS: as the loss makes them

typedef struct TYPED(Logits) { const KernelCall *call; REAL *memory; } TYPED(Logits); // (slots, vocab)

// Workspace: a row for each slot, whose logits become exponentials, then that of the product.
static size_t TYPED(logits_workspace)(const Operand *input, const Operand *output, const void *attr, int threads) {
  return sizeof(REAL) * (size_t)(input[1].size[0] * threads) +
         TYPED(gemm_workspace)(input[1].size[0], input[1].size[1], threads);
}

static void TYPED(logits_unit)(void *argument, int slot, int64_t row) {
  const TYPED(Logits) *job = argument;
  const Operand *w = &job->call->input[1], *out = job->call->output;
  int64_t words = w->size[0], vocab = w->map[0].valid;
  REAL *logit = (REAL *)out[0].data + row * words, *copy = job->memory + slot * words;
  if (integer_load(&job->call->input[2], row) < 0) {
    memset(logit, 0, sizeof(REAL) * (size_t)words);
    ((REAL *)out[1].data)[row] = ((REAL *)out[2].data)[row] = 0;
    return;
  }
  REAL maximum = TYPED(greatest)(logit, vocab);
  memset(logit + vocab, 0, sizeof(REAL) * (size_t)(words - vocab));
  memcpy(copy, logit, sizeof(REAL) * (size_t)vocab);
  ((REAL *)out[1].data)[row] = maximum;
  ((REAL *)out[2].data)[row] = TYPED(exp_sum)(copy, vocab, -maximum);
}

static void TYPED(logits)(const KernelCall *call) {
  const Operand *x = &call->input[0], *w = &call->input[1];
  TYPED(Logits) job = {call, call->workspace};
  int64_t wanted = x->size[1];
  GEMM g = {.n = w->map[0].valid,
            .k = w->size[1],
            .a_row = w->size[1],
            .a_column = 1,
            .b_row = 1,
            .b_column = w->size[1],
            .c_row = w->size[0]};
  TYPED(gemm_weight)(&g, w, 0);
  Team *team = call_team(call);
  for (int64_t b = 0; b < x->size[0]; b++) {
    g.a = (const ELEMENT *)x->data + b * wanted * w->size[1];
    g.c = (REAL *)call->output[0].data + b * wanted * w->size[0];
    g.m = cpu_wanted_rows(call, b);
    if (g.m) TYPED(gemm)(&g, job.memory + team_slots(team) * w->size[0], team);
  }
  team_each(team, x->size[0] * wanted, TYPED(logits_unit), &job);
}
