// The time and memory of a plan, without compiling all of its layers: blocks are alike, so the real passes compile it
// with few layers a stage and with one more, both are simulated, and a straight line through the two gives all layers.
#pragma once
#include "foresight/search_space.h"

typedef struct CutMemo { int pp, stages, folded, micro, count; int layers[64]; } CutMemo;

typedef struct Extension {
  const Space *space;
  const Cluster *cluster;
  Vec(CutMemo) cuts;
  int64_t compiled; // jobs
} Extension;

void extension_create(const Space *space, const Cluster *cluster, Extension *extension);
void extension_free(Extension *extension);

// seconds of a step, bytes of the rank that needs the most. extended: not all layers were compiled; how many were
// left out of each stage.
typedef struct Estimated { double seconds, bytes; int extended; } Estimated;
// PLAIT_INFEASIBLE, PLAIT_BAD_INPUT: as predict.
int extension_estimate(Extension *extension, const Recipe *recipe, Estimated *out, Error *error);
