// GPipe (Huang et al., 2019): all forwards, then all backwards. With several stages a coordinate, microbatches go
// through them in groups of as many as there are coordinates.
#include "schedule/schedule.h"

void schedule_gpipe(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages % map.coordinates == 0, "gpipe runs the same number of stages on every pipeline rank");
  for (int first = 0; first < microbatches; first += map.coordinates)
    for (int s = 0; s < stages; s++)
      for (int m = first; m < first + map.coordinates && m < microbatches && stage_coordinate(s, map) == coordinate;
           m++)
        vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
  for (int first = 0; first < microbatches; first += map.coordinates)
    for (int s = stages - 1; s >= 0; s--)
      for (int m = first; m < first + map.coordinates && m < microbatches && stage_coordinate(s, map) == coordinate;
           m++)
        vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = s, .microbatch = m});
}
