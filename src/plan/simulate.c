// The simulator: a clock for the schedule's replay (schedule_replay_by), which knows streams, collectives in flight and
// messages.
#include "plan/simulate.h"
#include "base/fault.h"
#include "op/op.h"
#include "plan/critical.h"
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
  int step, resolved;
  double issued, start, end; // once it is resolved
} Flight;

// Communication streams of a rank, as the executor has them: one for collectives, one for sums over the stages of a
// schedule that never drains.
enum { STREAM_COLLECTIVES, STREAM_SUMS, STREAMS };
typedef struct Stream {
  Vec(Flight *) flight; // in the order of issue; those before `next` are resolved
  int next;
  double free;
} Stream;

typedef struct SimulatedRank {
  const Program *program;
  Costs *costs;
  const Action *action;    // under way, at instruction `at`
  int at, due;             // due: next instruction whose collectives have been waited for
  double host;             // when the host has launched all kernels so far
  Stream stream[STREAMS];
  Flight **flight;         // (bodies) of each instruction; END's are of `instances` steps
  double *link;            // (coordinates, 2) when the link to another coordinate is free, by direction
  MessagesOnLinks *messages; // (coordinates) to another one; sharing 0: not looked for yet
  RankTime time;
} SimulatedRank;

// A collective across stages: who has come to it.
typedef struct Meeting { int node, step, arrived, of; double latest, end; int last; const Cost *cost; } Meeting;

typedef struct Simulator {
  const SimulateOptions *options;
  Program *const *program;
  int coordinates, instances;
  SimulatedRank *rank;
  Vec(Meeting) meeting;
  Critical *critical;      // NULL: not looked for
} Simulator;

// Time --------------------------------------------------------------------------------------------------------------

// The device of a coordinate is at `to`: what it did, or waited for, since `*now`.
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

// Collectives -------------------------------------------------------------------------------------------------------

static Meeting *meeting_of(Simulator *s, const Node *n, int step, const Cost *cost) {
  for (int i = s->meeting.count - 1; i >= 0; i--)
    if (s->meeting.data[i].node == n->id && s->meeting.data[i].step == step) return &s->meeting.data[i];
  vec_push(&s->meeting, (Meeting){.node = n->id, .step = step, .of = cost->crossing, .cost = cost});
  return &s->meeting.data[s->meeting.count - 1];
}

static void arrive(Meeting *m, int coordinate, double time) {
  if (!m->arrived++ || time >= m->latest) m->latest = time, m->last = coordinate;
  m->end = m->latest + m->cost->seconds;
}

// Flights of a stream take place one after the other, in the order of issue.
static void resolve(Simulator *s, int c, Stream *stream) {
  while (stream->next < stream->flight.count) {
    Flight *f = stream->flight.data[stream->next];
    double start = fmax(f->issued, stream->free);
    if (f->cost->crossing) {
      Meeting *m = meeting_of(s, f->node, f->step, f->cost);
      if (!isfinite(f->start)) arrive(m, c, f->start = start);
      if (m->arrived < m->of) return;
      f->start = m->latest;
      f->end = m->end;
    } else {
      f->start = start;
      f->end = start + f->cost->seconds;
    }
    f->resolved = 1;
    stream->free = f->end;
    stream->next++;
    see(s, c, f->node->name, s->rank[c].action, f->start, f->end, 1);
  }
  stream->flight.count = stream->next = 0;
}

static void resolve_all(Simulator *s) {
  for (int c = 0; c < s->coordinates; c++)
    for (int i = 0; i < STREAMS; i++) resolve(s, c, &s->rank[c].stream[i]);
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
  *f = (Flight){.cost = cost, .node = n, .step = a->step, .issued = now, .start = INFINITY};
  Stream *stream =
      &r->stream[n->region == REGION_END && r->program->schedule->streams ? STREAM_SUMS : STREAM_COLLECTIVES];
  vec_push(&stream->flight, f);
  note_call(s, c, cost);
  resolve(s, c, stream);
}

