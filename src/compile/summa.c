// SUMMA: which products run in steps, and their steps.
//
// Where place wants operands gathered, and the sum scattered, over the rows and columns of a square of q · q ranks, the
// dim that is gathered can be taken in q blocks instead. With e as the cut dim, step k of the three products of 2-D
// tensors is:
//   Y = X Wᵀ     broadcast X's block k along the columns and W's along the rows:        Y += X(e = k) W(e = k)ᵀ
//   dX = dY W    broadcast W's block k along the rows, sum dY W(e = k) over the columns to rank k, which has that block
//   of dX dW = dYᵀ X   broadcast X's block k along the columns, sum dYᵀ X(e = k) over the rows to rank k
// Second products, back onto the width, are the same with dX's form forward. Operands move as much as by gathering;
// of these two blocks are held instead of q: one that is computed with, and the next one, which is on its way.
//
// Products that read one gathered tensor (queries, keys and values) go through the steps together. Where one of them
// cannot, none does, since blocks would be moved once for each.
#include "compile/summa.h"
#include "base/fault.h"
#include "compile/place_node.h"
#include "op/build.h"
#include "sharding/rule.h"
#include <string.h>

Readers readers_of(const Graph *g) {
  Readers r = {xcalloc((size_t)g->tensor.count + 2, sizeof(int)), NULL};
  int total = 0;
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] >= 0) r.first[g->node.data[i].input[k] + 2]++, total++;
  for (int t = 1; t <= g->tensor.count + 1; t++) r.first[t] += r.first[t - 1];
  r.node = xcalloc((size_t)total + 1, sizeof(int));
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] >= 0) r.node[r.first[g->node.data[i].input[k] + 1]++] = i;
  return r;
}

void readers_free(Readers *r) {
  free(r->first);
  free(r->node);
}

// ---- which products ------------------------------------------------------------------------------------------------

// The axes of tensor parallelism that follow `list` in `longer`, in the mesh's order; others may come after them.
static AxisList further_axes(const Mesh *mesh, const AxisList *list, const AxisList *longer) {
  AxisList more = {0};
  if (axis_list_prefix(list, longer) < list->n) return more;
  for (int i = list->n; i < longer->n; i++) {
    int axis = longer->axis[i];
    if (mesh->axis[axis].role != AXIS_TENSOR || longer->zigzag == i + 1) break;
    if (more.n && axis < more.axis[more.n - 1]) return (AxisList){0};
    axis_list_push(&more, axis);
  }
  return more;
}

static void append_axes(AxisList *list, const AxisList *more) {
  for (int i = 0; i < more->n; i++) axis_list_take(list, more, i);
}

// The only dim in which axes of tensor parallelism follow those of `p` in `longer`; -1: none, or several.
static int further_dim(const Mesh *mesh, const Placement *p, const Placement *longer, AxisList *more) {
  int found = -1;
  for (int d = 0; d < p->rank; d++) {
    AxisList list = further_axes(mesh, &p->dim[d], &longer->dim[d]);
    if (!list.n) continue;
    if (found >= 0) return -1;
    found = d;
    *more = list;
  }
  return found;
}

// The axes that readers of an output want on dim d beyond `give`, if it is a sum over just these axes: all want the
// same.
static AxisList wanted_axes(const Graph *g, const Readers *readers, const Mesh *mesh, int tensor, const Placement *give,
                            int d) {
  AxisList all = {0};
  int from = readers->first[tensor], to = readers->first[tensor + 1];
  for (int i = from; i < to; i++) {
    const Node *n = &g->node.data[readers->node[i]];
    for (int k = 0; k < n->ninput; k++) {
      if (n->input[k] != tensor) continue;
      AxisList list = further_axes(mesh, &give->dim[d], &node_want(n, k)->dim[d]);
      if (node_want(n, k)->partial & axis_list_axes(&list)) return (AxisList){0};
      if (i > from && !axis_list_equal(&list, &all)) return (AxisList){0};
      all = list;
    }
  }
  return all;
}

// The sum is scattered on the dim that is gathered from an operand: by this node, or by all that read it.
static int find_result(SummaProduct *s, const Graph *g, const Readers *readers, const Mesh *mesh, const Node *n,
                       int steps) {
  const Placement *give = node_give(n, 0), *is = graph_tensor(g, n->output[0])->placement;
  AxisList more = further_axes(mesh, &give->dim[s->result_dim], &is->dim[s->result_dim]);
  s->handed_on = !more.n && placement_equal(is, give);
  if (s->handed_on) more = wanted_axes(g, readers, mesh, n->output[0], give, s->result_dim);
  s->result_axes = axis_list_axes(&more);
  if (!more.n || (give->partial & s->result_axes) != s->result_axes || mesh_size(mesh, s->result_axes) != steps)
    return 0;
  append_axes(&s->result.dim[s->result_dim], &more);
  s->result.partial &= ~s->result_axes;
  return 1;
}

