// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021): v stages a
// coordinate. Microbatches go in groups of as many as there are coordinates; a group passes through all v stages before the
// next one starts, so that the pipeline fills v times faster. Microbatches are a multiple of the coordinates.
#include "pipeline/schedule.h"

// The k-th segment that a coordinate runs forward, or backward.
static Action nth(int coordinates, int stages, int coordinate, ActionKind kind, int k) {
  int v = stages / coordinates, turn = k / coordinates % v;
  if (kind == ACTION_BACKWARD) turn = v - 1 - turn;
  return (Action){.kind = kind, .stage = turn * coordinates + coordinate, .microbatch = k / stages * coordinates + k % coordinates};
}

// The first microbatch comes back to a coordinate after its group has gone through the v − 1 stages before its last one
// here, and each coordinate behind this one has run two more: that many forwards come first.
static void generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages % coordinates == 0 && microbatches % coordinates == 0, "interleaved takes a multiple of the pipeline ranks of stages and microbatches");
  int v = stages / coordinates, total = microbatches * v, behind = coordinates - 1 - coordinate;
  int warm = v > 1 ? 2 * behind + (v - 1) * coordinates : behind;
  if (warm > total) warm = total;
  for (int k = 0; k < warm; k++) vec_push(list, nth(coordinates, stages, coordinate, ACTION_FORWARD, k));
  for (int k = 0; k < total; k++) {
    if (k + warm < total) vec_push(list, nth(coordinates, stages, coordinate, ACTION_FORWARD, k + warm));
    vec_push(list, nth(coordinates, stages, coordinate, ACTION_BACKWARD, k));
  }
}

const ScheduleGenerator schedule_interleaved = {"interleaved", generate};
