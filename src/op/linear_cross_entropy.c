// LINEAR_CROSS_ENTROPY: the head's product, the loss and both gradients in one node that never holds all logits, and
// what it becomes when the vocabulary is sharded: STATISTICS, all_reduce, RESCALE, all_reduce, APPLY. Where backward is
// split, WEIGHT may make dw later, of logits that it makes once more.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static void check_operands(const Graph *g, const Node *node) {
  const Tensor *x = graph_tensor(g, node->input[0]), *w = graph_tensor(g, node->input[1]);
  CHECK(x->shape.rank == 3 && w->shape.rank == 2 && x->shape.size[2] == w->shape.size[1], "%s", node->name);
  const Shape *t = &graph_tensor(g, node->input[2])->shape;
  CHECK(t->rank == 2 && t->size[0] == x->shape.size[0] && t->size[1] == x->shape.size[1], "%s", node->name);
}

// x (b, s, e) and w (v, e) → (b, s, v)
static Shape logits_shape(const Shape *x, const Shape *w) {
  Shape logits = *x;
  logits.size[2] = w->size[0];
  logits.dim[2] = w->dim[0];
  return logits;
}

// dw (v, e)
static void weight_output(Graph *g, Node *node) {
  Tensor w = *graph_tensor(g, node->input[1]);
  int added_to = node_attr(node, CrossEntropyAttr)->accumulate ? node->input[node->ninput - 1] : -1;
  graph_output(g, node, "dw", added_to < 0 ? op_statistics_dtype(w.dtype) : graph_tensor(g, added_to)->dtype, w.shape);
}

// loss_sum () fp64, when attr.gradient then dx (b, s, e) and, as attr.split says, dw (v, e), dlogits (b, s, v) or
// nothing
static void loss_outputs(Graph *g, Node *node) {
  Tensor x = *graph_tensor(g, node->input[0]), w = *graph_tensor(g, node->input[1]);
  graph_output(g, node, "loss_sum", DTYPE_F64, (Shape){.rank = 0});
  if (!node_attr(node, CrossEntropyAttr)->gradient) return;
  graph_output(g, node, "dx", x.dtype, x.shape);
  switch ((CrossEntropySplit)node_attr(node, CrossEntropyAttr)->split) {
  case CROSS_ENTROPY_WHOLE: weight_output(g, node); break;
  case CROSS_ENTROPY_DLOGITS: graph_output(g, node, "dlogits", x.dtype, logits_shape(&x.shape, &w.shape)); break;
  case CROSS_ENTROPY_SUMS: break;
  }
}

// x (b, s, e), w (v, e), targets (b, s), seed () or -1 without gradient
static void loss_shape(Graph *g, Node *node) {
  const CrossEntropyAttr *attr = node_attr(node, CrossEntropyAttr);
  CHECK(node->ninput == 4 + !!attr->accumulate && (node->input[3] >= 0 || !attr->gradient));
  check_operands(g, node);
  loss_outputs(g, node);
  if (!attr->gradient || attr->split != CROSS_ENTROPY_SUMS) return;
  // Not of APPLY, which reads them.
  Dtype dtype = op_statistics_dtype(graph_tensor(g, node->input[0])->dtype);
  graph_output(g, node, "relative_to", dtype, graph_tensor(g, node->input[2])->shape);
  graph_output(g, node, "sum", dtype, graph_tensor(g, node->input[2])->shape);
}

// dw = dlogitsᵀ x, or of logits that are made once more
static int split_weight(Graph *g, const Node *node) {
  int n;
  const char *name = op_derived_name(g, node, "dw");
  if (node_attr(node, CrossEntropyAttr)->split == CROSS_ENTROPY_SUMS) {
    int all[] = {node->input[0], node->input[1], node->input[2], node->input[3], node->output[2], node->output[3]};
    CrossEntropyAttr attr = {.gradient = 1};
    n = graph_node(g, OP_CROSS_ENTROPY_WEIGHT, name, all, 6, &attr, sizeof attr);
  } else {
    MatmulAttr attr = {.kind = MATMUL_TN, .m = 2, .n = 1, .k = 1};
    n = graph_node(g, OP_MATMUL, name, (int[]){node->output[2], node->input[0]}, 2, &attr, sizeof attr);
  }
  return g->node.data[n].output[0];
}

