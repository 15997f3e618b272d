#include "device/cuda/attention_graph.h"
#include "base/error.h"
#include "base/fault.h"
#include <string.h>

enum { MOST_OPERATIONS = 32, MOST_CONFIGURATIONS = 16 };

typedef struct Tensor { DnnDescriptor is; } Tensor;

// A graph that is being made. After the first call that the library refuses nothing is done.
typedef struct Graph {
  const CudaDnn *dnn;
  const DnnTarget *target;
  const AttentionKey *key;
  AttentionPlan *plan;
  DnnStatus status;
  DnnDescriptor operation[MOST_OPERATIONS];
  int operations;
  int64_t inner; // tensors so far beside the operands
} Graph;

// Descriptors --------------------------------------------------------------------------------------------------------

static void note(Graph *g, DnnStatus status, const char *what) {
  if (!status || g->status) return;
  g->status = status;
  g->plan->failed = what;
}

static DnnDescriptor make(Graph *g, DnnKind kind) {
  DnnDescriptor x = NULL;
  if (!g->status) note(g, g->dnn->cudnnBackendCreateDescriptor(kind, &x), "cudnnBackendCreateDescriptor");
  if (x) vec_push(&g->plan->made, x);
  return x;
}

static void set(Graph *g, DnnDescriptor x, DnnAttribute attribute, DnnType type, int64_t count, const void *values) {
  if (!g->status)
    note(g, g->dnn->cudnnBackendSetAttribute(x, attribute, type, count, values), "cudnnBackendSetAttribute");
}

static void set_part(Graph *g, DnnDescriptor x, DnnAttribute attribute, DnnDescriptor part) {
  set(g, x, attribute, DNN_IS_DESCRIPTOR, 1, &part);
}

static void finish(Graph *g, DnnDescriptor x) {
  if (!g->status) note(g, g->dnn->cudnnBackendFinalize(x), "cudnnBackendFinalize");
}

static void finish_operation(Graph *g, DnnDescriptor x) {
  finish(g, x);
  CHECK(g->operations < MOST_OPERATIONS, "a graph of attention has too many operations");
  g->operation[g->operations++] = x;
}

// Tensors, all of four dims ------------------------------------------------------------------------------------------

typedef struct Form { int64_t size[4], stride[4]; } Form;
typedef enum Sort { IN_MEMORY, WITHIN, BY_VALUE } Sort; // WITHIN: it lies in no memory

static Tensor tensor(Graph *g, int64_t number, DnnDtype dtype, Form form, Sort sort) {
  const int64_t aligned = ATTENTION_ALIGNED;
  const _Bool yes = 1;
  DnnDescriptor x = make(g, DNN_TENSOR);
  set(g, x, DNN_TENSOR_DTYPE, DNN_IS_DTYPE, 1, &dtype);
  set(g, x, DNN_TENSOR_SIZES, DNN_IS_INT64, 4, form.size);
  set(g, x, DNN_TENSOR_STRIDES, DNN_IS_INT64, 4, form.stride);
  set(g, x, DNN_TENSOR_NUMBER, DNN_IS_INT64, 1, &number);
  set(g, x, DNN_TENSOR_ALIGNMENT, DNN_IS_INT64, 1, &aligned);
  if (sort == WITHIN) set(g, x, DNN_TENSOR_IS_VIRTUAL, DNN_IS_BOOLEAN, 1, &yes);
  if (sort == BY_VALUE) set(g, x, DNN_TENSOR_IS_VALUE, DNN_IS_BOOLEAN, 1, &yes);
  finish(g, x);
  return (Tensor){x};
}

static DnnDtype narrow(const Graph *g) { return g->key->dtype == DTYPE_F16 ? DNN_F16 : DNN_BF16; }
static int64_t heads_of(const AttentionKey *key) { return key->g * key->r; }
static int64_t heads(const Graph *g) { return heads_of(g->key); }

