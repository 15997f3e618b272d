// Placing one node by its factor rule.
//
// Example: y = x Wᵀ has the rule "b s k, n k -> b s n". x (b, s, k) lies as {b: dp} and the weight W (n, k) as {n: tp}.
// W proposes first: n gets tp. Then x: b gets dp. So the node wants x as {b: dp} and W as {n: tp}, and gives y as
// {b: dp, n: tp}: every axis is found in the output, nothing is partial.
// Then z = y Vᵀ, "b s n, m n -> b s m". With V (m, n) as {n: tp}, n gets tp and b dp: y is wanted as it lies, and since
// z lacks n, z {b: dp} is a partial sum over tp (row parallelism after column parallelism, as in Megatron-LM). With V
// as {m: tp} instead, V takes tp for m before y can propose it for n: y is wanted as {b: dp}, and partition will gather
// it.
#include "compile/place_node.h"
#include "base/fault.h"
#include "sharding/rule.h"
#include <string.h>

const Placement *placement_new(Graph *g, const Placement *p) {
  _Static_assert(sizeof *p == sizeof p->dim + sizeof p->rows + sizeof p->merged + 9 * sizeof(int),
                 "it is compared by its bytes");
  return intern(&g->placement, &g->arena, p, sizeof *p);
}

void placements_adopt(Graph *g) {
  for (int i = 0; i < g->tensor.count; i++)
    if (g->tensor.data[i].placement) g->tensor.data[i].placement = placement_new(g, g->tensor.data[i].placement);
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->storage) v->storage = placement_new(g, v->storage);
    for (int c = 0; c < v->copies; c++) // zero has placed them by now
      if (v->copy[c].placement) v->copy[c].placement = placement_new(g, v->copy[c].placement);
  }
}

typedef struct Factors {
  const Rule *rule;
  int batch; // the factor that the Layout cuts first, and others may cut further; -1: none
  AxisList axes[MAX_FACTORS];
  uint32_t used;              // mesh axes
  uint32_t sums; // mesh axes over which a compact operand is a partial sum: it is left one, and nobody takes them
  AxisList moved;             // those that were proposed for the factor that moves
  AxisList home[MAX_FACTORS]; // as operands had a factor that is whole, moves or is tied
  const Placement *rows;      // of a stored operand that lies in rows (Placement.rows): so do all that have its dims
  const int8_t *row;          // ... and its factors
} Factors;

// Its axes in the node are not those that operands propose.
static int leaves_home(const Rule *r, int factor) {
  return r->whole >> factor & 1 || factor == r->move || factor == r->tied;
}

// Gives a factor the axes of a dim that it names, unless the factor has some already or an axis is taken: an axis
// shards one factor of a node. Whoever proposes first wins, so weights go before activations: it is the
// activation that moves.
static void propose(Factors *f, int factor, const AxisList *list) {
  const Rule *r = f->rule;
  AxisList *own = &f->axes[factor];
  int moves = factor == r->move;
  int extends = factor == f->batch && own->n < list->n && !memcmp(own->axis, list->axis, (size_t)own->n);
  if (leaves_home(r, factor) && !f->home[factor].n) f->home[factor] = *list;
  if (r->whole >> factor & 1 || factor == r->tied || (own->n && !extends) || (moves && f->moved.n)) return;
  for (int i = own->n; i < list->n; i++) {
    if ((f->used | f->sums) >> list->axis[i] & 1) break;
    AxisList *to = moves && !(r->lower >> factor & 1 && !f->axes[factor].n) ? &f->moved : &f->axes[factor];
    axis_list_take(to, list, i);
    f->used |= 1u << list->axis[i];
  }
}

// Of all its dims, but for the factors (bits) that stay whole.
static void propose_operand(Factors *f, const Graph *g, int tensor, const int8_t *factor, uint32_t whole) {
  if (tensor < 0 || !graph_tensor(g, tensor)->placement) return;
  const Placement *p = graph_tensor(g, tensor)->placement;
  if (p->merged && !f->rows && !(axis_list_axes(&p->rows) & f->used)) {
    f->rows = p;
    f->row = factor;
    f->used |= axis_list_axes(&p->rows);
  }
  for (int d = 0; d < p->rank; d++)
    if (!(whole >> factor[d] & 1)) propose(f, factor[d], &p->dim[d]);
}

