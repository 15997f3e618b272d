// Replays a schedule: walks along all coordinates' lists at once, in any unit of time. It validates, and keeps the
// clock that draws.
#include "schedule/walk.h"
#include "base/fault.h"
#include <math.h>
#include <string.h>

typedef struct Message { const Action *send; double posted, arrives, received; } Message; // received < 0: not yet
typedef Vec(Message) Queue; // of one ordered pair of coordinates and one direction
typedef struct Posted { int queue, index; } Posted;                          // where the message of a SEND is

typedef struct Replay {
  const Schedule *s;
  const Segments *segments;
  const ActionList **list; // (coordinates)
  const ScheduleClock *by;
  ScheduleSpans *spans;
  ReplayWatcher watch;  // may be NULL
  void *watching;
  int ranks, stride; // as the clock's: one rank a coordinate, and 1, where that has none
  Walk **walk;      // (ranks)
  double *clock;    // (ranks)
  double *start;    // (ranks) when the action under way began
  const Action **begun; // (ranks) that action, where its clock waits; else NULL
  Posted **posted;  // (ranks, actions)
  Queue *queue;     // (ranks, coordinates, 2)
  int *received;    // as queue: messages taken
  char *ran;        // (pipelines, stages, PHASE_COUNT, microbatches of all steps)
  int *summed;      // (pipelines, steps) coordinates whose part of a sum over the stages is there
  int moved;        // since all ranks were looked at, one whose clock waits continued first
  Error *error;
} Replay;
typedef struct Walker { Replay *r; int rank; } Walker;

static int coordinate_of(const Replay *r, int rank) { return rank / r->stride % r->s->map.coordinates; }
// The rank of the same pipeline that runs a stage.
static int rank_of_stage(const Replay *r, int rank, int stage) {
  return rank + (stage_coordinate(stage, r->s->map) - coordinate_of(r, rank)) * r->stride;
}
static int pipeline_of(const Replay *r, int rank) {
  return rank / (r->stride * r->s->map.coordinates) * r->stride + rank % r->stride;
}
static int queue_of(const Replay *r, int from, int to, int forward) {
  return (from * r->s->map.coordinates + coordinate_of(r, to)) * 2 + forward;
}
static char *ran(const Replay *r, int rank, int stage, Phase phase, int microbatch) {
  return &r->ran[((pipeline_of(r, rank) * r->s->stages + stage) * PHASE_COUNT + (int)phase) * r->s->microbatches *
                     r->s->steps +
                 microbatch];
}
static int number(const Replay *r, const Action *a) { return a->step * r->s->microbatches + a->microbatch; }

static void wait_until(Replay *r, int rank, const Action *a, int from, double posted, double time) {
  double *clock = &r->clock[rank];
  if (time <= *clock) return;
  if (r->by->waited) r->by->waited(r->by->context, rank, a, from, posted, *clock, time);
  *clock = time;
}

static int wait_received(Replay *r, int rank, int send) {
  Posted at = r->posted[rank][send];
  const Message *m = &r->queue[at.queue].data[at.index];
  if (FAULT(schedule_ignores_full_buffers, m->received < 0, 0)) return 0;
  wait_until(r, rank, NULL, rank_of_stage(r, rank, m->send->peer), m->received, m->received);
  return 1;
}

static int send(Replay *r, int rank, const Action *a) {
  int q = queue_of(r, rank, rank_of_stage(r, rank, a->peer), a->peer > a->stage);
  double posted = r->clock[rank], arrives = r->by->send(r->by->context, rank, a, &r->clock[rank]);
  vec_push(&r->queue[q], (Message){a, posted, arrives, -1});
  r->posted[rank][a - r->list[coordinate_of(r, rank)]->data] = (Posted){q, r->queue[q].count - 1};
  return 1;
}

