// place: how MICRO sees every tensor. Weights, the residual stream and what is annotated by name bind by the Layout;
// the rest is propagated.
#include "base/divisor.h"
#include "base/fault.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include "ir/user_name.h"
#include <string.h>

// "dp × tp"
static const char *axes_text(const Mesh *mesh, const AxisList *list, char *text, size_t size) {
  size_t n = 0;
  for (int i = 0; i < list->n && n < size; i++)
    n += (size_t)snprintf(text + n, size - n, "%s%s", i ? " × " : "", mesh->axis[list->axis[i]].name);
  return text;
}

static int check_divides(const Mesh *mesh, const Placement *p, const Shape *s, const char *what, Error *error) {
  for (int d = 0; d < s->rank; d++) {
    int shards = axis_list_parts(mesh, &p->dim[d]);
    if (s->size[d] % shards == 0 || s->dim[d] == DIM_VOCAB) continue;
    int64_t near[2];
    char number[16], axes[128], nearest[64];
    snprintf(number, sizeof number, "dim %d", d);
    nearest_divisors(s->size[d], shards, near);
    if (near[1]) snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)near[0], (long long)near[1]);
    else snprintf(nearest, sizeof nearest, "%lld", (long long)near[0]);
    return error_set(error, PLAIT_INFEASIBLE,
                     "mesh: %s of %s (size %lld) is sharded over %s, but %lld cannot be cut into %d equal shards; "
                     "the nearest number of ranks that fits is %s",
                     s->dim[d] == DIM_NONE ? number : dim_name(s->dim[d]), what, (long long)s->size[d],
                     axes_text(mesh, &p->dim[d], axes, sizeof axes), (long long)s->size[d], shards,
                     nearest);
  }
  return PLAIT_OK;
}

static int place_parameters(Graph *g, const Mesh *mesh, const Layout *layout, Error *error) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (variable_follows_its_maker(v)) continue; // see store_outputs, store_cache
    if (v->of && v->parameter < 0) continue; // the same everywhere, or an accumulator
    if (v->parameter < 0 && v->shape.rank > 0)
      return error_set(error, PLAIT_FAILED, "Variable %s has a shape but no parameter", user_name(v->name));
    Placement p = layout_placement(layout, mesh, ROLE_WEIGHT, &v->shape);
    int annotated = layout_annotated(layout, mesh, v->name, &v->shape, &p);
    int code = check_divides(mesh, &p, &v->shape, user_name(v->name), error);
    if (code) return code;
    // Gradients and what MICRO accumulates are placed when their first contribution is known.
    if (variable_is_stored(v) && (annotated || !layout->propagate)) v->storage = placement_new(g, &p);
  }
  return PLAIT_OK;
}

static int place_inputs(Graph *g, const Mesh *mesh, const Layout *layout, Error *error) {
  for (int i = 0; i < g->input.count; i++) {
    Tensor *t = graph_tensor(g, g->input.data[i].tensor);
    Placement p = layout_placement(layout, mesh, ROLE_DATA, &t->shape);
    int code = check_divides(mesh, &p, &t->shape, "the batch", error);
    if (code) return code;
    t->placement = placement_new(g, &p);
  }
  return PLAIT_OK;
}

static void bind_placements(Graph *g) {
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    if (t->variable >= 0 && !t->placement) t->placement = g->variable.data[t->variable].storage;
  }
}

// The Variable that a node adds to, when its placement is still open: accumulators follow what they accumulate.
static int open_accumulator(const Graph *g, const Node *n) {
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(g, n->output[k]);
    if (t->variable >= 0 && !t->placement && g->variable.data[t->variable].kind != VARIABLE_OUTPUT) return t->variable;
  }
  return -1;
}

// A cache lies as what is written into it, with all positions and whole heads.
static void store_cache(Graph *g, const Node *n, int variable) {
  Placement p = *graph_tensor(g, n->input[1])->placement;
  p.dim[1] = p.dim[3] = (AxisList){0};
  p.partial = 0;
  g->variable.data[variable].storage = placement_new(g, &p);
  bind_placements(g);
}

