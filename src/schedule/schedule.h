// Schedules are lists, not loops: a generator says which segment runs on which microbatch, stage by stage; shared
// passes add communication; a replay of all stages refuses what could deadlock and counts slots. Nothing here executes.
#pragma once
#include "base/vec.h"
#include "ir/graph.h"

typedef enum ActionKind {
#define ACTION(id, name, meaning) ACTION_##id,
#include "schedule/actions.def"
#undef ACTION
  ACTION_COUNT
} ActionKind;

// A schedule that never drains goes through one stream of microbatches, cut into steps (README.md). Its list has two
// parts, each of which is run by itself: the prologue is what the first steps need before the body can be run; the body
// finishes a step (number 0 of the actions) and runs parts of those that follow it (1 …). So after a body what was
// number k is number k - 1 of the next body. To drain, bodies leave out the actions of steps that are not to begin.
// Other schedules' lists are one body, of step 0.
typedef enum ListPart { LIST_BODY, LIST_PROLOGUE } ListPart;

typedef struct Action {
  ActionKind kind;
  int stage;      // virtual stage whose body or slot it uses
  int microbatch;
  int tensor;     // SEND, RECV
  int peer;       // SEND, RECV: the other virtual stage
  Phase phase;    // SEND, RECV: of the segment that it belongs to
  int kept;       // SEND, RECV: as Crossing
  int from, to;   // of a segment: range of the body's instructions (to 0: all of them); see program
  int node;       // REDUCE
  ListPart part; // of the list, in a stream
  int step;       // that the microbatch, BEGIN, SUMS or END is of, from the one that the body finishes
} Action;
typedef Vec(Action) ActionList;

typedef struct Schedule {
  StageMap map;         // pipeline ranks, and which of them runs which virtual stage
  int stages;           // virtual stages
  int microbatches;     // of a step
  int steps;            // that the actions are of: 1, in a stream those that are under way at once
  int streams;          // it never drains
  int parts;            // its lists are those of a stream, in parts; else they are all that is run
  int at_once;          // as the generator's
  ActionList *list;     // one per coordinate
  int *slots;           // (stages) most microbatches whose activations a stage holds at once; m lies in slot m % slots
} Schedule;
// Staging buffers of a segment, for what it sends and receives: microbatch m uses number m % STAGING_BUFFERS, so that
// the next message can be made while one waits for its receiver.
enum { STAGING_BUFFERS = 2 };

// Appends the segments (FORWARD, BACKWARD and, where it splits backward, WEIGHT) of one coordinate, in order.
typedef void ScheduleGenerate(StageMap map, int stages, int microbatches, int coordinate, ActionList *list);
#define SCHEDULE(id, name, generate, ...) ScheduleGenerate generate;
#include "schedule/schedules.def"

typedef enum ScheduleId {
#define SCHEDULE(id, ...) SCHEDULE_##id,
#include "schedule/schedules.def"
  SCHEDULES
} ScheduleId;

// A schedule and its traits, which the checks of configurations read.
typedef struct ScheduleGenerator {
  const char *name;
  ScheduleGenerate *generate;
  int least_stages; // that a pipeline rank has; parallel.stages_per_rank: auto is this many
  int most_stages;  // 0: any number
  int microbatches_multiple_of_ranks; // it takes no other number of microbatches
  int folded;       // stages lie on the ranks there and back (StageMap)
  int streams;      // it never drains: gradients are those of weights of some steps ago
  int at_once;      // it streams, and a stage updates its weights when its last backward of a step is done, without a
                    // word from the others; delays are as long as the way to the last stage. Else the delay is 1, and a
                    // step takes at least as many microbatches as there are pipeline ranks
  int splits;       // backward is two segments: BACKWARD gives the gradient of the input, WEIGHT those of the weights
} ScheduleGenerator;
extern const ScheduleGenerator schedules[SCHEDULES]; // of training, by ScheduleId: schedules.def
extern const ScheduleGenerator schedule_forward;     // of evaluation and generation
const ScheduleGenerator *schedule_by_name(const char *name); // one of training's; NULL when unknown

int schedule_can_run(const ScheduleGenerator *generator, int stages); // this number of stages on each pipeline rank?
// The names of those that can, for messages: "naive, gpipe or 1f1b".
void schedule_names(int stages, char *text, size_t size);

// A segment: the nodes that one action runs, and what crosses its border.
typedef struct Crossing {
  int tensor, stage; // stage and phase of the other side
  Phase phase;
  int kept; // other bodies of this coordinate read it too: it lies in a slot, else in a staging buffer of the segment
} Crossing;
typedef Vec(Crossing) CrossingList;
typedef struct Segment {
  Vec(int) node;
  CrossingList receive, send; // also between stages of one coordinate, which hand over in memory
  StageSet holders;           // stages of the same coordinate in whose slots lies what it reads
} Segment;
typedef struct Segments {
  int stages;
  Segment begin, end;               // nodes of all stages; which run where is Node.stages
  Segment (*micro)[PHASE_COUNT];    // [stage][phase]
} Segments;
// Cuts a partitioned graph whose stages lie on coordinates by the map. A tensor arrives at a coordinate once, in
// the first segment there that reads it. segments_free releases it.
Segments *segments_of(const Graph *g, StageMap map);
void segments_free(Segments *s);

