// ATTENTION: softmax(scale q kᵀ) v with grouped queries, causality, document masks and dropout; and its gradient, which
// recomputes the probabilities from the logsumexp (Dao et al., "FlashAttention", 2022).
#include "base/fault.h"
#include "op/attention_context.h"
#include "op/build.h"
#include "op/formula.h"

static Dtype result_dtype(const AttentionAttr *attr, Dtype dtype) {
  return attr->wide ? op_statistics_dtype(dtype) : dtype;
}

// q (b, s, g, r, d), k (b, t, g, d), v (b, t, g, d), documents (b, s), key_documents (b, t) → out (b, s, g, r, d),
// logsumexp (b, g, r, s)
static void forward_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 5);
  Tensor q = *graph_tensor(g, node->input[0]), k = *graph_tensor(g, node->input[1]);
  const int64_t *n = q.shape.size;
  CHECK(q.shape.rank == 5 && k.shape.rank == 4 && op_same_sizes(g, node->input[1], node->input[2]));
  CHECK(k.shape.size[0] == n[0] && k.shape.size[2] == n[2] && k.shape.size[3] == n[4]);
  for (int side = 0; side < 2; side++) {
    const Shape documents = graph_tensor(g, node->input[3 + side])->shape;
    CHECK(documents.rank == 2 && documents.size[0] == n[0] && documents.size[1] == (side ? k : q).shape.size[1]);
  }
  const DimName *d = q.shape.dim;
  Shape rows = shape_of(4, (int64_t[]){n[0], n[2], n[3], n[1]}, (DimName[]){d[0], d[2], d[3], d[1]});
  graph_output(g, node, "", result_dtype(node_attr(node, AttentionAttr), q.dtype), q.shape);
  graph_output(g, node, "logsumexp", op_statistics_dtype(q.dtype), rows);
}

static void forward_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  for (int k = 0; k < 5; k++) dinput[k] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.input[0], node.input[1],  node.input[2],  node.input[3],
                 node.input[4], node.output[0], node.output[1], doutput[0]};
  int n = graph_node(g, OP_ATTENTION_GRAD, op_derived_name(g, &node, "gradient"), input, 8, node.attr,
                     sizeof(AttentionAttr));
  for (int k = 0; k < 3; k++) dinput[k] = g->node.data[n].output[k];
}

// Keys have a separate letter: a rank's queries look at all keys, and may be a part of all queries.
static void forward_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsgrd", "btgd", "btgd", "bs", "bt"}, 5, (const char *[]){"bsgrd", "bgrs"}, 2,
          "; whole d");
}

typedef struct Sizes { int64_t b, s, t, g, r, d; } Sizes;
static Sizes sizes_of(const Operand *input) {
  const int64_t *q = input[0].size;
  return (Sizes){q[0], q[1], input[1].size[1], q[2], q[3], q[4]};
}

// One row of scores: a query of one head against all keys.
typedef struct Row {
  const KernelCall *call;
  const double *q, *k, *v;
  Sizes n;
  int64_t b, s, g, r;
  int64_t query;  // its first element in q
  double *score;  // (t): scale q·k, -inf where masked
  double *factor; // (t): of dropout: 0 or 1 / (1 - p)
} Row;

static int64_t key_at(const Row *row, int64_t t) { return ((row->b * row->n.t + t) * row->n.g + row->g) * row->n.d; }

static void row_scores(Row *row) {
  const AttentionAttr *attr = row->call->attr;
  const Operand *q = &row->call->input[0], *k = &row->call->input[1], *documents = &row->call->input[3],
                *key_documents = &row->call->input[4];
  const CallParameters *parameters = row->call->parameters;
  const Sizes n = row->n;
  row->query = (((row->b * n.s + row->s) * n.g + row->g) * n.r + row->r) * n.d;
  PhiloxKey key =
      attr->dropout > 0 ? philox_key(parameters->seed, parameters->step, attr->stream) : (PhiloxKey){{0, 0}};
  int64_t sample = attr->dropout > 0 ? parameters->sample_base + index_map(&q->map[0], row->b) : 0;
  int64_t head = index_map(&q->map[2], row->g) * q->map[3].global + index_map(&q->map[3], row->r);
  int64_t query = index_map(&q->map[1], row->s);
  double document = operand_load(documents, row->b * n.s + row->s);
  for (int64_t t = 0; t < n.t; t++) {
    int64_t position = FAULT(zigzag_of_attention_reference, index_map(&k->map[1], t), index_map(&k->map[1], 0) + t);
    int before = position <= FAULT(mask_causal_reference, query, query + 1);
    int visible = (!attr->causal || before) &&
                  FAULT(mask_documents_reference,
                        operand_load(key_documents,
                                     row->b * n.t + FAULT(document_border_reference, t, t ? t - 1 : 0)) == document,
                        1);
    double dot = 0;
    for (int64_t i = 0; visible && i < n.d; i++) dot += row->q[row->query + i] * row->k[key_at(row, t) + i];
    row->score[t] = visible ? attr->scale * dot : -INFINITY;
    row->factor[t] = 1;
    if (attr->dropout > 0)
      row->factor[t] = attention_keep(key, sample, head, query, position, attr->dropout) / (1 - attr->dropout);
  }
}

