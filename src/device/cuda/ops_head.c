// Launches of the head: logits of a chunk of rows at a time, what they become, and the products with them.
//
// Rows of logits have columns up to a multiple of COLUMNS, and so has the copy of w that products read then: on an H100
// cuBLASLt multiplies seven times as fast with 50,304 columns as with 50,257.
#include "device/cuda/launch.h"

enum { MOST_LOGITS = 512 << 20, ROWS_OF_A_TILE = 64, COLUMNS = 64 };

// Words, and columns of a row of logits. The workspace has losses of all rows, the copy of w, logits of the
// dtype of sums, and narrow ones.
static int64_t words_of(const Operand *input) { return input[1].size[0]; }
static int64_t padded(int64_t words) { return divide_up(words, COLUMNS) * COLUMNS; }
static int64_t columns_of(const Operand *input) { return padded(words_of(input)); }
static int64_t rows_of(const Operand *input) { return operand_extent(&input[0], 0, 2); }
static int64_t losses_bytes(int64_t rows) { return divide_up(rows * (int64_t)sizeof(double), 256) * 256; }

static int64_t rows_at_once(int64_t rows, int64_t row_bytes) {
  int64_t most = MOST_LOGITS / (row_bytes + 1) / ROWS_OF_A_TILE * ROWS_OF_A_TILE;
  if (most < ROWS_OF_A_TILE) most = ROWS_OF_A_TILE;
  return rows < most ? rows : most;
}

static int64_t placed(int64_t bytes) { return divide_up(bytes, 256) * 256; }

// Of a row of gradients of logits in bf16, with which products of bf16 multiply, as on the CPU; else 0.
static int64_t narrow_bytes(const Operand *input) {
  return input[0].dtype == DTYPE_BF16 ? columns_of(input) * (int64_t)dtype_size(DTYPE_BF16) : 0;
}

// Of w with rows of zeros up to the columns of logits; 0: it has as many rows.
static int64_t weight_bytes(const Operand *input) {
  const Operand *w = &input[1];
  return columns_of(input) == words_of(input) ? 0 : columns_of(input) * w->size[1] * (int64_t)dtype_size(w->dtype);
}

size_t cuda_head_workspace(const Operand *input, const Operand *output, const void *attr, int threads) {
  int64_t rows = rows_of(input), row_bytes = columns_of(input) * sum_bytes(input[0].dtype);
  int64_t chunk = rows_at_once(rows, row_bytes + narrow_bytes(input));
  return (size_t)(losses_bytes(rows) + placed(chunk * row_bytes) + placed(chunk * narrow_bytes(input)) +
                  placed(weight_bytes(input))) +
         PRODUCT_WORKSPACE;
}

typedef struct Head {
  Launch *l;
  const Operand *x, *w;
  int64_t rows, words, columns, e, row_bytes, first, count; // first, count: of the chunk
  HeadArguments a;
  double *losses; // (rows), where there is a loss
  char *weight;   // (columns, e) copy of w with rows of zeros at its end; NULL: products read w
  char *narrow;   // (count, columns) gradients of logits, of the dtype of x, where products multiply with these
  const Operand *loss, *dx, *dw, *dlogits, *added, *stored[3];
} Head;

// Rows of an array that begins at the chunk.
static Array rows_from(const Head *h, const Operand *x, int64_t width, const char *name, unsigned mode) {
  char *at = x->data ? (char *)x->data + h->first * width * (int64_t)dtype_size(x->dtype) : NULL;
  return (Array){launch_bytes(h->l, name, at, h->count * width * (int64_t)dtype_size(x->dtype), mode),
                 x->dtype};
}

static Array logits_of(const Head *h, unsigned mode) {
  return (Array){launch_bytes(h->l, "logits", h->a.logits, h->count * h->row_bytes, mode),
                 sum_dtype(h->l->dtype)};
}