// The gradient was made with the loss, because its seed is known before.
static void loss_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  CHECK(node_attr(&node, CrossEntropyAttr)->gradient, "%s was built without gradient", node.name);
  int whole = node_attr(&node, CrossEntropyAttr)->split == CROSS_ENTROPY_WHOLE;
  dinput[0] = node.output[1];
  dinput[1] = whole ? node.output[2] : split_weight(g, &node);
  dinput[2] = dinput[3] = -1;
}

// The gradients of the logits are kept, and dw = dlogitsᵀ x is a product of backward. Or the logits are made once more,
// which takes a third of the head's FLOPs again and, where w is sharded by ZeRO, another gather of it.
static void loss_split(Graph *g, int id, int again) {
  Node *node = &g->node.data[id];
  CrossEntropyAttr *attr = node_attr(node, CrossEntropyAttr);
  if (!attr->gradient || attr->split) return;
  again = FAULT(logits_are_kept, again, 0);
  attr->split = again ? CROSS_ENTROPY_SUMS : CROSS_ENTROPY_DLOGITS;
  const Tensor *x = graph_tensor(g, node->input[0]), *w = graph_tensor(g, node->input[1]);
  const Shape rows = graph_tensor(g, node->input[2])->shape;
  Tensor *last = graph_tensor(g, node->output[2]); // dw until now
  last->name = op_derived_name(g, node, again ? "relative_to" : "dlogits");
  last->dtype = again ? op_statistics_dtype(x->dtype) : x->dtype;
  last->shape = again ? rows : logits_shape(&x->shape, &w->shape);
  if (again) graph_output(g, node, "sum", last->dtype, rows);
}

static void loss_rule(const Graph *g, const Node *node, char *text, size_t size) {
  const char *whole[] = {"", "bse", "ve"}, *dlogits[] = {"", "bse", "bsv"}, *sums[] = {"", "bse", "bs", "bs"};
  int split = node_attr(node, CrossEntropyAttr)->split;
  op_rule(text, size, (const char *[]){"bse", "ve", "bs", ""}, 4,
          split == CROSS_ENTROPY_SUMS ? sums : split ? dlogits : whole, node->noutput,
          split == CROSS_ENTROPY_SUMS ? "; whole e ; lower v ; complete 0 v ; complete 2 v ; complete 3 v"
                                      : "; whole e ; lower v ; complete 0 v");
}

// One rank's rows and vocabulary, as doubles.
typedef struct Head {
  const KernelCall *call;
  int64_t rows, vocab, e; // vocab: without padding
  double *x, *w;          // (rows, e), (v, e)
  double *logit;          // (v) of one row
} Head;

static Head head_of(const KernelCall *call) {
  const Operand *x = &call->input[0], *w = &call->input[1];
  Head h = {.call = call,
            .rows = operand_extent(x, 0, 2),
            .vocab = FAULT(padding_is_a_word_reference, w->map[0].valid, w->size[0]),
            .e = w->size[1]};
  h.x = operand_doubles(x);
  h.w = operand_doubles(w);
  h.logit = xcalloc((size_t)h.vocab + 1, sizeof(double));
  return h;
}

static void head_free(Head *h) {
  operand_doubles_free(&h->call->input[0], h->x);
  operand_doubles_free(&h->call->input[1], h->w);
  free(h->logit);
}

static double logit_of(const Head *h, int64_t row, int64_t v) {
  double dot = 0;
  for (int64_t i = 0; i < h->e; i++) dot += h->x[row * h->e + i] * h->w[v * h->e + i];
  return dot;
}

static int64_t target_of(const Head *h, int64_t row) { return (int64_t)operand_load(&h->call->input[2], row); }

// Fills logit; gives their maximum, the sum of exp(logit - maximum), and the target's logit, 0 when it is not here.
static void row_statistics(Head *h, int64_t row, double *maximum, double *sum, double *target) {
  *maximum = -INFINITY;
  *sum = 0;
  for (int64_t v = 0; v < h->vocab; v++) *maximum = fmax(*maximum, h->logit[v] = logit_of(h, row, v));
  for (int64_t v = 0; v < h->vocab; v++) *sum += exp(h->logit[v] - *maximum);
  int64_t local = index_local(&h->call->input[1].map[0], target_of(h, row));
  *target = local >= 0 ? h->logit[local] : 0;
}

