// LOGITS; LINEAR_CROSS_ENTROPY, what it is lowered to, STATISTICS and APPLY, and WEIGHT, for bf16 x and w. Logits are
// fp32 and exist for one block of rows × words. A block's exponentials and their sum are relative to its greatest
// logit, and a row's sum is combined of those of its blocks: the same bits with and without gradients.
// What stays of logits, for one chunk of rows, are bf16 exponentials, written once: relative to the logit of the row's
// target, which is near the greatest if the model has learnt anything, and which a row of x and one of w give before.
// So all blocks of a row have one factor to the gradient of the logits, seed / sum, and the factor meets x and dx,
// which have fewer columns: dw = keptᵀ (factor x), dx = factor (kept w). Where a block has a logit so much greater that
// its exponential could overflow (FAR), what is kept of it is relative to its greatest, and is written once more when
// the row's sum is known.
// APPLY and WEIGHT know what a row's sum is relative to, and the sum: they write the gradients of logits at once, and
// all factors are 1.
// Not cross_entropy.h with other loads: there all logits of a chunk are kept, in fp32, which here would be twice the
// memory and its traffic.

enum {
  HEAD_ROWS = 128 / MR * MR, // of a unit
  HEAD_WORDS = 512,
  HEAD_ROW = HEAD_WORDS + 16, // stride of its logits
  FAR = 30 // e^30 · words / the sum is far from fp32's limits, as is its inverse times seed
};

typedef struct Head {
  const KernelCall *call;
  int64_t rows, vocab, e, chunk, stride,
      blocks; // vocab: valid; chunk: rows at a time; stride: of a row of `kept`; blocks of words
  CpuTargets targets;
  int64_t first, n;                              // the chunk at work: of the rows with a target
  const int64_t *row;                            // (n) of it, among all rows
  const uint16_t *x;                             // (n, e) of it
  int gradient, add;                             // add: dw is added to what is there
  CpuHeadOutputs out;
  double seed;
  const float *known_maximum, *known_sum, *known_target; // (rows) each, of APPLY, WEIGHT; NULL: find them
  double *loss;         // (rows), of those with a target
  float *logits;        // (chunk, words), of LOGITS, which has no targets; NULL: they are not kept
  float *maximum, *sum; // (chunk, blocks); of a block, the greatest logit, and the sum of exponentials relative to it
  float *target, *about; // (chunk); about: before the products, by a sum in another order
  float *factor;        // (chunk): what is kept of a row, times this, is dlogits
  float *dx;            // (chunk, e)
  uint16_t *packed;     // (chunk, e): x of rows that do not lie one after the other; factor x; then dx lies here
  uint16_t *kept;       // (chunk, stride)
  char *product;        // workspace of products
  int64_t parts;        // of the chunk's rows: units are blocks × parts
  size_t bytes;         // before `product`
} Head;

static size_t head_part(Head *h, size_t bytes) {
  size_t at = h->bytes;
  h->bytes += (bytes + 63) / 64 * 64;
  return at;
}

// Sizes, and where things lie in the workspace at `base`.
static Head head_sizes(const Operand *input, int gradient, uintptr_t base) {
  Head h = {.rows = operand_extent(&input[0], 0, input[0].rank - 1),
            .vocab = FAULT(padding_is_a_word_bf16, input[1].map[0].valid, input[1].size[0]),
            .e = input[1].size[1],
            .gradient = gradient};
  h.stride = (h.vocab + 31) / 32 * 32 + 32;
  h.blocks = (h.vocab + HEAD_WORDS - 1) / HEAD_WORDS;
  // Again with every chunk: either packing of the head reads and writes it, and its gradient is read and written.
  h.chunk = cpu_head_rows(h.rows, h.stride, h.e, sizeof(uint16_t), 4 * sizeof(uint16_t) + 2 * sizeof(float));
  size_t cells = sizeof(float) * (size_t)(h.chunk * h.blocks);
  h.targets.row = (int64_t *)(base + head_part(&h, sizeof(int64_t) * (size_t)h.rows));
  h.loss = (double *)(base + head_part(&h, sizeof(double) * (size_t)h.rows));
  h.maximum = (float *)(base + head_part(&h, cells));
  h.sum = (float *)(base + head_part(&h, cells));
  h.target = (float *)(base + head_part(&h, sizeof(float) * (size_t)h.chunk));
  h.about = (float *)(base + head_part(&h, sizeof(float) * (size_t)h.chunk));
  h.factor = (float *)(base + head_part(&h, sizeof(float) * (size_t)h.chunk));
  h.dx = (float *)(base + head_part(&h, (gradient ? sizeof(float) : sizeof(uint16_t)) * (size_t)(h.chunk * h.e)));
  h.packed = (uint16_t *)(void *)h.dx;
  h.kept = (uint16_t *)(base + head_part(&h, gradient ? sizeof(uint16_t) * (size_t)(h.chunk * h.stride) : 0));
  h.product = (char *)(base + h.bytes);
  return h;
}

