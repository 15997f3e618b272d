// Losses beside the model's own, and measures of how busy the experts of each router are.
//
// Each loss is a mean over the layers that have it and over the sequences of the step. Their number is known before,
// so the seed of the gradient that a layer adds for a sequence is coefficient / (layers · sequences), times the loss
// scale; it depends neither on microbatches nor on the mesh.
#include "compile/losses.h"
#include "base/fault.h"
#include "op/build.h"

// Of how many layers and sequences a loss of this kind is the mean; 0: the graph has none of it.
static double terms_of(const Graph *g, LossKind kind, const CompileOptions *o) {
  int layers = 0;
  for (int i = 0; i < g->further.count; i++) layers += g->further.data[i].kind == kind;
  return (double)layers *
         (double)FAULT(losses_of_a_microbatch, o->step.batch.samples, o->microbatches * o->micro_samples / 2);
}

static int load_sum(Graph *g, const Router *r) {
  return graph_known_own(g, OF_ROUTER_LOAD_SUM, r->parameter, graph_tensor(g, r->load)->shape);
}

void losses_begin(Graph *g, int loss_scale, const CompileOptions *o) {
  for (LossKind kind = 0; kind < LOSS_COUNT; kind++) {
    double terms = terms_of(g, kind, o), seed = terms > 0 ? o->step.update.coefficient[kind] / terms : 0;
    KnownLoss known = known_loss(kind);
    if (!(terms > 0)) continue;
    g->scope = known_name(known.mean);
    op_fill(g, "zero", graph_known(g, known.sum), 0);
    int variable = graph_known(g, known.seed);
    int scale = FAULT(losses_without_loss_scale, loss_scale, -1);
    if (scale < 0) op_fill(g, "seed", variable, seed);
    else graph_bind(g, op_scale(g, "seed", scale, seed), variable, -1);
  }
  for (int i = 0; i < g->router.count; i++) {
    int sum = load_sum(g, &g->router.data[i]);
    g->scope = arena_format(&g->arena, "begin.%s", g->variable.data[sum].name);
    op_fill(g, "zero", sum, 0);
  }
}

static void add(Graph *g, int variable, int tensor) {
  const Node *maker = &g->node.data[graph_tensor(g, tensor)->producer];
  g->layer = maker->layer;
  g->scope = arena_format(&g->arena, "step.%s", maker->name);
  op_accumulate(g, "accumulate", graph_read(g, variable), tensor);
}

void losses_micro(Graph *g) {
  for (int i = 0; i < g->further.count; i++)
    add(g, graph_known(g, known_loss(g->further.data[i].kind).sum), g->further.data[i].tensor);
  for (int i = 0; i < g->router.count; i++) add(g, load_sum(g, &g->router.data[i]), g->router.data[i].load);
}

static void end_router(Graph *g, const Router *r, int skip, const CompileOptions *o) {
  const char *name = g->variable.data[r->parameter].name;
  g->scope = arena_format(&g->arena, "end.%s", name);
  int load = op_identity(g, "load", graph_read(g, load_sum(g, r)));
  graph_bind(g, load, graph_known_own(g, OF_ROUTER_LOAD, r->parameter, graph_tensor(g, load)->shape), -1);
  int bias = graph_find_of(g, OF_ROUTER_BIAS, r->parameter);
  if (bias >= 0) op_router_bias_step(g, "bias", graph_read(g, bias), load, skip, o->step.update.bias_rate);
}

void losses_end(Graph *g, int skip, const CompileOptions *o) {
  for (LossKind kind = 0; kind < LOSS_COUNT; kind++) {
    double terms = terms_of(g, kind, o);
    KnownLoss known = known_loss(kind);
    if (!(terms > 0)) continue;
    g->scope = known_name(known.mean);
    int mean = op_scale(g, "mean", graph_read(g, graph_known(g, known.sum)), 1 / terms);
    graph_bind(g, mean, graph_known(g, known.mean), -1);
  }
  for (int i = 0; i < g->router.count; i++) end_router(g, &g->router.data[i], skip, o);
}

int losses_has_root(const Graph *g, int node, const CompileOptions *o) {
  for (int i = 0; i < g->further.count; i++) {
    const FurtherLoss *l = &g->further.data[i];
    if (graph_tensor(g, l->tensor)->producer == node && o->step.update.coefficient[l->kind] != 0) return 1;
  }
  return 0;
}
