// The simulator: a clock for the schedule's replay (schedule_replay_by), which knows streams, collectives in flight and
// messages.
#include "plan/simulate.h"
#include "base/fault.h"
#include "op/op.h"
#include "plan/critical.h"
#include "plan/meeting.h"
#include "program/traffic.h"
#include <math.h>
#include <string.h>

const char *const time_part_names[TIME_PARTS] = {
#define TIME_PART(id, name, meaning) [TIME_##id] = name,
#include "plan/time_parts.def"
#undef TIME_PART
};
const char *const time_part_meanings[TIME_PARTS] = {
#define TIME_PART(id, name, meaning) [TIME_##id] = meaning,
#include "plan/time_parts.def"
#undef TIME_PART
};

// A collective in flight, of an instruction: issued on a stream, where those before it come first.
typedef struct Flight {
  const Cost *cost;        // NULL: none
  const Node *node;
  int number, resolved;    // number: as Meeting's
  double issued, ready;    // ready: when those before it are done; INFINITY: not known yet
  double start, end;       // once it is resolved
  int last;                // rank that came last
} Flight;

// Communication streams of a rank, as the executor has them: one for collectives, one for sums over the stages of a
// schedule that never drains.
enum { STREAM_COLLECTIVES, STREAM_SUMS, STREAMS };
typedef struct Stream {
  Vec(Flight *) flight; // in the order of issue; those before `next` are resolved
  int next;
  double free, busy;    // until its last collective; until that beside which kernels are slower
  int waits_next;       // of those that wait for the same meeting: the next one, as Meeting.waiting
} Stream;

typedef struct Interval { double begin, end; } Interval;

typedef struct SimulatedRank {
  const Program *program;
  int rank, coordinate;    // of the mesh (-1: all of the coordinate); on the pipeline
  Costs *costs;
  const Action *action;    // under way, at instruction `at`
  int at, due;             // due: next instruction whose collectives have been waited for
  double host;             // when the host has launched all kernels so far
  Stream stream[STREAMS];
  Flight **flight;         // (bodies) of each instruction; END's are of `instances` steps
  double *link;            // (coordinates, 2) when the link to another coordinate is free, by direction
  MessagesOnLinks *messages; // (coordinates) to another one; sharing 0: not looked for yet
  Vec(Interval) on_link[MAX_LEVELS]; // what it sends: collectives and messages that the level bounds
  int *first;              // (groups of the Costs) with all ranks: 1 + the first rank of its own; 0: not looked for yet
  RankTime time;
} SimulatedRank;

typedef struct Simulator {
  const SimulateOptions *options;
  int coordinates, instances;
  int ranks, stride;       // simulated: one a coordinate, or all of the mesh; between neighbouring coordinates
  SimulatedRank *rank;
  Meetings meetings;
  Vec(int) ready;          // streams that a meeting no longer holds: rank · STREAMS + stream
  Critical *critical;      // NULL: not looked for
  Cores *cores;            // where all ranks are on one machine whose kernels were measured; else NULL
} Simulator;

// Time --------------------------------------------------------------------------------------------------------------

// c in all that follows: a simulated rank.

// Its device is at `to`: what it did, or waited for, since `*now`.
static void advance(Simulator *s, int c, double *now, double to, TimePart part, const Node *node, const Cost *cost) {
  if (to <= *now) return;
  s->rank[c].time.part[part] += to - *now;
  if (s->critical) critical_spent(s->critical, c, *now, to, part, node, cost ? cost->axes : 0);
  *now = to;
}

static LinkTime *link_time(RankTime *t, uint32_t axes, int level, int messages) {
  for (int i = 0; i < t->link.count; i++)
    if (t->link.data[i].axes == axes && t->link.data[i].level == level && t->link.data[i].messages == messages)
      return &t->link.data[i];
  vec_push(&t->link, (LinkTime){.axes = axes, .level = level, .messages = messages});
  return &t->link.data[t->link.count - 1];
}

static void note_call(Simulator *s, int c, const Cost *cost) {
  LinkTime *link = link_time(&s->rank[c].time, cost->axes, cost->level, 0);
  link->all += cost->seconds;
  link->bytes += cost->bytes;
  link->calls++;
}

static void see(const Simulator *s, int c, const char *name, const Action *a, double begin, double end, int flies) {
  if (s->options->see) s->options->see(s->options->context, c, name, a, begin, end, flies);
}

