// partition: from global shapes to one rank's, with every redistribution a node. The only pass that inserts
// communication.
#include "base/fault.h"
#include "op/build.h"
#include "sharding/redistribute.h"
#include "sharding/row_exchange.h"
#include "sharding/rule.h"
#include "op/op.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include "compile/summa.h"
#include "ir/user_name.h"
#include <string.h>

// A redistribution of a tensor. before: 1 + the one before of the same tensor. kept: later phases of the stage read it
// too.
typedef struct Moved {
  int to, before, kept;
  Phase phase;
  int stage;
  int64_t section;
  const Placement *placement;
} Moved;

typedef struct Partition {
  const Graph *g; // global
  Graph *h;       // local
  const Mesh *mesh;
  uint32_t data_axes; // over which the batch is cut
  int *map;          // tensor of g → tensor of h
  Vec(Moved) moved;  // redistributions already made: a second reader takes the first one's
  Vec(int) newest;   // per tensor of h, 1 + its last one in `moved`; 0: none
  Readers readers;   // of g; for SUMMA
  char *done;        // (nodes of g) it ran in the steps of one before it; NULL: no products run in steps
  Error *error;
} Partition;

static int64_t product(const int64_t *size, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= size[i];
  return p;
}

static void localize(const Mesh *mesh, Tensor *t) {
  placement_local(mesh, t->placement, &t->shape, t->local_);
  t->allocated_ = tensor_elements(t, t->local_);
}

static void localize_variables(Graph *h, const Mesh *mesh) {
  for (int i = 0; i < h->variable.count; i++) {
    Variable *v = &h->variable.data[i];
    placement_local(mesh, v->storage, &v->shape, v->local_);
    v->allocated_ = product(v->local_, v->shape.rank);
    for (int c = 0; c < v->copies; c++) {
      placement_local(mesh, v->copy[c].placement, &v->shape, v->copy[c].local_);
      v->copy[c].allocated_ = product(v->copy[c].local_, v->shape.rank);
    }
  }
}

// Makes room in a tensor's buffer, and in the Variable that it is bound to, for `elements`.
static void allocate(Graph *h, int tensor, int64_t elements) {
  Tensor *t = graph_tensor(h, tensor);
  if (t->allocated_ < elements) t->allocated_ = elements;
  if (t->variable < 0) return;
  Variable *v = &h->variable.data[t->variable];
  int64_t *room = t->copy < 0 ? &v->allocated_ : &v->copy[t->copy].allocated_;
  if (*room < elements) *room = elements;
}

// Gathered and scattered buffers hold a whole number of shards, more than the dim where it does not divide.
static void allocate_whole_shards(Partition *p, int whole, int shard, const RedistributeStep *step) {
  const Tensor *w = graph_tensor(p->h, whole), *s = graph_tensor(p->h, shard);
  int64_t padded = mesh_size(p->mesh, step->axes) * product(s->local_, s->shape.rank);
  CHECK(padded == w->allocated_ || product(w->local_, step->dim) == 1,
        "%s: padding inside a dim that is not the outermost", w->name);
  allocate(p->h, whole, padded);
}

// Nodes after which results are asked for: region, phase and stage. Redistributions are shared within one such section,
// so that what backward needs gathered is gathered again: a redistributed activation that is larger than the original
// never outlives its segment (is_kept has the others). Parameters are gathered anew in every layer, lest a tied one
// stay gathered from the first to the last.
static int64_t section_in(const Graph *h, int tensor, const Node *n, Phase phase) {
  int64_t layer = graph_tensor(h, tensor)->variable >= 0 && n->region == REGION_MICRO ? n->layer + 2 : 0;
  return ((layer * REGION_COUNT + (int)n->region) * PHASE_COUNT + (int)phase) * MAX_STAGES + n->stage;
}
static int64_t section_of(const Graph *h, int tensor, const Node *n) { return section_in(h, tensor, n, n->phase); }