static int has_factor(const int8_t *factors, int rank, int factor) {
  for (int d = 0; d < rank; d++)
    if (factors[d] == factor) return d;
  return -1;
}

// How a node would run in steps; returns their number. 0: it is not such a product.
static int analyse(SummaProduct *s, const Graph *g, const Readers *readers, const Mesh *mesh, int id) {
  const Node *n = &g->node.data[id];
  if (n->region != REGION_MICRO || n->update || !node_is(n, ROLE_PRODUCT) || n->ninput != 2) return 0;
  Arena scratch = {0};
  Rule rule = rule_of(&scratch, g, n);
  *s = (SummaProduct){.node = id, .dim = {-1, -1}, .result_dim = -1, .result = *node_give(n, 0)};
  int factor = -1, steps = 0, fits = 1;
  for (int k = 0; k < 2; k++) {
    const Tensor *t = graph_tensor(g, n->input[k]);
    AxisList more;
    s->from[k] = *node_want(n, k);
    fits &=
        !node_want(n, k)->owner_axes && !t->placement->owner_axes && node_want(n, k)->partial == t->placement->partial;
    int d = further_dim(mesh, node_want(n, k), t->placement, &more);
    if (d < 0) continue;
    fits &= factor < 0 || factor == rule.input[k][d];
    factor = rule.input[k][d];
    s->dim[k] = d;
    s->axes[k] = axis_list_axes(&more);
    fits &= !(placement_axes(node_want(n, k)) & s->axes[k]); // moved to another dim
    fits &= !steps || (steps == mesh_size(mesh, s->axes[k]) && !(s->axes[0] & s->axes[1]));
    steps = mesh_size(mesh, s->axes[k]);
    fits &= t->shape.size[d] % axis_list_shards(mesh, &t->placement->dim[d]) == 0 && !(s->from[k].partial & s->axes[k]);
    append_axes(&s->from[k].dim[d], &more);
  }
  if (fits && steps) {
    s->result_dim = has_factor(rule.output[0], s->result.rank, factor);
    int both = s->dim[0] >= 0 && s->dim[1] >= 0;
    if (s->result_dim >= 0) fits = !both && find_result(s, g, readers, mesh, n, steps);
    else fits = both;
  }
  arena_free(&scratch);
  return fits ? steps : 0;
}

// Both nodes would take what is gathered from one to the other.
static int together(const Graph *g, const Node *a, const Node *b, int tensor) {
  int parameter = graph_tensor(g, tensor)->variable >= 0;
  return a->region == b->region && a->phase == b->phase && a->stage == b->stage &&
         (!parameter || a->layer == b->layer);
}

// Everything that the node reads is there before the first of the group.
static int may_come_first(const Graph *g, const Node *n, int first) {
  for (int k = 0; k < n->ninput; k++)
    if (graph_tensor(g, n->input[k])->producer >= first) return 0;
  return 1;
}

static int is_in(const SummaGroup *group, int node) {
  for (int i = 0; i < group->product.count; i++)
    if (group->product.data[i].node == node) return 1;
  return 0;
}

// Adds the readers of what is broadcast for a product; 0: one of them is none.
static int add_readers(SummaGroup *group, const Graph *g, const Readers *readers, const Mesh *mesh,
                       const SummaProduct *s, int k, int first) {
  const Node *n = &g->node.data[s->node];
  int tensor = n->input[k];
  for (int i = readers->first[tensor]; i < readers->first[tensor + 1]; i++) {
    const Node *reader = &g->node.data[readers->node[i]];
    if (is_in(group, reader->id) || !together(g, n, reader, tensor)) continue;
    int gathers = 0;
    for (int j = 0; j < reader->ninput; j++)
      gathers |= reader->input[j] == tensor && !(axis_list_axes(&node_want(reader, j)->dim[s->dim[k]]) & s->axes[k]);
    if (!gathers) continue;
    SummaProduct other;
    if (reader->id < first || analyse(&other, g, readers, mesh, reader->id) != group->steps ||
        !may_come_first(g, reader, first))
      return 0;
    vec_push(&group->product, other);
  }
  return 1;
}

int summa_find(SummaGroup *group, const Graph *g, const Readers *readers, const Mesh *mesh, int node) {
  SummaProduct first;
  *group = (SummaGroup){.steps = analyse(&first, g, readers, mesh, node)};
  if (!group->steps) return 0;
  vec_push(&group->product, first);
  for (int i = 0; i < group->product.count; i++) {
    SummaProduct s = group->product.data[i]; // a copy: the list grows
    for (int k = 0; k < 2; k++) {
      if (s.dim[k] < 0 || add_readers(group, g, readers, mesh, &s, k, node)) continue;
      vec_free(&group->product);
      return 0;
    }
  }
  return 1;
}

