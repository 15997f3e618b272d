// GPipe (Huang et al., 2019): all forwards, then all backwards.
#include "pipeline/schedule.h"

static void generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages % coordinates == 0, "gpipe runs the same number of stages on every pipeline rank");
  for (int m = 0; m < microbatches; m++)
    for (int s = coordinate; s < stages; s += coordinates)
      vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
  for (int m = 0; m < microbatches; m++)
    for (int s = stages - coordinates + coordinate; s >= 0; s -= coordinates)
      vec_push(list, (Action){.kind = ACTION_BACKWARD, .stage = s, .microbatch = m});
}

const ScheduleGenerator schedule_gpipe = {"gpipe", generate};
