// The model of by_hand.h half by hand: the graph is said, and where three kinds of its matrices lie; plait
// differentiates it, places the rest, and trains it on any mesh. The weights and the text are those of the by_hand_*.c,
// and so the losses.
//
//   half_by_hand_llama [MESH [ZERO]]        ("tp=4" 0), as in half_by_hand_llama "pp=2 dp=2" 3
#include "llama_graph.h"

static void place(const Llama *m) {
  for (int l = 0; l < LAYERS; l++) {
    plait_graph_shard(m->graph, m->q[l], 0, "tp");    // the heads over tp; k, v and o follow
    plait_graph_shard(m->graph, m->gate[l], 0, "tp"); // the hidden features; up and down follow
  }
  plait_graph_shard(m->graph, m->head, 0, "tp"); // the vocabulary
}

int main(int argc, char **argv) {
  PlaitError error = {0};
  PlaitTrainingOptions options = {.mesh = argc > 1 ? argv[1] : "tp=4", .zero = argc > 2 ? atoi(argv[2]) : 0,
                                  .microbatches = 2, .optimizer = "adamw"};
  Llama m = build();
  place(&m);
  int code = train(m.graph, &options, &error);
  plait_graph_destroy(m.graph);
  return code ? fprintf(stderr, "%s\n", error.message), 1 : 0;
}