// Of (columns, e), as products read it.
static Array weight_of(const Head *h) {
  if (!h->weight) return launch_array(h->l, "w", h->w, CUDA_READS);
  return (Array){launch_bytes(h->l, "padded w", h->weight,
                              h->columns * h->e * (int64_t)dtype_size(h->w->dtype), CUDA_READS),
                 h->w->dtype};
}

static void copy_weight(const Head *h) {
  const Launch *l = h->l;
  const CudaDriver *driver = l->queue->instance->driver;
  const int64_t row = h->e * (int64_t)dtype_size(h->w->dtype);
  const CudaPointer to = (CudaPointer)(uintptr_t)h->weight, from = (CudaPointer)(uintptr_t)h->w->data;
  if (l->asked || !row || cuda_has_failed(l->queue)) return;
  CudaResult result = driver->cuMemcpyDtoDAsync_v2(to, from, (size_t)(h->words * row), l->queue->stream);
  if (!result)
    result = driver->cuMemsetD8Async(to + (CudaPointer)(h->words * row), FAULT(head_padding_is_anything, 0, 0xff),
                                     (size_t)((h->columns - h->words) * row), l->queue->stream);
  cuda_noted(l->queue, result, "cuMemcpyDtoDAsync", l->op);
}

static void make_logits(Head *h) {
  ProductArguments p = {.rows = h->count, .columns = h->columns, .depth = h->e, .a_row = h->e, .a_depth = 1,
                        .b_column = h->e, .b_depth = 1};
  p.a = rows_from(h, h->x, h->e, "x", CUDA_READS);
  p.b = weight_of(h);
  p.out = logits_of(h, CUDA_WRITES);
  launch_product(h->l, &p);
}

static Array narrow_of(const Head *h, unsigned mode) {
  int64_t bytes = h->narrow ? h->count * h->columns * (int64_t)dtype_size(h->l->dtype) : 0;
  return (Array){launch_bytes(h->l, "narrow logits", h->narrow, bytes, mode), h->l->dtype};
}

// Whether products read the gradients of logits where the op's output has them, without columns for nothing.
static int reads_output(const Head *h) { return h->dlogits && h->dlogits->dtype == h->l->dtype; }

// Gradients of logits, as products read them: both operands of a library's have one dtype.
static Array gradients_of(const Head *h) {
  if (reads_output(h)) return rows_from(h, h->dlogits, h->words, "dlogits", CUDA_READS);
  return h->narrow && !h->dlogits ? narrow_of(h, CUDA_READS) : logits_of(h, CUDA_READS);
}

static void use_logits(Head *h) {
  static const char *const given[] = {"maximum", "sum", "target"};
  static const char *const stored[] = {"new maximum", "new sum", "new target"};
  HeadArguments a = h->a;
  const KernelCall *call = h->l->call;
  const int elsewhere = a.mode == HEAD_GRADIENT && (reads_output(h) || (h->narrow && !h->dlogits));
  a.keeps = a.mode != HEAD_LOSS && !elsewhere;
  logits_of(h, CUDA_READS | (a.keeps ? CUDA_WRITES : 0u));
  launch_array(h->l, "targets", &call->input[2], CUDA_READS);
  if (a.seed.data) launch_array(h->l, "seed", &call->input[3], CUDA_READS);
  for (int k = 0; k < 3; k++) {
    launch_bytes(h->l, given[k], a.given[k].data, h->rows * (int64_t)dtype_size((Dtype)a.given[k].dtype), CUDA_READS);
    if (h->stored[k]) a.stored[k] = rows_from(h, h->stored[k], 1, stored[k], CUDA_WRITES);
  }
  if (h->loss)
    a.losses = launch_bytes(h->l, "losses", h->losses + h->first, h->count * (int64_t)sizeof(double), CUDA_WRITES);
  a.dlogits = h->dlogits ? rows_from(h, h->dlogits, h->words, "dlogits", CUDA_WRITES) : narrow_of(h, CUDA_WRITES);
  a.width = h->dlogits ? h->words : h->columns;
  a.first = h->first;
  launch_kernel(h->l, CUDA_KERNEL_head, h->count, pack_threads(h->columns, sum_dtype(h->l->dtype)), &a);
}

