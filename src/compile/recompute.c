// recompute: activations that backward needs are computed again there instead of kept (Chen et al., "Training deep nets
// with sublinear memory cost", 2016; selective: Korthikanti et al., "Reducing activation recomputation", 2022).
//
//   keep        what backward reads of a block is kept
//   selective   products and attention are kept; what is cheap to compute from them (norms, biases, activations) runs
//     again
//   full        of a block only its input is kept; all of it runs again before its backward
//   segment     the same of several blocks; and what lies in a segment may be one (parallel/recompute_list.h)
//
// A block that lies in d segments, one inside the other, runs 1 + d times: in forward, which is run 0, and before the
// backward of each of its segments, the outermost first. Where it is selective its cheap nodes run once more, before
// its own backward. A node that reads another block's result in its run j reads that of the other's run j too, or of
// the last that both share: where it lies in a segment that the other does not, the other's result was kept. Backward
// reads the last run that there is. Whatever nobody asks for does not run again.
//
// Results that one pass over memory makes of tensors that backward has anyway, such as activations and norms of their
// inputs, are not kept in any mode: backward makes them again right before it reads them. Each byte that is kept no
// longer costs one that is read and one that is written, and no activation is moved between ranks for it. Not beside
// SUMMA, whose products go through their steps together: what one of them reads would be made in between.
//
// Rows of experts that come in parts (moe.chunks) run again in any case, each part right before its backward, so that
// one part's rows are in memory at a time.
//
// Randomness is addressed, so what runs again gives the same bits.
#include "base/fault.h"
#include "op/op.h"
#include "sharding/rule.h"
#include "model/model.h"
#include "compile/pass.h"
#include <limits.h>
#include <string.h>

enum { FIRST_RUN = 0, LAST_RUN = INT_MAX };

typedef struct Recompute {
  Graph *g;
  const Node *old;  // nodes before the pass
  int count;
  int one_pass;     // what is made in one pass over memory is not kept
  const RecomputeList *list;
  const RecomputeSegment *segment; // of the list, cut where a pipeline stage ends
  int segments;
  int levels;       // 1 + the last run of any node
  int *last;        // per old node: its last run; 0: it runs in forward only
  int *late;        // per old node: its last run is made when it is asked for, not before a backward
  int *needed;      // (count, levels) a run is asked for, 1 + by the first phase that does
  int *clone;       // (tensors, levels) the one made by a run, or 0
  int *ran;         // (count, levels) a run is there
} Recompute;

// The list of a mode: of all blocks, or of the first `per_stage` of each stage.
static void list_of_mode(const Graph *g, RecomputeMode mode, int per_stage, RecomputeList *list) {
  list->blocks = g->layers < RECOMPUTE_BLOCKS ? g->layers : RECOMPUTE_BLOCKS;
  for (int l = 0, stage = -1, before = 0; l < list->blocks; l++) {
    if (graph_stage_of_layer(g, l) != stage) before = 0;
    stage = graph_stage_of_layer(g, l);
    if (per_stage && before++ >= per_stage) continue;
    if (mode == RECOMPUTE_SELECTIVE) list->selective[l] = true;
    if (mode == RECOMPUTE_FULL) list->segment[list->segments++] = (RecomputeSegment){l, l + 1};
  }
}

// No segment lies on several stages: it becomes one on each.
static void cut_segments(Recompute *r, const RecomputeList *list) {
  RecomputeSegment *cut = arena_array(&r->g->arena, RecomputeSegment, list->segments * r->g->stages + 1);
  for (int i = 0; i < list->segments; i++)
    for (int first = list->segment[i].first, end; first < list->segment[i].end; first = end) {
      for (end = first + 1; end < list->segment[i].end; end++)
        if (graph_stage_of_layer(r->g, end) != graph_stage_of_layer(r->g, first)) break;
      cut[r->segments++] = (RecomputeSegment){first, end};
    }
  r->segment = cut;
}