typedef struct Statistics { double *maximum, *sum, *target; } Statistics; // (rows) each

// dlogit = (softmax - one-hot) seed; dx = dlogit w row by row, and dlogit too where that is asked for.
static void store_rows(Head *h, const Statistics *s, double seed, const Operand *dx, const Operand *dlogits) {
  const IndexMap *map = &h->call->input[1].map[0];
  for (int64_t row = 0; row < h->rows; row++) {
    int64_t target = target_of(h, row), local = target < 0 ? -1 : index_local(map, target);
    for (int64_t v = 0; v < h->vocab; v++)
      h->logit[v] = target < 0 ? 0 : (exp(logit_of(h, row, v) - s->maximum[row]) / s->sum[row] - (v == local)) * seed;
    for (int64_t i = 0; i < h->e; i++) {
      double sum = 0;
      for (int64_t v = 0; v < h->vocab; v++) sum += h->logit[v] * h->w[v * h->e + i];
      operand_store(dx, row * h->e + i, sum);
    }
    for (int64_t v = 0; dlogits && v < dlogits->size[2]; v++)
      operand_store(dlogits, row * dlogits->size[2] + v, v < h->vocab ? h->logit[v] : 0);
  }
}

// dw = dlogitᵀ x word by word.
static void store_weight(Head *h, const Statistics *s, double seed, const Operand *dw) {
  const IndexMap *map = &h->call->input[1].map[0];
  double *column = xcalloc((size_t)h->e, sizeof *column);
  int add = call_adds(h->call, ((const CrossEntropyAttr *)h->call->attr)->accumulate); // dw is the accumulator's memory
  for (int64_t v = 0; v < dw->size[0]; v++) {
    memset(column, 0, (size_t)h->e * sizeof *column);
    for (int64_t row = 0; row < h->rows && v < h->vocab; row++) {
      int64_t target = target_of(h, row);
      if (target < 0) continue;
      double p = exp(logit_of(h, row, v) - s->maximum[row]) / s->sum[row];
      p = (p - (index_local(map, target) == v)) * seed;
      for (int64_t i = 0; i < h->e; i++) column[i] += p * h->x[row * h->e + i];
    }
    for (int64_t i = 0; i < h->e; i++)
      operand_store(dw, v * h->e + i, column[i] + (add ? operand_load(dw, v * h->e + i) : 0));
  }
  free(column);
}

static void store_loss(const Head *h, const Statistics *s, const Operand *loss) {
  double total = 0;
  for (int64_t row = 0; row < h->rows; row++)
    if (FAULT(mask_targets_reference, target_of(h, row) >= 0, 1))
      total += s->maximum[row] + log(s->sum[row]) - s->target[row];
  operand_store(loss, 0, total);
}

static Statistics statistics_of(int64_t rows) {
  double *memory = xcalloc((size_t)rows * 3 + 1, sizeof *memory);
  return (Statistics){memory, memory + rows, memory + 2 * rows};
}

// Of rows without a target: 0.
static void store_sums(const Head *h, const Statistics *s, const Operand *relative_to, const Operand *sum) {
  for (int64_t row = 0; row < h->rows; row++) {
    int counts = target_of(h, row) >= 0;
    operand_store(relative_to, row, counts ? s->maximum[row] : 0);
    operand_store(sum, row, counts ? s->sum[row] : 0);
  }
}

static void finish(Head *h, Statistics *s) {
  const KernelCall *call = h->call;
  store_loss(h, s, &call->output[0]);
  const CrossEntropyAttr *attr = call->attr;
  double seed = attr->gradient ? operand_load(&call->input[3], 0) : 0;
  if (attr->gradient)
    store_rows(h, s, seed, &call->output[1], attr->split == CROSS_ENTROPY_DLOGITS ? &call->output[2] : NULL);
  if (attr->gradient && !attr->split) store_weight(h, s, seed, &call->output[2]);
  if (call->noutput == 4) store_sums(h, s, &call->output[2], &call->output[3]);
  free(s->maximum);
  head_free(h);
}