// Proposes the axes that cut the dims within rows of experts: these rows would cost more to move than the other
// operands.
static void propose_rows(Factors *f, const Graph *g, int tensor, const int8_t *factor) {
  if (tensor < 0 || !graph_tensor(g, tensor)->placement || !tensor_is_compact(graph_tensor(g, tensor))) return;
  const Placement *p = graph_tensor(g, tensor)->placement;
  for (int d = 3; d < p->rank; d++) propose(f, factor[d], &p->dim[d]);
}

static int binds(const Graph *g, int tensor) {
  if (tensor < 0) return 0;
  const Tensor *t = graph_tensor(g, tensor);
  return t->variable >= 0 || t->role == ROLE_WEIGHT || t->role == ROLE_WEIGHT_GRADIENT;
}

// Moved axes, innermost first, to the end of the lists of other factors: so an all_to_all, or one each, brings them
// there. A factor that is tied to another gets that one's.
static void move_axes(Factors *f, const Mesh *mesh) {
  const Rule *r = f->rule;
  for (int i = f->moved.n - 1; i >= 0; i--) {
    int shards = axis_list_shards(mesh, &f->axes[r->to[0]]) * mesh->axis[f->moved.axis[i]].size;
    AxisList *to = &f->axes[r->to[r->size[r->to[0]] % shards != 0]];
    axis_list_push(to, f->moved.axis[i]);
  }
  if (r->tied >= 0) f->axes[r->tied] = f->axes[r->tied_to];
}

// The factor of the batch; -1: the node has none.
static int batch_factor(const Rule *r, const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const int8_t *factor = k < n->ninput ? r->input[k] : r->output[k - n->ninput];
    for (int d = 0; t >= 0 && d < graph_tensor(g, t)->shape.rank; d++)
      if (graph_tensor(g, t)->shape.dim[d] == DIM_BATCH) return factor[d];
  }
  return -1;
}

// Factors that stay whole: those that cost an expansion (`lower`), and that an activation has whole. So the gain of a
// norm, where it alone is cut, is gathered, and so is a gradient where its input is whole; a norm is made of parts
// where all that it works on are.
static uint32_t whole_in_activations(const Factors *f, const Graph *g, const Node *n) {
  uint32_t whole = 0;
  for (int k = 0; k < n->ninput; k++) {
    const Placement *p = n->input[k] < 0 || binds(g, n->input[k]) ? NULL : graph_tensor(g, n->input[k])->placement;
    for (int d = 0; p && !p->partial && d < p->rank; d++) // a partial sum may be scattered yet
      if (!p->dim[d].n) whole |= 1u << f->rule->input[k][d];
  }
  return FAULT(gains_cut_norms, whole & f->rule->lower, 0);
}

static void assign_factors(Factors *f, const Graph *g, const Node *n, const Mesh *mesh) {
  uint32_t whole = whole_in_activations(f, g, n);
  for (int k = 0; k < n->ninput; k++)
    if (binds(g, n->input[k])) propose_operand(f, g, n->input[k], f->rule->input[k], whole);
  for (int k = 0; k < n->noutput; k++)
    if (binds(g, n->output[k])) propose_operand(f, g, n->output[k], f->rule->output[k], whole);
  for (int k = 0; k < n->ninput; k++)
    if (!binds(g, n->input[k])) propose_rows(f, g, n->input[k], f->rule->input[k]);
  for (int k = 0; k < n->ninput; k++)
    if (!binds(g, n->input[k])) propose_operand(f, g, n->input[k], f->rule->input[k], whole);
  move_axes(f, mesh);
}

