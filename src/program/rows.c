// Rows of microbatches.
#include "program/rows.h"
#include "base/fault.h"

Rows rows_of(const Program *p, const Tensor *t, int rank) {
  if (!t->shape.rank || t->shape.dim[0] != DIM_BATCH || tensor_is_compact(t)) return (Rows){0};
  int shards = axis_list_shards(&p->mesh, &t->placement->dim[0]), ranks = p->shares->ranks;
  IndexMap map = placement_map(&p->mesh, t->placement, 0, t->shape.size[0], rank);
  int whole = ranks % shards == 0 && map.local * shards == t->shape.size[0];
  CHECK(whole || p->shares->even, "%s: its batch is cut over others than the data ranks", t->name);
  if (!whole) return (Rows){0}; // a user's own placement: all rows are there
  return (Rows){(int)(index_map(&map, 0) / map.local) * (ranks / shards), ranks / shards};
}

int64_t rows_valid(const Program *p, Rows rows, int microbatch) {
  if (microbatch < 0) return shares_rows_before(p->shares, p->shares->microbatches, rows.first, rows.count);
  return shares_rows(p->shares, microbatch, rows.first, rows.count);
}

void rows_set(const Program *p, Rows rows, int microbatch, Operand *x) {
  int64_t n = FAULT(rows_of_padding_count, rows_valid(p, rows, microbatch), rows.count * p->shares->bound), at = 0;
  if (p->shares->weighed) n = FAULT(padded_rows_counted, n, rows.count * p->shares->bound);
  if (microbatch >= 0)
    at = FAULT(rows_are_addressed_by_rank,
               shares_first(p->shares, microbatch, rows.first) - shares_first(p->shares, microbatch, 0),
               rows.first * p->shares->bound);
  x->size[0] = n;
  x->map[0] = index_range(at, n, x->map[0].global);
}

int64_t rows_elements(const Program *p, const Tensor *t, int rank, int microbatch) {
  if (tensor_is_compact(t)) {
    const int64_t *local = tensor_local(p->graph, t);
    return tensor_elements(t, local) / tensor_most_rows(t, local) * rows_balanced(p, t, rank, microbatch);
  }
  int64_t elements = tensor_local_elements(p->graph, t);
  Rows rows = p->shares->even ? (Rows){0} : rows_of(p, t, rank);
  return rows.count ? elements / tensor_local(p->graph, t)[0] * rows_valid(p, rows, microbatch) : elements;
}

void rows_pack(Operand *x, int64_t rows) {
  for (int d = 0; d < 3; d++) {
    x->size[d] = d ? 1 : rows;
    x->map[d] = index_whole(x->size[d]);
  }
}

int64_t rows_balanced(const Program *p, const Tensor *t, int rank, int microbatch) {
  int64_t experts = t->shape.size[2], most = rows_elements(p, graph_tensor(p->graph, t->mask), rank, microbatch);
  return (most * (t->choices < experts ? t->choices : experts) + experts - 1) / experts;
}

void rows_balance(const Program *p, const Node *n, int microbatch, Operand *operand) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int id = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Tensor *t = id < 0 ? NULL : graph_tensor(p->graph, id);
    if (t && tensor_is_compact(t)) rows_pack(&operand[k], rows_balanced(p, t, 0, microbatch));
  }
}

// The first one stores where others add (Program.stores).
static int alike(const Program *p, int a, int b) {
  return shares_same(p->shares, a, b) && (!a == !b || FAULT(first_microbatch_costs_as_others, 0, 1));
}

int rows_kind(const Program *p, const RowsKinds *kinds, int microbatch) {
  int k = 0;
  while (k < kinds->count && !alike(p, kinds->kind[k].microbatch, microbatch)) k++;
  return k < kinds->count || k < ROWS_MOST_KINDS ? k : ROWS_MOST_KINDS - 1;
}

RowsKinds rows_kinds(const Program *p) {
  RowsKinds kinds = {0};
  for (int m = 0; m < p->shares->microbatches; m++) {
    int k = rows_kind(p, &kinds, m);
    if (k == kinds.count) kinds.kind[kinds.count++].microbatch = m;
    kinds.kind[k].times++;
  }
  return kinds;
}
