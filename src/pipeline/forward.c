// Forward only: evaluation and generation.
#include "pipeline/schedule.h"

static void generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) {
  for (int m = 0; m < microbatches; m++)
    for (int s = coordinate; s < stages; s += coordinates) vec_push(list, (Action){.kind = ACTION_FORWARD, .stage = s, .microbatch = m});
}

const ScheduleGenerator schedule_forward = {"forward", generate};