// Of a thread: the packed words of a block, tiles of A, logits.
static size_t head_slot_bytes(int64_t e) {
  return sizeof(Packed) * (size_t)(HEAD_WORDS * step_up(e) + HEAD_ROWS * KA) + sizeof(float) * HEAD_ROWS * HEAD_ROW;
}

static size_t head_workspace(const Operand *input, int gradient, int threads) {
  Head h = head_sizes(input, gradient, 0);
  size_t logits = (size_t)threads * head_slot_bytes(h.e);
  size_t dx = product_workspace(h.e, h.vocab, 1, threads), dw = product_workspace(h.e, h.chunk, 0, threads);
  if (!gradient) dx = dw = 0;
  dx = dx > dw ? dx : dw;
  return h.bytes + (logits > dx ? logits : dx);
}
static size_t cross_entropy_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return head_workspace(input, ((const CrossEntropyAttr *)attr)->gradient, threads);
}
static size_t logits_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return head_workspace(input, 0, threads);
}
static size_t statistics_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  return head_workspace(input, 0, threads);
}

// The target of a row of the chunk.
static int64_t head_local(const Head *h, int64_t row) {
  if (h->logits) return -1;
  return index_local(&h->call->input[1].map[0], integer_load(&h->call->input[2], h->row[row]));
}

// The chunk from h->first on, or there is none.
static int head_chunk(Head *h) {
  h->n = cpu_head_chunk(h->targets.count - h->first, h->chunk);
  if (h->n <= 0) return 0;
  h->row = h->targets.row + h->first;
  h->x = cpu_targets_pack(&h->targets, h->first, h->n, h->packed);
  return 1;
}

// What is kept of exponentials e: times a factor, and 0 where that is not a normal number (exp_fast).
INLINE V kept_exp(V e, V by, int scaled) {
  if (!scaled) return e;
  V x = e * by;
  return select_f32(max_f32(x, -x) < splat_f32(0x1p-126f), (V){0}, x);
}
// to = factor e^(x + shift) in bf16, unless NULL; returns the sum of the exponentials.
INLINE float exp_row(uint16_t *to, const float *x, int64_t n, float shift, float factor) {
  V sum = {0}, by = splat_f32(factor), s = splat_f32(shift);
  const int scaled = factor != 1;
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    V e = exp_fast_f32(load_f32(x + i) + s);
    sum += e;
    if (to) store_bf16(to + i, kept_exp(e, by, scaled));
  }
  if (i < n) {
    V e = first_lanes_f32(exp_fast_f32(take_f32(x + i, n - i) + s), n - i);
    sum += e;
    if (to) store_part_bf16(to + i, kept_exp(e, by, scaled), n - i);
  }
  return sum_f32(sum);
}

INLINE float greatest_row(const float *x, int64_t n) {
  V most = splat_f32(-INFINITY);
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) most = max_f32(most, load_f32(x + i));
  float m = greatest_lane(most);
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

// What the kept exponentials of a block are relative to, whose greatest logit is `maximum`.
static float head_relative_to(const Head *h, int64_t row, float maximum) {
  return FAULT(head_ignores_far_logits, maximum - h->about[row] <= FAR, 1) ? h->about[row] : maximum;
}

