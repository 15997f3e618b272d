// precision: the dtypes in which the model computes. The model is written in fp32; scalars (counts, norms, rates) are
// fp64.
//
//   fp32, fp64   all values and Variables in that type
//   bf16, fp16   storage, gradients and moments fp32; MICRO reads matrices as narrow Copies, and activations are
//                narrow. Vectors (biases, norms), statistics and gradients of parameters stay fp32, as the ops' shape
//                rules say.
//
// A cache of keys and values may be narrower than they are (Step.cache): CACHE_WRITE rounds, CACHE_ATTENTION widens.
//
// With split masters (bf16) matrices have no Copy: their storage is the bf16 that MICRO reads, and the bits that make
// fp32 of it are a Variable that only the update reads (ENCODING_SPLIT).
//
// Where nothing trains (CompileOptions.never_trains) there are no masters either: matrices are stored in the narrow
// dtype. Loading rounds them as the cast of a Copy would, so that MICRO reads the same bits. Weights that were written
// in bf16 are stored in bf16 for fp32, too (Step.bf16_weights): products widen them, which is exact, so that all values
// are those of fp32 weights, and a decode step reads half as much.
//
// Gradients may be narrower than that: what a microbatch adds is then rounded before it is reduced, and added in bf16.
#include "base/fault.h"
#include "ir/encoding.h"
#include "op/build.h"
#include "op/optimizer.h"
#include "op/state_update.h"
#include "compile/pass.h"

// Gives parameters that have a narrow Copy one in the compute dtype, and lets MICRO read that. Where it lies is for
// zero to say.
static void narrow_parameters(Graph *g, Dtype compute) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (variable_is_stored(v) && FAULT(vectors_are_narrow, v->narrow_copy, 1))
      v->copy[v->copies++] = (Copy){.dtype = compute};
  }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && !n->update && k < n->ninput; k++) {
      Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
      if (!t || t->variable < 0 || !g->variable.data[t->variable].copies) continue;
      t->copy = 0;
      t->dtype = compute;
    }
  }
}

// Tensors that are bound to storage are of its dtype.
static void follow_storage(Graph *g) {
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    if (t->variable >= 0 && t->copy < 0) t->dtype = g->variable.data[t->variable].dtype;
  }
}

// Parameters are what narrow Copies would be.
static void store_narrow(Graph *g, Dtype compute) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (variable_is_stored(v) && FAULT(vectors_are_stored_narrow, v->narrow_copy, 1)) v->dtype = compute;
  }
  follow_storage(g);
}

// Whether all that read it widen it: products do, and what is looked up is cast.
static bool readers_widen(const Graph *g, int variable) {
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    const OpDef *def = op_def(n->op);
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] >= 0 && graph_tensor(g, n->input[k])->variable == variable &&
          !(k == 1 ? def->widens_weight : k == 0 && FAULT(looked_up_weights_stay_wide, def->looks_up, 0)))
        return false;
  }
  return true;
}

static void store_widened(Graph *g) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (variable_is_stored(v) && v->narrow_copy && readers_widen(g, i)) v->dtype = DTYPE_BF16;
  }
  follow_storage(g);
}

// A cache holds what MICRO has made, or rounds it to a narrower dtype.
static void narrow_caches(Graph *g, const Step *step) {
  bool narrower = dtype_size(step->cache) < dtype_size(step->precision);
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_CACHE)
      g->variable.data[i].dtype = FAULT(caches_have_the_precision, narrower, 0) ? step->cache : step->precision;
  follow_storage(g);
}

// Older versions of a parameter need no more than what MICRO reads.
static void split_masters(Graph *g) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (!variable_is_weight(v)) continue;
    if (!g->variable.data[v->parameter].narrow_copy) continue;
    variable_encode(v, ENCODING_SPLIT);
  }
  follow_storage(g);
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (!op_def(n->op)->optimizer) continue;
    if (g->variable.data[graph_tensor(g, n->input[0])->variable].encoding == ENCODING_SPLIT) op_optimizer_split(g, i);
  }
}

