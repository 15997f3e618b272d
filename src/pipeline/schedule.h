// Schedules are lists, not loops: a generator says which segment runs on which microbatch, stage by stage; shared passes
// add communication; a replay of all stages refuses what could deadlock and counts slots. Nothing here executes.
#pragma once
#include "base/vec.h"
#include "graph/graph.h"

typedef enum ActionKind {
#define ACTION(id, name, meaning) ACTION_##id,
#include "pipeline/actions.def"
#undef ACTION
  ACTION_COUNT
} ActionKind;

typedef struct Action {
  ActionKind kind;
  int stage;      // virtual stage whose body or slot it uses
  int microbatch;
  int tensor;     // SEND, RECV
  int peer;       // SEND, RECV: the other virtual stage
  int from, to;   // FORWARD, BACKWARD: range of the body's instructions (to 0: all of them); see program
  int node;       // REDUCE
} Action;
typedef Vec(Action) ActionList;

typedef struct Schedule {
  int coordinates;      // pipeline ranks
  int stages;           // virtual stages; stage s runs on coordinate s % coordinates
  int microbatches;
  ActionList *list;     // one per coordinate
  int slots;            // most microbatches in flight in any stage: slots each stage's activations need
} Schedule;

// A generator appends FORWARD and BACKWARD actions for one coordinate, in order.
typedef struct ScheduleGenerator {
  const char *name;
  void (*generate)(int coordinates, int stages, int microbatches, int coordinate, ActionList *list);
} ScheduleGenerator;
extern const ScheduleGenerator schedule_gpipe, schedule_1f1b, schedule_forward;
const ScheduleGenerator *schedule_by_name(const char *name); // NULL when unknown

// A segment: the nodes that one action runs, and what crosses its border.
typedef struct Crossing { int tensor, stage; } Crossing; // tensor, the other stage
typedef Vec(Crossing) CrossingList;
typedef struct Segment {
  Vec(int) node;
  CrossingList receive, send;
} Segment;
typedef struct Segments {
  int stages;
  Segment begin, end;               // nodes of all stages; which run where is Node.stages
  Segment (*micro)[PHASE_COUNT];    // [stage][phase]
} Segments;
// Cuts a partitioned graph. segments_free releases it.
Segments *segments_of(const Graph *g);
void segments_free(Segments *s);

// Generates, adds BEGIN, SEND, RECV and END, and validates: every RECV meets its SEND, in the same order on both sides, and
// no coordinate waits for ever. PLAIT_INFEASIBLE with the sentence otherwise.
int schedule_create(const ScheduleGenerator *generator, const Segments *segments, int coordinates, int microbatches,
                    Schedule **out, Error *error);
void schedule_free(Schedule *s);
// One line an action.
const char *action_name(ActionKind kind); // as printed: "F"
void schedule_print(const ActionList *list, const Graph *g, int slots, FILE *out);
