// Reading the times of a run.
#include "train/run_times.h"
#include "base/file.h"
#include "train/metrics.h"
#include <math.h>
#include <stdlib.h>

enum { LAST_STEPS = 200 }; // earlier ones may have run on other machines

// 0: there is none.
static double longest(const char *path, const char *key, int last) {
  MetricsSeries series = {0};
  Error ignored = {0};
  double most = 0;
  if (metrics_read(path, key, &series, &ignored)) return 0;
  for (int i = series.count > last ? series.count - last : 0; i < series.count; i++)
    if (isfinite(series.value[i]) && series.value[i] > most) most = series.value[i];
  metrics_series_free(&series);
  return most;
}

RunTimes run_times_read(const char *folder) {
  RunTimes times = {0};
  char *path = xformat("%s/metrics.jsonl", folder);
  if (file_exists(path)) {
    times.step = longest(path, "step_seconds", LAST_STEPS);
    times.save = longest(path, "checkpoint_seconds", 1 << 30);
    times.known = times.step > 0 && times.save > 0;
  }
  free(path);
  return times;
}

double run_times_to_stop(const RunTimes *times) { return times->step + 2 * times->save; }
