// The timeline of a simulated step, as a file.
#pragma once
#include "train/predict.h"

typedef struct SimulatedSpan {
  int coordinate, stage, microbatch, in_flight;
  const char *name;
  double begin, end;
} SimulatedSpan;

typedef struct SimulatedTimeline {
  const char *path;
  bool svg;
  Vec(SimulatedSpan) span;
} SimulatedTimeline;

int simulated_timeline_begin(SimulatedTimeline *timeline, Error *error); // PLAIT_BAD_INPUT: neither .svg nor .json
SimulationSee simulated_timeline_see;                                    // context: the timeline
int simulated_timeline_end(SimulatedTimeline *timeline, const Prediction *prediction, Error *error); // writes it
void simulated_timeline_free(SimulatedTimeline *timeline);