// dx = dlogits w; zeros multiply the rows of w that are none.
static void make_dx(Head *h) {
  int64_t depth = reads_output(h) ? h->words : h->columns;
  ProductArguments p = {.rows = h->count, .columns = h->e, .depth = depth, .a_row = depth, .a_depth = 1,
                        .b_column = 1, .b_depth = h->e};
  p.a = gradients_of(h);
  p.b = reads_output(h) ? launch_array(h->l, "w", h->w, CUDA_READS) : weight_of(h);
  p.out = rows_from(h, h->dx, h->e, "dx", CUDA_WRITES);
  launch_product(h->l, &p);
}

// Rows of words from `first` on, of a tensor like w.
static Array words_from(const Head *h, const Operand *x, int64_t first, int64_t count, const char *name,
                        unsigned mode) {
  const int64_t row = h->e * (int64_t)dtype_size(x->dtype);
  return (Array){launch_bytes(h->l, name, x->data ? (char *)x->data + first * row : NULL, count * row, mode), x->dtype};
}

// dw (+)= dlogitsᵀ x of `count` words
static void make_dw(Head *h, int64_t first, int64_t count) {
  ProductArguments p = {.rows = count, .columns = h->e, .depth = h->count, .a_row = 1, .a_depth = h->columns,
                        .b_column = 1, .b_depth = h->e};
  if (!count) return;
  Array gradients = gradients_of(h);
  p.a = (Array){(char *)gradients.data + first * (int64_t)dtype_size((Dtype)gradients.dtype), gradients.dtype};
  p.b = rows_from(h, h->x, h->e, "x", CUDA_READS);
  if (h->first || h->added) p.added = words_from(h, h->first ? h->dw : h->added, first, count, "added", CUDA_READS);
  p.out = words_from(h, h->dw, first, count, "dw", CUDA_WRITES);
  launch_product(h->l, &p);
}

// dw has room for its words alone: one product makes as many as are a multiple of COLUMNS, another one the rest.
static void use_gradients(Head *h) {
  const int64_t most = h->words / COLUMNS * COLUMNS;
  if (h->dx) make_dx(h);
  if (!h->dw) return;
  make_dw(h, 0, most);
  make_dw(h, most, h->words - most);
}

static void add_losses(Head *h) {
  SumArguments a = {.n = h->rows};
  a.partial = launch_bytes(h->l, "losses", h->losses, h->rows * (int64_t)sizeof(double), CUDA_READS);
  a.out = launch_array(h->l, "loss", h->loss, CUDA_WRITES);
  launch_kernel(h->l, CUDA_KERNEL_sum, 1, block_threads(h->rows), &a);
}

static Head head_of(Launch *l) {
  const Operand *in = l->call->input;
  Head h = {.l = l, .x = &in[0], .w = &in[1], .rows = rows_of(in), .words = words_of(in), .e = in[1].size[1]};
  h.columns = h.words;
  h.row_bytes = h.words * sum_bytes(l->dtype);
  h.a = (HeadArguments){.targets = {in[2].data, in[2].dtype}, .map = launch_map(&in[1].map[0]),
                        .columns = h.words, .mode = HEAD_LOSS};
  return h;
}

static Array array_of(const Operand *x) { return (Array){x->data, x->dtype}; }

