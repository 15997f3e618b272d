// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023): 1F1B whose backward is two segments. B, the gradient of
// the input, goes to the stage before at once; W, the weights' gradients, fills what would be a bubble: stage i runs W
// of a microbatch i turns after its B, so that the last stage has the most of them left when its last B is done, and
// the first one none. As many microbatches are in flight on every stage as on the first in 1F1B: one a pipeline rank.
//
// Example: three ranks, four microbatches.
//   pp 0  F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
//   pp 1     F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
//   pp 2        F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
#include "schedule/schedule.h"

void schedule_zb_h1(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages == map.coordinates, "zb-h1 runs one stage a pipeline rank");
  int warm = map.coordinates - 1 - coordinate, late = coordinate;
  for (int k = -warm; k < microbatches + late; k++) {
    int f = k + warm, w = k - late;
    if (f < microbatches) vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = coordinate, .microbatch = f});
    if (k >= 0 && k < microbatches)
      vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = coordinate, .microbatch = k});
    if (w >= 0) vec_push(list, (Action){.kind = ACTION_WEIGHT, .stage = coordinate, .microbatch = w});
  }
}
