// Half by hand: the ops of plait/graph.h, each checked before it is built.
#include "api/graph_build.h"
#include "op/build.h"
#include <math.h>

#define wrong api_graph_wrong
#define readable(h, reader, x) api_graph_readable(h, reader, x, 0)
#define operand api_graph_operand

// The same of ops whose gradients are as narrow as what they compute: those of parameters stay wide.
static int narrow(PlaitGraph *h, const char *reader, PlaitTensor x) {
  if (graph_tensor(h->g, x)->variable < 0) return operand(h, reader, x);
  return op_cast(h->g, arena_format(&h->g->arena, "%s.cast%d", reader, x), x, h->dtype);
}

static const char *shape_of_tensor(PlaitGraph *h, PlaitTensor x, char text[128]) {
  return api_graph_shape_text(&graph_tensor(h->g, x)->shape, text, 128);
}

static int64_t last_size(const PlaitGraph *h, PlaitTensor x) {
  const Shape *s = &graph_tensor(h->g, x)->shape;
  return s->size[s->rank - 1];
}

static const char *part_name(PlaitGraph *h, const char *name, const char *part) {
  return arena_format(&h->g->arena, "%s.%s", name, part);
}

PlaitTensor plait_graph_linear(PlaitGraph *h, const char *name, PlaitTensor x, PlaitTensor w, PlaitTensor bias) {
  char text[128];
  if (!api_graph_take_name(h, name) || !readable(h, name, x) ||
      !api_graph_parameter(h, name, "w", w, 2, (int64_t[]){0, 0}))
    return -1;
  const Tensor *tx = graph_tensor(h->g, x), *tw = graph_tensor(h->g, w);
  int64_t out = tw->shape.size[0], in = tw->shape.size[1];
  if (!api_graph_samples(h, x) || tx->shape.rank < 2 || last_size(h, x) != in)
    return wrong(h, "x of %s is %s; allowed with w (%lld, %lld): (samples, …, %lld)", name,
                 shape_of_tensor(h, x, text), (long long)out, (long long)in, (long long)in);
  Variable *matrix = &h->g->variable.data[tw->variable];
  if (!matrix->outputs) matrix->outputs = 1;
  int y = op_matmul(h->g, name, operand(h, name, x), w, 1);
  if (bias == -1) return y;
  if (!api_graph_parameter(h, name, "bias", bias, 1, &out)) return -1;
  return op_bias(h->g, part_name(h, name, "bias"), y, bias);
}

// Integers that are numbers below `limit`: the step that gives others is refused.
static void limit_input(PlaitGraph *h, PlaitTensor x, int64_t limit) {
  ApiGraphInput *in = api_graph_input(h, x);
  if (!in->limit || limit < in->limit) in->limit = limit;
}

PlaitTensor plait_graph_embedding(PlaitGraph *h, const char *name, PlaitTensor table, PlaitTensor ids) {
  char text[128];
  if (!api_graph_take_name(h, name) || !api_graph_parameter(h, name, "the table", table, -1, NULL) ||
      !api_graph_readable(h, name, ids, 1))
    return -1;
  const Shape *t = &graph_tensor(h->g, table)->shape, *i = &graph_tensor(h->g, ids)->shape;
  if (i->rank + t->rank - 1 > MAX_RANK)
    return wrong(h, "ids of %s are %s, with which its result has more than %d dims", name,
                 shape_of_tensor(h, ids, text), MAX_RANK);
  limit_input(h, ids, t->size[0]);
  api_graph_input(h, ids)->needed_forward = 1;
  h->g->variable.data[graph_tensor(h->g, table)->variable].outputs = -1; // also where it is the head's matrix
  return op_embedding(h->g, name, table, ids);
}

PlaitTensor plait_graph_activation(PlaitGraph *h, const char *name, PlaitTensor x, PlaitActivation kind) {
  if (!api_graph_take_name(h, name) || !readable(h, name, x)) return -1;
  if ((int)kind < 0 || kind >= PLAIT_ACTIVATION_COUNT)
    return wrong(h, "activation %d of %s; allowed: those of PlaitActivation", (int)kind, name);
  return op_activation(h->g, name, narrow(h, name, x), (ActivationKind)kind);
}

// Are the dims of b, which has no samples, the last ones of a?
static int is_tail(PlaitGraph *h, PlaitTensor a, PlaitTensor b) {
  const Shape *x = &graph_tensor(h->g, a)->shape, *y = &graph_tensor(h->g, b)->shape;
  if (y->rank >= x->rank || api_graph_samples(h, b)) return 0;
  for (int d = 0; d < y->rank; d++)
    if (x->size[x->rank - y->rank + d] != y->size[d]) return 0;
  return 1;
}

