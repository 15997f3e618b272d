// CACHE_ATTENTION: attention of new tokens to the keys and values of their requests, which lie in pages of a cache
// (Kwon et al., "Efficient memory management for large language model serving with PagedAttention", 2023). Not
// differentiable.
#include "base/fault.h"
#include "op/build.h"
#include "op/cache.h"
#include <math.h>

// q (b, s, g, r, d), keys and values (b, c, g, d), requests (b, s), positions (b, s), pages (b, n, m) → out (b, s, g,
// r, d)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 6);
  Tensor q = *graph_tensor(g, node->input[0]);
  const Shape *keys = &graph_tensor(g, node->input[1])->shape, *pages = &graph_tensor(g, node->input[5])->shape;
  const int64_t *n = q.shape.size;
  int64_t page = node_attr(node, CacheAttr)->page;
  CHECK(q.shape.rank == 5 && keys->rank == 4 && op_same_sizes(g, node->input[1], node->input[2]));
  CHECK(keys->size[0] == n[0] && keys->size[2] == n[2] && keys->size[3] == n[4]);
  CHECK(page > 0 && keys->size[1] % page == 0, "a cache of whole pages");
  for (int k = 3; k < 5; k++) {
    const Shape *tokens = &graph_tensor(g, node->input[k])->shape;
    CHECK(tokens->rank == 2 && tokens->size[0] == n[0] && tokens->size[1] == n[1]);
  }
  CHECK(pages->rank == 3 && pages->size[0] == n[0] && graph_tensor(g, node->input[5])->dtype == DTYPE_I32);
  graph_output(g, node, "", q.dtype, q.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsgrd", "bcgd", "bcgd", "bs", "bs", "bnm"}, 6, (const char *[]){"bsgrd"}, 1,
          "; whole c n m d");
}

typedef struct Row {
  const Operand *q, *keys, *values;
  int64_t b, g, query; // the query's first element
  int64_t request, position;
  double scale, *score; // (position + 1)
} Row;

static int64_t key_at(const KernelCall *call, const Row *row, int64_t position) {
  int64_t at = row->b * row->keys->size[1] + cache_row(call, row->b, row->request, position);
  return (at * row->keys->size[2] + row->g) * row->keys->size[3];
}

static void attend(const KernelCall *call, Row *row) {
  int64_t d = row->q->size[4], n = row->position + FAULT(cache_hides_the_last_key, 1, 0);
  double most = -INFINITY, sum = 0;
  for (int64_t t = 0; t < n; t++) {
    double dot = 0;
    int64_t key = key_at(call, row, t);
    for (int64_t i = 0; i < d; i++) dot += operand_load(row->q, row->query + i) * operand_load(row->keys, key + i);
    row->score[t] = row->scale * dot;
    most = fmax(most, row->score[t]);
  }
  for (int64_t t = 0; t < n; t++) sum += row->score[t] = exp(row->score[t] - most);
  for (int64_t i = 0; i < d; i++) {
    double out = 0;
    for (int64_t t = 0; t < n; t++) out += row->score[t] / sum * operand_load(row->values, key_at(call, row, t) + i);
    operand_store(&call->output[0], row->query + i, out);
  }
}

static void reference(const KernelCall *call) {
  const Operand *q = &call->input[0];
  const int64_t *n = q->size;
  Row row = {
      .q = q, .keys = &call->input[1], .values = &call->input[2], .scale = ((const CacheAttr *)call->attr)->scale};
  row.score = xcalloc((size_t)(call->input[5].size[2] * ((const CacheAttr *)call->attr)->page), sizeof *row.score);
  for (int64_t t = 0; t < n[0] * n[1]; t++) {
    row.b = t / n[1];
    row.request = (int64_t)operand_load(&call->input[3], t);
    row.position = (int64_t)operand_load(&call->input[4], t);
    for (row.g = 0; row.g < n[2]; row.g++)
      for (int64_t r = 0; r < n[3]; r++) {
        row.query = ((t * n[2] + row.g) * n[3] + r) * n[4];
        if (row.request >= 0) attend(call, &row);
        else
          for (int64_t i = 0; i < n[4]; i++) operand_store(&call->output[0], row.query + i, 0);
      }
  }
  free(row.score);
}

// How long the requests are is not known before a run: at most all that a request may have.
static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  const int64_t *n = input[0].size;
  double length = (double)(input[5].size[2] * ((const CacheAttr *)attr)->page);
  double pairs = (double)(n[0] * n[1] * n[2] * n[3]) * length,
         rows = fmin((double)n[1] * length, (double)input[1].size[1]);
  work->read += (rows / (double)input[1].size[1] - 1) * 2 * operand_bytes(&input[1]); // of the cache only that
  work->matrix = 4.0 * (double)n[4] * pairs;
  work->vector = 4 * pairs;
  work->attention = (OpAttention){.pairs = pairs, .width = (double)n[4], .length = length};
}

const OpDef op_def_cache_attention = {
    .name = "cache_attention",
    .meaning = "q (b, s, g, r, d), keys, values (b, c, g, d), requests (b, s), positions (b, s), pages (b, n, m) → out "
               "= softmax(scale q kᵀ) v (b, s, g, r, d) over positions 0 … positions[b, s] of request n = "
               "requests[b, s], of which position p lies in row pages[b, n, p / page] · page + p mod page; 0 where the "
               "request is negative",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .expensive = 1,
};

int op_cache_attention(Graph *g, const char *name, int q, int keys, int values, const CacheInputs *in,
                       const CacheAttr *attr) {
  int input[] = {q, keys, values, in->requests, in->positions, in->pages};
  int n = graph_node(g, OP_CACHE_ATTENTION, name, input, 6, attr, sizeof *attr);
  return g->node.data[n].output[0];
}