static int is_in(RecomputeSegment s, int layer) { return layer >= s.first && layer < s.end; }

// Segments that both layers lie in.
static int shared_segments(const Recompute *r, int a, int b) {
  int n = 0;
  for (int i = 0; i < r->segments; i++) n += is_in(r->segment[i], a) && is_in(r->segment[i], b);
  return n;
}

static int can_run_again(const Graph *g, const Node *n) {
  if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD || n->layer < 0 || n->layer >= g->layers) return 0;
  for (int k = 0; k < n->noutput; k++)
    if (graph_tensor(g, n->output[k])->variable >= 0) return 0;
  return 1;
}

// Cheap beside products and attention, and not what the next block reads.
static int is_cheap(const Graph *g, const Node *n) {
  for (int k = 0; k < n->noutput; k++)
    if (graph_tensor(g, n->output[k])->role == ROLE_RESIDUAL) return 0;
  return !op_def(n->op)->expensive;
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

// Of a tensor: a later phase than forward reads it, and there is a reader there that wants it elsewhere than it lies.
enum { READ_LATER = 1, MOVED_LATER = 2 };

static char *find_later_readers(Graph *g) {
  char *later = arena_array(&g->arena, char, g->tensor.count + 1);
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && n->phase != PHASE_FORWARD && k < n->ninput; k++) {
      if (n->input[k] < 0) continue;
      int moves = !placement_equal(node_want(n, k), graph_tensor(g, n->input[k])->placement);
      later[n->input[k]] |= (char)(READ_LATER | (moves ? MOVED_LATER : 0));
    }
  }
  return later;
}

// Whether backward makes the node's outputs again in any mode: in one pass over what it has anyway, Variables and what
// it keeps, where they lie. Of Variables that ZeRO 3 gathers for it only vectors beside which the output is long.
static int is_one_pass(const Graph *g, const Node *n, const char *later) {
  enum { LONG = 1000 };
  if (!op_def(n->op)->one_pass || !can_run_again(g, n) || !is_cheap(g, n)) return 0;
  int64_t made = shape_elements(&graph_tensor(g, n->output[0])->shape);
  for (int k = 0; k < n->ninput; k++) {
    const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
    if (!t) continue;
    int moves = !placement_equal(node_want(n, k), t->placement);
    if (t->variable >= 0 ? moves && shape_elements(&t->shape) * LONG > made : moves || !later[t->id]) return 0;
  }
  for (int k = 0; k < n->noutput; k++)
    if (later[n->output[k]] & MOVED_LATER ||
        !placement_equal(node_give(n, k), graph_tensor(g, n->output[k])->placement))
      return 0;
  return !op_def(n->op)->lower || !rule_lower_axes(g, n);
}

static int is_alone_in_a_segment(const Recompute *r, int layer) {
  for (int i = 0; i < r->segments; i++)
    if (r->segment[i].first == layer && r->segment[i].end == layer + 1) return 1;
  return 0;
}

static void find_runs(Recompute *r, int parts) {
  int *nested = arena_array(&r->g->arena, int, r->g->layers + 1);
  for (int i = 0; i < r->segments; i++)
    for (int l = r->segment[i].first; l < r->segment[i].end; l++) nested[l]++;
  const char *later = r->one_pass ? find_later_readers(r->g) : NULL;
  r->levels = 1;
  for (int i = 0; i < r->count; i++) {
    const Node *n = &r->old[i];
    if (can_run_again(r->g, n)) {
      r->last[i] = nested[n->layer];
      if (n->layer < r->list->blocks && r->list->selective[n->layer] && is_cheap(r->g, n)) r->last[i]++;
    }
    // Where the rest of the block runs again for others too, these run once more for themselves.
    int again = parts && is_of_parts(r->g, n) ? FAULT(parts_are_kept, 1, 0) : later && is_one_pass(r->g, n, later);
    if (again) {
      r->late[i] = 1;
      r->last[i] = n->layer < 0 || n->layer >= r->g->layers ? 1
                   : is_alone_in_a_segment(r, n->layer)     ? nested[n->layer]
                                                            : nested[n->layer] + 1;
    }
    if (r->last[i] >= r->levels) r->levels = r->last[i] + 1;
  }
}

