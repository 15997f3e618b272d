// The walk along a pipeline rank's actions: which buffers an action enters, what it waits for before, and when a buffer
// is left. It is the one place that knows this. The executor walks its own rank's list, the replay all lists at once,
// the printer shows the steps; each gives a function that is called for every step. A walk needs actions and crossings,
// no Program.
//
// A buffer is a slot of a stage (what crosses bodies) or a staging buffer of a segment (what it sends or receives and
// no other body reads). Microbatch m uses buffer m mod count. Before a microbatch enters a buffer, messages that the
// buffer's last microbatch sent from there must have been received. A slot is left after the last action that touches
// it: a segment of its stage, one of another stage of the rank that reads from it, or a SEND or RECV of what lies in
// it. A message that was sent from it may still be under way then.
#pragma once
#include "schedule/schedule.h"

typedef enum WalkKind {
  WALK_WAIT,  // until the message of an earlier SEND from the buffer has been received
  WALK_ENTER, // the microbatch takes the buffer
  WALK_RUN,   // the action
  WALK_LEAVE, // the microbatch needs the buffer no more
} WalkKind;

typedef struct WalkBuffer {
  int stage;
  int is_slot;  // else a staging buffer, of the segment (stage, phase)
  Phase phase;
  int index;    // of the stage's slots, or the segment's staging buffers
} WalkBuffer;

typedef struct WalkStep { // microbatches are numbered through the steps of the list (action_number)
  WalkKind kind;
  const Action *action; // that the step belongs to; NULL: a wait after the last one
  WalkBuffer buffer;    // WAIT, ENTER, LEAVE
  int microbatch;       // ENTER, LEAVE: that takes or leaves the buffer; WAIT: whose message it is
  int send;             // WAIT: index of the SEND in the list
} WalkStep;

// Does a step. 1: done; 0: it cannot be done yet, and comes again; negative: an error, which ends the walk.
typedef int (*WalkVisitor)(void *context, const WalkStep *step);

// The path of a walk.
typedef struct WalkPlan {
  const ActionList *list;
  const Segments *segments;
  StageMap map;                  // which pipeline rank runs which stage
  int microbatches;              // of a step
  const int *slots;              // (stages) slots of each
  int staging;                   // staging buffers of each segment
  int steps;                     // that the list is of; 0: one
  int parts;                     // the list is a stream's, to be gone along part by part
} WalkPlan;

// Of an action's microbatch, through all steps of the list.
static inline int action_number(const WalkPlan *plan, const Action *a) {
  return a->step * plan->microbatches + a->microbatch;
}

typedef struct Walk Walk;
// Everything in the plan is borrowed. After walk_create nothing is allocated.
Walk *walk_create(const WalkPlan *plan);
void walk_destroy(Walk *walk); // NULL is fine
void walk_rewind(Walk *walk);  // to the beginning, with empty buffers

// Of a stream (ListPart): the walk continues with a part of the list and ends after it, with its buffers as they are.
// The prologue follows a rewind, the body the prologue or itself. Actions of steps above `ahead` are left out; where
// that is 0 in a body nothing is under way after it.
void walk_go(Walk *walk, ListPart part, int ahead);
// Nothing is left of the walk but the waits for what was sent.
void walk_stop(Walk *walk);
// The number of a microbatch in the whole stream, less that in the list: what is in a buffer stays where it is.
int walk_base(const Walk *walk);

// The next step, by the visitor. 1: one was done; 0: the visitor could not do it yet, or there is none (walk_ended);
// negative: its error.
int walk_step(Walk *walk, WalkVisitor visit, void *context);
// All steps that are left, for a visitor that always does them. PLAIT_OK or its error.
int walk_run(Walk *walk, WalkVisitor visit, void *context);
int walk_at(
    const Walk *walk); // index of the action under way, until the next walk_step; one past the last at the end
int walk_ended(const Walk *walk);

// The walk along a list of the schedule, or one made from it (a Program's), with the schedule's slots.
WalkPlan schedule_walk(const Schedule *schedule, const Segments *segments, const ActionList *list);
// One line a step: actions, and between them the waits, and the buffers that are entered and left.
void schedule_print(const WalkPlan *plan, const Graph *graph, FILE *out);

Phase action_phase(const Action *action); // of the segment that it runs, or that a SEND or RECV belongs to
// schedule_replay that shows every step of every list as it is done, coordinate by coordinate in order: the clock of
// its coordinate before and after the step.
typedef void (*ReplayWatcher)(void *context, int coordinate, const WalkStep *step, double before, double after);
int schedule_replay_watch(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT],
                          ReplayWatcher watch, void *context, Error *error);

// "slot 1 of stage 0", "B staging buffer 0 of stage 2".
void walk_buffer_text(const WalkBuffer *buffer, char *text, size_t size);
