// A classifier of our own: three spirals in the plane, two hidden layers, labels, and the accuracy from forward, on a
// mesh.
//
//   mlp_classifier [MESH]        as in mlp_classifier "dp=2 tp=2"; without one: one rank
#include <math.h>
#include <plait/graph.h>
#include <stdlib.h>

enum { CLASSES = 3, SAMPLES = 240, HIDDEN = 32, STEPS = 300 };

int main(int argc, char **argv) {
  double point[SAMPLES][2], logits[SAMPLES][CLASSES];
  int32_t label[SAMPLES];
  for (int i = 0; i < SAMPLES; i++) { // spiral number `label`, from the centre outwards
    double radius = 0.1 + 0.9 * (i / CLASSES) / (SAMPLES / CLASSES), angle = 5 * radius + i % CLASSES * 2.0944;
    label[i] = i % CLASSES;
    point[i][0] = radius * cos(angle), point[i][1] = radius * sin(angle);
  }
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "point", 1, (int64_t[]){2}), y = plait_graph_integers(g, "label", 0, NULL);
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){HIDDEN, 2}, 1);
  PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){HIDDEN, HIDDEN}, 0.2);
  PlaitTensor w3 = plait_graph_parameter(g, "w3", 2, (int64_t[]){CLASSES, HIDDEN}, 0.2);
  PlaitTensor b1 = plait_graph_parameter(g, "b1", 1, (int64_t[]){HIDDEN}, 0.1);
  PlaitTensor h = plait_graph_activation(g, "gelu1", plait_graph_linear(g, "first", x, w1, b1), PLAIT_GELU);
  plait_graph_layer(g, 1); // where a pipeline may cut
  h = plait_graph_activation(g, "gelu2", plait_graph_linear(g, "second", h, w2, -1), PLAIT_GELU);
  PlaitTensor out = plait_graph_linear(g, "third", h, w3, -1);
  plait_graph_cross_entropy(g, out, y);
  plait_graph_output(g, "logits", out);
  plait_graph_shard(g, w1, 0, "tp"); // the hidden features over tp; what follows, plait finds

  PlaitError error = {0};
  PlaitTraining *t;
  PlaitTrainingOptions options = {.mesh = argc > 1 ? argv[1] : NULL, .optimizer = "adamw"};
  int code = plait_training_create(g, &options, &t, &error), right = 0;
  for (int step = 1; step <= STEPS && !code; step++) {
    PlaitStepResult result = {0};
    code = plait_training_step(t, (const void *[]){point, label}, 0.01, &result, &error);
    if (!code && step % 50 == 0) printf("step %3d   loss %.6f\n", step, result.loss);
  }
  if (!code) code = plait_training_forward(t, (const void *[]){point, label}, (void *[]){logits}, NULL, &error);
  for (int i = 0, best; i < SAMPLES && !code; i++, right += best == label[i - 1])
    for (int c = best = 0; c < CLASSES; c++) best = logits[i][c] > logits[i][best] ? c : best;
  if (code) fprintf(stderr, "%s\n", error.message);
  else printf("accuracy %.1f%%\n", 100.0 * right / SAMPLES);
  plait_training_destroy(t);
  plait_graph_destroy(g);
  return code || right < SAMPLES * 0.9;
}
