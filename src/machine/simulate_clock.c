// The simulator's clock: when what the ranks do begins and ends.
#include "machine/simulate_clock.h"
#include "base/fault.h"
#include "op/op.h"
#include "program/traffic.h"
#include <math.h>
#include <string.h>

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
  link->bytes += cost->bytes;
  link->calls++;
}

static void see(const Simulator *s, int c, const Node *n, const Action *a, double begin, double end, int flies) {
  if (s->options->see) s->options->see(s->options->context, c, n->name, n, a, begin, end, flies);
}

static void tell(const Simulator *s, int c, CallKind kind, int stream, const Node *n, const Action *a,
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
               .offset = program_place(p, a->tensor, a->step * p->schedule->microbatches + a->microbatch, 0).offset};
  s->options->issue(s->options->context, c, &call);
}

// When a transfer that has begun ends; NAN: nobody knows yet. *number: as Meeting.transfer.
static double end_of(Simulator *s, const Transfer *x, int *number) {
  if (!s->shared) return x->start + x->seconds;
  if (!*number) *number = 1 + transfers_begin(s->transfers, x);
  return transfers_end(s->transfers, *number - 1);
}

// A collective of a rank has ended.
static void note_collective(Simulator *s, int c, const Cost *cost, double start, double end) {
  Transfer x = {.start = start, .level = cost->level};
  link_time(&s->rank[c].time, cost->axes, cost->level, 0)->all += end - start;
  if (s->transfers) transfers_note(s->transfers, c, &x, end);
}

// Collectives -------------------------------------------------------------------------------------------------------

// How many simulated ranks wait for each other in a collective; 0: nobody does, since all ranks of a coordinate are
// one.
static int meets(const Simulator *s, const Cost *cost) {
  return s->options->all_ranks ? FAULT(simulated_ranks_do_not_meet, cost->ranks, cost->crossing) : cost->crossing;
}

// The number by which its meetings are found: with all ranks the first rank of its group.
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
  for (int i = m->waiting; i; i = s->rank[(i - 1) / MAX_AXES].stream[(i - 1) % MAX_AXES].waits_next)
    vec_push(&s->ready, i - 1);
  m->waiting = 0;
}

static double collective_end(Simulator *s, int c, const Cost *cost, const Meeting *m, double start, int *number) {
  Transfer x = {start, cost->seconds, cost->latency, cost->level, 0, m ? m->member : &c, m ? m->of : 1};
  return end_of(s, &x, number);
}

// 1: it is known when the flight begins; 0: others have not come yet.
static int begin(Simulator *s, int c, int stream, SimulatedFlight *f) {
  Meeting *m = meeting_of(s, c, f->node, f->number, f->cost);
  if (!isfinite(f->ready)) {
    f->ready = fmax(f->issued, s->rank[c].stream[stream].free);
    arrive(s, m, c, f->ready);
    if (m->arrived < m->of) s->rank[c].stream[stream].waits_next = m->waiting, m->waiting = 1 + c * MAX_AXES + stream;
  }
  if (m->arrived < m->of) return 0;
  f->start = m->latest;
  f->last = m->last;
  collective_end(s, c, f->cost, m, f->start, &m->transfer); // of all its ranks
  f->transfer = m->transfer;
  meeting_leave(&s->meetings, group_of(s, c, f->cost), m);
  return 1;
}

// Flights of a stream take place one after the other, in the order of issue.
static void resolve(Simulator *s, int c, int i) {
  SimulatedStream *stream = &s->rank[c].stream[i];
  while (stream->next < stream->flight.count) {
    SimulatedFlight *f = stream->flight.data[stream->next];
    if (!f->flies && !meets(s, f->cost)) f->start = f->ready = fmax(f->issued, stream->free);
    else if (!f->flies && !begin(s, c, i, f)) return;
    f->flies = 1;
    f->end = collective_end(s, c, f->cost, NULL, f->start, &f->transfer);
    if (isnan(f->end)) return;
    f->resolved = 1;
    stream->free = f->end;
    if (!f->cost->crossing) stream->busy = f->end; // those over stages are short, and begin when others say
    stream->next++;
    see(s, c, f->node, s->rank[c].action, f->start, f->end, 1);
    note_collective(s, c, f->cost, f->start, f->end);
  }
  stream->flight.count = stream->next = 0;
}

// Advances streams whose ranks may be waiting for something else.
static void resolve_ready(Simulator *s) {
  while (s->ready.count) {
    int i = s->ready.data[--s->ready.count];
    resolve(s, i / MAX_AXES, i % MAX_AXES);
  }
}

