// The routers of a model with experts in a step: losses, and how evenly their choices were divided.
#pragma once
#include "recipe/recipe.h"
#include "runtime/state.h"
#include <stdio.h>

typedef struct RouterLoad {
  int layer;
  double *chosen, *kept; // (experts) choices of the last step, and those that capacity kept
} RouterLoad;
typedef struct Routers {
  int layers, experts; // 0: the model has none
  RouterLoad *load;    // (layers that have a router)
  double balance, z;   // losses of the last step
} Routers;

void routers_read(Routers *r, const State *state); // of the step that has just run
void routers_free(Routers *r);
// The largest load of a layer's expert over the mean; of all layers the largest; NAN where nothing was routed.
double routers_peak(const Routers *r, int layer);
double routers_worst(const Routers *r);
double routers_dropped(const Routers *r); // the share of choices that capacity has dropped
// A few lines for the end of a run: the load of each expert. Nothing without routers.
void routers_print(const Routers *r, FILE *out);
// One line about the recipe's keys moe.*, "" without experts.
void routers_describe(const Recipe *recipe, const ModelConfig *config, int ranks, char *text, size_t size);