// Moments of matrices: of Variables that a node with moments has as such. Those of vectors stay as they are.
static void encode_states(Graph *g, Encoding encoding, Dtype compute) {
  Dtype dtype = compute == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    uint32_t squares, moments = op_moments(n->op, &squares);
    for (int k = 0; moments >> k; k++) {
      if (!(moments >> k & 1) || n->input[k] < 0) continue;
      Variable *v = &g->variable.data[graph_tensor(g, n->input[k])->variable];
      if (!g->variable.data[v->parameter].narrow_copy) continue;
      variable_encode(v, squares >> k & 1 ? encodings[encoding].squares : encoding);
    }
  }
  follow_storage(g);
  for (int i = 0; i < g->node.count; i++) {
    uint32_t squares;
    if (op_moments(g->node.data[i].op, &squares)) op_encode_states(g, i, encoding, dtype);
  }
}

static void widen(Graph *g, Dtype dtype) {
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].shape.rank > 0 && dtype_is_float(g->variable.data[i].dtype))
      g->variable.data[i].dtype = dtype;
  follow_storage(g);
}

// Dtypes follow from the inputs by the ops' shape rules: each is asked again, and what it would make now is looked at.
static void infer(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    Node trial = g->node.data[i];
    int before = g->tensor.count;
    trial.noutput = 0;
    trial.output = NULL;
    op_def(trial.op)->shape(g, &trial);
    for (int k = 0; k < trial.noutput; k++) {
      Tensor *t = graph_tensor(g, g->node.data[i].output[k]);
      if (t->variable < 0) t->dtype = graph_tensor(g, trial.output[k])->dtype;
    }
    g->tensor.count = before;
  }
}

// A node that adds a gradient to something, or applies it to a parameter, works in the dtype of that. An update of
// split weights widens its gradient itself.
static int needs_cast(const Graph *g, const Node *n, int k, int split_masters) {
  const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]),
               *first = n->ninput && n->input[0] >= 0 ? graph_tensor(g, n->input[0]) : NULL;
  if (split_masters && op_def(n->op)->optimizer && g->variable.data[first->variable].narrow_copy) return 0;
  return k && t && first && op_def(n->op)->in_place && t->role == ROLE_WEIGHT_GRADIENT && t->dtype != first->dtype;
}

static int append_cast(Graph *g, const Node *reader, int from, Dtype dtype) {
  g->region = reader->region;
  g->phase = reader->phase;
  g->layer = reader->layer;
  g->scope = "";
  const Tensor source = *graph_tensor(g, from);
  int cast = op_cast(g, arena_format(&g->arena, "%s.cast", reader->name), from, dtype);
  Tensor *t = graph_tensor(g, cast);
  t->role = source.role;
  t->parameter = source.parameter;
  t->stages = reader->stages;
  Node *n = &g->node.data[t->producer];
  n->stage = reader->stage;
  n->update = reader->update;
  n->stages = reader->stages;
  return cast;
}

// Nodes are kept in running order: of `nodes`, after which others were appended, these are moved before node i:
// before[i], or -1.
static void order_nodes(Graph *g, int nodes, const int *before) {
  Node *ordered = xcalloc((size_t)g->node.count, sizeof *ordered);
  int at = 0;
  for (int i = 0; i < nodes; i++) {
    if (before[i] >= 0) ordered[at++] = g->node.data[before[i]];
    ordered[at++] = g->node.data[i];
  }
  for (int i = 0; i < at; i++) {
    ordered[i].id = i;
    for (int k = 0; k < ordered[i].noutput; k++) graph_tensor(g, ordered[i].output[k])->producer = i;
    g->node.data[i] = ordered[i];
  }
  free(ordered);
  g->region = REGION_MICRO;
  g->phase = PHASE_FORWARD;
}

static void insert_casts(Graph *g, int split_masters) {
  int nodes = g->node.count, *before = xcalloc((size_t)nodes, sizeof *before);
  for (int i = 0; i < nodes; i++) {
    before[i] = -1;
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      const Node n = g->node.data[i];
      if (!needs_cast(g, &n, k, split_masters)) continue;
      CHECK(before[i] < 0, "%s reads two gradients", n.name);
      n.input[k] = append_cast(g, &n, n.input[k], graph_tensor(g, n.input[0])->dtype);
      before[i] = graph_tensor(g, n.input[k])->producer;
    }
  }
  order_nodes(g, nodes, before);
  free(before);
}