// Whether what was moved for one section is there for a node. WEIGHT moves nothing that backward, where it is one,
// would not move: it takes what BACKWARD has moved and, for the head, whose backward is part of forward, what FORWARD
// has. That lies in the slot until then.
static int serves(const Graph *h, int64_t section, int tensor, const Node *n) {
  if (section == section_of(h, tensor, n)) return 1;
  if (n->phase != PHASE_WEIGHT || graph_tensor(h, tensor)->variable >= 0) return 0;
  return FAULT(weights_move_again, section == section_in(h, tensor, n, PHASE_BACKWARD), 0) ||
         (n->layer >= h->layers && section == section_in(h, tensor, n, PHASE_FORWARD));
}

static int emit_step(Partition *p, int tensor, const RedistributeStep *step, const Node *context) {
  Graph *h = p->h;
  const Tensor *from = graph_tensor(h, tensor);
  int stages = from->input >= 0 ? context->stages : graph_holders(h, tensor);
  Tensor t = *from;
  Node n = {.op = step->op,
            .region = context->region,
            .phase = context->phase,
            .layer = context->layer,
            .stage = context->stage,
            .round = context->round,
            .stages = context->region == REGION_MICRO ? context->stages : stages,
            .ninput = 1,
            .noutput = 1};
  t.variable = t.copy = t.input = -1;
  t.stages = n.stages;
  t.placement = placement_new(h, &step->to);
  t.name = arena_join(&h->arena, from->name, op_name(step->op));
  localize(p->mesh, &t);
  int out = graph_add_tensor(h, &t), in = tensor;
  CommAttr attr = {.axes = step->axes, .dim = step->dim, .dim2 = step->dim2, .root = step->root};
  memcpy(n.attr, &attr, sizeof attr);
  n.name = graph_tensor(h, out)->name;
  n.input = &in;
  n.output = &out;
  int id = graph_add_node(h, &n);
  if (op_comm(op_def(step->op))->scatters) allocate_whole_shards(p, in, out, step);
  if (op_comm(op_def(step->op))->gathers) allocate_whole_shards(p, out, in, step);
  return h->node.data[id].output[0];
}

static int redistribute(Partition *p, int tensor, const Placement *to, const Node *context);

// The mask of a compact tensor of h that lies as `rows`, from any placement of the mask; -1 on error.
static int mask_at(Partition *p, int mask, const Placement *rows, const Node *context) {
  Placement to = {.rank = 3};
  memcpy(to.dim, rows->dim, 3 * sizeof *to.dim);
  return redistribute(p, mask, placement_new(p->h, &to), context);
}

// The mask that a node of h which spreads its inputs reads: that of its output.
static int mask_read(const Graph *h, const Node *n, const int *input) {
  for (int k = 0; k < n->ninput; k++)
    if (input[k] >= 0 && graph_tensor(h, input[k])->dtype == DTYPE_U8) return input[k];
  CHECK(0, "%s reads no mask", n->name);
}

// A step of a compact tensor: its rows become those of its mask as that lies after the step.
static int emit_rows_step(Partition *p, int tensor, const RedistributeStep *step, const Node *context) {
  int mask = mask_at(p, graph_tensor(p->h, tensor)->mask, &step->to, context);
  if (mask < 0) return -1;
  const OpDef *op = op_def(step->op);
  if (!op->communicates || (op->comm != COMM_ALL_REDUCE && op->comm != COMM_REDUCE)) {
    error_set(p->error, PLAIT_INFEASIBLE, "the rows of experts cannot be moved by %s yet", op_name(step->op));
    return -1;
  }
  int out = emit_step(p, tensor, step, context);
  graph_tensor(p->h, out)->mask = mask;
  return out;
}