// Generates, adds BEGIN, SEND, RECV and END, counts slots and validates by schedule_replay.
int schedule_create(const ScheduleGenerator *generator, const Segments *segments, StageMap map, int microbatches,
                    Schedule **out, Error *error);
void schedule_free(Schedule *s);
// Of a stream: `steps` steps as one list, until it has drained, for replays and pictures.
Schedule *schedule_repeat(const Schedule *stream, int steps);

// A segment that ran in a replay, and when.
typedef struct ScheduleSpan {
  int coordinate, stage, microbatch, step;
  ActionKind kind;
  double start, end;
} ScheduleSpan;
typedef struct ScheduleSpans {
  Vec(ScheduleSpan) span; // coordinate by coordinate, each in order
  double total;           // when the last one ends
  double busy;            // of all coordinates together; the bubble is 1 − busy / (coordinates · total) of the total
} ScheduleSpans;

// Walks along all coordinates' lists at once, as their executors would (schedule/walk.h): a SEND is posted and does not
// wait, a RECV waits for its SEND. Refuses (PLAIT_INFEASIBLE, one sentence) segments that are missing,
// doubled, on a wrong coordinate or before what they need, messages that do not meet in order, and deadlocks.
// `cost` (may be NULL): how long segments take, by stage and phase, while transfers take no time; `spans` (may be NULL)
// gets what ran when, released by schedule_spans_free.
int schedule_replay(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT],
                    ScheduleSpans *spans, Error *error);
void schedule_spans_free(ScheduleSpans *spans);

// Keeps the time of a replay in which actions cost what its owner says: segments, BEGIN, END, SUMS and REDUCE, and
// messages on their way. Waiting is the replay's and the walk's: for messages, buffers and sums over the stages.
//
// Several pipelines can be walked at once, each by its own ranks: rank r is at coordinate r / stride mod coordinates,
// and its pipeline are the ranks that differ from it by multiples of stride in this alone. The functions are given
// ranks then where they speak of coordinates.
typedef struct ScheduleClock {
  void *context;
  int ranks, stride; // 0: one pipeline, whose ranks are its coordinates
  // An action of a coordinate, which is free from `*now` on, and again at `*now`. 1: done; 0: it waits for another one
  // and comes again; 2: the same, but others that waited for it may continue; negative: an error, which ends the
  // replay.
  int (*run)(void *context, int coordinate, const Action *action, double *now);
  // A message that a coordinate posts at `*now`, which becomes the time when it continues: returns when the message has
  // arrived, or NAN where that is not known yet.
  double (*send)(void *context, int coordinate, const Action *action, double *now);
  // A coordinate waited from `since` to `now`, for a RECV, whose message coordinate `from` posted at `posted`, or for a
  // buffer (action NULL), whose message `from` received then. NULL: not told.
  void (*waited)(void *context, int coordinate, const Action *action, int from, double posted, double since,
                 double now);
  // A coordinate that came to a RECV at `since` has its message at `*now`, which becomes the time when it continues.
  // NULL: not told.
  void (*received)(void *context, int coordinate, const Action *action, double since, double *now);
  // When a message arrives of which `send` did not know it: number `number` (from 0) that coordinate `from` sent to the
  // same one in the same direction; NAN: still not known. NULL: `send` always knows.
  double (*arrival)(void *context, int from, const Action *action, int number);
  // No coordinate can continue by itself: time passes for everything under way on all of them. 1: something has ended,
  // and its coordinate may continue; 0: nothing was under way. NULL: actions of different coordinates do not share
  // anything.
  int (*pass)(void *context);
} ScheduleClock;
// schedule_replay by a clock, along `lists` (one per coordinate, such as those of the Programs, with bodies cut and
// REDUCE put in; NULL: the schedule's own). `end` (coordinates, or the clock's ranks; may be NULL) gets when each one
// ends.
int schedule_replay_by(const Schedule *s, const Segments *segments, const ActionList *const *lists,
                       const ScheduleClock *clock, ScheduleSpans *spans, double *end, Error *error);

const char *action_name(ActionKind kind); // as printed: "F"
// Whether an action runs the body of a segment; action_phase says which.
static inline int action_runs_body(const Action *a) {
  return a->kind >= ACTION_FORWARD && a->kind < ACTION_FORWARD + PHASE_COUNT;
}
