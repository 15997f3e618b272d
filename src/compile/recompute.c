// recompute: activations that backward needs are computed again there instead of kept (Chen et al., "Training deep nets
// with sublinear memory cost", 2016; selective: Korthikanti et al., "Reducing activation recomputation", 2022).
//
//   full        of a block only its input is kept; all of it runs again before its backward
//   selective   products and attention are kept; what is cheap to compute from them (norms, biases, activations) runs
//     again
//
// Rows of experts that come in parts (moe.chunks) run again in any case, each part right before its backward, so that
// one part's rows are in memory at a time.
//
// Randomness is addressed, so what runs again gives the same bits. The residual stream between blocks is always kept.
#include "op/op.h"
#include "sharding/rule.h"
#include "model/model.h"
#include "compile/pass.h"
#include <string.h>

typedef struct Recompute {
  Graph *g;
  const Node *old;  // nodes before the pass
  int count;
  int *again;       // per old node: it runs again; 2: when it is asked for, not before its layer's backward
  int *needed;      // per old node: its second run is asked for, 1 + by the first phase that does
  int *clone;       // per tensor: the one made by the second run, or 0
  int *ran;         // per old node: its second run is there
  int *done;        // per layer and phase
} Recompute;

static int chosen_layer(const Graph *g, int layer, int per_stage) {
  if (layer < 0 || layer >= g->layers) return 0;
  if (!per_stage) return 1;
  int before = 0; // blocks of the same stage that lie before this one
  for (int l = 0; l < layer; l++) before += graph_stage_of_layer(g, l) == graph_stage_of_layer(g, layer);
  return before < per_stage;
}

static int can_run_again(const Graph *g, const Node *n, RecomputeMode mode) {
  if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD) return 0;
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(g, n->output[k]);
    if (t->variable >= 0 || (mode == RECOMPUTE_SELECTIVE && t->role == ROLE_RESIDUAL)) return 0;
  }
  return mode == RECOMPUTE_FULL || !op_def(n->op)->expensive;
}

// Rows of experts, and parts of the tokens that these are of.
static int is_of_parts(const Graph *g, const Node *n) {
  if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD) return 0;
  if (n->noutput && tensor_is_compact(graph_tensor(g, n->output[0]))) return 1;
  Arena scratch = {0};
  int parts = n->noutput > 1 && rule_of(&scratch, g, n).parts;
  arena_free(&scratch);
  return parts;
}

// The node of the first run that makes a tensor, when it is one that runs again in the reader's layer; else -1.
static int source(const Recompute *r, int tensor, int layer) {
  if (tensor < 0) return -1;
  const Tensor *t = graph_tensor(r->g, tensor);
  if (t->producer < 0 || t->producer >= r->count || t->variable >= 0) return -1;
  const Node *n = &r->old[t->producer];
  return r->again[n->id] && n->layer == layer ? n->id : -1;
}

// WEIGHT takes what BACKWARD has computed again for itself; what it alone needs is computed again there.
static void ask_for(Recompute *r, int node, Phase phase) {
  if (r->needed[node] && r->needed[node] <= 1 + (int)phase) return;
  r->needed[node] = 1 + (int)phase;
  for (int k = 0; k < r->old[node].ninput; k++) {
    int s = source(r, r->old[node].input[k], r->old[node].layer);
    if (s >= 0) ask_for(r, s, phase);
  }
}

// With its second run, those whose results it reads.
static void emit(Recompute *r, const Node *n, int second) {
  Graph *g = r->g;
  Node copy = *n;
  if (second && r->ran[n->id]) return;
  r->ran[n->id] |= second;
  for (int k = 0; k < n->ninput && (second || n->phase != PHASE_FORWARD); k++) {
    int from = source(r, n->input[k], n->layer);
    if (from >= 0) emit(r, &r->old[from], 1);
  }
  copy.input = arena_array(&g->arena, int, n->ninput + 1);
  copy.output = arena_array(&g->arena, int, n->noutput + 1);
  for (int k = 0; k < n->ninput; k++) {
    int from = second || n->phase != PHASE_FORWARD ? source(r, n->input[k], n->layer) : -1;
    copy.input[k] = from >= 0 ? r->clone[n->input[k]] : n->input[k];
  }
  for (int k = 0; k < n->noutput; k++) {
    copy.output[k] = n->output[k];
    Tensor *made = graph_tensor(g, n->output[k]);
    int mask = tensor_is_compact(made) ? r->clone[made->mask] : 0; // that was made again
    if (!mask || !graph_waits_for_mask(g, &copy, mask)) mask = made->mask;
    if (!second) {
      made->mask = mask;
      continue;
    }
    Tensor t = *graph_tensor(g, n->output[k]);
    t.name = arena_format(&g->arena, "again.%s", t.name);
    t.mask = mask;
    copy.output[k] = r->clone[n->output[k]] = graph_add_tensor(g, &t);
  }
  if (second) {
    copy.phase = (Phase)(r->needed[n->id] - 1);
    copy.name = arena_format(&g->arena, "again.%s", n->name);
  }
  graph_add_node(g, &copy);
}

int pass_recompute(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  int parts = o->chunks > 1;
  if ((o->recompute == RECOMPUTE_NONE && !parts) || o->mode != MODEL_TRAIN) return PLAIT_OK;
  int count = g->node.count, tensors = g->tensor.count;
  Node *old = arena_array(&g->arena, Node, count);
  memcpy(old, g->node.data, sizeof *old * (size_t)count);
  Recompute r = {.g = g, .old = old, .count = count};
  r.again = arena_array(&g->arena, int, count);
  r.needed = arena_array(&g->arena, int, count);
  r.ran = arena_array(&g->arena, int, count);
  r.clone = arena_array(&g->arena, int, tensors);
  r.done = arena_array(&g->arena, int, (g->layers + 1) * PHASE_COUNT);
  for (int i = 0; i < count; i++) {
    if (o->recompute != RECOMPUTE_NONE)
      r.again[i] = chosen_layer(g, old[i].layer, o->recompute_layers) && can_run_again(g, &old[i], o->recompute);
    if (parts && is_of_parts(g, &old[i])) r.again[i] = FAULT(parts_are_kept, 2, r.again[i]);
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; old[i].region == REGION_MICRO && old[i].phase != PHASE_FORWARD && k < old[i].ninput; k++) {
      int s = source(&r, old[i].input[k], old[i].layer);
      if (s >= 0) ask_for(&r, s, old[i].phase);
    }
  // Producers are looked up by old ids until the end: new ids are given by a second sweep.
  int *producer = arena_array(&g->arena, int, tensors);
  for (int t = 0; t < tensors; t++) producer[t] = g->tensor.data[t].producer;
  g->node.count = 0;
  for (int i = 0; i < count; i++) {
    int layer = old[i].layer, phase = (int)old[i].phase;
    if (old[i].region == REGION_MICRO && phase != PHASE_FORWARD && layer >= 0 && layer < g->layers &&
        !r.done[layer * PHASE_COUNT + phase]) {
      r.done[layer * PHASE_COUNT + phase] = 1;
      for (int k = 0; k < count; k++)
        if (r.needed[k] == 1 + phase && old[k].layer == layer && r.again[k] == 1) emit(&r, &old[k], 1);
    }
    emit(&r, &old[i], 0);
    for (int k = 0; k < old[i].noutput; k++) graph_tensor(g, old[i].output[k])->producer = producer[old[i].output[k]];
  }
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].noutput; k++) graph_tensor(g, g->node.data[i].output[k])->producer = i;
  return PLAIT_OK;
}