static void widen_accumulator(Graph *g, const Mesh *mesh, const Node *n, int variable) {
  Variable *v = &g->variable.data[variable];
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = graph_tensor(g, n->input[k]);
    if (t->variable == variable) continue;
    Placement p = *t->placement;
    if (v->storage) p.partial &= v->storage->partial; // nothing is resharded into partial
    int pp = mesh_pipeline(mesh);
    StageSet coordinates = {{0}};
    if (pp >= 0) coordinates = mesh_stage_coordinates(mesh, graph_stages(g, v->stages));
    if (stages_count(&coordinates) > 1) p.partial |= 1u << pp;
    v->storage = placement_new(g, &p);
  }
}

// Places the outputs that the Layout fixes: annotated tensors and the residual stream.
static int fix_outputs(Graph *g, const Mesh *mesh, const Layout *layout, const Node *n, Error *error) {
  for (int k = 0; k < n->noutput; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    if (t->placement || t->shape.rank == 0) continue;
    Placement p;
    int annotated = layout->annotations && layout_annotated(layout, mesh, t->name, &t->shape, &p);
    int interior = FAULT(bias_in_a_partial_sum, 0, op_def(n->op)->defers_sum);
    if (!annotated && (t->role != ROLE_RESIDUAL || interior)) continue;
    if (!annotated) p = layout_placement(layout, mesh, ROLE_RESIDUAL, &t->shape);
    int code = check_divides(mesh, &p, &t->shape, annotated ? user_name(t->name) : "the residual stream", error);
    if (code) return code;
    t->placement = placement_new(g, &p);
  }
  return PLAIT_OK;
}

// Places a node of MICRO. A parameter's gradient among its outputs is computed sharded as the parameter; over which
// axes it is partial follows from the rule.
static void place_micro_node(Graph *g, const Mesh *mesh, const Layout *layout, int id) {
  int hints[64], n = 0;
  for (int k = 0; k < g->node.data[id].noutput; k++) {
    Tensor *t = graph_tensor(g, g->node.data[id].output[k]);
    if (t->role != ROLE_WEIGHT_GRADIENT || t->placement || t->parameter < 0) continue;
    if (!g->variable.data[t->parameter].storage) continue; // this node is its first reader, which says where it lies
    t->placement = g->variable.data[t->parameter].storage;
    CHECK(n < 64);
    hints[n++] = g->node.data[id].output[k];
  }
  place_node(g, id, mesh, layout);
  for (int i = 0; i < n; i++) {
    Node *node = &g->node.data[id];
    for (int k = 0; k < node->noutput; k++)
      if (node->output[k] == hints[i]) {
        Placement p = *g->variable.data[graph_tensor(g, hints[i])->parameter].storage;
        p.partial = node_give(node, k)->partial & ~placement_axes(&p); // over these the sum is scattered
        graph_tensor(g, hints[i])->placement =
            placement_equal(&p, node_give(node, k)) ? node_give(node, k) : placement_new(g, &p);
      }
  }
}

// A sum over all the ranks that divide the positions (gradients of keys and values) is divided over them where it is
// made: a product with it, which could leave it a sum, would be computed by each of them for all positions.
static void scatter_positions(Graph *g, const Mesh *mesh, const Layout *layout, int id) {
  const Node *n = &g->node.data[id];
  for (int k = 0; k < n->noutput; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    Placement data = layout_placement(layout, mesh, ROLE_DATA, &t->shape), p = *node_give(n, k);
    for (int d = 0; d < p.rank && t->placement == node_give(n, k); d++) {
      uint32_t axes = axis_list_axes(&data.dim[d]);
      if (t->shape.dim[d] != DIM_SEQ || p.dim[d].n || !axes || axes & ~p.partial) continue;
      p.dim[d] = data.dim[d];
      p.partial &= ~axes;
      t->placement = placement_new(g, &p);
    }
  }
}

// An output that is kept for the host is stored as it is made, but complete.
static void store_outputs(Graph *g, int id) {
  const Node *n = &g->node.data[id];
  for (int k = 0; k < n->noutput; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    Variable *v = t->variable >= 0 ? &g->variable.data[t->variable] : NULL;
    if (!v || v->kind != VARIABLE_OUTPUT) continue;
    Placement p = *node_give(n, k);
    p.partial = 0;
    v->storage = t->placement = placement_equal(&p, node_give(n, k)) ? node_give(n, k) : placement_new(g, &p);
  }
}