static int body_index(const Program *p, const Action *a) {
  if (a->kind == ACTION_BEGIN) return 0;
  return action_runs_body(a) ? 2 + a->stage * PHASE_COUNT + (int)action_phase(a) : 1;
}

static SimulatedFlight *flight_of(const Simulator *s, int c, const Action *a, int instruction) {
  const SimulatedRank *r = &s->rank[c];
  int body = body_index(r->program, a), instance = body == 1 ? a->step % s->instances : 0;
  return &r->flight[body][(body == 1 ? r->program->end.count * instance : 0) + instruction];
}

// Where collectives were measured, all of them go through the machine's memory, which is one link: together they take
// as long as one after the other.
static int stream_at(const Simulator *s, int axis) {
  int pp = mesh_pipeline(&s->rank[0].program->mesh);
  return s->cores && axis != pp ? pp == 0 : axis; // the first axis but the pipeline's
}

static void issue(Simulator *s, int c, const Action *a, int instruction, const Node *n, const Cost *cost, double now) {
  SimulatedRank *r = &s->rank[c];
  SimulatedFlight *f = flight_of(s, c, a, instruction);
  *f = (SimulatedFlight){.cost = cost, .node = n, .number = number_of(r, a, n), .issued = now, .ready = INFINITY};
  int axis = collective_stream(&r->program->mesh, n), stream = stream_at(s, axis);
  vec_push(&r->stream[stream].flight, f);
  note_call(s, c, cost);
  tell(s, c, CALL_COLLECTIVE, axis, n, a, cost);
  resolve(s, c, stream);
  resolve_ready(s);
}

// Until the collective is done. For ranks of other stages the device is idle; of its own coordinate's collectives, for
// those that come later than itself.
static void wait_for_flight(Simulator *s, int c, const SimulatedFlight *f, double *now) {
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
static int land(Simulator *s, int c, const Action *a, SimulatedFlight *f, double *now) {
  if (!f->cost) return 1;
  if (!f->resolved) return 0;
  if (FAULT(simulated_overlap_is_free, 1, 0)) wait_for_flight(s, c, f, now);
  f->cost = NULL;
  tell(s, c, CALL_LANDED, CALL_ALONE, f->node, a, NULL);
  return 1;
}

// A blocking collective: the rank computes nothing until it has ended.
static int meet(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  Meeting *m = meets(s, cost) ? meeting_of(s, c, n, number_of(r, a, n), cost) : NULL;
  if (m) {
    if (r->due >= 0) { // once
      arrive(s, m, c, *now);
      r->due = -1;
      resolve_ready(s);
    }
    if (m->arrived < m->of) return 0;
  }
  double end = collective_end(s, c, cost, m, m ? m->latest : *now, m ? &m->transfer : &r->alone);
  if (isnan(end)) return 0;
  r->alone = 0;
  if (m) {
    if (s->critical && m->last != c && m->latest > *now)
      critical_waited(s->critical, c, end, m->last, m->latest, n, cost->axes);
    advance(s, c, now, FAULT(simulated_stages_do_not_wait, m->latest, *now), TIME_IDLE, n, cost);
    meeting_leave(&s->meetings, group_of(s, c, cost), m);
  }
  note_call(s, c, cost);
  note_collective(s, c, cost, *now, end);
  tell(s, c, CALL_COLLECTIVE, CALL_ALONE, n, a, cost);
  link_time(&r->time, cost->axes, cost->level, 0)->exposed += end - *now;
  see(s, c, n, a, *now, end, 0);
  advance(s, c, now, end, TIME_COLLECTIVE, n, cost);
  return 1;
}

// Kernels -----------------------------------------------------------------------------------------------------------

// When the collectives in flight have landed.
static double busy_until(const SimulatedRank *r) {
  double busy = 0;
  for EACH_STREAM(i, r) busy = fmax(busy, r->stream[i].busy);
  return busy;
}

// Beside a collective in flight a kernel is slower, as long as that takes; sums over stages aside, which are short.
// `left`: the part of it that is not done at `now`.
static double kernel_end(const SimulatedRank *r, const Cost *cost, double now, double left) {
  double busy = busy_until(r), beside = cost->beside * left, alone = cost->seconds * left;
  if (busy <= now || beside <= alone) return now + alone;
  if (now + beside <= busy) return now + beside;
  return busy + (1 - (busy - now) / beside) * alone;
}

// A flight beside which kernels are slower, and of which nobody knows yet when it lands.
static int flies_on(const SimulatedRank *r) {
  for EACH_STREAM(i, r) {
    const SimulatedStream *stream = &r->stream[i];
    const SimulatedFlight *f = stream->next < stream->flight.count ? stream->flight.data[stream->next] : NULL;
    if (f && f->flies && !f->cost->crossing) return 1;
  }
  return 0;
}

// 1: the kernel that is under way ends, at *end; 0: time has to pass first.
static int kernel_ends(SimulatedRank *r, const Cost *cost, double *end) {
  UnderWay *k = &r->kernel;
  if (k->waits && !isnan(k->end)) *end = k->end;
  else if (cost->beside > cost->seconds && flies_on(r)) return k->waits = 1, 0;
  else *end = kernel_end(r, cost, k->since, k->left);
  *k = (UnderWay){0};
  return 1;
}

// Not before others have come to a collective of the coordinate that is in flight. They do: the Programs of a
// coordinate are the same, so they need nothing for it that this rank does later.
static int beside_is_known(const Simulator *s, int c) {
  for EACH_STREAM(i, &s->rank[c]) {
    const SimulatedStream *stream = &s->rank[c].stream[i];
    if (stream->next < stream->flight.count && !stream->flight.data[stream->next]->cost->crossing) return 0;
  }
  return 1;
}

// 1: done; 0: still running on shared cores, until the simulated time of all ranks has advanced.
static int run_kernel(Simulator *s, int c, const Action *a, const Node *n, const Cost *cost, double *now) {
  SimulatedRank *r = &s->rank[c];
  double end = *now;
  if (s->cores) {
    if (!cores_run(s->cores, c, &cost->core, busy_until(r), &end)) return 0;
  } else {
    if (!r->kernel.is) {
      r->host += r->costs->host * cost->launches;
      advance(s, c, now, r->host, TIME_HOST, n, NULL);
      r->kernel = (UnderWay){.is = 1, .since = *now, .left = 1, .beside = cost->beside, .end = NAN};
    }
    if (!kernel_ends(r, cost, &end)) return 0;
  }
  see(s, c, n, a, *now, end, 0);
  advance(s, c, now, end, n->region == REGION_MICRO ? TIME_COMPUTE : TIME_OPTIMIZER, n, NULL);
  r->time.flops += cost->flops;
  return 1;
}

// Bodies ------------------------------------------------------------------------------------------------------------

// Waits for collectives that started before the instruction in its body and whose results it needs.
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
  SimulatedFlight *f = flight_of(s, c, a, i);
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
  return r->at != at || r->due != due ? 2 : 0; // where it continued, others may
}