// An activation that communication has made no larger, as an all_to_all does, serves later phases of the stage too:
// backward then keeps it in place of the original, or beside it where it reads both.
// `begin`: the tensor, or what is at hand of it at another placement.
static int is_kept(const Graph *h, int tensor, int begin, int moved, const Node *context) {
  const Tensor *from = graph_tensor(h, tensor), *to = graph_tensor(h, moved);
  int communicates = begin != tensor;
  for (int t = moved; t != begin; t = h->node.data[graph_tensor(h, t)->producer].input[0])
    communicates |= op_def(h->node.data[graph_tensor(h, t)->producer].op)->communicates;
  return FAULT(backward_moves_again, 1, 0) && communicates && context->region == REGION_MICRO && from->variable < 0 &&
         to->allocated_ <= from->allocated_;
}

// Whether what was moved for an earlier phase is kept for a node.
static int stays(const Moved *m, const Node *reader) {
  return m->kept && reader->region == REGION_MICRO && m->stage == reader->stage && m->phase < reader->phase;
}

// The tensor at a placement, made by a redistribution for this section or kept for it; -1: it is not at hand.
static int made_before(const Partition *p, int tensor, const Placement *to, const Node *reader) {
  for (int i = tensor < p->newest.count ? p->newest.data[tensor] : 0; i; i = p->moved.data[i - 1].before) {
    const Moved *m = &p->moved.data[i - 1];
    if (placement_equal(m->placement, to) && (serves(p->h, m->section, tensor, reader) || stays(m, reader)))
      return m->to;
  }
  return -1;
}

// Remembers that `moved` is `tensor` at its own placement.
static void remember(Partition *p, int tensor, int moved, int kept, const Node *context) {
  while (p->newest.count <= tensor) vec_push(&p->newest, 0);
  vec_push(&p->moved, (Moved){moved, p->newest.data[tensor], kept, context->phase, context->stage,
                              section_of(p->h, tensor, context), graph_tensor(p->h, moved)->placement});
  p->newest.data[tensor] = p->moved.count;
}

// The same for later phases only. In its own, moving there and back is a round trip, which fuse drops with what nobody
// else reads of it.
static void remember_for_later(Partition *p, int tensor, int moved, const Node *context) {
  remember(p, tensor, moved, 1, context);
  p->moved.data[p->moved.count - 1].section = -1;
}

// The output of a node of h that spreads its inputs, at another placement: the inputs are moved instead, and the node
// runs again.
// -1 on error.
static int spread_again(Partition *p, int tensor, const Placement *to, const Node *context) {
  Graph *h = p->h;
  Arena scratch = {0};
  Node n = h->node.data[graph_tensor(h, tensor)->producer];
  Rule rule = rule_of(&scratch, h, &n);
  Tensor t = *graph_tensor(h, tensor);
  int *input = arena_array(&scratch, int, n.ninput), output = -1, code = 0;
  for (int k = 0; k < n.ninput && !code; k++) {
    input[k] = n.input[k];
    if (input[k] < 0) continue;
    const Placement *now = graph_tensor(h, input[k])->placement;
    Placement at = {.rank = now->rank, .partial = now->partial & to->partial};
    for (int d = 0; d < at.rank; d++)
      for (int o = 0; o < to->rank; o++)
        if (rule.output[0][o] == rule.input[k][d]) at.dim[d] = to->dim[o];
    code = (input[k] = redistribute(p, input[k], placement_new(h, &at), context)) < 0;
  }
  if (!code) {
    t.placement = to;
    t.stages = context->stages;
    t.mask = mask_read(h, &n, input);
    localize(p->mesh, &t);
    output = graph_add_tensor(h, &t);
    n.input = input;
    n.output = &output;
    n.phase = context->phase;
    n.layer = context->layer;
    n.name = arena_join(&h->arena, n.name, "again");
    graph_add_node(h, &n);
  }
  arena_free(&scratch);
  return output;
}

// A compact tensor after its steps, where it is made by a node that spreads: what that reads is smaller, and moved
// instead. Returns where the tensor is, and in *first the first step that is left; -1 on error.
static int spread_to(Partition *p, int tensor, const RedistributeStep *steps, int n, int *first, const Node *context) {
  int producer = graph_tensor(p->h, tensor)->producer;
  if (*first == n || producer < 0 || !node_is(&p->h->node.data[producer], ROLE_DISPATCH)) return tensor;
  *first = n;
  return spread_again(p, tensor, placement_new(p->h, &steps[n - 1].to), context);
}