// Calls `visit` for every query of every head.
static void each_row(const KernelCall *call, void (*visit)(Row *row, void *context), void *context) {
  Row row = {.call = call, .n = sizes_of(call->input)};
  double *q = operand_doubles(&call->input[0]), *k = operand_doubles(&call->input[1]),
         *v = operand_doubles(&call->input[2]);
  row.q = q, row.k = k, row.v = v;
  row.score = xcalloc((size_t)row.n.t * 2, sizeof(double));
  row.factor = row.score + row.n.t;
  for (row.b = 0; row.b < row.n.b; row.b++)
    for (row.s = 0; row.s < row.n.s; row.s++)
      for (row.g = 0; row.g < row.n.g; row.g++)
        for (row.r = 0; row.r < row.n.r; row.r++) {
          row_scores(&row);
          visit(&row, context);
        }
  free(row.score);
  operand_doubles_free(&call->input[0], q);
  operand_doubles_free(&call->input[1], k);
  operand_doubles_free(&call->input[2], v);
}

static int64_t logsumexp_at(const Row *row) {
  return ((row->b * row->n.g + row->g) * row->n.r + row->r) * row->n.s + row->s;
}

// A query that sees no key: out 0, logsumexp -inf.
static void forward_row(Row *row, void *context) {
  const Sizes n = row->n;
  double maximum = -INFINITY, sum = 0;
  for (int64_t t = 0; t < n.t; t++) maximum = fmax(maximum, row->score[t]);
  for (int64_t t = 0; t < n.t; t++)
    if (row->score[t] > -INFINITY) sum += exp(row->score[t] - maximum);
  double logsumexp = maximum + log(sum);
  for (int64_t i = 0; i < n.d; i++) {
    double out = 0;
    for (int64_t t = 0; t < n.t; t++)
      if (row->score[t] > -INFINITY)
        out += exp(row->score[t] - logsumexp) * row->factor[t] * row->v[key_at(row, t) + i];
    operand_store(&row->call->output[0], row->query + i, out);
  }
  operand_store(&row->call->output[1], logsumexp_at(row), logsumexp);
}

static void forward_reference(const KernelCall *call) { each_row(call, forward_row, NULL); }

// Queries and keys that positions let them see, of all heads. Which documents they belong to is not known before a run.
static double forward_pairs(const Operand *input, const Operand *output, const void *attr) {
  Sizes n = sizes_of(input);
  double heads = (double)(n.b * n.g * n.r);
  if (!((const AttentionAttr *)attr)->causal) return heads * (double)n.s * (double)n.t;
  return heads * index_pairs(&input[0].map[1], &input[1].map[1]);
}

// Scores and values are two products of the pairs that positions let be seen. Scores stay in the cache: their bytes
// stand apart, for implementations that keep them, also those of pairs that are masked. Of a pair: its scale, greatest,
// exponential and sum.
static void forward_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  Sizes n = sizes_of(input);
  double pairs = forward_pairs(input, output, attr), width = (double)input[0].size[4];
  double all = (double)(n.b * n.g * n.r) * (double)n.s * (double)n.t; // masked ones too
  work->matrix = 4.0 * width * pairs;
  work->vector = 4 * pairs;
  work->attention = (OpAttention){.pairs = pairs,
                                  .width = width,
                                  .length = (double)input[1].size[1],
                                  .scores = all * (double)dtype_size(input[0].dtype),
                                  .causal = pairs < all};
}

static void evaluate(Node *node) { node_attr(node, AttentionAttr)->dropout = 0; }

