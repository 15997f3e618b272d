// Half by hand: a graph of our own (linear, ReLU, linear, squared error), one placement said, and plait does the rest.
// Trains it on one rank, on 2 × 2 ranks (the samples over dp, the hidden features over tp), and as a pipeline with a
// layer on each of two stages; prints the losses and fails when they differ.
//
//   half_by_hand [MESH …]        ("dp=2 tp=2" "pp=2"), as in half_by_hand "pp=2 dp=2 tp=4"
#include <math.h>
#include <plait/graph.h>
#include <stdio.h>

enum { INPUTS = 8, HIDDEN = 32, BATCH = 48, STEPS = 60, PRINT_EVERY = 10, MOST = 8 };

static PlaitGraph *build(void) {
  PlaitGraph *g = plait_graph_create(BATCH, PLAIT_FP32);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){INPUTS}),
              target = plait_graph_input(g, "target", 1, (int64_t[]){1});
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){HIDDEN, INPUTS}, 0.4),
              b1 = plait_graph_parameter(g, "b1", 1, (int64_t[]){HIDDEN}, 0);
  PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){1, HIDDEN}, 0.2),
              b2 = plait_graph_parameter(g, "b2", 1, (int64_t[]){1}, 0);
  PlaitTensor h = plait_graph_activation(g, "relu", plait_graph_linear(g, "up", x, w1, b1), PLAIT_RELU);
  plait_graph_layer(g, 1); // where a pipeline may cut
  plait_graph_squared_error(g, plait_graph_linear(g, "down", h, w2, b2), target);
  plait_graph_shard(g, w1, 0, "tp"); // b1, the hidden values and w2 follow
  return g;
}

// A number in [-1, 1) that depends on its arguments only.
static float noise(unsigned step, unsigned i, unsigned j) {
  unsigned x = step * 0x9e3779b9u ^ i * 0x85ebca6bu ^ j * 0xc2b2ae35u;
  for (int k = 0; k < 3; k++) x = (x ^ x >> 15) * 0x2c1b3c6du;
  return (float)(x >> 8) / 8388608 - 1;
}

static int train(const PlaitGraph *g, const char *mesh, double *losses) {
  PlaitError error = {0};
  PlaitTraining *t;
  int code = plait_training_create(g, &(PlaitTrainingOptions){.mesh = mesh, .microbatches = 2}, &t, &error);
  for (int step = 0; step < STEPS && !code; step++) {
    float x[BATCH][INPUTS], y[BATCH];
    for (unsigned n = 0; n < BATCH; n++) {
      for (unsigned i = 0; i < INPUTS; i++) x[n][i] = noise((unsigned)step, n, i);
      y[n] = sinf(3 * x[n][0]) + x[n][1] * x[n][2];
    }
    PlaitStepResult result = {0};
    code = plait_training_step(t, (const void *[]){x, y}, 0.1, &result, &error);
    losses[step] = result.loss;
  }
  plait_training_destroy(t);
  if (code) fprintf(stderr, "%s: %s\n", mesh, error.message);
  return code;
}

int main(int argc, char **argv) {
  const char *mesh[MOST] = {"dp=1", "dp=2 tp=2", "pp=2"};
  int n = argc > 1 ? 1 : 3, differ = 0;
  for (; n < argc && n < MOST; n++) mesh[n] = argv[n];
  double loss[MOST][STEPS];
  PlaitGraph *g = build();
  for (int i = 0; i < n; i++)
    if (train(g, mesh[i], loss[i])) return plait_graph_destroy(g), 2;
  plait_graph_destroy(g);
  printf("step");
  for (int i = 0; i < n; i++) printf("   %14s", mesh[i]);
  for (int step = 0; step < STEPS; step++) {
    if ((step + 1) % PRINT_EVERY == 0) printf("\n%4d", step + 1);
    for (int i = 0; i < n; i++) {
      if ((step + 1) % PRINT_EVERY == 0) printf("   %14.6f", loss[i][step]);
      if (!(fabs(loss[i][step] - loss[0][step]) <= 1e-5 * fabs(loss[0][step]))) differ = 1;
    }
  }
  puts(differ ? "\nthey DIFFER" : "\nthey agree");
  return differ || !(loss[0][STEPS - 1] < loss[0][0]);
}