static void loss_reference(const KernelCall *call) {
  Head h = head_of(call);
  Statistics s = statistics_of(h.rows);
  for (int64_t row = 0; row < h.rows; row++) row_statistics(&h, row, &s.maximum[row], &s.sum[row], &s.target[row]);
  finish(&h, &s);
}

static int loss_accumulate(Node *node) {
  CrossEntropyAttr *attr = node_attr(node, CrossEntropyAttr);
  if (!attr->gradient || attr->accumulate || attr->split) return -1;
  attr->accumulate = 1;
  return node->noutput - 1;
}

// The product of logits. They count no bytes: they stay in the cache where a kernel makes them by blocks of rows and
// words, as the CPU's for bf16 does. (Its fp32 kernel makes whole rows, some hundred MB at a time.) Where the product
// is a library's, another kernel reads them.
static OpProduct logits_work(const Operand *input, OpWork *work) {
  OpProduct p = {(double)operand_extent(&input[0], 0, 2), (double)input[1].size[0], (double)input[1].size[1], 1};
  work->matrix = 2.0 * (double)operand_elements(&input[0]) * (double)input[1].size[0];
  work->vector = 4 * p.m * p.n; // the greatest, a difference, an exponential and the sum
  work->product[work->products++] = p;
  work->rows_read = p.m * p.n * (double)dtype_size(input[0].dtype);
  return p;
}

// Logits, and with gradient dx and dw: three products. All rows count, though kernels leave out those without a target:
// how many these are is not known before the step. dw may be left to another node. The values of the logits that
// gradients need, in the dtype of x, go through memory: kernels keep them for a chunk of rows at a time, which is more
// than a cache holds. They are written `passes` times, read before each but the first, and read once more by each
// product, or to be handed on.
static void head_work(const Operand *input, const CrossEntropyAttr *attr, int passes, OpWork *work) {
  OpProduct p = logits_work(input, work);
  if (!attr->gradient) return;
  double bytes = p.m * p.n * (double)dtype_size(input[0].dtype);
  work->written += passes * bytes;
  work->read += (passes - 1 + (attr->split == CROSS_ENTROPY_SUMS ? 1 : 2)) * bytes;
  work->rows_written = bytes;
  work->matrix *= attr->split ? 2 : 3;
  work->product[work->products++] = (OpProduct){p.m, p.k, p.n, 1, MATMUL_NN};
  if (!attr->split) work->product[work->products++] = (OpProduct){p.n, p.k, p.m, 1, MATMUL_TN};
}

// Kernels for narrow dtypes write exponentials once. Others write logits, and what they become, once more.
static void loss_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  head_work(input, attr, dtype_size(input[0].dtype) < sizeof(float) ? 1 : 2, work);
}

// The loss alone.
static void loss_evaluate(Node *node) {
  node_attr(node, CrossEntropyAttr)->gradient = 0;
  node->input[3] = -1;
  node->noutput = 1;
}