// 1 when the message was there, 0 when not, an error when another one came first.
static int receive(Replay *r, int rank, const Action *a) {
  int from = rank_of_stage(r, rank, a->peer), q = queue_of(r, from, rank, a->stage > a->peer);
  if (r->queue[q].count <= r->received[q]) return 0;
  Message *m = &r->queue[q].data[r->received[q]];
  if (isnan(m->arrives)) m->arrives = r->by->arrival(r->by->context, from, m->send, r->received[q]);
  if (isnan(m->arrives)) return 0;
  r->received[q]++;
  if (FAULT(schedule_replay_is_blind, m->send->tensor != a->tensor || number(r, m->send) != number(r, a), 0))
    return error_set(r->error, PLAIT_INFEASIBLE,
                     "schedule: stage %d expects microbatch %d from stage %d, which sends microbatch %d first",
                     a->stage, a->microbatch, a->peer, m->send->microbatch);
  double since = r->clock[rank];
  wait_until(r, rank, a, from, m->posted, m->arrives);
  if (r->by->received) r->by->received(r->by->context, rank, a, since, &r->clock[rank]);
  m->received = r->clock[rank];
  return 1;
}

// A segment runs once, after the phase of its stage that comes before it, and after those of the same coordinate that
// leave it something in memory.
static int check_segment(Replay *r, int rank, const Action *a) {
  Phase phase = action_phase(a);
  const Segment *segment = &r->segments->micro[a->stage][phase];
  int microbatch = number(r, a);
  if ((*ran(r, rank, a->stage, phase, microbatch))++)
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d runs %s twice on microbatch %d", a->stage,
                     phase_name(phase), a->microbatch);
  Phase before = phase > PHASE_FORWARD ? (Phase)(phase - 1) : phase;
  if (FAULT(schedule_weights_before_gradient, 1, phase != PHASE_WEIGHT) && !*ran(r, rank, a->stage, before, microbatch))
    return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d runs %s on microbatch %d before %s", a->stage,
                     phase_name(phase), a->microbatch, phase_name(before));
  for (int i = 0; i < segment->receive.count; i++) {
    const Crossing *c = &segment->receive.data[i];
    if (stage_coordinate(c->stage, r->s->map) == coordinate_of(r, rank) &&
        !*ran(r, rank, c->stage, c->phase, microbatch))
      return error_set(r->error, PLAIT_INFEASIBLE,
                       "schedule: stage %d runs %s on microbatch %d before stage %d has run %s, on the same rank",
                       a->stage, phase_name(phase), a->microbatch, c->stage, phase_name(c->phase));
  }
  return 1;
}

static void add_span(Replay *r, int rank, const Action *a, double start) {
  double end = r->clock[rank];
  if (!r->spans) return;
  vec_push(&r->spans->span, (ScheduleSpan){rank, a->stage, a->microbatch, a->step, a->kind, start, end});
  r->spans->busy += end - start;
  if (end > r->spans->total) r->spans->total = end;
}

// A body that is cut (Action.from) is checked with its first part. A clock that waits asks again, so what is checked
// and counted once comes with the first call.
static int run(Replay *r, int rank, const Action *a) {
  int begins = r->begun[rank] != a;
  r->begun[rank] = a;
  if (begins) r->start[rank] = r->clock[rank];
  int code = begins && action_runs_body(a) && !a->from ? check_segment(r, rank, a) : 1;
  if (code > 0) code = r->by->run(r->by->context, rank, a, &r->clock[rank]);
  if (code == 2) code = 0, r->moved = FAULT(replay_stops_at_the_first_wait, 1, 0);
  if (code > 0 && action_runs_body(a)) add_span(r, rank, a, r->start[rank]);
  if (code > 0) r->begun[rank] = NULL;
  return code;
}

// In a stream a step's sums over the stages start after its last backward on each, and END waits for all of them.
static int sum_over_stages(Replay *r, int rank, const Action *a) {
  int *summed = &r->summed[pipeline_of(r, rank) * r->s->steps + a->step];
  if (a->kind == ACTION_END && *summed < r->s->map.coordinates) return 0;
  int code = run(r, rank, a);
  if (code > 0 && a->kind == ACTION_SUMS) ++*summed;
  return code;
}

static int step_done(const Walker *w, const WalkStep *step) {
  const Action *a = step->action;
  if (step->kind == WALK_WAIT) return wait_received(w->r, w->rank, step->send);
  if (step->kind != WALK_RUN) return 1;
  if (w->r->s->streams && (a->kind == ACTION_SUMS || a->kind == ACTION_END))
    return sum_over_stages(w->r, w->rank, a);
  if (a->kind == ACTION_SEND) return send(w->r, w->rank, a);
  if (a->kind == ACTION_RECV) return receive(w->r, w->rank, a);
  return run(w->r, w->rank, a);
}

