// 1F1B (PipeDream-Flush, Narayanan et al., 2021): a warm-up of forwards, then one forward and one backward in turn, so
// that at most as many microbatches are in flight as stages lie ahead. One stage a coordinate.
#include "schedule/schedule.h"

void schedule_1f1b(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages == map.coordinates, "1f1b runs one stage a pipeline rank");
  int warm = map.coordinates - 1 - coordinate;
  if (warm > microbatches) warm = microbatches;
  for (int m = 0; m < warm; m++) vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = coordinate, .microbatch = m});
  for (int m = 0; m < microbatches; m++) {
    if (m + warm < microbatches)
      vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = coordinate, .microbatch = m + warm});
    vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = coordinate, .microbatch = m});
  }
}