// The run of its maker whose result a node of `layer` reads in its own run.
static int run_of(const Recompute *r, int tensor, int layer, int run) {
  const Tensor *t = tensor < 0 ? NULL : graph_tensor(r->g, tensor);
  if (!t || t->producer < 0 || t->producer >= r->count || t->variable >= 0) return FIRST_RUN;
  int last = r->last[t->producer], other = r->old[t->producer].layer;
  if (last && other != layer) {
    int shared = shared_segments(r, other, layer);
    if (shared < last) last = FAULT(segments_keep_inputs, shared, 0);
  }
  return run < last ? run : last;
}

static int *at_run(const Recompute *r, int *of, int i, int run) {
  return &of[(size_t)i * (size_t)r->levels + (size_t)run];
}

// WEIGHT takes what BACKWARD has computed again for itself; what it alone needs is computed again there.
static void ask_for(Recompute *r, int node, int run, Phase phase) {
  int *needed = at_run(r, r->needed, node, run);
  if (*needed && *needed <= 1 + (int)phase) return;
  *needed = 1 + (int)phase;
  const Node *n = &r->old[node];
  for (int k = 0; k < n->ninput; k++) {
    int from = run_of(r, n->input[k], n->layer, run);
    if (from) ask_for(r, graph_tensor(r->g, n->input[k])->producer, from, phase);
  }
}

// The mask of a compact tensor that a run makes, or that backward does: that of the last run that it can know.
static int mask_of(const Recompute *r, const Node *copy, const Tensor *made, int run) {
  if (!tensor_is_compact(made)) return made->mask;
  for (int from = run_of(r, made->mask, copy->layer, run); from > FIRST_RUN; from--) {
    int mask = *at_run(r, r->clone, made->mask, from);
    if (mask && graph_waits_for_mask(r->g, copy, mask)) return mask;
  }
  return made->mask;
}

// With the runs of others whose results it reads.
static void emit(Recompute *r, const Node *n, int run) {
  Graph *g = r->g;
  Node copy = *n;
  if (run) {
    if (*at_run(r, r->ran, n->id, run)) return;
    *at_run(r, r->ran, n->id, run) = 1;
  }
  int reads = run || n->phase == PHASE_FORWARD ? run : LAST_RUN;
  for (int k = 0; k < n->ninput; k++) {
    int from = run_of(r, n->input[k], n->layer, reads);
    if (from) emit(r, &r->old[graph_tensor(g, n->input[k])->producer], from);
  }
  copy.input = arena_array(&g->arena, int, n->ninput + 1);
  copy.output = arena_array(&g->arena, int, n->noutput + 1);
  for (int k = 0; k < n->ninput; k++) {
    int from = run_of(r, n->input[k], n->layer, reads);
    copy.input[k] = from ? *at_run(r, r->clone, n->input[k], from) : n->input[k];
  }
  for (int k = 0; k < n->noutput; k++) {
    copy.output[k] = n->output[k];
    int mask = mask_of(r, &copy, graph_tensor(g, n->output[k]), reads);
    if (!run) {
      graph_tensor(g, n->output[k])->mask = mask;
      continue;
    }
    Tensor t = *graph_tensor(g, n->output[k]);
    for (int i = 0; i < run; i++) t.name = arena_format(&g->arena, "again.%s", t.name);
    t.mask = mask;
    copy.output[k] = *at_run(r, r->clone, n->output[k], run) = graph_add_tensor(g, &t);
  }
  if (run) {
    copy.phase = (Phase)(*at_run(r, r->needed, n->id, run) - 1);
    for (int i = 0; i < run; i++) copy.name = arena_format(&g->arena, "again.%s", copy.name);
  }
  graph_add_node(g, &copy);
}