// to: a coordinate. member: (2) written.
static Transfer message_of(const Simulator *s, int from, int to, const Action *a, int *member) {
  const SimulatedRank *r = &s->rank[from];
  const Program *p = r->program;
  const Cluster *cluster = s->options->cluster;
  MessagesOnLinks *m = &r->messages[to];
  if (!m->sharing) *m = machine_messages(cluster, &p->mesh, r->coordinate, to, r->rank);
  member[0] = from, member[1] = from + (to - r->coordinate) * s->stride;
  return (Transfer){.seconds = FAULT(simulated_messages_are_free,
                                     transfer_seconds(cluster, m->level, m->sharing, transfer_bytes(p, a)), 0),
                    .latency = transfer_seconds(cluster, m->level, m->sharing, 0),
                    .level = m->level, .message = 1, .member = member, .members = 2};
}

static void note_message(Simulator *s, int c, const Action *a, const Transfer *x, double end) {
  const Program *p = s->rank[c].program;
  link_time(&s->rank[c].time, 1u << mesh_pipeline(&p->mesh), x->level, 1)->all += end - x->start;
  if (s->options->see)
    s->options->see(s->options->context, c, graph_tensor(p->graph, a->tensor)->name, NULL, a, x->start, end, 1);
  if (s->transfers) transfers_note(s->transfers, c, x, end);
}

static Outgoing *outgoing(const Simulator *s, int c, const Action *a) {
  int to = stage_coordinate(a->peer, s->rank[c].program->schedule->map);
  return &s->rank[c].out[to * 2 + (a->peer > a->stage)];
}