// One row's logits of one block of n words.
static void head_row(Head *h, const float *logit, int64_t row, int64_t block, int64_t n) {
  int64_t from = block * HEAD_WORDS, local = head_local(h, row) - from;
  uint16_t *kept = h->gradient ? h->kept + row * h->stride + from : NULL;
  if (h->logits) memcpy(h->logits + row * h->call->input[1].size[0] + from, logit, sizeof *logit * (size_t)n);
  if (local >= 0 && local < n) h->target[row] = logit[local];
  if (h->known_maximum) {
    float maximum = h->known_maximum[h->row[row]];
    if (kept) exp_row(kept, logit, n, -maximum, (float)(h->seed / (double)h->known_sum[h->row[row]]));
    return;
  }
  float maximum = greatest_row(logit, n), relative_to = kept ? head_relative_to(h, row, maximum) : maximum;
  h->maximum[row * h->blocks + block] = maximum;
  h->sum[row * h->blocks + block] = exp_row(kept, logit, n, -maximum, expf(maximum - relative_to));
}

// HEAD_ROWS rows from i0 of the chunk × the words of a block.
static void head_rows(Head *h, int64_t i0, int64_t block, int64_t n, const Packed *words, Packed *memory,
                      float *logit) {
  int64_t m = h->n - i0 < HEAD_ROWS ? h->n - i0 : HEAD_ROWS;
  TileA a[HEAD_ROWS / MR];
  for (int64_t k = 0; k < h->e; k += KC) {
    int64_t depth = h->e - k < KC ? h->e - k : KC;
    tiles_of(a, memory, h->x + i0 * h->e + k, h->e, 1, m, depth);
    for (int64_t i = 0; i < m; i += MR)
      for (int64_t j = 0; j < n; j += NR)
        micro(step_up(depth), a[i / MR].data, a[i / MR].row, words + j * step_up(h->e) + k * NR,
              logit + i * HEAD_ROW + j, HEAD_ROW, k > 0);
  }
  for (int64_t i = 0; i < m; i++) head_row(h, logit + i * HEAD_ROW, i0 + i, block, n);
}

// A block of words by few rows, which is read where it lies (few_rows.h).
static void head_few(Head *h, int64_t block, int64_t n) {
  enum { COLUMNS = FEW_COLUMNS_bf16 };
  float logit[FEW_MOST_bf16 * HEAD_ROW], sums[FEW_MOST_bf16 * COLUMNS];
  const uint16_t *words = (const uint16_t *)h->call->input[1].data + block * HEAD_WORDS * h->e;
  for (int64_t j = 0; j < n; j += COLUMNS)
    for (int64_t k = 0; k < h->e; k += KC) {
      int64_t columns = n - j < COLUMNS ? n - j : COLUMNS;
      few_rows_bf16(&(FewRows_bf16){.rows = h->n, .depth = h->e - k < KC ? h->e - k : KC, .a = h->x + k,
                                    .a_row = h->e, .b = words + j * h->e + k, .b_column = h->e, .columns = columns,
                                    .fetch = j + 2 * COLUMNS <= n}, sums);
      for (int64_t i = 0; i < h->n; i++)
        for (int64_t c = 0; c < columns; c++) {
          float *to = logit + i * HEAD_ROW + j + c, sum = sums[i * COLUMNS + c];
          *to = k ? *to + sum : sum;
        }
    }
  for (int64_t i = 0; i < h->n; i++) head_row(h, logit + i * HEAD_ROW, i, block, n);
}

// A block of words, packed into the thread's memory where it stays near, with a part of the chunk's rows.
static void head_unit(void *argument, int slot, int64_t unit) {
  Head *h = argument;
  int64_t block = unit / h->parts, part = unit % h->parts, j0 = block * HEAD_WORDS,
          n = h->vocab - j0 < HEAD_WORDS ? h->vocab - j0 : HEAD_WORDS;
  int64_t groups = (h->n + HEAD_ROWS - 1) / HEAD_ROWS, to = groups * (part + 1) / h->parts;
  if (!LEVEL_BF16 && h->n <= FEW_MOST_bf16) {
    head_few(h, block, n);
    return;
  }
  Packed *words = (Packed *)(void *)(h->product + (size_t)slot * head_slot_bytes(h->e)),
         *memory = words + HEAD_WORDS * step_up(h->e);
  float *logit = (float *)(void *)(memory + HEAD_ROWS * KA);
  pack_b(words, (const uint16_t *)h->call->input[1].data + j0 * h->e, 1, h->e, h->e, n);
  tiles_begin();
  for (int64_t group = groups * part / h->parts; group < to; group++)
    head_rows(h, group * HEAD_ROWS, block, n, words, memory, logit);
  tiles_end();
}