PlaitTensor plait_graph_add(PlaitGraph *h, const char *name, PlaitTensor a, PlaitTensor b) {
  if (!api_graph_take_name(h, name) || !readable(h, name, a) || !readable(h, name, b)) return -1;
  if (is_tail(h, a, b)) { // added as biases are: wide
    const char *cast = arena_format(&h->g->arena, "%s.cast%d", name, b);
    return op_bias(h->g, name, narrow(h, name, a), op_cast(h->g, cast, b, api_graph_storage(h->dtype)));
  }
  if (!api_graph_same_shape(h, name, a, b)) return -1;
  return op_add(h->g, name, (int[]){narrow(h, name, a), narrow(h, name, b)}, 2);
}

PlaitTensor plait_graph_multiply(PlaitGraph *h, const char *name, PlaitTensor a, PlaitTensor b) {
  if (!api_graph_take_name(h, name) || !readable(h, name, a) || !readable(h, name, b)) return -1;
  if (!is_tail(h, a, b)) {
    if (!api_graph_same_shape(h, name, a, b)) return -1;
    return op_mul(h->g, name, narrow(h, name, a), narrow(h, name, b));
  }
  int rank = graph_tensor(h->g, a)->shape.rank, tail = graph_tensor(h->g, b)->shape.rank;
  EinsumAttr attr = {.rank = {(int8_t)rank, (int8_t)tail, (int8_t)rank}};
  for (int d = 0; d < rank; d++) attr.letter[0][d] = attr.letter[2][d] = (int8_t)d;
  for (int d = 0; d < tail; d++) attr.letter[1][d] = (int8_t)(rank - tail + d);
  return op_einsum(h->g, name, &attr, operand(h, name, a), b);
}

PlaitTensor plait_graph_scale(PlaitGraph *h, const char *name, PlaitTensor x, double factor) {
  if (!api_graph_take_name(h, name) || !readable(h, name, x)) return -1;
  if (!isfinite(factor)) return wrong(h, "the factor of %s is not finite", name);
  return op_scale(h->g, name, narrow(h, name, x), factor);
}

// Whether norms and softmax take x: it has samples, and another dim.
static int normalisable(PlaitGraph *h, const char *name, PlaitTensor x) {
  char text[128];
  if (!api_graph_take_name(h, name) || !readable(h, name, x)) return 0;
  if (api_graph_samples(h, x) && graph_tensor(h->g, x)->shape.rank >= 2) return 1;
  wrong(h, "x of %s is %s; allowed: (samples, …, e)", name, shape_of_tensor(h, x, text));
  return 0;
}

static int check_epsilon(PlaitGraph *h, const char *name, double epsilon) {
  if (epsilon > 0 && isfinite(epsilon)) return 1;
  wrong(h, "epsilon of %s is %g; allowed: above 0", name, epsilon);
  return 0;
}

PlaitTensor plait_graph_layer_norm(PlaitGraph *h, const char *name, PlaitTensor x, PlaitTensor gain, PlaitTensor bias,
                                   double epsilon) {
  if (!normalisable(h, name, x) || !check_epsilon(h, name, epsilon)) return -1;
  int64_t e = last_size(h, x);
  if (!api_graph_parameter(h, name, "gain", gain, 1, &e)) return -1;
  if (bias != -1 && !api_graph_parameter(h, name, "bias", bias, 1, &e)) return -1;
  return op_layer_norm(h->g, name, operand(h, name, x), gain, bias, epsilon);
}

PlaitTensor plait_graph_rms_norm(PlaitGraph *h, const char *name, PlaitTensor x, PlaitTensor gain, double epsilon) {
  if (!normalisable(h, name, x) || !check_epsilon(h, name, epsilon)) return -1;
  int64_t e = last_size(h, x);
  if (!api_graph_parameter(h, name, "gain", gain, 1, &e)) return -1;
  return op_rms_norm(h->g, name, operand(h, name, x), gain, epsilon);
}

PlaitTensor plait_graph_softmax(PlaitGraph *h, const char *name, PlaitTensor x) {
  return normalisable(h, name, x) ? op_softmax(h->g, name, operand(h, name, x)) : -1;
}

static int check_probability(PlaitGraph *h, const char *name, double probability) {
  if (probability >= 0 && probability < 1) {
    h->dropout |= probability > 0;
    return 1;
  }
  wrong(h, "the dropout of %s is %g; allowed: 0 to below 1", name, probability);
  return 0;
}

PlaitTensor plait_graph_dropout(PlaitGraph *h, const char *name, PlaitTensor x, double probability) {
  if (!normalisable(h, name, x) || !check_probability(h, name, probability)) return -1;
  return op_dropout(h->g, name, operand(h, name, x), probability);
}