// With a Layout that says how interiors are cut (2-D and 3-D tensors), what the rows of all products are cut over comes
// first, so that weights are gathered over it; and what nobody wants of the axes of interiors cuts the batch further.
static void assign_with_layout(Factors *f, const Graph *g, const Node *n, const Mesh *mesh, const Layout *layout) {
  AxisList first = layout ? layout_first_axes(layout, mesh) : (AxisList){0};
  int batch = first.n ? batch_factor(f->rule, g, n) : -1;
  if (batch >= 0) {
    UNLESS_FAULT(weights_propose_before_rows) propose(f, batch, &first);
    f->batch = batch;
  }
  assign_factors(f, g, n, mesh);
  if (batch < 0) return;
  Shape rows = {.rank = 1, .dim = {DIM_BATCH}};
  Placement interior = layout_placement(layout, mesh, ROLE_INTERIOR, &rows);
  propose(f, batch, &interior.dim[0]);
}

// Axes over which inputs stay partial sums through this (linear) node. Members of one group must all be partial; of
// inputs that are linear each on its own, one may be.
static uint32_t partial_through(const Factors *f, const Graph *g, const Node *n, uint32_t ignore, uint8_t *group) {
  *group = 0;
  for (int k = 0; k < n->ninput; k++) {
    uint8_t candidate = f->rule->linear[k];
    if (!candidate || n->input[k] < 0) continue;
    uint32_t partial = ~0u;
    for (int i = 0; i < n->ninput; i++)
      if (f->rule->linear[i] == candidate && n->input[i] >= 0) {
        const Placement *p = graph_tensor(g, n->input[i])->placement;
        partial &= p ? p->partial : 0;
      }
    partial &= ~f->used & ~ignore;
    if (!partial) continue;
    *group = candidate;
    return partial;
  }
  return 0;
}

// Whether an operand has the dims that are merged. Of scales that is so, too, with blocks for the elements of the last.
static int in_rows(const Factors *f, int rank, const int8_t *factor) {
  if (!f->rows || rank < f->rows->merged) return 0;
  int dims = f->rows->merged == f->rows->rank ? f->rows->rank - 1 : f->rows->merged;
  return !memcmp(factor, f->row, (size_t)dims);
}

static Placement by_factors(const Factors *f, int rank, const int8_t *factor) {
  Placement p = {.rank = rank};
  for (int d = 0; d < rank; d++) p.dim[d] = f->axes[(int)factor[d]];
  if (!in_rows(f, rank, factor)) return p;
  p.rows = f->rows->rows;
  p.merged = f->rows->merged;
  p.parts = f->rows->parts;
  return p;
}

static uint32_t absent_axes(const Factors *f, int rank, const int8_t *factor) {
  uint32_t axes = f->used;
  if (in_rows(f, rank, factor)) axes &= ~axis_list_axes(&f->rows->rows);
  for (int d = 0; d < rank; d++)
    for (int i = 0; i < f->axes[(int)factor[d]].n; i++) axes &= ~(1u << f->axes[(int)factor[d]].axis[i]);
  return axes;
}

static int has_axis(uint32_t axes, const AxisList *list, int i) { return axes >> list->axis[i] & 1; }

// As an output lies that goes home: `give`, but for factors that are whole in the node, tied or moved, which lie as
// operands had them.
static Placement at_home(const Factors *f, const Placement *give, const int8_t *factor) {
  Placement p = *give;
  uint32_t moved = 0, taken = 0;
  for (int i = 0; i < f->moved.n; i++) moved |= 1u << f->moved.axis[i];
  for (int d = 0; d < p.rank; d++) {
    p.dim[d] = (AxisList){0};
    const AxisList *list = &f->axes[(int)factor[d]];
    if (leaves_home(f->rule, factor[d])) continue;
    for (int i = 0; i < list->n && !has_axis(moved, list, i); i++) {
      axis_list_take(&p.dim[d], list, i);
      taken |= 1u << list->axis[i];
    }
  }
  for (int d = 0; d < p.rank; d++) {
    const AxisList *list = &f->home[(int)factor[d]];
    if (!leaves_home(f->rule, factor[d])) continue;
    for (int i = 0; i < list->n && !has_axis(taken, list, i); i++) {
      axis_list_take(&p.dim[d], list, i);
      taken |= 1u << list->axis[i];
    }
  }
  p.partial &= ~taken;
  return p;
}