// (b, heads, t, d) of what lies in memory as (b, t, heads, d), and with the last two dims exchanged.
static Form rows_of(const Graph *g, int64_t n) {
  const AttentionKey *k = g->key;
  const int64_t step = FAULT(attention_graph_wrong_stride, n * k->d, n * k->d + 8);
  return (Form){{k->b, n, k->t, k->d}, {k->t * n * k->d, k->d, step, 1}};
}
static Form transposed(Form x) {
  return (Form){{x.size[0], x.size[1], x.size[3], x.size[2]}, {x.stride[0], x.stride[1], x.stride[3], x.stride[2]}};
}
// Packed, of these last two sizes.
static Form packed(const Graph *g, int64_t rows, int64_t columns) {
  const int64_t n = heads(g);
  return (Form){{g->key->b, n, rows, columns}, {n * rows * columns, rows * columns, columns, 1}};
}
static Form of_scores(const Graph *g) { return packed(g, g->key->t, g->key->t); }
static Form of_queries(const Graph *g) { return packed(g, g->key->t, 1); }

static Tensor operand(Graph *g, AttentionOperand which, DnnDtype dtype, Form form) {
  g->plan->used[which] = 1;
  return tensor(g, which + ATTENTION_NUMBER, dtype, form, IN_MEMORY);
}
static Tensor number(Graph *g, AttentionOperand which) {
  const Form one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  g->plan->used[which] = 1;
  return tensor(g, which + ATTENTION_NUMBER, DNN_F32, one, BY_VALUE);
}
static Tensor within(Graph *g, DnnDtype dtype, Form form) {
  return tensor(g, ATTENTION_INNER + g->inner++, dtype, form, WITHIN);
}
static Tensor scores(Graph *g, DnnDtype dtype) { return within(g, dtype, of_scores(g)); }

// Operations ---------------------------------------------------------------------------------------------------------

enum { NO_AXIS = -1, ROWS = 2, COLUMNS = 3 };

static Tensor point(Graph *g, unsigned mode, Tensor x, Tensor b, Tensor t, Tensor y, int64_t axis, DnnDtype computes) {
  DnnDescriptor how = make(g, DNN_POINTWISE), x_to_y = make(g, DNN_DO_POINTWISE);
  set(g, how, DNN_POINTWISE_MODE, DNN_IS_POINTWISE_MODE, 1, &mode);
  set(g, how, DNN_POINTWISE_COMPUTES, DNN_IS_DTYPE, 1, &computes);
  if (axis != NO_AXIS) set(g, how, DNN_POINTWISE_AXIS, DNN_IS_INT64, 1, &axis);
  finish(g, how);
  set_part(g, x_to_y, DNN_DO_POINTWISE_HOW, how);
  set_part(g, x_to_y, DNN_DO_POINTWISE_X, x.is);
  if (b.is) set_part(g, x_to_y, DNN_DO_POINTWISE_B, b.is);
  if (t.is) set_part(g, x_to_y, DNN_DO_POINTWISE_T, t.is);
  set_part(g, x_to_y, DNN_DO_POINTWISE_Y, y.is);
  finish_operation(g, x_to_y);
  return y;
}
static const Tensor none;
static Tensor one(Graph *g, unsigned mode, Tensor x, Tensor y) {
  return point(g, mode, x, none, none, y, NO_AXIS, DNN_F32);
}
static Tensor two(Graph *g, unsigned mode, Tensor x, Tensor b, Tensor y) {
  return point(g, mode, x, b, none, y, NO_AXIS, DNN_F32);
}
static Tensor index_of(Graph *g, Tensor x, int64_t axis) {
  return point(g, DNN_INDEX, x, none, none, scores(g, DNN_I32), axis, DNN_F32);
}
static Tensor at_least(Graph *g, Tensor x, Tensor b) {
  return point(g, DNN_IS_AT_LEAST, x, b, none, scores(g, DNN_BOOLEAN), NO_AXIS, DNN_BOOLEAN);
}

static Tensor product(Graph *g, Tensor a, Tensor b, Tensor c) {
  const DnnDtype computes = DNN_F32;
  DnnDescriptor how = make(g, DNN_MATMUL), ab = make(g, DNN_DO_MATMUL);
  set(g, how, DNN_MATMUL_COMPUTES, DNN_IS_DTYPE, 1, &computes);
  finish(g, how);
  set_part(g, ab, DNN_DO_MATMUL_A, a.is);
  set_part(g, ab, DNN_DO_MATMUL_B, b.is);
  set_part(g, ab, DNN_DO_MATMUL_C, c.is);
  set_part(g, ab, DNN_DO_MATMUL_HOW, how);
  finish_operation(g, ab);
  return c;
}