// A parameter that nothing is said about is stored as its first reader wants it.
static void adopt_parameters(Graph *g, int id) {
  for (int k = 0; k < g->node.data[id].ninput; k++) {
    int tensor = g->node.data[id].input[k], variable = tensor < 0 ? -1 : graph_tensor(g, tensor)->variable;
    if (variable < 0 || !variable_is_stored(&g->variable.data[variable]) || g->variable.data[variable].storage)
      continue;
    Placement p = *node_want(&g->node.data[id], k);
    p.partial = 0;
    g->variable.data[variable].storage = placement_new(g, &p);
    bind_placements(g);
  }
}

// Scalars, and what is of no parameter's shape, are the same everywhere where no microbatch writes them.
static void store_constants(Graph *g) {
  char *written = xcalloc((size_t)g->variable.count + 1, 1);
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; g->node.data[i].region == REGION_MICRO && k < g->node.data[i].noutput; k++) {
      int v = graph_tensor(g, g->node.data[i].output[k])->variable;
      if (v >= 0) written[v] = 1;
    }
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if ((!v->shape.rank || (v->of && v->parameter < 0)) && !written[i]) v->storage = placement_new(g, &(Placement){0});
  }
  free(written);
}

// An op and its gradient have the same choice, and so the same algorithm.
static void choose_algorithm(Node *n, const Step *step) {
  const OpDef *def = op_def(n->op);
  if (def->algorithms) n->algorithm = step->algorithm[def->choice];
}

// Whether ranks along some axis, which is none of the pipeline, compute all of a node alike.
static int is_repeated(const Node *n, const Mesh *mesh) {
  uint32_t axes = 0;
  for (int k = 0; k < n->noutput; k++) {
    const Placement *p = node_give(n, k);
    axes |= placement_axes(p) | p->partial | p->owner_axes;
  }
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].size > 1 && a != mesh_axis(mesh, AXIS_PP) && !(axes & 1u << a)) return 1;
  return 0;
}

static void keep_bits(Graph *g, const CompileOptions *o) {
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    const OpDef *def = op_def(n->op);
    if (!def->keep_bits || n->region != REGION_MICRO || o->same_bits == SAME_BITS_NEVER) continue;
    if (o->same_bits == SAME_BITS_ALWAYS || FAULT(repeated_nodes_differ, is_repeated(n, &o->parallel.mesh), 0))
      def->keep_bits(n);
  }
}

int pass_place(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  const Mesh *mesh = &o->parallel.mesh;
  const Layout *layout = &o->parallel.layout;
  int code = place_parameters(g, mesh, layout, error);
  if (!code) code = place_inputs(g, mesh, layout, error);
  if (code) return code;
  store_constants(g);
  bind_placements(g);
  for (int i = 0; i < g->node.count; i++) {
    if (g->node.data[i].region != REGION_MICRO || g->node.data[i].update) continue;
    choose_algorithm(&g->node.data[i], &o->step);
    int variable = open_accumulator(g, &g->node.data[i]);
    if (variable >= 0 && g->variable.data[variable].kind == VARIABLE_CACHE) {
      store_cache(g, &g->node.data[i], variable);
    } else if (variable >= 0) {
      widen_accumulator(g, mesh, &g->node.data[i], variable);
      continue;
    }
    if ((code = fix_outputs(g, mesh, layout, &g->node.data[i], error))) return code;
    place_micro_node(g, mesh, layout, i);
    scatter_positions(g, mesh, layout, i);
    store_outputs(g, i);
    if (layout->propagate) adopt_parameters(g, i);
  }
  bind_placements(g);
  for (int i = 0; i < g->node.count; i++)
    if (g->node.data[i].region == REGION_MICRO && !g->node.data[i].update && !g->node.data[i].give_)
      place_node(g, i, mesh, layout);
  keep_bits(g, o);
  return PLAIT_OK;
}