// The offsets to which exponentials of rows will be relative: about the target's logit.
static void head_about(void *argument, int slot, int64_t unit) {
  Head *h = argument;
  RowRange range = row_range(h->n, h->e, unit);
  for (int64_t row = range.from; row < range.to; row++) {
    int64_t local = head_local(h, row), n = h->e;
    const uint16_t *x = h->x + row * n, *w = (const uint16_t *)h->call->input[1].data + local * n;
    V sum = {0};
    if (local >= 0) EACH_VECTOR sum = fma_f32(take_bf16(x + i, n - i), take_bf16(w + i, n - i), sum);
    h->about[row] = local < 0 ? -INFINITY : sum_f32(sum);
  }
}

// Logits of the chunk: block by block to head_row.
static void head_logits(Head *h) {
  int64_t groups = (h->n + HEAD_ROWS - 1) / HEAD_ROWS, enough = 4 * team_size(call_team(h->call));
  h->parts = h->blocks >= enough ? 1 : (enough + h->blocks - 1) / (h->blocks ? h->blocks : 1);
  if (h->parts > groups) h->parts = groups;
  memset(h->target, 0, sizeof *h->target * (size_t)h->n);
  if (h->gradient && !h->known_maximum) team_each(call_team(h->call), row_units(h->n, h->e), head_about, h);
  team_each(call_team(h->call), h->blocks * h->parts, head_unit, h);
}

// Of a row, the greatest logit, and the sum over all blocks relative to that.
static void head_combine(const Head *h, int64_t row, float *maximum, float *sum) {
  const float *m = h->maximum + row * h->blocks, *s = h->sum + row * h->blocks;
  *maximum = greatest_row(m, h->blocks);
  *sum = 0;
  for (int64_t b = 0; b < h->blocks; b++) *sum += s[b] * expf(m[b] - *maximum);
}

// What is kept of the target, `written` times its exponential relative to `most` as all of its row, becomes that less
// `one`.
static void head_keep_target(const Head *h, int64_t row, int64_t local, float most, float written, float one) {
  if (local >= 0) h->kept[row * h->stride + local] = bf16_from_float(expf(h->target[row] - most) * written - one);
}

// What is kept of a row becomes (softmax - one-hot) seed / factor, with one offset and one sum for all its blocks.
static void head_finish_kept(const Head *h, int64_t row, int64_t local, float maximum, float sum) {
  float most = head_relative_to(h, row, maximum); // of the blocks' offsets
  for (int64_t b = 0; b < h->blocks; b++) {
    float relative_to = head_relative_to(h, row, h->maximum[row * h->blocks + b]);
    if (relative_to == most || FAULT(head_keeps_far_blocks, 0, 1)) continue;
    V by = splat_f32(expf(relative_to - most));
    uint16_t *x = h->kept + row * h->stride + b * HEAD_WORDS;
    int64_t n = h->vocab - b * HEAD_WORDS < HEAD_WORDS ? h->vocab - b * HEAD_WORDS : HEAD_WORDS;
    EACH_VECTOR put_bf16(x + i, take_bf16(x + i, n - i) * by, n - i);
  }
  float all = sum * expf(maximum - most);
  head_keep_target(h, row, local, most, 1, all);
  h->factor[row] = (float)(h->seed / (double)all);
}

// Rows of the chunk: the loss; what is kept becomes (softmax - one-hot) seed / factor.
static void head_finish(void *argument, int slot, int64_t unit) {
  Head *h = argument;
  RowRange range = row_range(h->n, h->vocab, unit);
  for (int64_t row = range.from; row < range.to; row++) {
    int64_t at = h->row[row], local = head_local(h, row);
    float maximum, sum, target = h->known_target ? h->known_target[at] : h->target[row];
    if (h->known_maximum) maximum = h->known_maximum[at], sum = h->known_sum[at];
    else head_combine(h, row, &maximum, &sum);
    h->loss[h->first + row] = (double)maximum + log((double)sum) - (double)target;
    if (!h->gradient) continue;
    if (h->out.sum) ((float *)h->out.relative_to->data)[at] = maximum, ((float *)h->out.sum->data)[at] = sum;
    if (!h->known_maximum) {
      head_finish_kept(h, row, local, maximum, sum);
      continue;
    }
    head_keep_target(h, row, local, maximum, (float)(h->seed / (double)sum), (float)h->seed);
    h->factor[row] = 1;
  }
}

