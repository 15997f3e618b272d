// The call of an op that has several algorithms, from the placements of its node.
#include "compile/algorithm_call.h"
#include "op/op.h"
#include "sharding/rule.h"

// Of the ranks that shard a dim, those that other axes than context parallelism's have.
static int64_t other_shards(const Mesh *mesh, const AxisList *list) {
  int64_t n = 1;
  for (int i = 0; i < list->n; i++)
    if (mesh->axis[list->axis[i]].role != AXIS_CONTEXT) n *= mesh->axis[list->axis[i]].size;
  return n;
}

AlgorithmCall algorithm_call_of(const Graph *g, const Node *n, const Mesh *mesh, int inner) {
  Arena scratch = {0};
  Rule r = rule_of(&scratch, g, n);
  AlgorithmCall call = {.ranks = 1, .inner = inner};
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].role == AXIS_CONTEXT) call.ranks *= mesh->axis[a].size;
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] < 0) continue;
    const Tensor *t = graph_tensor(g, n->input[k]);
    if (!k) call.bytes = dtype_size(t->dtype);
    for (int d = 0; d < t->shape.rank; d++)
      call.size[(int)r.input[k][d]] = t->shape.size[d] / other_shards(mesh, &node_want(n, k)->dim[d]);
  }
  arena_free(&scratch);
  return call;
}