static int visit(void *context, const WalkStep *step) {
  const Walker *w = context;
  const double *clock = &w->r->clock[w->rank], before = *clock;
  int code = step_done(w, step);
  if (code > 0 && w->r->watch) w->r->watch(w->r->watching, w->rank, step, before, *clock);
  return code;
}

static int run_all(Replay *r) {
  for (int progress = 1; progress;) {
    progress = r->moved = 0;
    for (int k = 0; k < r->ranks; k++) {
      Walker walker = {r, k};
      int code;
      while ((code = walk_step(r->walk[k], visit, &walker)) > 0) progress = 1;
      if (code < 0) return code;
    }
    progress |= r->moved;
    if (!progress && r->by->pass) progress = r->by->pass(r->by->context);
  }
  return PLAIT_OK;
}

static int describe_stop(void *context, const WalkStep *step) {
  Error *error = context;
  const Action *a = step->action;
  if (a && a->kind == ACTION_END)
    return error_set(error, PLAIT_INFEASIBLE,
                     "schedule: deadlock: stage %d waits for a sum over the stages that one of them never starts",
                     a->stage);
  if (!a) return 0; // at the end, with a message that nobody has received
  if (step->kind == WALK_RUN)
    return error_set(
        error, PLAIT_INFEASIBLE,
        "schedule: deadlock: stage %d waits for microbatch %d of stage %d, which waits for this stage itself", a->stage,
        a->microbatch, a->peer);
  return error_set(error, PLAIT_INFEASIBLE,
                   "schedule: deadlock: microbatch %d waits for a buffer of stage %d that is never released",
                   a->microbatch, a->stage);
}

// Whoever has not come to the end of its list stands at a step that never can be done.
static int check_deadlock(const Replay *r) {
  int code = PLAIT_OK;
  for (int k = 0; k < r->ranks && code >= 0; k++) code = walk_step(r->walk[k], describe_stop, r->error);
  return code < 0 ? code : PLAIT_OK;
}

// Whether all stages must run a phase on all microbatches: one does on one, or there is something to run.
static int has_phase(const Replay *r, int phase) {
  for (int t = 0; t < r->s->stages; t++) {
    if (r->segments->micro[t][phase].node.count) return 1;
    for (int m = 0; m < r->s->microbatches * r->s->steps; m++)
      if (*ran(r, 0, t, (Phase)phase, m)) return 1; // all pipelines run the same lists
  }
  return phase == PHASE_FORWARD;
}

// No message may be left over, and what any stage does with a microbatch all must do with all.
static int check_whole(const Replay *r) {
  const Schedule *s = r->s;
  int n = s->map.coordinates;
  for (int q = 0; q < r->ranks * n * 2; q++)
    if (FAULT(schedule_forgets_a_message, r->queue[q].count > r->received[q], 0))
      return error_set(r->error, PLAIT_INFEASIBLE, "schedule: a message from pipeline rank %d to %d is never received",
                       coordinate_of(r, q / 2 / n), q / 2 % n);
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    for (int t = 0, stages = has_phase(r, phase) ? s->stages : 0; t < stages; t++)
      for (int m = 0; m < s->microbatches * s->steps; m++)
        if (FAULT(schedule_forgets_weights, 1, phase != PHASE_WEIGHT) && !*ran(r, 0, t, (Phase)phase, m))
          return error_set(r->error, PLAIT_INFEASIBLE, "schedule: stage %d never runs %s on microbatch %d", t,
                           phase_name((Phase)phase), m);
  return PLAIT_OK;
}

static int by_coordinate(const void *a, const void *b) {
  const ScheduleSpan *x = a, *y = b;
  if (x->coordinate != y->coordinate) return x->coordinate - y->coordinate;
  return (x->start > y->start) - (x->start < y->start);
}

static void replay_free(Replay *r) {
  for (int q = 0; q < r->ranks * r->s->map.coordinates * 2; q++) vec_free(&r->queue[q]);
  for (int k = 0; k < r->ranks; k++) {
    walk_destroy(r->walk[k]);
    free(r->posted[k]);
  }
  free(r->walk);
  free(r->posted);
  free(r->list);
  free(r->clock);
  free(r->start);
  free(r->begun);
  free(r->queue);
  free(r->received);
  free(r->ran);
  free(r->summed);
}

