// GPipe (Huang et al., 2019): all forwards, then all backwards.
#include "pipeline/schedule.h"

static void generate(int coordinates, int stages, int microbatches, int coordinate, ActionList *list) {
  for (int m = 0; m < microbatches; m++)
    for (int s = coordinate; s < stages; s += coordinates)
      vec_push(list, (Action){ACTION_FORWARD, s, m, -1, -1});
  for (int m = 0; m < microbatches; m++)
    for (int s = stages - coordinates + coordinate; s >= 0; s -= coordinates)
      vec_push(list, (Action){ACTION_BACKWARD, s, m, -1, -1});
}

const ScheduleGenerator schedule_gpipe = {"gpipe", generate};
