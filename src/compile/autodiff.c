// Reverse-mode differentiation on the global graph; backward ops are ordinary ops with rules.
#include "base/fault.h"
#include "op/build.h"
#include "model/model.h"
#include "compile/losses.h"
#include "compile/update.h"
#include <string.h>

typedef Vec(int) IdList;

typedef struct Autodiff {
  Graph *g;
  IdList *contribution; // per tensor of the forward graph: gradients that came from its readers
  const CompileOptions *options;
  int *reads;           // per Variable: how often the forward graph reads it
  IdList passed;        // tensors: the gradients of activations, which nodes and stages before this one wait for
} Autodiff;

// The only gradient of a step: there is nothing to add it to.
static void store(Autodiff *a, int parameter, int gradient) {
  Graph *g = a->g;
  int stored = op_identity(g, "store", gradient);
  Tensor *t = graph_tensor(g, stored);
  t->role = ROLE_WEIGHT_GRADIENT;
  t->parameter = parameter;
  graph_bind(g, stored, graph_known_of(g, OF_GRADIENT, parameter), -1);
}

// A gradient of a parameter is added to its Variable, stored there, or applied, in the phase of the node that made it,
// so that nothing of the size of a weight waits between forward and backward.
static void take_gradient(Autodiff *a, int parameter, int gradient) {
  Graph *g = a->g;
  Tensor *t = graph_tensor(g, gradient);
  t->role = ROLE_WEIGHT_GRADIENT;
  t->parameter = parameter;
  const Node *maker = &g->node.data[t->producer];
  Phase phase = g->phase;
  g->phase = maker->phase;
  g->layer = maker->layer;
  int only = a->options->microbatches == 1 && a->reads[parameter] == 1;
  if (only && a->options->step.update.in_backward) update_in_backward(g, parameter, gradient, a->options);
  else if (only) store(a, parameter, gradient);
  else op_accumulate(g, "accumulate", graph_read(g, graph_known_of(g, OF_GRADIENT, parameter)), gradient);
  g->phase = phase;
}

// Sum of what the readers of a tensor sent back; -1 when nobody did. The sum belongs to the readers' layer, so that one
// tensor crosses a stage boundary and not several.
static int total(Autodiff *a, int tensor) {
  IdList *list = &a->contribution[tensor];
  if (list->count <= 1) return list->count ? list->data[0] : -1;
  int layer = a->g->layers;
  for (int i = 0; i < list->count; i++) {
    int producer = graph_tensor(a->g, list->data[i])->producer;
    if (producer >= 0 && a->g->node.data[producer].layer < layer) layer = a->g->node.data[producer].layer;
  }
  a->g->layer = layer;
  int sum = op_add(a->g, "sum", list->data, list->count);
  graph_tensor(a->g, sum)->role = graph_tensor(a->g, tensor)->role;
  return sum;
}

static int node_backward(Autodiff *a, int id, int is_root, Error *error) {
  Graph *g = a->g;
  int noutput = g->node.data[id].noutput, ninput = g->node.data[id].ninput;
  int *doutput = arena_array(&g->arena, int, noutput + 1), *dinput = arena_array(&g->arena, int, ninput + 1);
  int any = is_root;
  g->scope = arena_format(&g->arena, "grad.%s", g->node.data[id].name);
  for (int k = 0; k < noutput; k++) {
    doutput[k] = is_root ? -1 : total(a, g->node.data[id].output[k]);
    any |= doutput[k] >= 0;
  }
  if (!any) return PLAIT_OK;
  g->layer = g->node.data[id].layer;
  const OpDef *def = op_def(g->node.data[id].op);
  if (!def->gradient)
    return error_set(error, PLAIT_FAILED, "op %s (%s) has no gradient", def->name, g->node.data[id].name);
  int first_new = g->node.count;
  for (int k = 0; k < ninput; k++) dinput[k] = -1;
  def->gradient(g, id, doutput, dinput);
  for (int k = 0; k < ninput; k++) {
    int x = g->node.data[id].input[k], dx = dinput[k];
    if (x < 0 || dx < 0) continue;
    const Tensor *t = graph_tensor(g, x);
    if (t->variable >= 0) {
      if (variable_is_trained(&g->variable.data[t->variable])) take_gradient(a, t->variable, dx);
      continue;
    }
    if (t->producer < 0) continue; // data
    // A gradient that is only passed through keeps the role it has.
    if (graph_tensor(g, dx)->producer >= first_new || is_root) graph_tensor(g, dx)->role = t->role;
    vec_push(&a->contribution[x], dx);
    vec_push(&a->passed, dx);
  }
  return PLAIT_OK;
}

// Gradients that nobody asked for (of data, say) are made with those of the other inputs: what no node reads goes.
static void drop_unread(Graph *g, int first) {
  int *readers = xcalloc((size_t)g->tensor.count + 1, sizeof *readers),
      *kept = xcalloc((size_t)g->node.count + 1, sizeof *kept), count = first;
  for (int i = g->node.count - 1; i >= 0; i--) {
    const Node *n = &g->node.data[i];
    kept[i] = i < first;
    for (int k = 0; k < n->noutput; k++)
      kept[i] |= readers[n->output[k]] || graph_tensor(g, n->output[k])->variable >= 0;
    for (int k = 0; kept[i] && k < n->ninput; k++)
      if (n->input[k] >= 0) readers[n->input[k]]++;
  }
  for (int i = first; i < g->node.count; i++) {
    Node n = g->node.data[i];
    if (kept[i]) {
      n.id = count;
      g->node.data[count++] = n;
    }
    for (int k = 0; k < n.noutput; k++) graph_tensor(g, n.output[k])->producer = kept[i] ? n.id : -1;
  }
  g->node.count = count;
  free(readers);
  free(kept);
}