static Tensor reduce(Graph *g, unsigned operator, Tensor x, Tensor y) {
  const DnnDtype computes = DNN_F32;
  DnnDescriptor how = make(g, DNN_REDUCTION), x_to_y = make(g, DNN_DO_REDUCTION);
  set(g, how, DNN_REDUCTION_COMPUTES, DNN_IS_DTYPE, 1, &computes);
  set(g, how, DNN_REDUCTION_OPERATOR, DNN_IS_REDUCTION, 1, &operator);
  finish(g, how);
  set_part(g, x_to_y, DNN_DO_REDUCTION_X, x.is);
  set_part(g, x_to_y, DNN_DO_REDUCTION_Y, y.is);
  set_part(g, x_to_y, DNN_DO_REDUCTION_HOW, how);
  finish_operation(g, x_to_y);
  return y;
}

static Tensor reshape(Graph *g, Tensor x, Tensor y) {
  DnnDescriptor x_to_y = make(g, DNN_DO_RESHAPE);
  set_part(g, x_to_y, DNN_DO_RESHAPE_X, x.is);
  set_part(g, x_to_y, DNN_DO_RESHAPE_Y, y.is);
  finish_operation(g, x_to_y);
  return y;
}

// Graphs -------------------------------------------------------------------------------------------------------------

// Scores of keys before the query's document. (cuDNN finds no plan for a graph that compares numbers of documents.)
static Tensor mask_documents(Graph *g, Tensor x, Tensor masked) {
  const int64_t b = g->key->b, t = g->key->t;
  Tensor starts = operand(g, ATTENTION_STARTS, DNN_I32, (Form){{b, 1, t, 1}, {t, t, 1, 1}});
  Tensor within_document = at_least(g, index_of(g, x, COLUMNS), starts);
  return point(g, DNN_SELECT, x, masked, within_document, scores(g, DNN_F32), NO_AXIS, DNN_F32);
}

// Scores of keys that a query does not see become a number whose exponential is 0.
static Tensor mask(Graph *g, Tensor x) {
  Tensor masked = number(g, ATTENTION_MASKED);
  if (!g->key->whole) x = mask_documents(g, x, masked);
  Tensor row = index_of(g, x, FAULT(attention_graph_mask_is_transposed, ROWS, COLUMNS)),
         column = index_of(g, x, FAULT(attention_graph_mask_is_transposed, COLUMNS, ROWS));
  return point(g, DNN_SELECT, x, masked, at_least(g, row, column), scores(g, DNN_F32), NO_AXIS, DNN_F32);
}

// The order of operations is that by which cuDNN knows attention.
static void describe_forward(Graph *g) {
  const DnnDtype dtype = narrow(g);
  const Form queries = rows_of(g, heads(g)), keys = rows_of(g, g->key->g), row = of_queries(g);
  Tensor q = operand(g, ATTENTION_Q, dtype, queries), k = operand(g, ATTENTION_K, dtype, transposed(keys)),
         v = operand(g, ATTENTION_V, dtype, keys), out = operand(g, ATTENTION_OUT, dtype, queries),
         logsumexp = operand(g, ATTENTION_LOGSUMEXP, DNN_F32, row), scale = number(g, ATTENTION_SCALE);
  Tensor x = product(g, q, k, scores(g, DNN_F32));
  x = mask(g, two(g, DNN_MUL, x, scale, scores(g, DNN_F32)));
  Tensor most = reduce(g, DNN_MAXIMUM, x, within(g, DNN_F32, row));
  x = one(g, DNN_EXP, two(g, DNN_SUB, x, most, scores(g, DNN_F32)), scores(g, DNN_F32));
  Tensor sum = reduce(g, DNN_SUM, x, within(g, DNN_F32, row));
  two(g, DNN_ADD, most, one(g, DNN_LOG, sum, within(g, DNN_F32, row)), logsumexp);
  product(g, two(g, DNN_DIV, x, sum, scores(g, dtype)), v, out);
}

