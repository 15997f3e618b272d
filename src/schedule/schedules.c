// The table of schedules, and look-ups in it.
#include "schedule/schedule.h"
#include <string.h>

const ScheduleGenerator schedules[SCHEDULES] = {
#define SCHEDULE(id, name, generate, needs, meaning, ...) [SCHEDULE_##id] = {name, generate, __VA_ARGS__},
#include "schedule/schedules.def"
};

const ScheduleGenerator *schedule_by_name(const char *name) {
  for (int i = 0; i < SCHEDULES; i++)
    if (!strcmp(schedules[i].name, name)) return &schedules[i];
  return NULL;
}

int schedule_can_run(const ScheduleGenerator *generator, int stages) {
  return stages >= generator->least_stages && (!generator->most_stages || stages <= generator->most_stages);
}

void schedule_names(int stages, char *text, size_t size) {
  int left = 0, listed = 0;
  for (int i = 0; i < SCHEDULES; i++) left += schedule_can_run(&schedules[i], stages) && !schedules[i].streams;
  text[0] = 0;
  for (int i = 0; i < SCHEDULES; i++) {
    if (!schedule_can_run(&schedules[i], stages) || schedules[i].streams) continue;
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", !listed++ ? "" : left == 1 ? " or " : ", ", schedules[i].name);
    left--;
  }
}
