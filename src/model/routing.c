// ROUTE with what the recipe's keys moe.* ask for.
#include "model/routing.h"
#include <math.h>

// The parameter that the logits were made with, maybe cast since.
static int router_of(const Graph *g, int logits) {
  for (;;) {
    const Node *n = &g->node.data[graph_tensor(g, logits)->producer];
    for (int k = 0; k < n->ninput; k++) {
      int v = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->variable;
      if (v >= 0 && variable_is_weight(&g->variable.data[v])) return v;
    }
    logits = n->input[0];
  }
}

// The product is whole where it is meant to be.
int64_t model_expert_capacity(const ModelConfig *c, double factor, int64_t seq) {
  double even = c->experts ? factor * (double)c->experts_per_token * (double)seq / (double)c->experts : 0;
  return even > 0 ? (int64_t)ceil(even * (1 - 1e-12)) : 0;
}

void build_routing(ModelBuild *m, int logits, const RouteAttr *attr, int *weights, int *mask) {
  Graph *g = m->g;
  int router = router_of(g, logits), bias = m->options->router_bias ? op_router_bias(g, router) : -1;
  op_route(g, "route", logits, bias, attr, weights, mask);
  if (m->options->mode != MODEL_TRAIN) return;
  *mask = op_router_losses(g, "route", router, logits, *mask,
                           model_expert_capacity(m->config, m->options->capacity, m->options->length[DIM_SEQ]));
}