// Gives the tensor that an op's builder has appended to h this placement.
static int place_rows(Partition *p, int tensor, const Placement *at, const Node *context) {
  Tensor *t = graph_tensor(p->h, tensor);
  Node *n = &p->h->node.data[t->producer];
  n->stage = context->stage;
  t->stages = n->stages = context->stages;
  t->placement = at;
  localize(p->mesh, t);
  return tensor;
}

static int emit_exchange(Partition *p, int rows, const RowExchange *e, const Node *context) {
  Graph *h = p->h;
  const Placement *from = graph_tensor(h, rows)->placement, *to = placement_new(h, &e->after);
  const char *name = graph_tensor(h, rows)->name;
  int moved = mask_at(p, graph_tensor(h, rows)->mask, to, context);
  if (moved < 0) return -1;
  h->region = context->region;
  h->phase = context->phase;
  h->layer = context->layer;
  h->scope = "";
  if (e->parts.home)
    rows = place_rows(p, op_reorder_rows(h, arena_join(&h->arena, name, "by rank"), rows, &e->parts), from, context);
  rows = place_rows(p, op_exchange_rows(h, arena_join(&h->arena, name, "exchange"), rows, moved, e->axes, &e->parts),
                    to, context);
  if (e->parts.home) return rows;
  return place_rows(p, op_reorder_rows(h, arena_join(&h->arena, name, "by expert"), rows, &e->parts), to, context);
}

// Serves later phases too, as what communication makes no larger does.
static int exchange(Partition *p, int tensor, const Placement *to, const RowExchange *e, const Node *context) {
  int rows = redistribute(p, tensor, e->parts.home ? &e->before : placement_new(p->h, &e->before), context);
  if (rows >= 0) rows = emit_exchange(p, rows, e, context);
  if (rows >= 0) rows = redistribute(p, rows, to, context);
  if (rows >= 0) remember(p, tensor, rows, FAULT(rows_move_again, context->region == REGION_MICRO, 0), context);
  return rows;
}

// The tensor of h, moved to a placement; -1 on error. Of its steps those are not taken again whose result is at hand.
static int redistribute(Partition *p, int tensor, const Placement *to, const Node *context) {
  const Placement *from = graph_tensor(p->h, tensor)->placement;
  if (placement_equal(from, to)) return tensor;
  int now = made_before(p, tensor, to, context);
  if (now >= 0) return now;
  RowExchange e;
  int exchanges = tensor_is_compact(graph_tensor(p->h, tensor)) ? row_exchange(p->mesh, from, to, &e) : 0;
  if (exchanges > 0) {
    uint32_t cut = axis_list_axes(e.parts.home ? &e.after.dim[0] : &e.before.dim[0]);
    e.parts.ranks = mesh_size(p->mesh, p->data_axes & ~cut);
    return exchange(p, tensor, to, &e, context);
  }
  if (exchanges < 0) {
    error_set(p->error, PLAIT_INFEASIBLE, "the rows of experts %s cannot be moved at once",
              user_name(graph_tensor(p->h, tensor)->name));
    return -1;
  }
  RedistributeStep steps[MAX_REDISTRIBUTE_STEPS];
  int n = redistribute_steps(p->mesh, &graph_tensor(p->h, tensor)->shape, from, to, steps, p->error), first = n;
  if (n < 0) {
    error_prefix(p->error, "%s", user_name(graph_tensor(p->h, tensor)->name));
    return -1;
  }
  while (first > 0 && now < 0) now = made_before(p, tensor, &steps[--first].to, context);
  first += now >= 0; // after the step whose result it is
  int begin = now = now < 0 ? tensor : now, compact = tensor_is_compact(graph_tensor(p->h, tensor));
  if (compact && (now = spread_to(p, now, steps, n, &first, context)) != begin) {
    if (now < 0) return -1;
    begin = now;
    remember(p, tensor, now, 0, context);
  }
  for (int i = first; i < n; i++) {
    now = compact ? emit_rows_step(p, now, &steps[i], context) : emit_step(p, now, &steps[i], context);
    if (now < 0) return -1;
    int kept = is_kept(p->h, tensor, begin, now, context);
    if (i + 1 == n || kept) remember(p, tensor, now, kept, context);
  }
  return now;
}