static int append_all_reduce(Graph *g, const Node *node, const char *suffix, int x, uint32_t axes, int maximum) {
  CommAttr attr = {.axes = axes, .maximum = maximum};
  int n = graph_node(g, OP_ALL_REDUCE, op_derived_name(g, node, suffix), &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

void op_combine_sums(Graph *g, const Node *like, uint32_t axes, int *statistics) {
  Node node = *like;
  int maximum = append_all_reduce(g, &node, "all_reduce_maximum", statistics[0], axes, 1);
  int n = graph_node(g, OP_CROSS_ENTROPY_RESCALE, op_derived_name(g, &node, "rescale"),
                     (int[]){statistics[0], maximum, statistics[1]}, 3, NULL, 0);
  statistics[0] = maximum;
  statistics[1] = append_all_reduce(g, &node, "all_reduce_sum", g->node.data[n].output[0], axes, 0);
}

static void loss_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  Node node = *like;
  int n = graph_node(g, OP_CROSS_ENTROPY_STATISTICS, op_derived_name(g, &node, "statistics"), input, 3, NULL, 0);
  int local[3], statistics[2];
  memcpy(local, g->node.data[n].output, sizeof local);
  memcpy(statistics, local, sizeof statistics);
  op_combine_sums(g, &node, axes, statistics);
  int target = append_all_reduce(g, &node, "all_reduce_target", local[2], axes, 0);
  int all[] = {input[0], input[1], input[2], input[3], statistics[0], statistics[1], target};
  n = graph_node(g, OP_CROSS_ENTROPY_APPLY, op_derived_name(g, &node, "apply"), all, 7, node.attr,
                 sizeof(CrossEntropyAttr));
  for (int k = 0; k < g->node.data[n].noutput; k++) output[k] = g->node.data[n].output[k];
  if (node.noutput < 4) return;
  output[2] = statistics[0];
  output[3] = FAULT(head_keeps_the_sum_of_a_shard, statistics[1], local[1]);
}

const OpDef op_def_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .meaning = "x (b, s, e), w (v, e), targets (b, s), seed () → loss_sum () = Σ over targets >= 0 of -log softmax(x "
               "wᵀ)[target], "
               "dx, dw = seed · its gradients; with `split` instead of dw dlogits (b, s, v), or, for "
               "cross_entropy_weight, relative_to (b, s), the row's greatest logit, and sum (b, s) of "
               "exp(logit - relative_to), both 0 of rows without a target",
    .shape = loss_shape,
    .widens_weight = 1,
    .gradient = loss_gradient,
    .split = loss_split,
    .rule = loss_rule,
    .lower = loss_lower,
    .evaluate = loss_evaluate,
    .reference = loss_reference,
    .accumulate = loss_accumulate,
    .accumulates_narrow = 1,
    .work = loss_work,
    .expensive = 1,
};

// x (b, s, e), w (v, e), targets (b, s) → maximum, sum, target (b, s) of this rank's part of the vocabulary
static void statistics_shape(Graph *g, Node *node) {
  static const char *const suffix[] = {"maximum", "sum", "target"};
  CHECK(node->ninput == 3);
  check_operands(g, node);
  Dtype dtype = op_statistics_dtype(graph_tensor(g, node->input[0])->dtype);
  Shape rows = graph_tensor(g, node->input[2])->shape;
  for (int k = 0; k < 3; k++) graph_output(g, node, suffix[k], dtype, rows);
}

// All three are partial over v; `maximum` is to be reduced by maximum, which `lower` does.
static void statistics_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bse", "ve", "bs"}, 3, (const char *[]){"bs", "bs", "bs"}, 3, "; whole e");
}

static void statistics_reference(const KernelCall *call) {
  Head h = head_of(call);
  for (int64_t row = 0; row < h.rows; row++) {
    double value[3] = {0};
    if (target_of(&h, row) >= 0) row_statistics(&h, row, &value[0], &value[1], &value[2]);
    for (int k = 0; k < 3; k++) operand_store(&call->output[k], row, value[k]);
  }
  head_free(&h);
}

static void statistics_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  logits_work(input, work);
}

const OpDef op_def_cross_entropy_statistics = {
    .name = "cross_entropy_statistics",
    .meaning = "x (b, s, e), w (v, e), targets (b, s) → maximum (b, s) of the local logits, sum (b, s) of exp(logit - "
               "maximum), "
               "target (b, s) = the target's logit, 0 where another rank holds it; all 0 of rows without a target",
    .minus_infinity = 1, // of a shard of the vocabulary that is all padding
    .shape = statistics_shape,
    .widens_weight = 1,
    .rule = statistics_rule,
    .reference = statistics_reference,
    .work = statistics_work,
    .expensive = 1,
};

// local maximum (b, s), maximum (b, s), local sum (b, s) → local sum relative to the common maximum
static void rescale_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor sum = *graph_tensor(g, node->input[2]);
  graph_output(g, node, "", sum.dtype, sum.shape);
}

// Works on each rank's own partial statistics and gives a partial sum. Made by `lower` alone, with just such operands.
static void rescale_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0+2");
}

static void rescale_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  for (int64_t i = 0; i < n; i++) {
    double factor = exp(operand_load(&call->input[0], i) - operand_load(&call->input[1], i)); // 0 for an empty shard
    operand_store(&call->output[0], i, operand_load(&call->input[2], i) * factor);
  }
}

