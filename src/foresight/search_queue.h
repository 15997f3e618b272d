// The queue of a search: the plans that it has not finished, the one with the least time
// (times 1 + doubt) first. Searches of recipes
// (foresight/search.c) and of graphs of a user's own (api/graph_search.c) share it.
#pragma once
#include "base/vec.h"

typedef struct QueuedPlan {
  double seconds, bytes; // a bound, an estimate or a prediction: as the stage says
  double doubt;          // 0: none; by how much more than the least time it is sorted as, relative
  int stage, plan;       // as the search counts them
  int number;            // of equal times the plan that was added first comes first; by queue_add
} QueuedPlan;

typedef struct PlanQueue {
  Vec(QueuedPlan) heap; // data[0] is the first
  int added;
} PlanQueue;

void queue_add(PlanQueue *queue, QueuedPlan plan);  // a new one
void queue_push(PlanQueue *queue, QueuedPlan plan); // one that was taken out, with another time or stage
QueuedPlan queue_pop(PlanQueue *queue);             // of one that is not empty
void queue_free(PlanQueue *queue);