// ---- their steps ---------------------------------------------------------------------------------------------------

typedef struct Emit {
  const SummaGroup *group;
  Graph *h;
  const Mesh *mesh;
  const Node *like; // names, stage
  int step;
} Emit;

// The node that was appended last gives a tensor that lies so.
static int placed(const Emit *e, int tensor, const Placement *p) {
  Graph *h = e->h;
  Tensor *t = graph_tensor(h, tensor);
  Node *n = &h->node.data[t->producer];
  n->stage = e->like->stage;
  n->stages = t->stages = e->like->stages;
  t->placement = placement_new(h, p);
  placement_local(e->mesh, p, &t->shape, t->local_);
  t->allocated_ = 1;
  for (int d = 0; d < t->shape.rank; d++) t->allocated_ *= t->local_[d];
  return tensor;
}

static const char *step_name(const Emit *e, const char *what) {
  return op_derived_name(e->h, e->like, arena_format(&e->h->arena, "%s.%d", what, e->step));
}

// The block of rank `step` of these axes, on all of them.
static Placement fixed_at(Placement p, uint32_t axes, int step) {
  p.fixed_axes = axes;
  p.fixed = step;
  return p;
}

static int append_broadcast(const Emit *e, int tensor, int k, uint32_t axes) {
  Placement p = fixed_at(*graph_tensor(e->h, tensor)->placement, axes, e->step);
  const char *name = step_name(e, k ? "second" : "first");
  return placed(e, op_broadcast(e->h, name, tensor, axes, FAULT(summa_step_of_another, e->step, 0)), &p);
}

// The products' operands of a step; a tensor that several read is broadcast once.
static void append_blocks(const Emit *e, const Graph *g, const int (*input)[2], int (*block)[2]) {
  const SummaProduct *s = e->group->product.data;
  for (int i = 0; i < e->group->product.count; i++)
    for (int k = 0; k < 2; k++) {
      block[i][k] = s[i].dim[k] < 0 ? input[i][k] : -1;
      for (int j = 0; j <= i && block[i][k] < 0; j++)
        for (int l = 0; l < (j < i ? 2 : k); l++)
          if (s[j].dim[l] >= 0 && input[j][l] == input[i][k] && s[j].axes[l] == s[i].axes[k]) block[i][k] = block[j][l];
      if (block[i][k] < 0) {
        Emit named = *e;
        named.like = &g->node.data[s[i].node];
        block[i][k] = append_broadcast(&named, input[i][k], k, s[i].axes[k]);
      }
    }
}

// The product of a step's blocks. Where its sum over ranks is a block of the result, rank `step` keeps that, and the
// others zero.
static int append_product(const Emit *e, const SummaProduct *s, const int *block) {
  Placement sum = s->result;
  if (s->result_dim >= 0) {
    sum = fixed_at(sum, s->result_axes, e->step);
    sum.partial |= s->result_axes;
  }
  int id = graph_node(e->h, e->like->op, step_name(e, "block"), block, 2, e->like->attr, NODE_ATTR_BYTES);
  int product = placed(e, e->h->node.data[id].output[0], &sum);
  if (s->result_dim < 0) return product;
  sum.partial &= ~s->result_axes;
  int there = placed(e, op_reduce_to(e->h, step_name(e, "sum"), product, s->result_axes, e->step), &sum);
  return placed(e, op_slice(e->h, step_name(e, "own"), there, s->result_axes, s->result_dim), &s->result);
}

void summa_emit(const SummaGroup *group, const Graph *g, Graph *h, const Mesh *mesh, const int (*input)[2],
                int *output) {
  int count = group->product.count;
  int(*block)[2] = xcalloc((size_t)count, sizeof *block), (*next)[2] = xcalloc((size_t)count, sizeof *next);
  Emit e = {.group = group, .h = h, .mesh = mesh};
  append_blocks(&e, g, input, next);
  for (int step = 0; step < group->steps; step++) {
    memcpy(block, next, sizeof *block * (size_t)count);
    e.step = step + 1;
    if (e.step < group->steps) append_blocks(&e, g, input, next);
    e.step = step;
    for (int i = 0; i < count; i++) {
      const SummaProduct *s = &group->product.data[i];
      e.like = &g->node.data[s->node];
      int part = append_product(&e, s, block[i]);
      int sum =
          step ? placed(&e, op_add(h, step_name(&e, "so_far"), (int[]){output[i], part}, 2), &s->result) : part;
      output[i] = FAULT(summa_keeps_the_last, sum, part);
    }
  }
  free(block);
  free(next);
}