// Names what the op gives and is given, by its place among the operands (op/linear_cross_entropy.c).
static void name_operands(Head *h, Op op) {
  const KernelCall *call = h->l->call;
  const Operand *in = call->input, *out = call->output;
  const CrossEntropyAttr *attr = call->attr;
  int statistics = op == OP_CROSS_ENTROPY_STATISTICS, weight = op == OP_CROSS_ENTROPY_WEIGHT;
  for (int k = 0; k < 3 && statistics; k++) h->stored[k] = &out[k];
  if (statistics) return;
  int given = op == OP_CROSS_ENTROPY_APPLY ? 3 : weight ? 2 : 0;
  for (int k = 0; k < given; k++) h->a.given[k] = array_of(&in[4 + k]);
  if (!weight) h->loss = &out[0];
  if (!weight && call->noutput == 4)
    for (int k = 0; k < 2; k++) h->stored[k] = &out[2 + k];
  if (!attr->gradient) return;
  h->a.mode = HEAD_GRADIENT;
  h->a.seed = array_of(&in[3]);
  if (!weight) h->dx = &out[1];
  if (attr->split == CROSS_ENTROPY_DLOGITS) h->dlogits = &out[2];
  if (!attr->split) h->dw = &out[weight ? 0 : 2];
  if (call_adds(call, attr->accumulate)) h->added = &in[call->ninput - 1];
}

// dw of no rows: what it is added to.
static void no_rows(Head *h) {
  ProductArguments p = {.rows = h->words, .columns = h->e, .a_row = 1, .a_depth = 1, .b_column = 1, .b_depth = 1};
  if (!h->dw) return;
  if (h->added) p.added = launch_array(h->l, "added", h->added, CUDA_READS);
  p.out = launch_array(h->l, "dw", h->dw, CUDA_WRITES);
  launch_product(h->l, &p);
}

// How many rows a chunk has: as many as the workspace lets it have.
static int64_t lay_out(Head *h) {
  const KernelCall *call = h->l->call;
  const int64_t before = losses_bytes(h->rows), weight = placed(weight_bytes(call->input)),
                narrow = narrow_bytes(call->input);
  const int64_t room = (int64_t)call->workspace_size - PRODUCT_WORKSPACE - before - weight;
  h->a.columns = h->columns = padded(h->words);
  h->row_bytes = h->columns * sum_bytes(h->l->dtype);
  int64_t most = room / (h->row_bytes + narrow);
  while (most > 0 && placed(most * h->row_bytes) + placed(most * narrow) > room) most--;
  char *at = (char *)call->workspace + before;
  if (h->loss) h->losses = call->workspace;
  if (weight) h->weight = at;
  h->a.logits = at + weight;
  if (narrow && h->a.mode == HEAD_GRADIENT) h->narrow = at + weight + placed(most * h->row_bytes);
  return most;
}

static void launch_head(Launch *l, Op op) {
  Head h = head_of(l);
  name_operands(&h, op);
  int64_t most = lay_out(&h);
  if (!h.rows) no_rows(&h);
  CHECK(most > 0 || !h.rows, "%s has no workspace", l->op);
  if (h.weight && h.rows) copy_weight(&h);
  for (h.first = 0; h.first < h.rows; h.first += h.count) {
    h.count = h.rows - h.first < most ? h.rows - h.first : most;
    make_logits(&h);
    use_logits(&h);
    if (h.a.mode == HEAD_GRADIENT) use_gradients(&h);
  }
  if (h.loss) add_losses(&h);
}

void launch_cross_entropy(Launch *l) { launch_head(l, OP_LINEAR_CROSS_ENTROPY); }
void launch_cross_entropy_statistics(Launch *l) { launch_head(l, OP_CROSS_ENTROPY_STATISTICS); }
void launch_cross_entropy_apply(Launch *l) { launch_head(l, OP_CROSS_ENTROPY_APPLY); }
void launch_cross_entropy_weight(Launch *l) { launch_head(l, OP_CROSS_ENTROPY_WEIGHT); }

// In their output, all at once.
void launch_logits(Launch *l) {
  Head h = head_of(l);
  h.count = h.rows;
  h.a.mode = HEAD_LOGITS;
  h.a.logits = launch_output(l, 0)->data;
  for (int k = 0; k < 2; k++) h.stored[k] = launch_output(l, 1 + k);
  if (!h.rows) return;
  make_logits(&h);
  use_logits(&h);
}
