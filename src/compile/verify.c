// Verification between passes: every property that a later pass relies on.
#include "compile/verify.h"
#include "base/fault.h"
#include "op/op.h"
#include "sharding/placement.h"
#include <stdlib.h>
#include <string.h>

static int broken(Error *error, const char *after, const Node *n, const char *what) {
  return error_set(error, PLAIT_FAILED, "graph broken after %s: node %d (%s %s): %s", after, n->id, op_name(n->op),
                   n->name, what);
}

static int verify_node(const Graph *g, const Node *n, const char *after, Error *error) {
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] == -1) continue; // an absent optional operand
    if (n->input[k] < 0 || n->input[k] >= g->tensor.count) return broken(error, after, n, "an input does not exist");
    const Tensor *t = graph_tensor(g, n->input[k]);
    if (t->producer >= n->id) return broken(error, after, n, "an input is produced later");
    if (t->producer >= 0 && g->node.data[t->producer].region != n->region &&
        FAULT(verify_misses_a_region, t->variable < 0, 0))
      return broken(error, after, n, "an input crosses a region without a Variable");
    if (t->producer < 0 && t->variable < 0 && t->input < 0) return broken(error, after, n, "an input has no source");
  }
  if (n->refreshes && (n->region != REGION_BEGIN || op_def(n->op)->communicates || n->noutput != 1 ||
                       graph_tensor(g, n->output[0])->copy < 0))
    return broken(error, after, n, "it may be passed over, but is not what makes a Copy in BEGIN on each rank alone");
  for (int k = 0; k < n->noutput; k++) {
    if (n->output[k] < 0 || n->output[k] >= g->tensor.count) return broken(error, after, n, "an output does not exist");
    if (graph_tensor(g, n->output[k])->producer != n->id)
      return broken(error, after, n, "an output names another producer");
  }
  return PLAIT_OK;
}

// A tensor that is bound to a Variable is that memory: who reads it must run before the next writer. `last`: per
// (Variable, storage or Copy, region) 1 + the node that wrote it last.
static int verify_bound(const Graph *g, const Node *n, int *last, const char *after, Error *error) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int id = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Tensor *t = id < 0 ? NULL : graph_tensor(g, id);
    if (!t || t->variable < 0) continue;
    int *writer = &last[(t->variable * (MAX_COPIES + 1) + t->copy + 1) * REGION_COUNT + (int)n->region];
    if (k >= n->ninput) *writer = n->id + 1;
    else if (*writer && *writer != t->producer + 1)
      return broken(error, after, n, "an input is overwritten before it is read");
  }
  return PLAIT_OK;
}

// The outputs that the op's shape rule gives for the inputs, on a separate graph, against the node's. A rule that finds
// its inputs wrong stops the process: only a bug of a pass can bring it there.
static int verify_shapes(const Graph *g, const Node *n, Graph *scratch, const char *after, Error *error) {
  Node node = *n;
  if (!op_def(n->op)->shape) return PLAIT_OK; // its nodes come with their outputs
  int *input = arena_array(&scratch->arena, int, n->ninput + 1);
  scratch->tensor.count = 0;
  for (int k = 0; k < node.ninput; k++) {
    input[k] = n->input[k] < 0 ? -1 : scratch->tensor.count;
    if (n->input[k] >= 0) vec_push(&scratch->tensor, *graph_tensor(g, n->input[k]));
  }
  node.input = input;
  node.output = NULL;
  node.noutput = 0;
  op_def(n->op)->shape(scratch, &node);
  if (node.noutput != n->noutput)
    return broken(error, after, n, "its outputs are not as many as its op's rule gives");
  for (int k = 0; k < node.noutput; k++) {
    const Tensor *is = graph_tensor(g, n->output[k]), *should = graph_tensor(scratch, node.output[k]);
    if (is->dtype != should->dtype)
      return broken(error, after, n, "an output is not of the dtype that its op's rule gives");
    if (is->shape.rank != should->shape.rank ||
        memcmp(is->shape.size, should->shape.size, sizeof *is->shape.size * (size_t)is->shape.rank))
      return broken(error, after, n, "an output is not of the shape that its op's rule gives");
  }
  return PLAIT_OK;
}

static int broken_tensor(Error *error, const char *after, const Tensor *t, const char *what) {
  return error_set(error, PLAIT_FAILED, "graph broken after %s: tensor %d (%s): %s", after, t->id, t->name, what);
}

static int64_t product(const int64_t *size, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= size[i];
  return p;
}