// The only axis of a set.
static int axis_of(uint32_t axes) {
  int a = 0;
  while (!(axes >> a & 1)) a++;
  CHECK(axes == 1u << a, "a ring goes along one axis");
  return a;
}

// Nodes that a lowering appended: placed like any others, except that its collectives complete what they reduce.
static int place_lowered(Partition *p, int first, const Node *like) {
  Graph *h = p->h;
  for (int i = first; i < h->node.count; i++) {
    Node *n = &h->node.data[i];
    n->stage = like->stage;
    n->stages = like->stages;
    n->update = like->update;
    n->round = like->round;
    if (op_def(n->op)->communicates) {
      const CommAttr *attr = node_attr(n, CommAttr);
      for (int k = 0; k < n->noutput; k++) {
        Placement done = *graph_tensor(h, n->input[k])->placement;
        done.partial &= ~attr->axes;
        if (node_calls(n, COMM_SHIFT)) done = placement_shifted(p->mesh, &done, axis_of(attr->axes), attr->distance);
        graph_tensor(h, n->output[k])->placement = placement_new(h, &done);
      }
    } else if (!place_block(h, i)) {
      place_node(h, i, p->mesh, NULL);
      for (int k = 0; k < n->ninput; k++)
        if (n->input[k] >= 0 && !placement_equal(node_want(n, k), graph_tensor(h, n->input[k])->placement))
          return error_set(p->error, PLAIT_FAILED, "lowering of %s leaves %s to be redistributed", like->name,
                           user_name(graph_tensor(h, n->input[k])->name));
      n->want_ = n->give_ = NULL;
    }
    for (int k = 0; k < n->noutput; k++) {
      Tensor *t = graph_tensor(h, n->output[k]);
      t->stages = like->stages;
      localize(p->mesh, t);
    }
  }
  return PLAIT_OK;
}

static int lower_node(Partition *p, const Node *n, const int *input, uint32_t axes, int *output) {
  const OpDef *def = op_def(n->op);
  const Algorithm *algorithm = algorithm_of_node(n);
  void (*lower)(Graph *, const Node *, uint32_t, int, const int *, int *) =
      algorithm && algorithm->lower ? algorithm->lower : def->lower;
  if (!lower)
    return error_set(p->error, PLAIT_INFEASIBLE, "op %s (%s) cannot be sharded over a dim that it normalises",
                     def->name, n->name);
  Graph *h = p->h;
  int first = h->node.count;
  h->region = n->region;
  h->phase = n->phase;
  h->layer = n->layer;
  h->scope = "";
  Node local = *n;
  local.input = (int *)input;
  lower(h, &local, axes, mesh_size(p->mesh, axes), input, output);
  return place_lowered(p, first, n);
}

// The mask in h of a compact output: what a node that spreads reads, that of an input that lies as it does, or else
// moved there. -1 on error.
static int mask_of_output(Partition *p, const Node *n, const int *input, int k) {
  if (node_is(n, ROLE_DISPATCH)) return mask_read(p->h, n, input);
  for (int i = 0; i < n->ninput; i++) {
    const Tensor *x = input[i] < 0 ? NULL : graph_tensor(p->h, input[i]);
    int alike = x && tensor_is_compact(x);
    for (int d = 0; alike && d < 3; d++) alike = axis_list_equal(&x->placement->dim[d], &node_give(n, k)->dim[d]);
    if (alike) return x->mask;
  }
  return mask_at(p, p->map[graph_tensor(p->g, n->output[k])->mask], node_give(n, k), n);
}

