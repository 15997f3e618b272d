// Stages: which contiguous layers each virtual pipeline stage runs, and so where nodes run and Variables live.
#include "dist/rule.h"
#include "op/op.h"
#include "pass/pass.h"
#include <string.h>

uint64_t stage_coordinates(const Mesh *mesh, uint64_t stages) {
  int pp = mesh->axis[mesh_axis(mesh, "pp")].size;
  uint64_t coordinates = 0;
  for (int s = 0; s < MAX_STAGES; s++)
    if (stages >> s & 1) coordinates |= 1ull << (s % pp);
  return coordinates;
}

static uint64_t all_stages(const Graph *g) { return g->stages == 64 ? ~0ull : (1ull << g->stages) - 1; }

static void stage_micro(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO) continue;
    n->stage = graph_stage_of_layer(g, n->layer);
    n->stages = 1ull << n->stage;
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0) continue;
      if (k >= n->ninput) graph_tensor(g, t)->stages = n->stages;
      int v = graph_tensor(g, t)->variable;
      if (v >= 0) g->variable.data[v].stages |= n->stages;
    }
  }
}

// Scalars live everywhere; what belongs to a parameter lives where the parameter does.
static void stage_variables(Graph *g) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->kind == VARIABLE_PARAMETER) continue;
    v->stages = v->parameter >= 0 ? g->variable.data[v->parameter].stages : all_stages(g);
  }
}

// A node of BEGIN or END runs where all its operands live. A sum of terms that live on different stages runs on all of
// them, each adding what it has; what is left is a partial sum over pp (see place).
static void stage_node(Graph *g, Node *n, Arena *scratch) {
  uint64_t all = all_stages(g), stages = all, some = 0;
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] < 0) continue;
    uint64_t s = graph_holders(g, n->input[k]) & all;
    stages &= s;
    some |= s;
  }
  for (int k = 0; k < n->noutput; k++)
    if (graph_tensor(g, n->output[k])->variable >= 0) stages &= graph_holders(g, n->output[k]);
  if (some && some != stages && n->ninput > 1) {
    Rule r = rule_of(scratch, g, n);
    if (rule_is_sum(&r)) stages = all;
  }
  n->stages = stages;
  // A tied Variable lives on several stages but counts once in a norm: what makes one number of what belongs to a
  // parameter (sum_squares) runs on the first of them alone.
  int number = n->noutput == 1 && graph_tensor(g, n->output[0])->shape.rank == 0;
  if (number && n->ninput == 1 && n->input[0] >= 0 && graph_tensor(g, n->input[0])->parameter >= 0) n->stages = stages & -stages;
  for (int k = 0; k < n->noutput; k++) graph_tensor(g, n->output[k])->stages = n->stages;
}

int pass_stage(Graph *g, int stages, Error *error) {
  if (stages > MAX_STAGES) return error_set(error, PLAIT_INFEASIBLE, "mesh.pp: %d stages; at most %d are allowed", stages, MAX_STAGES);
  if (stages > 1 && stages > g->layers)
    return error_set(error, PLAIT_INFEASIBLE, "mesh.pp: %d stages, but the model has only %d layers to share out", stages, g->layers);
  g->stages = stages;
  stage_micro(g);
  stage_variables(g);
  Arena scratch = {0};
  for (int i = 0; i < g->node.count; i++)
    if (g->node.data[i].region != REGION_MICRO) stage_node(g, &g->node.data[i], &scratch);
  arena_free(&scratch);
  return PLAIT_OK;
}