// lists and end: as schedule_replay_by.
static int replay(Replay r, const ActionList *const *lists, double *end, Error *error) {
  const Schedule *s = r.s;
  const Segments *segments = r.segments;
  ScheduleSpans *spans = r.spans;
  r.ranks = r.by->ranks ? r.by->ranks : s->map.coordinates;
  r.stride = r.by->stride ? r.by->stride : 1;
  size_t coordinates = (size_t)s->map.coordinates, n = (size_t)r.ranks, pipelines = n / coordinates;
  r.error = error;
  r.list = xcalloc(coordinates, sizeof *r.list);
  r.clock = xcalloc(n, sizeof *r.clock);
  r.start = xcalloc(n, sizeof *r.start);
  r.begun = xcalloc(n, sizeof *r.begun);
  r.queue = xcalloc(n * coordinates * 2, sizeof *r.queue);
  r.received = xcalloc(n * coordinates * 2, sizeof *r.received);
  r.ran = xcalloc(pipelines * (size_t)s->stages * PHASE_COUNT * (size_t)(s->microbatches * s->steps), 1);
  r.summed = xcalloc(pipelines * (size_t)s->steps, sizeof *r.summed);
  r.walk = xcalloc(n, sizeof *r.walk);
  r.posted = xcalloc(n, sizeof *r.posted);
  for (int c = 0; c < s->map.coordinates; c++) r.list[c] = lists ? lists[c] : &s->list[c];
  for (int k = 0; k < r.ranks; k++) {
    const ActionList *list = r.list[coordinate_of(&r, k)];
    WalkPlan plan = schedule_walk(s, segments, list);
    r.walk[k] = walk_create(&plan);
    r.posted[k] = xcalloc((size_t)list->count, sizeof *r.posted[k]);
  }
  if (spans) *spans = (ScheduleSpans){0};
  int code = run_all(&r);
  if (!code) code = check_deadlock(&r);
  if (!code) code = check_whole(&r);
  if (code && spans) schedule_spans_free(spans);
  if (!code && spans && spans->span.count)
    qsort(spans->span.data, (size_t)spans->span.count, sizeof *spans->span.data, by_coordinate);
  if (end) memcpy(end, r.clock, n * sizeof *end);
  replay_free(&r);
  return code;
}

int schedule_replay_by(const Schedule *s, const Segments *segments, const ActionList *const *lists,
                       const ScheduleClock *clock, ScheduleSpans *spans, double *end, Error *error) {
  return replay((Replay){.s = s, .segments = segments, .by = clock, .spans = spans}, lists, end, error);
}

// The clock of schedule_replay: segments cost what a table says, or 1, and messages nothing.
typedef struct UnitClock {
  const double (*cost)[PHASE_COUNT];
  double *sum; // (steps) when the last coordinate's part of a sum over the stages was there
} UnitClock;

static int unit_run(void *context, int coordinate, const Action *a, double *now) {
  UnitClock *u = context;
  if (action_runs_body(a)) *now += u->cost ? u->cost[a->stage][action_phase(a)] : 1;
  if (a->kind == ACTION_SUMS && *now > u->sum[a->step]) u->sum[a->step] = *now;
  if (a->kind == ACTION_END && u->sum[a->step] > *now) *now = u->sum[a->step];
  return 1;
}

static double unit_send(void *context, int coordinate, const Action *a, double *now) { return *now; }

static int replay_by_table(Replay r, const double (*cost)[PHASE_COUNT], Error *error) {
  UnitClock unit = {cost, xcalloc((size_t)r.s->steps, sizeof *unit.sum)};
  ScheduleClock clock = {.context = &unit, .run = unit_run, .send = unit_send};
  r.by = &clock;
  int code = replay(r, NULL, NULL, error);
  free(unit.sum);
  return code;
}

int schedule_replay(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT],
                    ScheduleSpans *spans, Error *error) {
  return replay_by_table((Replay){.s = s, .segments = segments, .spans = spans}, cost, error);
}

int schedule_replay_watch(const Schedule *s, const Segments *segments, const double (*cost)[PHASE_COUNT],
                          ReplayWatcher watch, void *context, Error *error) {
  return replay_by_table((Replay){.s = s, .segments = segments, .watch = watch, .watching = context}, cost, error);
}

void schedule_spans_free(ScheduleSpans *spans) { vec_free(&spans->span); }