static uint32_t axes_of(const Factors *f, uint32_t factors) {
  uint32_t axes = 0;
  for (int i = 0; i < MAX_FACTORS; i++)
    for (int k = 0; factors >> i & 1 && k < f->axes[i].n; k++) axes |= 1u << f->axes[i].axis[k];
  return axes;
}

// Terms of a sum that live on different stages: the result is a partial sum over pp. See stage.
static int spans_stages(const Graph *g, const Node *n, const Rule *r) {
  if (g->stages == 1 || n->region == REGION_MICRO || !rule_is_sum(r)) return 0;
  for (int k = 0; k < n->ninput; k++) {
    if (!stages_include(graph_stages(g, graph_holders(g, n->input[k])), graph_stages(g, n->stages))) return 1;
  }
  return 0;
}

// A tensor that an owner works on lies there whole; scalars lie everywhere. A scalar that it makes is a partial sum:
// absent_axes says so.
static void own(Placement *p, const Placement *owner) {
  if (!owner || !p->rank) return;
  p->owner_axes = owner->owner_axes;
  p->owner = owner->owner;
  p->partial &= ~owner->owner_axes;
}

// To scatter rows of experts would cost more than to gather what they meet, and that is linear in them.
static uint32_t sums_of_rows(const Graph *g, const Node *n, const Rule *rule) {
  uint32_t axes = 0;
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
    if (t && tensor_is_compact(t) && t->placement && FAULT(rows_are_scattered, rule->linear[k], 0))
      axes |= t->placement->partial;
  }
  return axes;
}

void place_node(Graph *g, int node, const Mesh *mesh, const Layout *layout) {
  Arena scratch = {0};
  Node *n = &g->node.data[node];
  Rule rule = rule_of(&scratch, g, n);
  const Placement *owner = node_owner(g, n);
  Factors f = {.rule = &rule, .batch = -1, .used = owner ? owner->owner_axes : 0};
  f.sums = sums_of_rows(g, n, &rule);
  assign_with_layout(&f, g, n, mesh, layout);
  // Within a microbatch a rank sees its own stage only; pp is an axis like others in BEGIN and END.
  int pp = mesh_pipeline(mesh);
  uint32_t pp_bit = pp >= 0 ? 1u << pp : 0, hidden = n->region == REGION_MICRO ? pp_bit : 0;
  uint8_t group;
  uint32_t through = partial_through(&f, g, n, hidden, &group);
  n->want_ = arena_array(&g->arena, const Placement *, n->ninput + 1);
  n->give_ = arena_array(&g->arena, const Placement *, n->noutput + 1);
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] < 0) continue;
    const Tensor *t = graph_tensor(g, n->input[k]);
    Placement p = by_factors(&f, t->shape.rank, rule.input[k]);
    if (group && rule.linear[k] == group) p.partial = through;
    if (t->placement) p.partial |= t->placement->partial & hidden;
    own(&p, owner);
    n->want_[k] = t->placement && placement_equal(t->placement, &p) ? t->placement : placement_new(g, &p);
  }
  for (int k = 0; k < n->noutput; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    Placement p = by_factors(&f, t->shape.rank, rule.output[k]);
    p.partial = through | absent_axes(&f, t->shape.rank, rule.output[k]);
    p.partial &= ~axes_of(&f, rule.complete[k]);
    if (pp >= 0 && mesh->axis[pp].size > 1 && spans_stages(g, n, &rule)) p.partial |= pp_bit;
    if (t->placement) p.partial |= t->placement->partial & hidden;
    own(&p, owner);
    if (!n->ninput && t->placement) p = *t->placement; // a fill: every rank fills what it has
    n->give_[k] = t->placement && placement_equal(t->placement, &p) ? t->placement : placement_new(g, &p);
    if (!t->placement) {
      Placement home =
          FAULT(algorithm_stays_away, k < 32 && rule.home >> k & 1, 0) ? at_home(&f, &p, rule.output[k]) : p;
      t->placement = placement_equal(&home, &p) ? n->give_[k] : placement_new(g, &home);
    }
  }
  arena_free(&scratch);
}