const OpDef op_def_cross_entropy_rescale = {
    .name = "cross_entropy_rescale",
    .meaning = "local maximum, maximum, local sum (b, s) → sum exp(local maximum - maximum) (b, s)",
    .shape = rescale_shape,
    .rule = rescale_rule,
    .reference = rescale_reference,
};

// x, w, targets, seed, and maximum, sum, target (b, s) of the whole vocabulary → loss_sum (), dx (b, s, e), dw (v, e)
static void apply_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 7 + !!node_attr(node, CrossEntropyAttr)->accumulate);
  check_operands(g, node);
  loss_outputs(g, node);
}

static void apply_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bse", "ve", "bs", "", "bs", "bs", "bs"}, 7,
          (const char *[]){"", "bse", node_attr(node, CrossEntropyAttr)->split ? "bsv" : "ve"}, node->noutput,
          "; whole e ; complete 0 v");
}

static void apply_reference(const KernelCall *call) {
  Head h = head_of(call);
  Statistics s = statistics_of(h.rows);
  for (int64_t row = 0; row < h.rows; row++) {
    s.maximum[row] = operand_load(&call->input[4], row);
    s.sum[row] = operand_load(&call->input[5], row);
    s.target[row] = operand_load(&call->input[6], row);
  }
  finish(&h, &s);
}

// The row's maximum and sum are known: what is written is dlogits.
static void apply_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  head_work(input, attr, 1, work);
}

const OpDef op_def_cross_entropy_apply = {
    .name = "cross_entropy_apply",
    .meaning = "x, w, targets, seed, maximum, sum, target → loss_sum (), on every shard of the vocabulary; dx, partial "
               "over them; dw",
    .shape = apply_shape,
    .rule = apply_rule,
    .reference = apply_reference,
    .accumulate = loss_accumulate,
    .accumulates_narrow = 1,
    .work = apply_work,
    .expensive = 1,
};

// x, w, targets, seed, and relative_to, sum (b, s) of the whole vocabulary → dw (v, e), of logits made once more
static void weight_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 6 + !!node_attr(node, CrossEntropyAttr)->accumulate);
  check_operands(g, node);
  weight_output(g, node);
}

static void weight_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bse", "ve", "bs", "", "bs", "bs"}, 6, (const char *[]){"ve"}, 1, "; whole e");
}

static void weight_reference(const KernelCall *call) {
  Head h = head_of(call);
  Statistics s = statistics_of(h.rows);
  for (int64_t row = 0; row < h.rows; row++) {
    s.maximum[row] = operand_load(&call->input[4], row);
    s.sum[row] = operand_load(&call->input[5], row);
  }
  store_weight(&h, &s, operand_load(&call->input[3], 0), &call->output[0]);
  free(s.maximum);
  head_free(&h);
}

// In narrow dtypes exponentials are written and read once. Else logits are, too.
static void weight_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  OpProduct p = logits_work(input, work);
  size_t size = dtype_size(input[0].dtype);
  double bytes = (size < sizeof(float) ? 1 : 2) * p.m * p.n * (double)size;
  work->written += bytes;
  work->read += bytes;
  work->rows_written = p.m * p.n * (double)size;
  work->matrix *= 2;
  work->product[work->products++] = (OpProduct){p.n, p.k, p.m, 1, MATMUL_TN};
}

const OpDef op_def_cross_entropy_weight = {
    .name = "cross_entropy_weight",
    .meaning =
        "x, w, targets, seed, relative_to, sum → dw, of logits that it makes once more; what LINEAR_CROSS_ENTROPY "
        "left out where backward is split",
    .shape = weight_shape,
    .rule = weight_rule,
    .reference = weight_reference,
    .accumulate = loss_accumulate,
    .accumulates_narrow = 1,
    .work = weight_work,
    .expensive = 1,
};

int op_linear_cross_entropy(Graph *g, const char *name, int x, int w, int targets, int seed, int gradient) {
  CrossEntropyAttr attr = {.gradient = gradient};
  int n = graph_node(g, OP_LINEAR_CROSS_ENTROPY, name, (int[]){x, w, targets, seed}, 4, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