static int plain_node(Partition *p, const Node *n, const int *input, int *output) {
  Graph *h = p->h;
  for (int k = 0; k < n->noutput; k++) {
    Tensor t = *graph_tensor(p->g, n->output[k]);
    if (tensor_is_compact(&t) && (t.mask = mask_of_output(p, n, input, k)) < 0) return PLAIT_INFEASIBLE;
    t.placement = node_give(n, k);
    if (!placement_equal(node_give(n, k), graph_tensor(p->g, n->output[k])->placement)) t.variable = t.copy = -1;
    localize(p->mesh, &t);
    output[k] = graph_add_tensor(h, &t);
  }
  Node copy = *n;
  copy.input = (int *)input;
  copy.output = output;
  copy.want_ = copy.give_ = NULL;
  graph_add_node(h, &copy);
  return PLAIT_OK;
}

// Gives each output the placement that the graph asks for, and the binding to the Variable where there is one.
static int finish_outputs(Partition *p, const Node *n, const int *output) {
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(p->g, n->output[k]);
    int now = output[k];
    if (!placement_equal(graph_tensor(p->h, now)->placement, t->placement)) now = redistribute(p, now, t->placement, n);
    if (now < 0) return PLAIT_INFEASIBLE;
    // Backward may read it as it was computed: it is kept so, where that takes no more memory.
    const Tensor *computed = graph_tensor(p->h, output[k]), *left = graph_tensor(p->h, now);
    if (now != output[k] && n->region == REGION_MICRO && t->variable < 0 && !computed->placement->partial &&
        FAULT(outputs_move_again, computed->allocated_ <= left->allocated_, 0))
      remember_for_later(p, now, output[k], n);
    Tensor *final = graph_tensor(p->h, now);
    final->role = t->role;
    final->parameter = t->parameter;
    if (t->variable >= 0 && final->variable < 0) {
      graph_bind(p->h, now, t->variable, t->copy);
      allocate(p->h, now, final->allocated_);
    }
    p->map[n->output[k]] = now;
  }
  return PLAIT_OK;
}

// The sum has been scattered as its readers want it: it is handed on as it is.
static void hand_on(Partition *p, const Node *n, int output) {
  const Tensor *t = graph_tensor(p->g, n->output[0]);
  Tensor *final = graph_tensor(p->h, output);
  final->role = t->role;
  final->parameter = t->parameter;
  p->map[n->output[0]] = output;
}

// The products of a group, step by step.
static int partition_group(Partition *p, const SummaGroup *group) {
  int count = group->product.count, code = PLAIT_OK, (*input)[2] = xcalloc((size_t)count, sizeof *input),
      *output = xcalloc((size_t)count, sizeof *output);
  for (int i = 0; i < count; i++) {
    const SummaProduct *s = &group->product.data[i];
    const Node *n = &p->g->node.data[s->node];
    for (int k = 0; k < 2 && !code; k++) {
      input[i][k] = redistribute(p, p->map[n->input[k]], &s->from[k], n);
      if (input[i][k] < 0) code = PLAIT_INFEASIBLE;
    }
    p->done[n->id] = 1;
  }
  const Node *first = &p->g->node.data[group->product.data[0].node];
  p->h->region = first->region;
  p->h->phase = first->phase;
  p->h->layer = first->layer;
  p->h->scope = "";
  if (!code) summa_emit(group, p->g, p->h, p->mesh, (const int(*)[2])input, output);
  for (int i = 0; i < count && !code; i++) {
    const SummaProduct *s = &group->product.data[i];
    const Node *n = &p->g->node.data[s->node];
    if (s->handed_on) hand_on(p, n, output[i]);
    else code = finish_outputs(p, n, &output[i]);
  }
  free(input);
  free(output);
  return code;
}

// The input of which input k is the mask; -1: none.
static int rows_of_mask(const Graph *g, const Node *n, int k) {
  for (int i = 0; i < n->ninput && n->input[k] >= 0; i++) {
    const Tensor *t = n->input[i] < 0 ? NULL : graph_tensor(g, n->input[i]);
    if (t && tensor_is_compact(t) && t->mask == n->input[k]) return i;
  }
  return -1;
}