// Rows of a table of bf16 are cast to fp32 at once.
static void widen_lookups(Graph *g) {
  int nodes = g->node.count, *before = xcalloc((size_t)nodes + 1, sizeof *before);
  for (int i = 0; i <= nodes; i++) before[i] = -1;
  for (int i = 0; i < nodes; i++) {
    const Node n = g->node.data[i];
    if (!op_def(n.op)->looks_up || graph_tensor(g, n.input[0])->dtype != DTYPE_BF16) continue;
    if (FAULT(lookups_stay_narrow, 0, 1)) continue;
    graph_tensor(g, n.output[0])->dtype = DTYPE_BF16;
    int cast = append_cast(g, &n, n.output[0], DTYPE_F32);
    for (int r = i + 1; r < nodes; r++)
      for (int k = 0; k < g->node.data[r].ninput; k++)
        if (g->node.data[r].input[k] == n.output[0]) g->node.data[r].input[k] = cast;
    CHECK(i + 1 < nodes, "nobody reads %s", n.name);
    before[i + 1] = graph_tensor(g, cast)->producer;
  }
  order_nodes(g, nodes, before);
  free(before);
}

// Outputs that are kept in a Variable of another dtype are converted to that dtype.
static void cast_outputs(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    if (!node_is(n, ROLE_COPY)) continue;
    const Tensor *from = graph_tensor(g, n->input[0]), *to = graph_tensor(g, n->output[0]);
    if (to->variable < 0 || g->variable.data[to->variable].kind != VARIABLE_OUTPUT || from->dtype == to->dtype)
      continue;
    op_copy_to_cast(n, to->dtype);
  }
}

// A gradient that is stored or applied in backward is not added to anything that would round it: what hands it on does.
static void round_gradients(Graph *g, Dtype dtype) {
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO || !node_is(n, ROLE_COPY)) continue;
    int v = graph_tensor(g, n->output[0])->variable;
    if (v >= 0 ? g->variable.data[v].kind != VARIABLE_GRADIENT : !n->update) continue;
    op_copy_to_cast(n, dtype);
  }
}

static void narrow_gradients(Graph *g, Dtype dtype, int split_masters) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->kind == VARIABLE_GRADIENT || v->of == OF_DUMP) v->dtype = dtype;
  }
  for (int i = 0; i < g->tensor.count; i++) {
    const int v = g->tensor.data[i].variable;
    if (v >= 0)
      g->tensor.data[i].dtype = g->tensor.data[i].copy < 0 ? g->variable.data[v].dtype
                                                           : g->variable.data[v].copy[g->tensor.data[i].copy].dtype;
  }
  round_gradients(g, dtype);
  infer(g);
  insert_casts(g, split_masters);
}

int pass_precision(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  int split = o->step.transform.master && o->step.precision == DTYPE_BF16;
  Encoding states = (Encoding)o->step.transform.states;
  if (o->step.bf16_gradients) narrow_gradients(g, DTYPE_BF16, split);
  switch (o->step.precision) {
  case DTYPE_F32:
    if (!o->step.bf16_weights) break;
    store_widened(g);
    widen_lookups(g);
    break;
  case DTYPE_F64: widen(g, o->step.precision); break;
  case DTYPE_BF16:
  case DTYPE_F16:
    if (o->never_trains) store_narrow(g, o->step.precision);
    else if (split) split_masters(g);
    else narrow_parameters(g, o->step.precision);
    break;
  default:
    return error_set(error, PLAIT_BAD_INPUT, "precision: %s is not built yet; fp64, fp32, bf16 and fp16 are",
                     dtype_name(o->step.precision));
  }
  narrow_caches(g, &o->step);
  if (states) encode_states(g, states, o->step.precision);
  infer(g);
  if (o->step.precision == DTYPE_F32) return PLAIT_OK;
  cast_outputs(g);
  return PLAIT_OK;
}