static CallStream stream_of(const SimulatedRank *r, const Node *n) {
  return n->region == REGION_END && r->program->schedule->streams ? CALL_SUMS : CALL_IN_FLIGHT;
}

static void tell(const Simulator *s, int c, CallKind kind, CallStream stream, const Node *n, const Action *a,
                 const Cost *cost) {
  if (!s->options->issue) return;
  Call call = {.kind = kind, .stream = stream, .node = n, .microbatch = a->microbatch};
  if (kind == CALL_COLLECTIVE) call.bytes = llround(cost->whole);
  s->options->issue(s->options->context, c, &call);
}

static void tell_message(const Simulator *s, int c, CallKind kind, const Action *a) {
  const Program *p = s->rank[c].program;
  if (!s->options->issue) return;
  Call call = {.kind = kind, .tensor = a->tensor, .microbatch = a->microbatch,
               .peer = stage_coordinate(a->peer, p->schedule->map),
               .direction = kind == CALL_SEND ? a->peer > a->stage : a->stage > a->peer,
               .bytes = llround(transfer_bytes(p, a)),
               .offset = program_offset(p, a->tensor, a->step * p->schedule->microbatches + a->microbatch, 0)};
  s->options->issue(s->options->context, c, &call);
}

// A transfer of so long over a level.
static void put_on_link(Simulator *s, int c, int level, double begin, double end) {
  if (level >= 0 && end > begin) vec_push(&s->rank[c].on_link[level], (Interval){begin, end});
}

