// Naive: a microbatch goes through all stages, forward and back, before the next one starts. The least memory, and only
// one pipeline rank at work at a time.
#include "schedule/schedule.h"

void schedule_naive(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  for (int m = 0; m < microbatches; m++) {
    for (int s = 0; s < stages; s++)
      if (stage_coordinate(s, map) == coordinate)
        vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
    for (int s = stages - 1; s >= 0; s--)
      if (stage_coordinate(s, map) == coordinate)
        vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = s, .microbatch = m});
  }
}