// 1: the flight has landed, or there was none; 0: other stages are not there yet.
static int land(Simulator *s, int c, Flight *f, double *now) {
  if (!f->cost) return 1;
  if (!f->resolved) resolve_all(s);
  if (!f->resolved) return 0;
  if (FAULT(simulated_overlap_is_free, 1, 0)) {
    double seen = f->cost->crossing ? fmax(*now, f->start) : *now; // until then for other stages
    if (s->critical && f->cost->crossing && f->end > *now) {
      const Meeting *m = meeting_of(s, f->node, f->step, f->cost);
      critical_waited(s->critical, c, f->end, m->last, m->latest, f->node, f->cost->axes);
    }
    advance(s, c, now, seen, TIME_IDLE, f->node, f->cost);
    if (f->end > *now) link_time(&s->rank[c].time, f->cost->axes, f->cost->level, 0)->exposed += f->end - *now;
    advance(s, c, now, f->end, TIME_COLLECTIVE, f->node, f->cost);
  }
  f->cost = NULL;
  return 1;
}

// A collective that nothing else goes on beside.
static int meet(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  if (cost->crossing) {
    Meeting *m = meeting_of(s, n, a->step, cost);
    if (r->due >= 0) arrive(m, c, *now), r->due = -1; // once
    if (m->arrived < m->of) return 0;
    if (s->critical && m->last != c) critical_waited(s->critical, c, m->end, m->last, m->latest, n, cost->axes);
    advance(s, c, now, FAULT(simulated_stages_do_not_wait, m->latest, *now), TIME_IDLE, n, cost);
  }
  note_call(s, c, cost);
  link_time(&r->time, cost->axes, cost->level, 0)->exposed += cost->seconds;
  see(s, c, n->name, a, *now, *now + cost->seconds, 0);
  advance(s, c, now, *now + cost->seconds, TIME_COLLECTIVE, n, cost);
  return 1;
}

// Kernels -----------------------------------------------------------------------------------------------------------

// Beside a collective in flight a kernel is slower, as long as that takes.
static double kernel_end(const SimulatedRank *r, const Cost *cost, double now) {
  double busy = fmax(r->stream[STREAM_COLLECTIVES].free, r->stream[STREAM_SUMS].free), beside = cost->beside;
  if (busy <= now || beside <= cost->seconds) return now + cost->seconds;
  if (now + beside <= busy) return now + beside;
  return busy + (1 - (busy - now) / beside) * cost->seconds;
}

static void run_kernel(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  r->host += s->options->cluster->device.host;
  advance(s, c, now, r->host, TIME_HOST, n, NULL);
  double end = kernel_end(r, cost, *now);
  see(s, c, n->name, a, *now, end, 0);
  advance(s, c, now, end, n->region == REGION_MICRO ? TIME_COMPUTE : TIME_OPTIMIZER, n, NULL);
  r->time.flops += cost->flops;
}

// Bodies ------------------------------------------------------------------------------------------------------------

// What an instruction needs of collectives that started before it in its body.
static int wait_due(Simulator *s, int c, const Action *a, const Cost *cost, int instruction, double *now) {
  for (int i = cost[instruction].due; i; i = cost[i - 1].next_due)
    if (!land(s, c, flight_of(s, c, a, i - 1), now)) return 0;
  return 1;
}