// The mask that has moved with rows of h, where it lies as is wanted; else -1.
static int mask_with(const Partition *p, int rows, const Placement *want) {
  const Tensor *t = graph_tensor(p->h, rows);
  return tensor_is_compact(t) && placement_equal(graph_tensor(p->h, t->mask)->placement, want) ? t->mask : -1;
}

static int partition_node(Partition *p, const Node *n) {
  Arena scratch = {0};
  SummaGroup group;
  if (p->done && p->done[n->id]) return PLAIT_OK;
  if (p->done && summa_find(&group, p->g, &p->readers, p->mesh, n->id)) {
    int failed = partition_group(p, &group);
    vec_free(&group.product);
    return failed;
  }
  int *input = arena_array(&scratch, int, n->ninput + 1), *output = arena_array(&scratch, int, n->noutput + 1),
      code = PLAIT_OK;
  for (int k = 0; k < n->ninput; k++) input[k] = -1;
  for (int masks = 0; masks < 2; masks++) // after the rows that they are the masks of
    for (int k = 0; k < n->ninput && code == PLAIT_OK; k++) {
      int rows = rows_of_mask(p->g, n, k);
      if (n->input[k] < 0 || (rows >= 0) != masks) continue;
      input[k] = masks ? mask_with(p, input[rows], node_want(n, k)) : -1;
      if (input[k] < 0) input[k] = redistribute(p, p->map[n->input[k]], node_want(n, k), n);
      if (input[k] < 0) code = PLAIT_INFEASIBLE;
    }
  uint32_t axes = code ? 0 : rule_lower_axes(p->g, n);
  if (!code && axes) code = lower_node(p, n, input, axes, output);
  else if (!code) code = plain_node(p, n, input, output);
  if (!code) code = finish_outputs(p, n, output);
  arena_free(&scratch);
  return code;
}

int pass_partition(Graph **graph, const CompileOptions *o, Error *error) {
  const Graph *g = *graph;
  const Mesh *mesh = &o->parallel.mesh;
  Partition p = {.g = g, .h = graph_create_like(g), .mesh = mesh, .error = error};
  p.data_axes = layout_data_axes(&o->parallel.layout);
  Graph *h = p.h;
  p.map = xcalloc((size_t)g->tensor.count, sizeof(int));
  for (int i = 0; i < g->variable.count; i++) graph_add_variable(h, &g->variable.data[i]);
  localize_variables(h, mesh);
  for (int i = 0; i < g->tensor.count; i++) { // what no node produces: inputs, and Variables as a region finds them
    const Tensor *t = &g->tensor.data[i];
    if (t->producer >= 0 || !t->placement) continue;
    p.map[i] = graph_add_tensor(h, t);
    localize(mesh, graph_tensor(h, p.map[i]));
  }
  for (int i = 0; i < g->tensor.count; i++)
    if (g->tensor.data[i].producer < 0 && tensor_is_compact(&g->tensor.data[i]) && g->tensor.data[i].placement)
      graph_tensor(h, p.map[i])->mask = p.map[g->tensor.data[i].mask];
  for (int i = 0; i < g->input.count; i++) {
    GraphInput in = g->input.data[i];
    in.tensor = p.map[in.tensor];
    graph_add_input(h, &in);
  }
  if (o->parallel.summa) {
    p.readers = readers_of(g);
    p.done = xcalloc((size_t)g->node.count + 1, 1);
  }
  int code = PLAIT_OK;
  for (int i = 0; i < g->node.count && code == PLAIT_OK; i++) code = partition_node(&p, &g->node.data[i]);
  placements_adopt(h);
  free(p.map);
  free(p.done);
  readers_free(&p.readers);
  vec_free(&p.moved);
  vec_free(&p.newest);
  if (!code) return pass_replace(graph, h);
  graph_destroy(h);
  return code;
}
