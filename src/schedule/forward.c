// Forward only: evaluation and generation. With several stages a coordinate, microbatches go through them in groups as
// in interleaved.c; the last group may be smaller.
#include "schedule/schedule.h"

static void generate(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  for (int first = 0; first < microbatches; first += map.coordinates)
    for (int s = 0; s < stages; s++)
      for (int m = first; m < first + map.coordinates && m < microbatches && stage_coordinate(s, map) == coordinate;
           m++)
        vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
}

const ScheduleGenerator schedule_forward = {"forward", generate, .least_stages = 1};