// y = xᵀ by, of the queries, summed over the heads of a group.
static void of_keys(Graph *g, Tensor x, Tensor by, Tensor y) {
  const DnnDtype dtype = narrow(g);
  Tensor across = reshape(g, x, within(g, dtype, transposed(of_scores(g))));
  if (g->key->r == 1) product(g, across, by, y);
  else reduce(g, DNN_SUM, product(g, across, by, within(g, dtype, packed(g, g->key->t, g->key->d))), y);
}

static void describe_gradient(Graph *g) {
  const DnnDtype dtype = narrow(g);
  const AttentionKey *s = g->key;
  const Form queries = rows_of(g, heads(g)), keys = rows_of(g, s->g), row = of_queries(g);
  Tensor q = operand(g, ATTENTION_Q, dtype, queries), k = operand(g, ATTENTION_K, dtype, transposed(keys)),
         v = operand(g, ATTENTION_V, dtype, transposed(keys)), out = operand(g, ATTENTION_OUT, dtype, queries),
         dout = operand(g, ATTENTION_DOUT, dtype, queries), logsumexp = operand(g, ATTENTION_LOGSUMEXP, DNN_F32, row),
         dq = operand(g, ATTENTION_DQ, dtype, queries), dk = operand(g, ATTENTION_DK, dtype, keys),
         dv = operand(g, ATTENTION_DV, dtype, keys), sums = operand(g, ATTENTION_SUMS, DNN_F32, row),
         scale = number(g, ATTENTION_SCALE);
  Tensor both = two(g, DNN_MUL, dout, out, within(g, DNN_F32, queries));
  two(g, DNN_MUL, reduce(g, DNN_SUM, both, within(g, DNN_F32, row)), number(g, ATTENTION_ONE), sums);
  Tensor x = two(g, DNN_MUL, product(g, q, k, scores(g, DNN_F32)), scale, scores(g, DNN_F32));
  x = mask(g, two(g, DNN_SUB, x, logsumexp, scores(g, DNN_F32)));
  Tensor probability = one(g, DNN_EXP, x, scores(g, DNN_F32));
  of_keys(g, probability, dout, dv);
  x = two(g, DNN_SUB, product(g, dout, v, scores(g, DNN_F32)), sums, scores(g, DNN_F32));
  x = two(g, DNN_MUL, two(g, DNN_MUL, x, probability, scores(g, DNN_F32)), scale, scores(g, DNN_F32));
  of_keys(g, x, q, dk);
  Tensor by_keys = reshape(g, k, within(g, dtype, keys));
  if (s->same_bits) product(g, x, by_keys, dq);
  else {
    const Form sum = packed(g, s->t, s->d);
    one(g, DNN_COPY, product(g, x, by_keys, operand(g, ATTENTION_DQ_SUMS, DNN_F32, sum)), dq);
  }
}

// Plans --------------------------------------------------------------------------------------------------------------

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

int64_t attention_plan_room(const AttentionKey *key) {
  const int64_t rows = key->b * key->t * key->g * key->r, least = 1 << 20;
  if (!key->gradient) return least;
  return least + (key->r > 1 ? 2 * rows * key->d * (int64_t)sizeof(uint16_t) : 0) +
         (key->same_bits ? key->b * heads_of(key) * up(key->t, 64) * up(key->t, 128) * (int64_t)sizeof(uint16_t) : 0);
}

static void plan_of(Graph *g, DnnDescriptor configuration) {
  const CudaDnn *dnn = g->dnn;
  int64_t count = 0;
  DnnDescriptor x = make(g, DNN_PLAN);
  if (g->target->handle) set(g, x, DNN_PLAN_HANDLE, DNN_IS_HANDLE, 1, &g->target->handle);
  else set_part(g, x, DNN_PLAN_PROPERTIES, g->target->properties);
  set_part(g, x, DNN_PLAN_CONFIGURATION, configuration);
  finish(g, x);
  if (!g->status)
    note(g, dnn->cudnnBackendGetAttribute(x, DNN_PLAN_WORKSPACE, DNN_IS_INT64, 1, &count, &g->plan->workspace),
         "cudnnBackendGetAttribute");
  if (!g->status) g->plan->plan = x;
}

