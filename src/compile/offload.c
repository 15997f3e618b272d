// offload: Variables that lie in the device's second space, and the MOVEs by which kernels read and write them.
//
// Example: moments in far memory. What was
//   w, m, v = adamw w, m, v, g …                   all of them the Variables' memory
// becomes
//   m' = move m;  v' = move v                      before it, in flight until adamw
//   w, m'', v'' = adamw w, m', v', g …             m' and m'' may be the same bytes
//   m = move m'';  v = move v''                    in flight while the next parameter is updated
// Copies of a Variable stay in the first space, where they are read; so does what is not asked for.
#include "compile/pass.h"
#include "compile/place_node.h"
#include "op/build.h"

static int lies_elsewhere(const Graph *g, int tensor) {
  const Tensor *t = tensor < 0 ? NULL : graph_tensor(g, tensor);
  return t && t->variable >= 0 && t->copy < 0 && g->variable.data[t->variable].space;
}

// A tensor like one that is a Variable's memory, in the working memory, where node `of` runs.
static int apart(Graph *g, const Node *of, int tensor, const char *name) {
  Tensor t = *graph_tensor(g, tensor);
  const Variable *v = &g->variable.data[t.variable];
  t.name = name;
  t.stages = of->stages;
  t.variable = t.copy = t.producer = -1;
  if (t.allocated_ < v->allocated_) t.allocated_ = v->allocated_;
  return graph_add_tensor(g, &t);
}

// Where and when node `like` runs.
static void add_move(Graph *g, const Node *like, const char *name, int from, int to) {
  Node n = {.region = like->region, .phase = like->phase, .layer = like->layer, .stage = like->stage,
            .update = like->update, .stages = like->stages, .round = like->round, .name = name, .ninput = 1,
            .noutput = 1, .input = &from, .output = &to};
  op_to_move(&n);
  graph_add_node(g, &n);
}

static void add_node(Graph *h, const Node *like) {
  Node n = *like;
  int *ids = xcalloc((size_t)(n.ninput + n.noutput) + 1, sizeof *ids);
  n.input = ids;
  n.output = ids + n.ninput;
  for (int k = 0; k < n.ninput; k++) {
    n.input[k] = like->input[k];
    if (!lies_elsewhere(h, like->input[k])) continue;
    const char *name = arena_format(&h->arena, "%s.fetch%d", n.name, k);
    n.input[k] = apart(h, like, like->input[k], name);
    add_move(h, &n, name, like->input[k], n.input[k]);
  }
  for (int k = 0; k < n.noutput; k++) {
    int stored = lies_elsewhere(h, like->output[k]);
    n.output[k] =
        stored ? apart(h, like, like->output[k], arena_format(&h->arena, "%s.left%d", n.name, k)) : like->output[k];
  }
  graph_add_node(h, &n);
  for (int k = 0; k < n.noutput; k++)
    if (n.output[k] != like->output[k])
      add_move(h, &n, arena_format(&h->arena, "%s.store%d", n.name, k), n.output[k], like->output[k]);
  free(ids);
}

int pass_offload(Graph **graph, const CompileOptions *o, Error *error) {
  if (!o->far) return PLAIT_OK;
  const Graph *g = *graph;
  Graph *h = graph_copy(g);
  CHECK(o->device->spaces > 1, "the device %s has one space only", o->device->name);
  h->node.count = 0;
  for (int i = 0; i < h->variable.count; i++) h->variable.data[i].space = o->far(&h->variable.data[i]) != 0;
  for (int i = 0; i < g->node.count; i++) add_node(h, &g->node.data[i]);
  placements_adopt(h);
  return pass_replace(graph, h);
}