// to = factor x, in bf16; to may be x.
static void head_times(uint16_t *to, const uint16_t *x, int64_t n, float factor) {
  V by = splat_f32(factor);
  EACH_VECTOR put_bf16(to + i, by * take_bf16(x + i, n - i), n - i);
}

// Rows of x for dw.
static void head_scale(void *argument, int slot, int64_t unit) {
  const Head *h = argument;
  RowRange range = row_range(h->n, h->e, unit);
  for (int64_t row = range.from; row < range.to; row++)
    head_times(h->packed + row * h->e, h->x + row * h->e, h->e, FAULT(head_forgets_the_sum_in_dw, h->factor[row], 1));
}

static void head_narrow(void *argument, int slot, int64_t unit) {
  const Head *h = argument;
  RowRange range = row_range(h->n, h->e, unit);
  for (int64_t row = range.from; row < range.to; row++) {
    uint16_t *to = (uint16_t *)h->out.dx->data + h->row[row] * h->e;
    const float *dx = h->dx + row * h->e;
    int64_t n = h->e;
    V by = splat_f32(h->factor[row]);
    EACH_VECTOR put_bf16(to + i, by * take_f32(dx + i, n - i), n - i);
  }
}

// A row of dlogits as it is kept, with zeroes for words that are padding.
static void head_keep(void *argument, int slot, int64_t row) {
  const Head *h = argument;
  int64_t words = h->out.dlogits->size[2];
  uint16_t *to = (uint16_t *)h->out.dlogits->data + h->row[row] * words;
  head_times(to, h->kept + row * h->stride, h->vocab, h->factor[row]);
  memset(to + h->vocab, 0, sizeof *to * (size_t)(words - h->vocab));
}

static void head_make_dx(Head *h) {
  const KernelCall *call = h->call;
  Product dx = {.m = h->n,
                .n = h->e,
                .k = h->vocab,
                .a = h->kept,
                .a_row = h->stride,
                .a_column = 1,
                .b = call->input[1].data,
                .b_row = h->e,
                .b_column = 1,
                .c = h->dx,
                .c_row = h->e,
                .wide = 1};
  product(&dx, h->product, call_team(call));
  team_each(call_team(call), row_units(h->n, h->e), head_narrow, h);
}

static void head_make_dw(Head *h) {
  int scaled = !h->known_maximum; // otherwise all factors are 1
  Product dw = {.m = h->vocab,
                .n = h->e,
                .k = h->n,
                .a = h->kept,
                .a_row = 1,
                .a_column = h->stride,
                .b = scaled ? h->packed : h->x,
                .b_row = h->e,
                .b_column = 1,
                .c = h->out.dw->data,
                .c_row = h->e,
                .wide = h->out.dw->dtype == DTYPE_F32,
                .add = h->add || h->first > 0};
  if (scaled) team_each(call_team(h->call), row_units(h->n, h->e), head_scale, h);
  product(&dw, h->product, call_team(h->call));
}

// dw first: it reads packed rows, which dx overwrites.
static void head_gradients(Head *h) {
  if (h->out.dlogits) team_each(call_team(h->call), h->n, head_keep, h);
  if (h->out.dw) head_make_dw(h);
  if (h->out.dx) head_make_dx(h);
}

static void head_run(Head *h) {
  const KernelCall *call = h->call;
  h->out = cpu_head_outputs(call);
  h->add = call_adds(call, ((const CrossEntropyAttr *)call->attr)->accumulate);
  h->seed = h->gradient ? operand_load(&call->input[3], 0) : 0;
  int64_t filled = FAULT(head_without_targets_leaves_dw, h->targets.count, h->rows) ? h->vocab : 0; // by products
  if (h->out.dw && !h->add) {
    size_t row = dtype_size(h->out.dw->dtype) * (size_t)h->e;
    memset((char *)h->out.dw->data + (size_t)filled * row, 0, (size_t)(call->input[1].size[0] - filled) * row);
  }
  cpu_head_clear(&h->targets, &h->out);
  for (; head_chunk(h); h->first += h->n) {
    if (FAULT(head_leaves_out_last_rows_bf16, 0, h->n < h->chunk)) break;
    if (h->gradient || !h->known_maximum) head_logits(h);
    team_each(call_team(call), row_units(h->n, h->vocab), head_finish, h);
    if (h->gradient) head_gradients(h);
  }
  double loss = 0;
  for (int64_t i = 0; i < h->targets.count; i++) loss += h->loss[i];
  if (h->out.loss) operand_store(h->out.loss, 0, loss);
}

