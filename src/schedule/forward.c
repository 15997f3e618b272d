// Forward only: evaluation and generation. With several stages a coordinate, microbatches go through them in groups as
// in interleaved.c; the last group may be smaller.
#include "schedule/schedule.h"

static void generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) {
  for (int first = 0; first < microbatches; first += coordinates)
    for (int s = 0; s < stages; s++)
      for (int m = first; m < first + coordinates && m < microbatches && stage_coordinate(s, coordinates) == coordinate;
           m++)
        vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
}

const ScheduleGenerator schedule_forward = {"forward", generate, .least_stages = 1};