static int by_begin(const void *a, const void *b) {
  const Interval *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// See RankTime.met.
static double met_on_links(SimulatedRank *r) {
  double met = 0;
  for (int l = 0; l < MAX_LEVELS; l++) {
    double until = -INFINITY;
    Interval *on = r->on_link[l].data;
    if (r->on_link[l].count) qsort(on, (size_t)r->on_link[l].count, sizeof *on, by_begin);
    for (int i = 0; i < r->on_link[l].count; i++) {
      met += fmax(0, fmin(until, on[i].end) - on[i].begin);
      until = fmax(until, on[i].end);
    }
    vec_free(&r->on_link[l]);
  }
  return met;
}

// Collectives -------------------------------------------------------------------------------------------------------

// How many simulated ranks wait for each other in a collective; 0: nobody does, since all ranks of a coordinate are
// one.
static int meets(const Simulator *s, const Cost *cost) {
  return s->options->all_ranks ? FAULT(simulated_ranks_do_not_meet, cost->ranks, cost->crossing) : cost->crossing;
}

// What its meetings are found by: with all ranks the first rank of its group.
static int group_of(Simulator *s, int c, const Cost *cost) {
  SimulatedRank *r = &s->rank[c];
  if (!s->options->all_ranks) return 0;
  int *first = &r->first[cost->group];
  if (!*first) {
    const CostGroup *group = &r->costs->group.data[cost->group];
    int *ranks = xcalloc((size_t)s->ranks, sizeof *ranks);
    mesh_group(&r->program->mesh, r->rank, group->axes, &group->coordinates, ranks);
    *first = 1 + ranks[0];
    free(ranks);
  }
  return *first - 1;
}

static int number_of(const SimulatedRank *r, const Action *a, const Node *n) {
  return n->region == REGION_MICRO ? a->step * r->program->schedule->microbatches + a->microbatch : a->step;
}

static Meeting *meeting_of(Simulator *s, int c, const Node *n, int number, const Cost *cost) {
  return meeting_find(&s->meetings, group_of(s, c, cost), n->id, number, meets(s, cost));
}

static void arrive(Simulator *s, Meeting *m, int c, double time) {
  if (!meeting_arrive(m, c, time)) return;
  for (int i = m->waiting; i; i = s->rank[(i - 1) / STREAMS].stream[(i - 1) % STREAMS].waits_next)
    vec_push(&s->ready, i - 1);
  m->waiting = 0;
}

// 1: it is known when the flight begins; 0: others have not come yet.
static int begin(Simulator *s, int c, int stream, Flight *f) {
  Meeting *m = meeting_of(s, c, f->node, f->number, f->cost);
  if (!isfinite(f->ready)) {
    f->ready = fmax(f->issued, s->rank[c].stream[stream].free);
    arrive(s, m, c, f->ready);
    if (m->arrived < m->of) s->rank[c].stream[stream].waits_next = m->waiting, m->waiting = 1 + c * STREAMS + stream;
  }
  if (m->arrived < m->of) return 0;
  f->start = m->latest;
  f->last = m->last;
  meeting_leave(&s->meetings, group_of(s, c, f->cost), m);
  return 1;
}

// Flights of a stream take place one after the other, in the order of issue.
static void resolve(Simulator *s, int c, int i) {
  Stream *stream = &s->rank[c].stream[i];
  while (stream->next < stream->flight.count) {
    Flight *f = stream->flight.data[stream->next];
    if (!meets(s, f->cost)) f->start = f->ready = fmax(f->issued, stream->free);
    else if (!begin(s, c, i, f)) return;
    f->end = f->start + f->cost->seconds;
    f->resolved = 1;
    stream->free = f->end;
    if (!f->cost->crossing) stream->busy = f->end; // those over stages are short, and begin when others say
    stream->next++;
    see(s, c, f->node->name, s->rank[c].action, f->start, f->end, 1);
    put_on_link(s, c, f->cost->level, f->start, f->end);
  }
  stream->flight.count = stream->next = 0;
}

// Streams whose ranks may be waiting for something else go on.
static void resolve_ready(Simulator *s) {
  while (s->ready.count) {
    int i = s->ready.data[--s->ready.count];
    resolve(s, i / STREAMS, i % STREAMS);
  }
}

static int body_index(const Program *p, const Action *a) {
  if (a->kind == ACTION_BEGIN) return 0;
  return action_runs_body(a) ? 2 + a->stage * PHASE_COUNT + (int)action_phase(a) : 1;
}

static Flight *flight_of(const Simulator *s, int c, const Action *a, int instruction) {
  const SimulatedRank *r = &s->rank[c];
  int body = body_index(r->program, a), instance = body == 1 ? a->step % s->instances : 0;
  return &r->flight[body][(body == 1 ? r->program->end.count * instance : 0) + instruction];
}

static void issue(Simulator *s, int c, const Action *a, int instruction, const Node *n, const Cost *cost, double now) {
  SimulatedRank *r = &s->rank[c];
  Flight *f = flight_of(s, c, a, instruction);
  *f = (Flight){.cost = cost, .node = n, .number = number_of(r, a, n), .issued = now, .ready = INFINITY};
  int stream = stream_of(r, n) == CALL_SUMS ? STREAM_SUMS : STREAM_COLLECTIVES;
  vec_push(&r->stream[stream].flight, f);
  note_call(s, c, cost);
  tell(s, c, CALL_COLLECTIVE, stream_of(r, n), n, a, cost);
  resolve(s, c, stream);
  resolve_ready(s);
}

// Until the collective is done. For ranks of other stages the device is idle; of its own coordinate's collectives, for
// those that come later than itself.
static void wait_for_flight(Simulator *s, int c, const Flight *f, double *now) {
  const Cost *cost = f->cost;
  double before = *now;
  if (s->critical && meets(s, cost) && f->end > *now && (cost->crossing || f->start > f->ready))
    critical_waited(s->critical, c, f->end, f->last, f->start, f->node, cost->axes);
  if (!cost->crossing) advance(s, c, now, fmin(f->ready, f->end), TIME_COLLECTIVE, f->node, cost);
  double exposed = *now - before;
  if (meets(s, cost)) advance(s, c, now, f->start, TIME_IDLE, f->node, cost);
  if (f->end > *now) exposed += f->end - *now;
  if (exposed > 0) link_time(&s->rank[c].time, cost->axes, cost->level, 0)->exposed += exposed;
  advance(s, c, now, f->end, TIME_COLLECTIVE, f->node, cost);
}

// 1: the flight has landed, or there was none; 0: other ranks are not there yet.
static int land(Simulator *s, int c, const Action *a, Flight *f, double *now) {
  if (!f->cost) return 1;
  if (!f->resolved) return 0;
  if (FAULT(simulated_overlap_is_free, 1, 0)) wait_for_flight(s, c, f, now);
  f->cost = NULL;
  tell(s, c, CALL_LANDED, CALL_ALONE, f->node, a, NULL);
  return 1;
}

// A collective that nothing else goes on beside.
static int meet(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  if (meets(s, cost)) {
    Meeting *m = meeting_of(s, c, n, number_of(r, a, n), cost);
    if (r->due >= 0) { // once
      arrive(s, m, c, *now);
      r->due = -1;
      resolve_ready(s);
    }
    if (m->arrived < m->of) return 0;
    double end = m->latest + cost->seconds;
    if (s->critical && m->last != c && m->latest > *now)
      critical_waited(s->critical, c, end, m->last, m->latest, n, cost->axes);
    advance(s, c, now, FAULT(simulated_stages_do_not_wait, m->latest, *now), TIME_IDLE, n, cost);
    meeting_leave(&s->meetings, group_of(s, c, cost), m);
  }
  note_call(s, c, cost);
  tell(s, c, CALL_COLLECTIVE, CALL_ALONE, n, a, cost);
  link_time(&r->time, cost->axes, cost->level, 0)->exposed += cost->seconds;
  see(s, c, n->name, a, *now, *now + cost->seconds, 0);
  put_on_link(s, c, cost->level, *now, *now + cost->seconds);
  advance(s, c, now, *now + cost->seconds, TIME_COLLECTIVE, n, cost);
  return 1;
}

// Kernels -----------------------------------------------------------------------------------------------------------

// When the collectives in flight have landed.
static double busy_until(const SimulatedRank *r) {
  return fmax(r->stream[STREAM_COLLECTIVES].busy, r->stream[STREAM_SUMS].busy);
}

// Beside a collective in flight a kernel is slower, as long as that takes; sums over stages aside, which are short.
static double kernel_end(const SimulatedRank *r, const Cost *cost, double now) {
  double busy = busy_until(r), beside = cost->beside;
  if (busy <= now || beside <= cost->seconds) return now + cost->seconds;
  if (now + beside <= busy) return now + beside;
  return busy + (1 - (busy - now) / beside) * cost->seconds;
}

// Not before others have come to a collective of the coordinate that is in flight. They do: the Programs of a
// coordinate are the same, so they need nothing for it that this rank does later.
static int beside_is_known(const Simulator *s, int c) {
  for (int i = 0; i < STREAMS; i++) {
    const Stream *stream = &s->rank[c].stream[i];
    if (stream->next < stream->flight.count && !stream->flight.data[stream->next]->cost->crossing) return 0;
  }
  return 1;
}

// 1: done; 0: on shared cores, it goes on while time passes for all.
static int run_kernel(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  double end = *now;
  if (s->cores) {
    if (!cores_run(s->cores, c, &cost->core, busy_until(r), &end)) return 0;
  } else {
    r->host += r->costs->host * cost->launches;
    advance(s, c, now, r->host, TIME_HOST, n, NULL);
    end = kernel_end(r, cost, *now);
  }
  see(s, c, n->name, a, *now, end, 0);
  advance(s, c, now, end, n->region == REGION_MICRO ? TIME_COMPUTE : TIME_OPTIMIZER, n, NULL);
  r->time.flops += cost->flops;
  return 1;
}

// Bodies ------------------------------------------------------------------------------------------------------------

// What an instruction needs of collectives that started before it in its body.
static int wait_due(Simulator *s, int c, const Action *a, const Cost *cost, int instruction, double *now) {
  for (int i = FAULT(simulated_wait_left_out, cost[instruction].due, 0); i; i = cost[i - 1].next_due)
    if (!land(s, c, a, flight_of(s, c, a, i - 1), now)) return 0;
  return 1;
}

static int run_instruction(Simulator *s, int c, const Action *a, const Body *body, const Cost *cost, int i,
                           double *now) {
  const Node *n = &s->rank[c].program->graph->node.data[body->instruction[i].node];
  if (cost[i].left) return 1;
  if (!cost[i].ranks) return beside_is_known(s, c) && run_kernel(s, c, a, n, &cost[i], now);
  if (cost[i].ranks == 1) return 1;
  Flight *f = flight_of(s, c, a, i);
  if (f->cost) return land(s, c, a, f, now); // that a REDUCE has started
  if (body->instruction[i].wait || FAULT(simulated_end_overlaps, 0, n->region == REGION_END))
    return issue(s, c, a, i, n, &cost[i], *now), 1;
  return meet(s, c, a, n, &cost[i], now);
}

// Instructions [from, to) of the action's body, from where the last call stopped.
static int run_body(Simulator *s, int c, const Action *a, double *now) {
  SimulatedRank *r = &s->rank[c];
  const Body *body;
  const Cost *cost = costs_body(r->costs, a, &body);
  int streams = r->program->schedule->streams, from = a->from, to = a->to ? a->to : body->count;
  if (a->kind == ACTION_SUMS) to = r->program->end_cut;
  if (a->kind == ACTION_END && streams) from = r->program->end_cut;
  if (r->action != a) r->action = a, r->at = from, r->due = 0;
  for (; r->at < to; r->at++, r->due = 0) {
    if (!wait_due(s, c, a, cost, r->at, now)) return 0;
    if (!run_instruction(s, c, a, body, cost, r->at, now)) return 0;
  }
  if (to == body->count && !wait_due(s, c, a, cost, to, now)) return 0;
  r->action = NULL;
  return 1;
}

static void run_reduce(Simulator *s, int c, const Action *a, double now) {
  const Body *body;
  const Cost *cost = costs_body(s->rank[c].costs, a, &body);
  int i = 0;
  while (i < body->count && body->instruction[i].node != a->node) i++;
  CHECK(i < body->count, "REDUCE of a node that END lacks");
  if (cost[i].ranks > 1 && !cost[i].left)
    issue(s, c, a, i, &s->rank[c].program->graph->node.data[a->node], &cost[i], now);
}

// The clock ---------------------------------------------------------------------------------------------------------

static int clock_run(void *context, int c, const Action *a, double *now) {
  Simulator *s = context;
  if (a->kind == ACTION_REDUCE) return run_reduce(s, c, a, *now), 1;
  const SimulatedRank *r = &s->rank[c];
  int at = r->action == a ? r->at : -1, due = r->due;
  if (run_body(s, c, a, now)) return 1;
  return r->at != at || r->due != due ? 2 : 0; // where it went on, others may
}

// to: a coordinate.
static double message_seconds(const Simulator *s, int from, int to, const Action *a, int *level) {
  const SimulatedRank *r = &s->rank[from];
  const Program *p = r->program;
  MessagesOnLinks *m = &r->messages[to];
  if (!m->sharing) *m = machine_messages(s->options->cluster, &p->mesh, r->coordinate, to, r->rank);
  *level = m->level;
  return FAULT(simulated_messages_are_free,
               transfer_seconds(s->options->cluster, m->level, m->sharing, transfer_bytes(p, a)), 0);
}

static double clock_send(void *context, int c, const Action *a, double *now) {
  Simulator *s = context;
  int to = stage_coordinate(a->peer, s->rank[c].program->schedule->map), level;
  double seconds = message_seconds(s, c, to, a, &level), *free = &s->rank[c].link[to * 2 + (a->peer > a->stage)];
  double start = fmax(*now, *free);
  LinkTime *link = link_time(&s->rank[c].time, 1u << mesh_pipeline(&s->rank[c].program->mesh), level, 1);
  link->all += seconds;
  link->bytes += transfer_bytes(s->rank[c].program, a);
  link->calls++;
  see(s, c, graph_tensor(s->rank[c].program->graph, a->tensor)->name, a, start, start + seconds, 1);
  put_on_link(s, c, level, start, start + seconds);
  tell_message(s, c, CALL_SEND, a);
  *free = start + seconds;
  return FAULT(simulated_pipeline_has_no_bubble, *free, 0);
}

static void clock_received(void *context, int c, const Action *a) { tell_message(context, c, CALL_RECV, a); }

static void clock_waited(void *context, int c, const Action *a, int from, double posted, double since, double now) {
  Simulator *s = context;
  uint32_t axes = 1u << mesh_pipeline(&s->rank[c].program->mesh);
  double at = since;
  int level = s->rank[from].messages[s->rank[c].coordinate].level;
  if (s->critical) critical_waited(s->critical, c, now, from, posted, NULL, axes);
  advance(s, c, &at, fmax(since, posted), TIME_BUBBLE, NULL, NULL);
  if (!a) return;
  link_time(&s->rank[c].time, axes, level, 1)->exposed += now - at; // with the time in which the link is another's
  advance(s, c, &at, now, TIME_TRANSFER, NULL, NULL);
}

static int clock_pass(void *context) {
  Simulator *s = context;
  return s->cores ? cores_pass(s->cores) : 0;
}

// A run -------------------------------------------------------------------------------------------------------------

static void make_rank(Simulator *s, int c, const Program *p, Costs *costs, Arena *arena) {
  SimulatedRank *r = &s->rank[c];
  int bodies = 2 + p->graph->stages * PHASE_COUNT;
  r->program = p;
  r->costs = costs;
  r->rank = s->options->all_ranks ? c : -1;
  r->coordinate = p->coordinate;
  r->flight = arena_array(arena, Flight *, bodies);
  r->flight[0] = arena_array(arena, Flight, p->begin.count + 1);
  r->flight[1] = arena_array(arena, Flight, p->end.count * s->instances + 1);
  for EACH_PROGRAM_STAGE(stage, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      r->flight[2 + stage * PHASE_COUNT + phase] = arena_array(arena, Flight, p->micro[stage][phase].count + 1);
  r->link = arena_array(arena, double, s->coordinates * 2);
  r->messages = arena_array(arena, MessagesOnLinks, s->coordinates);
  r->first = arena_array(arena, int, costs->group.count + 1);
}

static void make(Simulator *s, Program *const *programs, const RankCosts *costs, const SimulateOptions *o,
                 Arena *arena) {
  s->options = o;
  s->coordinates = programs[0]->schedule->map.coordinates;
  s->ranks = costs->ranks;
  s->stride = costs->stride;
  s->rank = arena_array(arena, SimulatedRank, s->ranks);
  meetings_make(&s->meetings, s->ranks);
  for (int c = 0; c < s->ranks; c++)
    make_rank(s, c, programs[c / s->stride % s->coordinates], costs->of_rank[c], arena);
}

// Of so many steps (1 unless the schedule streams): when each rank ended, and what it did.
static int run(Program *const *programs, const RankCosts *costs, const SimulateOptions *o, int steps,
               Critical *critical, RankTime *time, ScheduleSpans *spans, double *total, Error *error) {
  const Program *p = programs[0];
  Arena arena = {0};
  Schedule *stream = p->schedule->streams ? schedule_repeat(p->schedule, steps) : NULL;
  Simulator s = {.instances = stream ? steps : 1, .critical = critical};
  make(&s, programs, costs, o, &arena);
  const ActionList **lists = arena_array(&arena, const ActionList *, s.coordinates);
  double *end = arena_array(&arena, double, s.ranks);
  for (int c = 0; c < s.coordinates; c++) lists[c] = &programs[c]->actions;
  ScheduleClock clock = {&s, s.ranks, s.stride, clock_run, clock_send, clock_waited, clock_received,
                         clock_pass};
  CoresOptions cores = {.coordinates = s.ranks,
                        .ranks = p->mesh.ranks / s.ranks,
                        .threads = p->threads,
                        .helpers = p->helpers,
                        .cores = (int)cluster_devices(o->cluster)};
  if (o->cluster->table) s.cores = cores_create(&cores);
  int code = stream ? schedule_replay_by(stream, p->segments, NULL, &clock, spans, end, error)
                    : schedule_replay_by(p->schedule, p->segments, lists, &clock, spans, end, error);
  *total = 0;
  for (int c = 0; c < s.ranks; c++) *total = fmax(*total, end[c]);
  for (int c = 0; c < s.ranks; c++) {
    if (!code) advance(&s, c, &end[c], *total, TIME_IDLE, NULL, NULL);
    s.rank[c].time.met = met_on_links(&s.rank[c]);
    time[c] = s.rank[c].time;
    for (int i = 0; i < STREAMS; i++) vec_free(&s.rank[c].stream[i].flight);
  }
  vec_free(&s.ready);
  meetings_free(&s.meetings);
  cores_free(s.cores);
  if (stream) schedule_free(stream);
  arena_free(&arena);
  return code;
}

static void free_times(RankTime *time, int n) {
  for (int c = 0; c < n; c++) vec_free(&time[c].link);
  free(time);
}

// What `more` has beyond `less`, for one of `steps` steps.
static void subtract(RankTime *more, const RankTime *less, int steps) {
  for (int i = 0; i < TIME_PARTS; i++) more->part[i] = (more->part[i] - less->part[i]) / steps;
  more->flops = (more->flops - less->flops) / steps;
  more->met = fmax(0, more->met - less->met) / steps;
  for (int i = 0; i < more->link.count; i++) {
    LinkTime *l = &more->link.data[i], none = {0};
    const LinkTime *m = &none;
    for (int k = 0; k < less->link.count; k++)
      if (less->link.data[k].axes == l->axes && less->link.data[k].level == l->level &&
          less->link.data[k].messages == l->messages)
        m = &less->link.data[k];
    l->exposed = (l->exposed - m->exposed) / steps, l->all = (l->all - m->all) / steps;
    l->bytes = (l->bytes - m->bytes) / steps, l->calls = (l->calls - m->calls) / steps;
  }
}

// A schedule that never drains: what a further step costs, once the pipeline is full.
static int run_stream(Program *const *programs, const RankCosts *costs, const SimulateOptions *o, Simulation *out,
                      Error *error) {
  enum { FURTHER = 4 };
  int n = out->ranks, first = programs[0]->schedule->steps + 1;
  RankTime *less = xcalloc((size_t)n, sizeof *less);
  double before = 0, total = 0;
  SimulateOptions silent = *o;
  silent.see = NULL, silent.issue = NULL;
  int code = run(programs, costs, &silent, first, NULL, less, NULL, &before, error);
  if (!code) code = run(programs, costs, o, first + FURTHER, NULL, out->rank, &out->spans, &total, error);
  for (int c = 0; c < n && !code; c++) subtract(&out->rank[c], &less[c], FURTHER);
  out->step = (total - before) / FURTHER;
  free_times(less, n);
  return code;
}

static int run_step(Program *const *programs, const RankCosts *costs, const SimulateOptions *o, Simulation *out,
                    Error *error) {
  Critical *critical = o->critical ? critical_create(out->ranks) : NULL;
  int code = run(programs, costs, o, 1, critical, out->rank, &out->spans, &out->step, error);
  if (!code && critical) { // once more: now it is known which times count
    RankTime *again = xcalloc((size_t)out->ranks, sizeof *again);
    SimulateOptions silent = *o;
    double total;
    silent.see = NULL, silent.issue = NULL;
    critical_trace(critical, out->step);
    code = run(programs, costs, &silent, 1, critical, again, NULL, &total, error);
    free_times(again, out->ranks);
    critical_items(critical, o->critical, out);
  }
  critical_free(critical);
  return code;
}

static double worked(const RankTime *t) {
  return t->part[TIME_COMPUTE] + t->part[TIME_OPTIMIZER] + t->part[TIME_COLLECTIVE] + t->part[TIME_HOST];
}

int simulate(Program *const *programs, const SimulateOptions *o, Simulation **out, Error *error) {
  RankCosts costs;
  int code = rank_costs_create(programs, o->cluster, o->all_ranks, &costs, error);
  if (code) return code;
  Simulation *s = xcalloc(1, sizeof *s);
  s->ranks = costs.ranks;
  s->all_ranks = o->all_ranks;
  s->rank = xcalloc((size_t)s->ranks, sizeof *s->rank);
  code = programs[0]->schedule->streams ? run_stream(programs, &costs, o, s, error)
                                        : run_step(programs, &costs, o, s, error);
  for (int c = 0; c < s->ranks; c++)
    if (worked(&s->rank[c]) > worked(&s->rank[s->busiest])) s->busiest = c;
  for (int c = 0; c < s->ranks; c++)
    if (costs.of_rank[c]->guessed) s->guessed = costs.of_rank[c]->guessed;
  rank_costs_free(&costs);
  if (code) simulation_free(s);
  else *out = s;
  return code;
}

int simulate_steps(Program *const *programs, const SimulateOptions *o, int steps, Error *error) {
  RankCosts costs;
  int streams = programs[0]->schedule->streams,
      code = rank_costs_create(programs, o->cluster, o->all_ranks, &costs, error);
  double total;
  if (code) return code;
  for (int i = 0; i < (streams ? 1 : steps) && !code; i++) {
    RankTime *time = xcalloc((size_t)costs.ranks, sizeof *time);
    code = run(programs, &costs, o, streams ? steps : 1, NULL, time, NULL, &total, error);
    free_times(time, costs.ranks);
  }
  rank_costs_free(&costs);
  return code;
}

void simulation_free(Simulation *s) {
  if (!s) return;
  free_times(s->rank, s->ranks);
  vec_free(&s->critical);
  schedule_spans_free(&s->spans);
  arena_free(&s->arena);
  free(s);
}