static Head head_of(const KernelCall *call, int gradient) {
  Head h = head_sizes(call->input, gradient, (uintptr_t)call->workspace);
  h.call = call;
  h.targets = cpu_targets(call, h.targets.row);
  return h;
}

// dlogits are narrow, dw is wide or that of an accumulator.
static int head_fits(const KernelCall *call) {
  CpuHeadOutputs out = cpu_head_outputs(call);
  if (out.dlogits) return out.dlogits->dtype == DTYPE_BF16;
  if (!out.dw || !((const CrossEntropyAttr *)call->attr)->accumulate) return !out.dw || out.dw->dtype == DTYPE_F32;
  Dtype dtype = out.dw->dtype;
  return dtype == call->input[call->ninput - 1].dtype && (dtype == DTYPE_F32 || dtype == DTYPE_BF16);
}

// known: maximum, sum and target (rows) each, or NULL
static void head_call(const KernelCall *call, Op op, const float *maximum, const float *sum, const float *target) {
  if (!head_fits(call)) {
    op_def(op)->reference(call);
    return;
  }
  Head h = head_of(call, ((const CrossEntropyAttr *)call->attr)->gradient);
  h.known_maximum = maximum;
  h.known_sum = sum;
  h.known_target = target;
  head_run(&h);
}

static void linear_cross_entropy_bf16(const KernelCall *call) {
  head_call(call, OP_LINEAR_CROSS_ENTROPY, NULL, NULL, NULL);
}

static void cross_entropy_apply_bf16(const KernelCall *call) {
  const Operand *x = call->input;
  head_call(call, OP_CROSS_ENTROPY_APPLY, x[4].data, x[5].data, x[6].data);
}

static void cross_entropy_weight_bf16(const KernelCall *call) {
  head_call(call, OP_CROSS_ENTROPY_WEIGHT, call->input[4].data, call->input[5].data, NULL);
}

static void cross_entropy_statistics_bf16(const KernelCall *call) {
  Head h = head_of(call, 0);
  for (int k = 0; k < 3; k++) cpu_targets_clear(&h.targets, &call->output[k]);
  for (; head_chunk(&h); h.first += h.n) {
    head_logits(&h);
    for (int64_t i = 0; i < h.n; i++) {
      head_combine(&h, i, (float *)call->output[0].data + h.row[i], (float *)call->output[1].data + h.row[i]);
      ((float *)call->output[2].data)[h.row[i]] = h.target[i];
    }
  }
}

static void logits_bf16(const KernelCall *call) {
  Head h = head_sizes(call->input, 0, (uintptr_t)call->workspace);
  int64_t words = call->input[1].size[0], wanted = call->input[0].size[1];
  float *logits = call->output[0].data, *maximum = call->output[1].data, *sum = call->output[2].data;
  h.call = call;
  for (int64_t b = 0; b < call->input[0].size[0]; b++) {
    int64_t end = b * wanted + cpu_wanted_rows(call, b);
    for (h.first = b * wanted; h.first < end; h.first += h.n) {
      h.n = end - h.first < h.chunk ? end - h.first : h.chunk;
      h.x = (const uint16_t *)call->input[0].data + h.first * h.e;
      h.logits = logits + h.first * words;
      head_logits(&h);
      for (int64_t i = 0; i < h.n; i++) head_combine(&h, i, maximum + h.first + i, sum + h.first + i);
    }
  }
  for (int64_t row = 0; row < h.rows; row++) {
    int there = integer_load(&call->input[2], row) >= 0;
    int64_t from = there ? h.vocab : 0;
    memset(logits + row * words + from, 0, sizeof *logits * (size_t)(words - from));
    if (!there) maximum[row] = sum[row] = 0;
  }
}