static int run_instruction(Simulator *s, int c, const Action *a, const Body *body, const Cost *cost, int i,
                           double *now) {
  const Node *n = &s->rank[c].program->graph->node.data[body->instruction[i].node];
  if (!cost[i].ranks) return run_kernel(s, c, a, n, &cost[i], now), 1;
  if (cost[i].ranks == 1) return 1;
  Flight *f = flight_of(s, c, a, i);
  if (f->cost) return land(s, c, f, now); // that a REDUCE has started
  if (body->instruction[i].wait) return issue(s, c, a, i, n, &cost[i], *now), 1;
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
  if (cost[i].ranks > 1) issue(s, c, a, i, &s->rank[c].program->graph->node.data[a->node], &cost[i], now);
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

static double message_seconds(const Simulator *s, int from, int to, const Action *a, int *level) {
  const Program *p = s->program[from];
  MessagesOnLinks *m = &s->rank[from].messages[to];
  if (!m->sharing) *m = machine_messages(s->options->cluster, &p->mesh, from, to);
  *level = m->level;
  return FAULT(simulated_messages_are_free,
               transfer_seconds(s->options->cluster, m->level, m->sharing, transfer_bytes(p, a)), 0);
}

static double clock_send(void *context, int c, const Action *a, double *now) {
  Simulator *s = context;
  int to = stage_coordinate(a->peer, s->rank[c].program->schedule->map), level;
  double seconds = message_seconds(s, c, to, a, &level), *free = &s->rank[c].link[to * 2 + (a->peer > a->stage)];
  double start = fmax(*now, *free);
  LinkTime *link = link_time(&s->rank[c].time, 1u << mesh_pipeline(&s->program[0]->mesh), level, 1);
  link->all += seconds;
  link->bytes += transfer_bytes(s->program[c], a);
  link->calls++;
  see(s, c, graph_tensor(s->program[c]->graph, a->tensor)->name, a, start, start + seconds, 1);
  return *free = start + seconds;
}

static void clock_waited(void *context, int c, const Action *a, int from, double posted, double since, double now) {
  Simulator *s = context;
  uint32_t axes = 1u << mesh_pipeline(&s->program[0]->mesh);
  double at = since;
  int level = s->rank[from].messages[c].level;
  if (s->critical) critical_waited(s->critical, c, now, from, posted, NULL, axes);
  advance(s, c, &at, fmax(since, posted), TIME_BUBBLE, NULL, NULL);
  if (!a) return;
  link_time(&s->rank[c].time, axes, level, 1)->exposed += now - at; // with the time in which the link is another's
  advance(s, c, &at, now, TIME_TRANSFER, NULL, NULL);
}

// A run -------------------------------------------------------------------------------------------------------------

static void make_rank(Simulator *s, int c, Costs *costs, Arena *arena) {
  SimulatedRank *r = &s->rank[c];
  const Program *p = s->program[c];
  int bodies = 2 + p->graph->stages * PHASE_COUNT;
  r->program = p;
  r->costs = costs;
  r->flight = arena_array(arena, Flight *, bodies);
  r->flight[0] = arena_array(arena, Flight, p->begin.count + 1);
  r->flight[1] = arena_array(arena, Flight, p->end.count * s->instances + 1);
  for EACH_PROGRAM_STAGE(stage, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      r->flight[2 + stage * PHASE_COUNT + phase] = arena_array(arena, Flight, p->micro[stage][phase].count + 1);
  r->link = arena_array(arena, double, s->coordinates * 2);
  r->messages = arena_array(arena, MessagesOnLinks, s->coordinates);
}

// Of so many steps (1 unless the schedule streams): when each coordinate ended, and what it did.
static int run(Program *const *programs, Costs *const *costs, const SimulateOptions *o, int steps, Critical *critical,
               RankTime *time, ScheduleSpans *spans, double *total, Error *error) {
  const Program *p = programs[0];
  Arena arena = {0};
  int n = p->schedule->map.coordinates;
  Schedule *stream = p->schedule->streams ? schedule_repeat(p->schedule, steps) : NULL;
  Simulator s = {.options = o, .program = programs, .coordinates = n, .instances = stream ? steps : 1,
                 .critical = critical};
  const ActionList **lists = arena_array(&arena, const ActionList *, n);
  double *end = arena_array(&arena, double, n);
  s.rank = arena_array(&arena, SimulatedRank, n);
  for (int c = 0; c < n; c++) make_rank(&s, c, costs[c], &arena), lists[c] = &programs[c]->actions;
  ScheduleClock clock = {&s, clock_run, clock_send, clock_waited};
  int code = stream ? schedule_replay_by(stream, p->segments, NULL, &clock, spans, end, error)
                    : schedule_replay_by(p->schedule, p->segments, lists, &clock, spans, end, error);
  *total = 0;
  for (int c = 0; c < n; c++) *total = fmax(*total, end[c]);
  for (int c = 0; c < n; c++) {
    if (!code) advance(&s, c, &end[c], *total, TIME_IDLE, NULL, NULL);
    time[c] = s.rank[c].time;
    for (int i = 0; i < STREAMS; i++) vec_free(&s.rank[c].stream[i].flight);
  }
  vec_free(&s.meeting);
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
static int run_stream(Program *const *programs, Costs *const *costs, const SimulateOptions *o, Simulation *out,
                      Error *error) {
  enum { FURTHER = 4 };
  int n = out->coordinates, first = programs[0]->schedule->steps + 1;
  RankTime *less = xcalloc((size_t)n, sizeof *less);
  double before = 0, total = 0;
  SimulateOptions silent = *o;
  silent.see = NULL;
  int code = run(programs, costs, &silent, first, NULL, less, NULL, &before, error);
  if (!code) code = run(programs, costs, o, first + FURTHER, NULL, out->rank, &out->spans, &total, error);
  for (int c = 0; c < n && !code; c++) subtract(&out->rank[c], &less[c], FURTHER);
  out->step = (total - before) / FURTHER;
  free_times(less, n);
  return code;
}

static int run_step(Program *const *programs, Costs *const *costs, const SimulateOptions *o, Simulation *out,
                    Error *error) {
  Critical *critical = o->critical ? critical_create(out->coordinates) : NULL;
  int code = run(programs, costs, o, 1, critical, out->rank, &out->spans, &out->step, error);
  if (!code && critical) { // once more: now it is known which times count
    RankTime *again = xcalloc((size_t)out->coordinates, sizeof *again);
    SimulateOptions silent = *o;
    double total;
    silent.see = NULL;
    critical_trace(critical, out->step);
    code = run(programs, costs, &silent, 1, critical, again, NULL, &total, error);
    free_times(again, out->coordinates);
    critical_items(critical, o->critical, out);
  }
  critical_free(critical);
  return code;
}

static double worked(const RankTime *t) {
  return t->part[TIME_COMPUTE] + t->part[TIME_OPTIMIZER] + t->part[TIME_COLLECTIVE] + t->part[TIME_HOST];
}

int simulate(Program *const *programs, const SimulateOptions *o, Simulation **out, Error *error) {
  int n = programs[0]->schedule->map.coordinates, code = PLAIT_OK;
  Costs **costs = xcalloc((size_t)n, sizeof *costs);
  Simulation *s = xcalloc(1, sizeof *s);
  s->coordinates = n;
  s->rank = xcalloc((size_t)n, sizeof *s->rank);
  for (int c = 0; c < n && !code; c++) code = costs_create(programs[c], o->cluster, &costs[c], error);
  if (!code)
    code = programs[0]->schedule->streams ? run_stream(programs, costs, o, s, error)
                                          : run_step(programs, costs, o, s, error);
  for (int c = 0; c < n; c++) {
    costs_free(costs[c]);
    if (worked(&s->rank[c]) > worked(&s->rank[s->busiest])) s->busiest = c;
  }
  free(costs);
  if (code) simulation_free(s);
  else *out = s;
  return code;
}

void simulation_free(Simulation *s) {
  if (!s) return;
  free_times(s->rank, s->coordinates);
  vec_free(&s->critical);
  schedule_spans_free(&s->spans);
  arena_free(&s->arena);
  free(s);
}