// Nodes on rows of experts that come in parts (CompileOptions.chunks), and nodes on their results, stay where these
// rows are: else WEIGHT would keep those of all parts.
static char *find_parts(const Graph *g, int first) {
  char *part = xcalloc((size_t)g->node.count + 1, 1);
  for (int i = first; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      const Tensor *x = g->node.data[i].input[k] < 0 ? NULL : graph_tensor(g, g->node.data[i].input[k]);
      part[i] |= x && (tensor_is_compact(x) || (x->producer >= first && x->parameter >= 0 && part[x->producer]));
    }
  return part;
}

// For a schedule that splits backward: what no gradient of an activation needs, and so only gradients of parameters and
// what is done with them do, is of phase WEIGHT and comes after all else.
static void split_backward(Autodiff *a, int first, int chunks) {
  Graph *g = a->g;
  int count = g->node.count, at = first;
  char *needed = chunks > 1 ? find_parts(g, first) : xcalloc((size_t)count + 1, 1);
  Node *weight = xcalloc((size_t)count + 1, sizeof *weight);
  for (int i = 0; i < a->passed.count; i++) {
    int producer = graph_tensor(g, a->passed.data[i])->producer;
    if (producer >= 0) needed[producer] = 1;
  }
  for (int i = count - 1; i >= first; i--)
    for (int k = 0; needed[i] && k < g->node.data[i].ninput; k++) {
      int x = g->node.data[i].input[k], producer = x < 0 ? -1 : graph_tensor(g, x)->producer;
      if (producer >= 0) needed[producer] = 1;
    }
  int weights = 0;
  for (int i = first; i < count; i++) {
    if (needed[i] || g->node.data[i].phase != PHASE_BACKWARD) g->node.data[at++] = g->node.data[i];
    else weight[weights] = g->node.data[i], weight[weights++].phase = PHASE_WEIGHT;
  }
  memcpy(&g->node.data[at], weight, sizeof *weight * (size_t)weights);
  for (int i = first; i < count; i++) {
    g->node.data[i].id = i;
    for (int k = 0; k < g->node.data[i].noutput; k++) graph_tensor(g, g->node.data[i].output[k])->producer = i;
  }
  free(needed);
  free(weight);
}

static void count_reads(Autodiff *a) {
  const Graph *g = a->g;
  a->reads = xcalloc((size_t)g->variable.count + 1, sizeof(int));
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++) {
      int v = g->node.data[i].input[k] < 0 ? -1 : graph_tensor(g, g->node.data[i].input[k])->variable;
      if (v >= 0) a->reads[v]++;
    }
}

// The nodes where differentiation begins: those of losses, which are their own seeds.
static int is_root(const Autodiff *a, int node, int loss) {
  int further = losses_has_root(a->g, node, a->options);
  return node == loss || FAULT(further_losses_are_ignored, further, 0);
}

// Appends the backward pass of `loss` and of the graph's further losses: gradients of every parameter, in Variables
// "gradient.NAME", or given to update_in_backward. The loss op is its own seed (compile/README.md: linear + cross
// entropy is one node), and what several of them give to one tensor is added like gradients of several readers.
static int differentiate(Graph *g, int loss, const CompileOptions *o, Error *error) {
  const Pipeline *pipeline = &o->parallel.pipeline;
  int nodes = g->node.count, tensors = g->tensor.count, code = PLAIT_OK;
  int split = pipeline->schedule && pipeline->schedule->splits; // none: graphs of tests, which no stage cuts
  const char *scope = g->scope;
  Autodiff a = {.g = g, .options = o};
  for (int id = 0; split && id < nodes; id++)
    if (op_def(g->node.data[id].op)->split) op_def(g->node.data[id].op)->split(g, id, o->step.transform.logits);
  count_reads(&a);
  a.contribution = xcalloc((size_t)tensors, sizeof *a.contribution);
  g->region = REGION_MICRO;
  g->phase = PHASE_BACKWARD;
  int root = graph_tensor(g, loss)->producer;
  for (int id = nodes - 1; id >= 0 && code == PLAIT_OK; id--)
    if (g->node.data[id].region == REGION_MICRO) code = node_backward(&a, id, is_root(&a, id, root), error);
  for (int i = 0; i < tensors; i++) vec_free(&a.contribution[i]);
  free(a.contribution);
  free(a.reads);
  drop_unread(g, nodes);
  if (split && !code) split_backward(&a, nodes, o->step.transform.chunks);
  vec_free(&a.passed);
  g->phase = PHASE_FORWARD;
  g->scope = scope;
  return code;
}

int pass_autodiff(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  if (o->mode == MODEL_EVALUATE) evaluation_build(g, g->loss, o);
  if (o->mode != MODEL_TRAIN) return PLAIT_OK;
  int code = differentiate(g, g->loss, o, error);
  return code ? code : update_build(g, g->loss, o, error);
}