// Lets messages go that can, and notes those that have arrived.
static void send_on(Simulator *s, int c, Outgoing *o) {
  for (; o->next < o->sent.count; o->next++) {
    Sent *m = &o->sent.data[o->next];
    int member[2];
    Transfer x =
        message_of(s, c, stage_coordinate(m->action->peer, s->rank[c].program->schedule->map), m->action, member);
    x.start = fmax(m->posted, o->free);
    m->end = end_of(s, &x, &m->transfer);
    if (isnan(m->end)) return;
    o->free = m->end;
    note_message(s, c, m->action, &x, m->end);
  }
}

// Do devices wait while messages are under way?
static int blocks(const Simulator *s) {
  return FAULT(simulated_sends_never_block, s->options->cluster->software.blocking_sends, 0);
}

static double clock_send(void *context, int c, const Action *a, double *now) {
  Simulator *s = context;
  SimulatedRank *r = &s->rank[c];
  Outgoing *o = outgoing(s, c, a);
  int member[2], to = stage_coordinate(a->peer, r->program->schedule->map);
  LinkTime *link =
      link_time(&r->time, 1u << mesh_pipeline(&r->program->mesh), message_of(s, c, to, a, member).level, 1);
  link->bytes += transfer_bytes(r->program, a);
  link->calls++;
  tell_message(s, c, CALL_SEND, a);
  if (o->next == o->sent.count && s->shared) vec_push(&r->sending, (int)(o - r->out));
  vec_push(&o->sent, (Sent){.posted = *now, .action = a, .end = NAN});
  send_on(s, c, o);
  double arrives = o->sent.data[o->sent.count - 1].end;
  if (blocks(s)) { // as long as the message takes by itself
    Transfer x = message_of(s, c, to, a, member);
    link_time(&r->time, 1u << mesh_pipeline(&r->program->mesh), x.level, 1)->exposed += x.seconds;
    advance(s, c, now, *now + x.seconds, TIME_TRANSFER, NULL, NULL);
  }
  return FAULT(simulated_pipeline_has_no_bubble, arrives, 0);
}

static double clock_arrival(void *context, int c, const Action *a, int number) {
  return outgoing(context, c, a)->sent.data[number].end;
}

// Where sends block, a message moves only once its receiver waits for it: one that came late has it no sooner than it
// takes.
static void clock_received(void *context, int c, const Action *a, double since, double *now) {
  Simulator *s = context;
  const SimulatedRank *r = &s->rank[c];
  tell_message(s, c, CALL_RECV, a);
  if (!blocks(s)) return;
  int member[2], from = c + (stage_coordinate(a->peer, r->program->schedule->map) - r->coordinate) * s->stride;
  Transfer x = message_of(s, from, r->coordinate, a, member);
  double end = since + x.seconds;
  if (end <= *now) return;
  link_time(&s->rank[c].time, 1u << mesh_pipeline(&r->program->mesh), x.level, 1)->exposed += end - *now;
  advance(s, c, now, end, TIME_TRANSFER, NULL, NULL);
}

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

// The kernel under way that ends first if nothing lands before; -1: none.
static int next_kernel(const Simulator *s, double *end) {
  int first = -1;
  *end = INFINITY;
  for (int c = 0; c < s->ranks; c++) {
    const UnderWay *k = &s->rank[c].kernel;
    if (!k->waits || !isnan(k->end) || k->since + k->left * k->beside >= *end) continue;
    *end = k->since + k->left * k->beside;
    first = c;
  }
  return first;
}

// Continues a rank when some transfers have ended.
static void look_at_links(Simulator *s, int c) {
  SimulatedRank *r = &s->rank[c];
  for EACH_STREAM(i, r) {
    SimulatedStream *stream = &r->stream[i];
    SimulatedFlight *f = stream->next < stream->flight.count ? stream->flight.data[stream->next] : NULL;
    if (!f || !f->flies || isnan(transfers_end(s->transfers, f->transfer - 1))) continue;
    resolve(s, c, i);
    if (!r->kernel.waits || f->cost->crossing || f->end <= r->kernel.since) continue;
    r->kernel.left -= (f->end - r->kernel.since) / r->kernel.beside;
    r->kernel.since = f->end;
  }
  for (int i = 0; i < r->sending.count; i++) {
    Outgoing *o = &r->out[r->sending.data[i]];
    send_on(s, c, o);
    if (o->next == o->sent.count) r->sending.data[i--] = r->sending.data[--r->sending.count];
  }
}