// The runs of one number that a phase asks for, of layers first … end − 1. own: what runs once more than its layer.
static void emit_run(Recompute *r, int first, int end, int run, int phase, int own) {
  for (int i = 0; i < r->count; i++) {
    const Node *n = &r->old[i];
    if (n->layer < first || n->layer >= end || run > r->last[i] || (run == r->last[i] && r->late[i])) continue;
    if (*at_run(r, r->needed, i, run) == 1 + phase && (!own || run == r->last[i])) emit(r, n, run);
  }
}

// Emits the nodes that run again before the first node of a layer and phase: those of each segment that begins its
// backward there, the outermost first, and then those of the layer itself. done: by segment, then by layer, and by
// phase.
static void emit_again(Recompute *r, int layer, int phase, int *done) {
  int run = 0;
  for (int i = 0; i < r->segments; i++) {
    if (!is_in(r->segment[i], layer)) continue;
    run++;
    if (done[i * PHASE_COUNT + phase]++) continue;
    emit_run(r, r->segment[i].first, r->segment[i].end, run, phase, 0);
  }
  if (!done[(r->segments + layer) * PHASE_COUNT + phase]++ && run + 1 < r->levels)
    emit_run(r, layer, layer + 1, run + 1, phase, 1);
}

int pass_recompute(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  int parts = o->step.transform.chunks > 1,
      any = o->step.recompute.mode != RECOMPUTE_NONE || o->step.recompute.list.blocks;
  if (o->mode != MODEL_TRAIN) return PLAIT_OK;
  int count = g->node.count, tensors = g->tensor.count;
  Node *old = arena_array(&g->arena, Node, count);
  memcpy(old, g->node.data, sizeof *old * (size_t)count);
  RecomputeList of_mode = {0};
  if (!o->step.recompute.list.blocks && any)
    list_of_mode(g, o->step.recompute.mode, o->step.recompute.layers, &of_mode);
  Recompute r = {.g = g,
                 .old = old,
                 .count = count,
                 .one_pass = !o->parallel.summa,
                 .list = o->step.recompute.list.blocks ? &o->step.recompute.list : &of_mode};
  cut_segments(&r, r.list);
  r.last = arena_array(&g->arena, int, count);
  r.late = arena_array(&g->arena, int, count);
  find_runs(&r, parts);
  if (r.levels == 1) return PLAIT_OK;
  r.needed = arena_array(&g->arena, int, count * r.levels);
  r.ran = arena_array(&g->arena, int, count * r.levels);
  r.clone = arena_array(&g->arena, int, tensors * r.levels);
  int *done = arena_array(&g->arena, int, (r.segments + g->layers + 1) * PHASE_COUNT);
  for (int i = 0; i < count; i++)
    for (int k = 0; old[i].region == REGION_MICRO && old[i].phase != PHASE_FORWARD && k < old[i].ninput; k++) {
      int from = run_of(&r, old[i].input[k], old[i].layer, LAST_RUN);
      if (from) ask_for(&r, graph_tensor(g, old[i].input[k])->producer, from, old[i].phase);
    }
  // Producers are looked up by old ids until the end: new ids are given by a second sweep.
  int *producer = arena_array(&g->arena, int, tensors);
  for (int t = 0; t < tensors; t++) producer[t] = g->tensor.data[t].producer;
  g->node.count = 0;
  for (int i = 0; i < count; i++) {
    int layer = old[i].layer;
    if (old[i].region == REGION_MICRO && old[i].phase != PHASE_FORWARD && layer >= 0 && layer < g->layers)
      emit_again(&r, layer, (int)old[i].phase, done);
    emit(&r, &old[i], FIRST_RUN);
    for (int k = 0; k < old[i].noutput; k++) graph_tensor(g, old[i].output[k])->producer = producer[old[i].output[k]];
  }
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].noutput; k++) graph_tensor(g, g->node.data[i].output[k])->producer = i;
  return PLAIT_OK;
}
