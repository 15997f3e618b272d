// A training loop for one device: a network learns a function of eight numbers. one_device_mesh.c is the same on a
// mesh; docs/one-device-to-mesh.md has the difference.
#include <math.h>
#include <plait/graph.h>

enum { INPUTS = 8, HIDDEN = 64, BATCH = 48, STEPS = 100 };

static PlaitGraph *build(void) {
  PlaitGraph *g = plait_graph_create(BATCH, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){INPUTS});
  PlaitTensor y = plait_graph_input(g, "y", 1, (int64_t[]){1});
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){HIDDEN, INPUTS}, 0.4);
  PlaitTensor b1 = plait_graph_parameter(g, "b1", 1, (int64_t[]){HIDDEN}, 0.1);
  PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){1, HIDDEN}, 0.2);
  PlaitTensor h = plait_graph_activation(g, "gelu", plait_graph_linear(g, "up", x, w1, b1), PLAIT_GELU);
  plait_graph_layer(g, 1);
  plait_graph_squared_error(g, plait_graph_linear(g, "down", h, w2, -1), y);
  plait_graph_shard(g, w1, 0, "tp");
  return g;
}

int main(int argc, char **argv) {
  PlaitError error = {0};
  PlaitTraining *t;
  PlaitGraph *g = build();
  PlaitTrainingOptions options = {.mesh = argc > 1 ? argv[1] : NULL};
  int code = plait_training_create(g, &options, &t, &error);
  plait_graph_destroy(g);
  for (int step = 0; step < STEPS && !code; step++) {
    double x[BATCH][INPUTS], y[BATCH];
    for (int n = 0; n < BATCH; n++) {
      for (int i = 0; i < INPUTS; i++) x[n][i] = sin(1.0 + step * 7.0 + n * 3.0 + i * i);
      y[n] = x[n][0] * x[n][1] + 0.5 * x[n][2];
    }
    PlaitStepResult result = {0};
    code = plait_training_step(t, (const void *[]){x, y}, 0.2, &result, &error);
    if (!code && (step + 1) % 10 == 0) printf("step %3d   loss %.6f\n", step + 1, result.loss);
  }
  if (code) fprintf(stderr, "%s\n", error.message);
  plait_training_destroy(t);
  return code != 0;
}
