// How long a run takes from a signal to its end: what its metrics say of steps and checkpoints.
#pragma once
#include <stdbool.h>

typedef struct RunTimes {
  double step, save; // seconds: the longest of the last 200 steps, and of all checkpoints
  bool known;        // both have been measured
} RunTimes;

// Of FOLDER/metrics.jsonl; nothing is known where it cannot be read.
RunTimes run_times_read(const char *folder);
// A signal may come when a step has just begun, and a checkpoint may still be written then.
double run_times_to_stop(const RunTimes *times);