const OpDef op_def_attention = {
    .name = "attention",
    .meaning = "q (b, s, g, r, d), k, v (b, t, g, d), documents (b, s), key_documents (b, t) → out = dropout(softmax("
               "scale q kᵀ)) v (b, s, g, r, d), logsumexp (b, g, r, s); t visible to s where documents are equal and, "
               "when causal, t <= s; out 0 and logsumexp -inf where none is",
    .shape = forward_shape,
    .gradient = forward_gradient,
    .rule = forward_rule,
    .algorithm = attention_algorithms,
    .algorithms = ATTENTION_ALGORITHMS,
    .choice = CHOICE_CONTEXT,
    .reference = forward_reference,
    .work = forward_work,
    .expensive = 1,
    .pairs = forward_pairs,
    .evaluate = evaluate,
    .minus_infinity = 2, // logsumexp of a query that sees no key
};

// q, k, v, documents, key_documents, out, logsumexp, dout as above → dq, dk, dv. out and logsumexp may be those of all
// keys where k and v are some of them: gradients of blocks of keys add up.
static void grad_shape(Graph *g, Node *node) {
  static const char *const suffix[] = {"dq", "dk", "dv"};
  CHECK(node->ninput == 8);
  for (int k = 0; k < 3; k++) {
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, suffix[k], result_dtype(node_attr(node, AttentionAttr), x.dtype), x.shape);
  }
}

static void grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsgrd", "btgd", "btgd", "bs", "bt", "bsgrd", "bgrs", "bsgrd"}, 8,
          (const char *[]){"bsgrd", "btgd", "btgd"}, 3, "; linear 7 ; whole d");
}

typedef struct Gradients { double *dout, *dq, *dk, *dv; } Gradients;

static void grad_row(Row *row, void *context) {
  const Gradients *d = context;
  const AttentionAttr *attr = row->call->attr;
  const Sizes n = row->n;
  double logsumexp = operand_load(&row->call->input[6], logsumexp_at(row)), dot = 0;
  for (int64_t i = 0; i < n.d; i++) dot += d->dout[row->query + i] * operand_load(&row->call->input[5], row->query + i);
  for (int64_t t = 0; t < n.t; t++) {
    if (row->score[t] == -INFINITY) continue;
    int64_t key = key_at(row, t);
    double p = exp(row->score[t] - logsumexp), dp = 0;
    for (int64_t i = 0; i < n.d; i++) {
      dp += d->dout[row->query + i] * row->v[key + i];
      d->dv[key + i] += p * row->factor[t] * d->dout[row->query + i];
    }
    double ds = attr->scale * p * (dp * row->factor[t] - dot);
    for (int64_t i = 0; i < n.d; i++) {
      d->dq[row->query + i] += ds * row->k[key + i];
      d->dk[key + i] += ds * row->q[row->query + i];
    }
  }
}

static void grad_reference(const KernelCall *call) {
  int64_t nq = operand_elements(&call->input[0]), nk = operand_elements(&call->input[1]);
  Gradients d = {.dq = xcalloc((size_t)(nq + 2 * nk) + 1, sizeof(double))};
  d.dk = d.dq + nq;
  d.dv = d.dk + nk;
  d.dout = operand_doubles(&call->input[7]);
  each_row(call, grad_row, &d);
  for (int64_t i = 0; i < nq; i++) operand_store(&call->output[0], i, d.dq[i]);
  for (int64_t i = 0; i < nk; i++) {
    operand_store(&call->output[1], i, d.dk[i]);
    operand_store(&call->output[2], i, d.dv[i]);
  }
  operand_doubles_free(&call->input[7], d.dout);
  free(d.dq);
}

// Five products instead of two.
static void grad_work(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  forward_work(input, output, attr, work);
  work->matrix *= 2.5;
  work->vector *= 2.5;
  work->attention.backward = 1;
}

static void keep_bits(Node *node) { node_attr(node, AttentionAttr)->same_bits = 1; }

const OpDef op_def_attention_grad = {
    .name = "attention_grad",
    .meaning = "q, k, v, documents, key_documents, out, logsumexp, dout → dq (b, s, g, r, d), dk, dv (b, t, g, d); the "
               "mask of the forward's stream",
    .shape = grad_shape,
    .rule = grad_rule,
    .algorithm = attention_grad_algorithms,
    .algorithms = ATTENTION_ALGORITHMS,
    .choice = CHOICE_CONTEXT,
    .reference = grad_reference,
    .work = grad_work,
    .keep_bits = keep_bits,
    .expensive = 1,
};

int op_attention(Graph *g, const char *name, int q, int k, int v, int documents, int key_documents,
                 const AttentionAttr *attr) {
  CHECK(attr->dropout >= 0 && attr->dropout < 1);
  int n = graph_node(g, OP_ATTENTION, name, (int[]){q, k, v, documents, key_documents}, 5, attr, sizeof *attr);
  Node *node = &g->node.data[n];
  node_attr(node, AttentionAttr)->stream = philox_name(node->name);
  return node->output[0];
}
