// Versions of parameters: which there are, and how a step moves them on.
#include "base/fault.h"
#include "op/build.h"
#include "compile/delay.h"

int delay_parameters(Graph *g, const Delay *delay) {
  int any = 0;
  for (int i = 0; delay->count && i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && k < n->ninput; k++) {
      int v = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->variable;
      if (v < 0 || !variable_is_trained(&g->variable.data[v])) continue;
      int steps = delay_of_layer(delay, n->layer, g->layers), *known = &g->variable.data[v].delay;
      CHECK(!*known || *known == steps, "%s has two delays", g->variable.data[v].name); // parallel_check refuses it
      *known = steps;
      any |= steps > 0;
    }
  }
  return any;
}

// The oldest first, each from the one before it.
static void move_on(Graph *g, int turn, int only_oldest) {
  for (int v = 0, count = g->variable.count; v < count; v++) {
    int age = g->variable.data[v].delay;
    if (!age) continue;
    g->scope = arena_format(&g->arena, "version.%s", g->variable.data[v].name);
    for (int weights = graph_read(g, v); age; age = FAULT(stream_moves_all_versions, only_oldest, 0) ? 0 : age - 1) {
      int newer = age > 1 && !only_oldest ? graph_read(g, graph_version(g, v, FAULT(version_skips_one, age - 1, age)))
                                          : weights;
      op_next_version(g, "next", graph_read(g, graph_version(g, v, age)), newer, weights, turn);
    }
  }
}

static int turn_of(Graph *g, int skip) {
  return op_version_turn(g, "version_turn", graph_read(g, graph_known(g, KNOWN_DELAY_VERSIONS)),
                         graph_read(g, graph_known(g, KNOWN_DELAY_STEP)), skip);
}

void delay_begin(Graph *g) { move_on(g, turn_of(g, -1), 0); }

void delay_end(Graph *g, int skip, int streams) { move_on(g, turn_of(g, skip), streams); }
