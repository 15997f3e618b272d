// The model of by_hand.h fully automatic: the graph is said as for one device, and the search finds mesh and placements
// for a cluster, by simulating the Programs that would run. The plan and the losses are printed; the losses are those
// of one device.
//
//   automatic_llama [RANKS [CLUSTER [MESH]]]        (4 h200-node), as in automatic_llama 8 pcie-10g
//                                                   with a mesh, as in automatic_llama 4 h200-node "tp=4", only the
//                                                   rest
#include "llama_graph.h"

int main(int argc, char **argv) {
  PlaitError error = {0};
  PlaitTrainingOptions options = {.mesh = argc > 3 ? argv[3] : NULL, .optimizer = "adamw"};
  PlaitPlanOptions where = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .cluster = argc > 2 ? argv[2] : "h200-node"};
  PlaitGraphPlan *plan;
  Llama m = build();
  int code = plait_graph_plan(m.graph, &options, &where, &plan, &error);
  if (!code) {
    plait_graph_plan_print(plan, stdout);
    options = (PlaitTrainingOptions){.plan = plan, .optimizer = "adamw"};
    code = train(m.graph, &options, &error);
  }
  plait_graph_plan_destroy(plan);
  plait_graph_destroy(m.graph);
  return code ? fprintf(stderr, "%s\n", error.message), 1 : 0;
}