PlaitTensor plait_graph_rope(PlaitGraph *h, const char *name, PlaitTensor x, PlaitTensor positions, double theta) {
  char first[128], second[128];
  if (!normalisable(h, name, x)) return -1;
  if (positions == -1) positions = api_graph_constant(h, API_GRAPH_POSITIONS, graph_tensor(h->g, x)->shape.size[1]);
  if (!api_graph_readable(h, name, positions, 1)) return -1;
  const Shape *a = &graph_tensor(h->g, x)->shape, *b = &graph_tensor(h->g, positions)->shape;
  if (a->rank < 3 || last_size(h, x) % 2 || b->rank != 2 || b->size[1] != a->size[1])
    return wrong(h, "x and positions of %s are %s and %s; allowed: (samples, s, …, d), d even, and (samples, s)", name,
                 shape_of_tensor(h, x, first), shape_of_tensor(h, positions, second));
  if (!(theta > 0) || !isfinite(theta)) return wrong(h, "theta of %s is %g; allowed: above 0", name, theta);
  api_graph_input(h, positions)->needed_forward = 1;
  return op_rope(h->g, name, operand(h, name, x), positions, &(RopeAttr){.theta = theta});
}

// q (b, s, g, r, d), k and v (b, s, g, d), documents (b, s)
static int check_attention(PlaitGraph *h, const char *name, PlaitTensor q, PlaitTensor k, PlaitTensor v) {
  char first[128], second[128], third[128];
  const Shape *x = &graph_tensor(h->g, q)->shape, *y = &graph_tensor(h->g, k)->shape;
  const int64_t *n = x->size, *m = y->size;
  if (api_graph_samples(h, q) && (x->rank == 4 || x->rank == 5) && y->rank == 4 && op_same_sizes(h->g, k, v) &&
      api_graph_samples(h, k) && api_graph_samples(h, v) && m[1] == n[1] && m[2] == n[2] && m[3] == n[x->rank - 1])
    return 1;
  wrong(h,
        "q, k and v of %s are %s, %s and %s; allowed: (samples, s, heads, d) each, or q (samples, s, kv_heads, group, "
        "d) with k and v (samples, s, kv_heads, d)",
        name, shape_of_tensor(h, q, first), shape_of_tensor(h, k, second), shape_of_tensor(h, v, third));
  return 0;
}

static PlaitTensor documents_of(PlaitGraph *h, const char *name, PlaitTensor documents, int64_t s) {
  char text[128];
  if (documents == -1) return api_graph_constant(h, API_GRAPH_ZEROS, s);
  if (!api_graph_readable(h, name, documents, 1)) return -1;
  const Shape *have = &graph_tensor(h->g, documents)->shape;
  if (have->rank != 2 || have->size[1] != s)
    return wrong(h, "documents of %s are %s; allowed: (samples, %lld)", name, shape_of_tensor(h, documents, text),
                 (long long)s);
  api_graph_input(h, documents)->needed_forward = 1;
  return documents;
}

PlaitTensor plait_graph_attention(PlaitGraph *h, const char *name, PlaitTensor q, PlaitTensor k, PlaitTensor v,
                                  PlaitTensor documents, int causal, double dropout) {
  if (!api_graph_take_name(h, name) || !readable(h, name, q) || !readable(h, name, k) || !readable(h, name, v) ||
      !check_attention(h, name, q, k, v) || !check_probability(h, name, dropout))
    return -1;
  const Shape s = graph_tensor(h->g, q)->shape;
  const AttentionDocuments numbers = documents < 0 ? ATTENTION_DOCUMENTS_ONE : ATTENTION_DOCUMENTS_ANY;
  documents = documents_of(h, name, documents, s.size[1]);
  if (documents < 0) return -1;
  AttentionAttr attr = {.scale = 1 / sqrt((double)s.size[s.rank - 1]), .dropout = dropout, .causal = causal != 0,
                        .documents = numbers};
  q = operand(h, name, q), k = operand(h, name, k), v = operand(h, name, v);
  if (s.rank == 5) return op_attention(h->g, name, q, k, v, documents, documents, &attr);
  // every head has its own key: a group of one
  EinsumAttr in = {.rank = {4, 0, 5}, .letter = {{0, 1, 2, 4}, {0}, {0, 1, 2, 3, 4}}, .size = {0, 0, 0, 1}},
             out = {.rank = {5, 0, 4}, .letter = {{0, 1, 2, 3, 4}, {0}, {0, 1, 2, 4}}};
  q = op_einsum(h->g, part_name(h, name, "group"), &in, q, -1);
  int y = op_attention(h->g, part_name(h, name, "attention"), q, k, v, documents, documents, &attr);
  return op_einsum(h->g, name, &out, y, -1);
}
