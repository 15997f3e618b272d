// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021): v
// stages a coordinate. Microbatches go in groups of as many as there are coordinates; a group passes through all v
// stages before the next one starts, so that the pipeline fills v times faster. Microbatches are a multiple of the
// coordinates.
#include "schedule/schedule.h"

// The k-th segment that a coordinate runs forward, or backward.
static Action nth(int coordinates, int stages, int coordinate, ActionKind kind, int k) {
  int v = stages / coordinates, turn = k / coordinates % v;
  if (kind == ACTION_BACKWARD) turn = v - 1 - turn;
  return (Action){
      .kind = kind, .stage = turn * coordinates + coordinate, .microbatch = k / stages * coordinates + k % coordinates};
}

// Forwards that run alone first: (v − 1) · coordinates until the first microbatch is back for its last stage here, and
// two for each coordinate after this one. Then one forward and one backward alternate.
void schedule_interleaved(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  int coordinates = map.coordinates;
  CHECK(stages % coordinates == 0 && microbatches % coordinates == 0,
        "stages and microbatches must be multiples of the pipeline ranks");
  int v = stages / coordinates, total = microbatches * v, after = coordinates - 1 - coordinate;
  int warm = v > 1 ? 2 * after + (v - 1) * coordinates : after;
  if (warm > total) warm = total;
  for (int k = 0; k < warm; k++) vec_push(list, nth(coordinates, stages, coordinate, ACTION_FORWARD, k));
  for (int k = 0; k < total; k++) {
    if (k + warm < total) vec_push(list, nth(coordinates, stages, coordinate, ACTION_FORWARD, k + warm));
    vec_push(list, nth(coordinates, stages, coordinate, ACTION_BACKWARD, k));
  }
}