static int clock_pass(void *context) {
  Simulator *s = context;
  double end;
  if (s->cores) return cores_pass(s->cores);
  if (!s->shared) return 0;
  int kernel = next_kernel(s, &end);
  double next = transfers_next(s->transfers);
  if (kernel >= 0 && end <= next) return s->rank[kernel].kernel.end = end, 1;
  if (next == INFINITY) return 0;
  transfers_pass(s->transfers);
  for (int c = 0; c < s->ranks; c++) look_at_links(s, c);
  resolve_ready(s);
  return 1;
}

ScheduleClock simulator_clock(Simulator *s) {
  return (ScheduleClock){s, s->ranks, s->stride, clock_run, clock_send, clock_waited, clock_received,
                         clock_arrival, clock_pass};
}

RankTime simulator_rank_ends(Simulator *s, int c, double end, double total) {
  advance(s, c, &end, total, TIME_IDLE, NULL, NULL);
  s->rank[c].time.met = transfers_met(s->transfers, c);
  return s->rank[c].time;
}

// The state of a run ------------------------------------------------------------------------------------------------

static void make_rank(Simulator *s, int c, const Program *p, Costs *costs, Arena *arena) {
  SimulatedRank *r = &s->rank[c];
  int bodies = 2 + p->graph->stages * PHASE_COUNT;
  r->program = p;
  r->costs = costs;
  r->rank = s->options->all_ranks ? c : -1;
  r->coordinate = p->coordinate;
  r->flight = arena_array(arena, SimulatedFlight *, bodies);
  r->flight[0] = arena_array(arena, SimulatedFlight, p->begin.count + 1);
  r->flight[1] = arena_array(arena, SimulatedFlight, p->end.count * s->instances + 1);
  for EACH_PROGRAM_STAGE(stage, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      r->flight[2 + stage * PHASE_COUNT + phase] =
          arena_array(arena, SimulatedFlight, p->micro[stage][phase].count + 1);
  r->out = arena_array(arena, Outgoing, s->coordinates * 2);
  r->messages = arena_array(arena, MessagesOnLinks, s->coordinates);
  r->first = arena_array(arena, int, costs->group.count + 1);
}

// Simulated ranks of several coordinates that use one port share it when they send or receive.
static void share_ports(Simulator *s) {
  const Cluster *cluster = s->options->cluster;
  const Mesh *mesh = &s->rank[0].program->mesh;
  int *first = xcalloc((size_t)mesh->ranks, sizeof *first); // 1 + the first that has the port
  for (int level = 0; level < cluster->levels && s->coordinates > 1; level++) {
    memset(first, 0, sizeof *first * (size_t)mesh->ranks);
    for (int c = 0; c < s->ranks; c++) {
      int port = machine_port(cluster, mesh, level, s->rank[c].coordinate, s->rank[c].rank);
      if (port < 0) continue;
      if (first[port]) transfers_share_port(s->transfers, level, c, first[port] - 1);
      else first[port] = c + 1;
    }
  }
  free(first);
}

void simulator_make(Simulator *s, Program *const *programs, const RankCosts *costs, const SimulateOptions *o,
                    int instances, Arena *arena) {
  const Program *p = programs[0];
  s->options = o;
  s->instances = instances;
  s->coordinates = p->schedule->map.coordinates;
  s->ranks = costs->ranks;
  s->stride = costs->stride;
  s->rank = arena_array(arena, SimulatedRank, s->ranks);
  meetings_make(&s->meetings, s->ranks);
  for (int c = 0; c < s->ranks; c++)
    make_rank(s, c, programs[c / s->stride % s->coordinates], costs->of_rank[c], arena);
  s->transfers = transfers_create(s->ranks);
  share_ports(s);
  CoresOptions cores = {.coordinates = s->ranks,
                        .ranks = p->mesh.ranks / s->ranks,
                        .threads = p->threads,
                        .helpers = p->helpers,
                        .cores = (int)cluster_devices(o->cluster)};
  if (o->cluster->table) s->cores = cores_create(&cores);
}

static void free_rank(SimulatedRank *r, int coordinates) {
  for (int i = 0; i < MAX_AXES; i++) vec_free(&r->stream[i].flight);
  for (int i = 0; i < 2 * coordinates; i++) vec_free(&r->out[i].sent);
  vec_free(&r->sending);
}

void simulator_free(Simulator *s) {
  for (int c = 0; c < s->ranks; c++) free_rank(&s->rank[c], s->coordinates);
  transfers_free(s->transfers);
  vec_free(&s->ready);
  meetings_free(&s->meetings);
  cores_free(s->cores);
}
