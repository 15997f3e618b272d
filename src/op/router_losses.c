// Builders of what a training graph asks of routers: their losses, loads, capacity and bias.
#include "op/build.h"

static int output_of(const Graph *g, int node, int k) { return g->node.data[node].output[k]; }

// A loss whose node reads the seed of its gradient last.
static void add_loss(Graph *g, const char *name, LossKind kind, Op op, int logits, int mask) {
  int seed = graph_read(g, graph_known(g, known_loss(kind).seed));
  int with_mask[] = {logits, mask, seed}, without[] = {logits, seed};
  int n = graph_node(g, op, name, mask < 0 ? without : with_mask, mask < 0 ? 2 : 3, NULL, 0);
  vec_push(&g->further, (FurtherLoss){kind, output_of(g, n, 0)});
}

int op_router_losses(Graph *g, const char *name, int router, int logits, int mask, int64_t most) {
  Arena *arena = &g->arena;
  int kept = mask;
  add_loss(g, arena_join(arena, name, "balance"), LOSS_BALANCE, OP_ROUTER_BALANCE, logits, mask);
  add_loss(g, arena_join(arena, name, "z"), LOSS_Z, OP_ROUTER_Z, logits, -1);
  if (most > 0) {
    CapacityAttr attr = {.most = most};
    kept = output_of(
        g, graph_node(g, OP_CAPACITY, arena_join(arena, name, "capacity"), &mask, 1, &attr, sizeof attr), 0);
  }
  int n = graph_node(g, OP_ROUTER_LOAD, arena_join(arena, name, "load"), (int[]){mask, most > 0 ? kept : -1}, 2, NULL,
                     0);
  vec_push(&g->router, (Router){router, output_of(g, n, 0)});
  return kept;
}

// A graph that shares Variables with another one, as models of several modes do, has it already.
int op_router_bias(Graph *g, int router) {
  const Shape *w = &g->variable.data[router].shape;
  return graph_read(g, graph_known_own(g, OF_ROUTER_BIAS, router,
                                       shape_of(1, (int64_t[]){w->size[0]}, (DimName[]){w->dim[0]})));
}

void op_router_bias_step(Graph *g, const char *name, int bias, int load, int skip, double rate) {
  RouterBiasAttr attr = {.rate = rate};
  op_update(g, graph_node(g, OP_ROUTER_BIAS, name, (int[]){bias, load, skip}, 3, &attr, sizeof attr), 0, 0);
}
