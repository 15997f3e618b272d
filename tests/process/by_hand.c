// Half by hand with ranks as processes: a graph on the mesh that the first argument names, against one rank in every
// process.
#include "plait/graph.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16, IN = 5, HIDDEN = 8, STEPS = 4 };

static PlaitGraph *build(void) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){IN}), y = plait_graph_input(g, "y", 1, (int64_t[]){1});
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){HIDDEN, IN}, 0.5),
              w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){1, HIDDEN}, 0.5);
  PlaitTensor h = plait_graph_activation(g, "act", plait_graph_linear(g, "up", x, w1, -1), PLAIT_GELU);
  plait_graph_layer(g, 1);
  plait_graph_squared_error(g, plait_graph_linear(g, "down", h, w2, -1), y);
  plait_graph_shard(g, w1, 0, "tp");
  return g;
}

static int run(const PlaitTrainingOptions *o, double *losses, double *w1, PlaitError *error) {
  PlaitGraph *g = build();
  PlaitTraining *t = NULL;
  int code = plait_training_create(g, o, &t, error);
  plait_graph_destroy(g);
  for (int step = 0; step < STEPS && !code; step++) {
    double x[SAMPLES * IN], y[SAMPLES];
    for (int i = 0; i < SAMPLES * IN; i++) x[i] = sin(2.3 * i + step);
    for (int i = 0; i < SAMPLES; i++) y[i] = cos(1.1 * i - step);
    PlaitStepResult result = {0};
    code = plait_training_step(t, (const void *[]){x, y}, 0.2, &result, error);
    losses[step] = result.loss;
  }
  if (!code) code = plait_training_read(t, "w1", w1, HIDDEN * IN * sizeof *w1, error);
  plait_training_destroy(t);
  return code;
}

int main(int argc, char **argv) {
  PlaitError error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  double one[STEPS], many[STEPS], w_one[HIDDEN * IN], w_many[HIDDEN * IN], worst = 0;
  if (plait_world_launched_create(&world, &error) || plait_comm_world(world, plait_world_rank(world), &comm, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  int code = run(&(PlaitTrainingOptions){.mesh = "dp=1", .seed = 3}, one, w_one, &error);
  if (!code)
    code = run(&(PlaitTrainingOptions){.mesh = argc > 1 ? argv[1] : "", .comm = comm, .microbatches = 2, .seed = 3},
               many, w_many, &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  for (int i = 0; i < STEPS && !code; i++) worst = fmax(worst, fabs(one[i] - many[i]));
  for (int i = 0; i < HIDDEN * IN && !code; i++) worst = fmax(worst, fabs(w_one[i] - w_many[i]));
  if (!code && plait_comm_rank(comm) == 0)
    printf("loss %.6f to %.6f, off by %.1e: %s\n", one[0], one[STEPS - 1], worst, worst <= 1e-12 ? "agree" : "DIFFER");
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return code ? 2 : !(worst <= 1e-12);
}