static void find_plan(Graph *g) {
  const unsigned mode = DNN_MODE_A;
  DnnDescriptor graph = make(g, DNN_GRAPH), heuristic, configuration[MOST_CONFIGURATIONS];
  int64_t count = 0;
  set(g, graph, DNN_GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, g->operations, g->operation);
  if (g->target->handle) set(g, graph, DNN_GRAPH_HANDLE, DNN_IS_HANDLE, 1, &g->target->handle);
  finish(g, graph);
  heuristic = make(g, DNN_HEURISTIC);
  set_part(g, heuristic, DNN_HEURISTIC_GRAPH, graph);
  set(g, heuristic, DNN_HEURISTIC_MODE, DNN_IS_HEURISTIC_MODE, 1, &mode);
  if (!g->target->handle) set_part(g, heuristic, DNN_HEURISTIC_PROPERTIES, g->target->properties);
  finish(g, heuristic);
  for (int i = 0; i < MOST_CONFIGURATIONS; i++) configuration[i] = make(g, DNN_CONFIGURATION);
  if (!g->status)
    note(g,
         g->dnn->cudnnBackendGetAttribute(heuristic, DNN_HEURISTIC_RESULTS, DNN_IS_DESCRIPTOR, MOST_CONFIGURATIONS,
                                          &count, configuration),
         "cudnnBackendGetAttribute");
  if (!g->status && !count) note(g, DNN_UNSUPPORTED, "it proposes no plan");
  const DnnStatus before = g->status;
  for (int64_t i = 0; i < count && !before && !g->plan->plan; i++) {
    g->status = DNN_OK;
    plan_of(g, configuration[i]);
  }
}

DnnStatus attention_plan_make(const CudaDnn *dnn, const DnnTarget *target, const AttentionKey *key,
                              AttentionPlan *plan) {
  Graph g = {.dnn = dnn, .target = target, .key = key, .plan = plan};
  *plan = (AttentionPlan){0};
  if (key->gradient) describe_gradient(&g);
  else describe_forward(&g);
  if (!g.status) find_plan(&g);
  return g.status;
}

void attention_plan_free(const CudaDnn *dnn, AttentionPlan *plan) {
  for (int i = plan->made.count; i-- > 0;) dnn->cudnnBackendDestroyDescriptor(plan->made.data[i]);
  vec_free(&plan->made);
  *plan = (AttentionPlan){0};
}

DnnStatus attention_plan_run(const CudaDnn *dnn, DnnHandle handle, const AttentionPlan *plan, const AttentionKey *key,
                             void *const at[ATTENTION_OPERANDS], void *workspace) {
  float scale = (float)key->scale, masked = -1e30f, one_ = 1;
  void *pointer[ATTENTION_OPERANDS];
  int64_t numbers[ATTENTION_OPERANDS], n = 0;
  for (int i = 0; i < ATTENTION_OPERANDS; i++) {
    if (!plan->used[i]) continue;
    numbers[n] = i + ATTENTION_NUMBER;
    pointer[n++] = i == ATTENTION_SCALE ? &scale : i == ATTENTION_MASKED ? &masked : i == ATTENTION_ONE ? &one_ : at[i];
  }
  DnnDescriptor pack;
  DnnStatus status = dnn->cudnnBackendCreateDescriptor(DNN_PACK, &pack);
  if (status) return status;
  status = dnn->cudnnBackendSetAttribute(pack, DNN_PACK_POINTERS, DNN_IS_POINTER, n, pointer);
  if (!status) status = dnn->cudnnBackendSetAttribute(pack, DNN_PACK_NUMBERS, DNN_IS_INT64, n, numbers);
  if (!status) status = dnn->cudnnBackendSetAttribute(pack, DNN_PACK_WORKSPACE, DNN_IS_POINTER, 1, &workspace);
  if (!status) status = dnn->cudnnBackendFinalize(pack);
  if (!status) status = dnn->cudnnBackendExecute(handle, plan->plan, pack);
  dnn->cudnnBackendDestroyDescriptor(pack);
  return status;
}
