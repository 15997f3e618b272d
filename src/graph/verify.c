// Verification between passes: every property that a later pass relies on.
#include "base/fault.h"
#include "graph/graph.h"
#include "op/op.h"
#include <stdlib.h>
#include <string.h>

static int broken(Error *error, const char *after, const Node *n, const char *what) {
  return error_set(error, PLAIT_FAILED, "graph broken after %s: node %d (%s %s): %s", after, n->id, op_name(n->op), n->name, what);
}

static int verify_node(const Graph *g, const Node *n, const char *after, Error *error) {
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] == -1) continue; // an absent optional operand
    if (n->input[k] < 0 || n->input[k] >= g->tensor.count) return broken(error, after, n, "an input does not exist");
    const Tensor *t = graph_tensor(g, n->input[k]);
    if (t->producer >= n->id) return broken(error, after, n, "an input is produced later");
    if (t->producer >= 0 && g->node.data[t->producer].region != n->region && FAULT(verify_misses_a_region, t->variable < 0, 0))
      return broken(error, after, n, "an input crosses a region without a Variable");
    if (t->producer < 0 && t->variable < 0 && t->input < 0) return broken(error, after, n, "an input has no source");
  }
  for (int k = 0; k < n->noutput; k++) {
    if (n->output[k] < 0 || n->output[k] >= g->tensor.count) return broken(error, after, n, "an output does not exist");
    if (graph_tensor(g, n->output[k])->producer != n->id) return broken(error, after, n, "an output names another producer");
  }
  return PLAIT_OK;
}

// A tensor that is bound to a Variable is that memory: who reads it must run before the next writer. `last`: per (Variable, storage
// or Copy, region) 1 + the node that wrote it last.
static int verify_bound(const Graph *g, const Node *n, int *last, const char *after, Error *error) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int id = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Tensor *t = id < 0 ? NULL : graph_tensor(g, id);
    if (!t || t->variable < 0) continue;
    int *writer = &last[(t->variable * (MAX_COPIES + 1) + t->copy + 1) * REGION_COUNT + (int)n->region];
    if (k >= n->ninput) *writer = n->id + 1;
    else if (*writer && *writer != t->producer + 1) return broken(error, after, n, "an input is overwritten before it is read");
  }
  return PLAIT_OK;
}

static int verify_overwrites(const Graph *g, const char *after, Error *error) {
  int *last = xcalloc((size_t)(g->variable.count + 1) * (MAX_COPIES + 1) * REGION_COUNT, sizeof *last), code = PLAIT_OK;
  for (int i = 0; i < g->node.count && !code; i++) code = verify_bound(g, &g->node.data[i], last, after, error);
  free(last);
  return code;
}

int graph_verify(const Graph *g, const char *after, Error *error) {
  for (int i = 0; i < g->node.count; i++) {
    if (g->node.data[i].id != i) return broken(error, after, &g->node.data[i], "its id is not its place");
    int code = verify_node(g, &g->node.data[i], after, error);
    if (code) return code;
  }
  for (int i = 0; i < g->tensor.count; i++) {
    const Tensor *t = &g->tensor.data[i];
    if (t->variable < 0) continue;
    if (t->variable >= g->variable.count) return error_set(error, PLAIT_FAILED, "graph broken after %s: %s is bound to no Variable", after, t->name);
    const Variable *v = &g->variable.data[t->variable];
    if (t->copy >= v->copies) return error_set(error, PLAIT_FAILED, "graph broken after %s: %s is bound to a Copy that %s lacks", after, t->name, v->name);
    if (t->copy < 0 && (shape_elements(&t->shape) != shape_elements(&v->shape) || t->dtype != v->dtype))
      return error_set(error, PLAIT_FAILED, "graph broken after %s: %s does not fit its Variable %s", after, t->name, v->name);
  }
  return verify_overwrites(g, after, error);
}