// Checks that a node and its operands have all facts of the graph's form, and no fact of a later form.
static int verify_form(const Graph *g, const Node *n, const char *after, Error *error) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int id = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Tensor *t = id < 0 ? NULL : graph_tensor(g, id);
    const Placement *const *wish = k < n->ninput ? n->want_ : n->give_;
    if (!t) continue;
    if (g->form >= GRAPH_PLACED && !t->placement) return broken_tensor(error, after, t, "it has no placement");
    if (g->form == GRAPH_PLACED && (!wish || !wish[k < n->ninput ? k : k - n->ninput]))
      return broken(error, after, n, "an operand has no want or give");
    if (g->form != GRAPH_LOCAL && t->allocated_)
      return broken_tensor(error, after, t, "it has a local shape too early");
    if (g->form == GRAPH_LOCAL && (n->want_ || n->give_))
      return broken(error, after, n, "its want or give is still set");
    if (g->form == GRAPH_LOCAL && (t->allocated_ < 1 || t->allocated_ < tensor_elements(t, t->local_)))
      return broken_tensor(error, after, t, "its buffer does not hold its local shape");
  }
  return PLAIT_OK;
}

static int makes(const Node *n, int tensor) {
  for (int k = 0; k < n->noutput; k++)
    if (n->output[k] == tensor) return 1;
  return 0;
}

// Nodes that read a compact tensor find as many rows as its mask says: this is made before, on the same stage and, once
// shapes are local, lies as the tensor does.
static int verify_compact(const Graph *g, const Node *n, const char *after, Error *error) {
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(g, n->output[k]);
    if (!tensor_is_compact(t)) continue;
    if (t->mask >= g->tensor.count || graph_tensor(g, t->mask)->dtype != DTYPE_U8 || t->choices < 1)
      return broken_tensor(error, after, t, "its mask does not exist or is none");
    const Tensor *mask = graph_tensor(g, t->mask);
    if (mask->producer >= n->id) return broken_tensor(error, after, t, "its mask is made later");
    const Node *maker = mask->producer < 0 ? NULL : &g->node.data[mask->producer];
    if (maker && !makes(maker, mask->id)) return broken_tensor(error, after, t, "its mask is no longer made");
    if (maker && maker->stage != n->stage) return broken_tensor(error, after, t, "its mask is made on another stage");
    if (!graph_waits_for_mask(g, n, t->mask))
      return broken_tensor(error, after, t, "its node does not wait for its mask");
    for (int d = 0; d < 3; d++) {
      if (mask->shape.size[d] != t->shape.size[d])
        return broken_tensor(error, after, t, "its mask is not of its batch, positions and experts");
      if (g->form == GRAPH_LOCAL && !axis_list_equal(&mask->placement->dim[d], &t->placement->dim[d]))
        return broken_tensor(error, after, t, "its mask lies otherwise");
    }
  }
  return PLAIT_OK;
}

static int verify_variable(const Graph *g, const Variable *v, const char *after, Error *error) {
  if (g->form >= GRAPH_PLACED && !v->storage)
    return error_set(error, PLAIT_FAILED, "graph broken after %s: Variable %s has no storage", after, v->name);
  if (g->form == GRAPH_LOCAL && v->allocated_ < product(v->local_, v->shape.rank))
    return error_set(error, PLAIT_FAILED,
                     "graph broken after %s: the storage of Variable %s does not hold its local shape", after, v->name);
  return PLAIT_OK;
}

// Node by node, while its operands are in the cache.
static int verify_operands(const Graph *g, const char *after, Error *error) {
  enum { AT_ONCE = 256 }; // nodes, before the scratch memory is given back
  int *last = xcalloc((size_t)(g->variable.count + 1) * (MAX_COPIES + 1) * REGION_COUNT, sizeof *last), code = PLAIT_OK;
  Graph *scratch = NULL;
  for (int i = 0; i < g->node.count && !code; i++) {
    const Node *n = &g->node.data[i];
    if (i % AT_ONCE == 0) {
      graph_destroy(scratch);
      scratch = graph_create();
    }
    code = verify_bound(g, n, last, after, error);
    if (!code) code = verify_form(g, n, after, error);
    if (!code) code = verify_compact(g, n, after, error);
    if (!code) code = verify_shapes(g, n, scratch, after, error);
  }
  graph_destroy(scratch);
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
    if (t->variable >= g->variable.count)
      return error_set(error, PLAIT_FAILED, "graph broken after %s: %s is bound to no Variable", after, t->name);
    const Variable *v = &g->variable.data[t->variable];
    if (t->copy >= v->copies)
      return error_set(error, PLAIT_FAILED, "graph broken after %s: %s is bound to a Copy that %s lacks", after,
                       t->name, v->name);
    if (t->copy < 0 && (shape_elements(&t->shape) != shape_elements(&v->shape) || t->dtype != v->dtype))
      return error_set(error, PLAIT_FAILED, "graph broken after %s: %s does not fit its Variable %s", after, t->name,
                       v->name);
  }
  int code = PLAIT_OK;
  for (int i = 0; i < g->variable.count && !code; i++) code = verify_variable(g, &g->variable.data[i], after, error);
  return code ? code : verify_operands(g, after, error);
}
