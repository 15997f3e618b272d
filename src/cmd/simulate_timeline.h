// The timeline of a simulated step, as a file.
#pragma once
#include "foresight/predict.h"

typedef struct SimulatedSpan {
  int coordinate;
  ActionKind kind;
  int in_flight;
  const Node *node; // NULL: a message, of a tensor of this name
  const char *name;
  double begin, end;
} SimulatedSpan;

typedef struct SimulatedTimeline {
  const char *path;
  bool svg;
  int steps;
  Vec(SimulatedSpan) span;
} SimulatedTimeline;

// PLAIT_BAD_INPUT: neither .svg nor .json; PLAIT_FAILED: a file that cannot be written.
int simulated_timeline_begin(SimulatedTimeline *timeline, Error *error);
SimulationSee simulated_timeline_see;                                    // context: the timeline
int simulated_timeline_end(SimulatedTimeline *timeline, const Prediction *prediction, Error *error); // writes it
void simulated_timeline_free(SimulatedTimeline *timeline);
