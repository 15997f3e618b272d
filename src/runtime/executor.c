// Running a Program: a walk along its actions, bodies, instructions.
#include "runtime/executor.h"
#include "base/clock.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "program/calls.h"
#include "runtime/chaos.h"
#include "runtime/collective.h"
#include "runtime/exchanged_rows.h"
#include "runtime/host_call.h"
#include "runtime/fault_collective.h"
#include "runtime/mask_rows.h"
#include "program/in_flight.h"
#include "runtime/trace.h"
#include <string.h>

struct Executor {
  Binding binding;
  const Program *program;
  DeviceQueue *queue;         // of its kernels
  DeviceQueue *moves;         // of copies between the device's spaces; NULL: it has one
  PlaitComm *world;
  Walk *walk;
  PlaitEvent *sent;           // (actions, buffers) of a SEND: when its message from that buffer has been received
  int buffers;                // the most slots of a stage, or staging buffers of a segment
  PlaitStream *stream[MAX_AXES]; // of collectives in flight (collective_stream); NULL: there are none
  uint64_t step;              // that the call is for
  uint64_t left;              // State.changes after its last step; 0: it has run none
  int fresh;                  // Copies are as its last step left them: nodes that refresh them are passed over
  int64_t turn;               // of the step, in a stream: 0, 1, …, fewer by those that were skipped
  int under_way;              // later steps that have begun
  int *in_flight, *most_in_flight; // (stages) microbatches in slots, now and at most
  double comm_seconds, stalled_seconds;
  void *observer[OBSERVER_COUNT]; // NULL: does not look
  unsigned observed;          // set of events that an observer wants
  int synchronous;            // no collective may be in flight
  Chaos *chaos;               // NULL: none
  Error *error;               // of the run under way
};

int64_t executor_host_bytes(const Executor *e) { return (int64_t)e->binding.arena.total; }
int executor_comms(const Executor *e) { return e->binding.group.count + 2; }
PlaitComm *executor_comm(const Executor *e, int i, uint32_t *axes) {
  int groups = e->binding.group.count;
  *axes = i < groups ? e->binding.group.data[i].axes : 1u << mesh_pipeline(&e->program->mesh);
  return i < groups ? e->binding.group.data[i].comm : e->binding.pipe[i - groups];
}
double executor_comm_seconds(const Executor *e) { return e->comm_seconds; }
double executor_stalled_seconds(const Executor *e) { return e->stalled_seconds; }
int executor_most_in_flight(const Executor *e, int stage) { return e->most_in_flight[stage]; }

// Observers ---------------------------------------------------------------------------------------------------------

static const ObserverDef *const observers[] = {
#define OBSERVER(id, name) &observer_##name,
#include "runtime/observers.def"
#undef OBSERVER
};

void executor_observe(Executor *e, ObserverKind kind, void *self) {
  e->observer[kind] = self;
  e->observed = 0;
  e->synchronous = 0;
  for (int i = 0; i < OBSERVER_COUNT; i++) {
    if (!e->observer[i]) continue;
    e->observed |= observers[i]->events;
    e->synchronous |= observers[i]->synchronous;
  }
}

static void report(const Executor *e, const Observation *o) {
  for (int i = 0; i < OBSERVER_COUNT; i++)
    if (e->observer[i] && observers[i]->events >> o->event & 1) observers[i]->see(e->observer[i], o);
}

// An event costs nothing where no observer wants it: not even the Observation is made.
#define OBSERVE(e, kind, ...)                                                                                          \
  do {                                                                                                                 \
    if ((e)->observed & OBSERVES(kind)) report((e), &(Observation){.event = OBSERVE_##kind, __VA_ARGS__});             \
  } while (0)

// Making ------------------------------------------------------------------------------------------------------------

// Memory for all that will be under way is taken here: nothing is allocated later. Each stream has delays of its own.
static int make_streams(Executor *e, Error *error) {
  const Program *p = e->program;
  for (int axis = 0; axis < p->mesh.naxis && e->world; axis++) {
    InFlight most = in_flight_collectives(p, axis);
    int code = most.calls ? plait_stream_create(e->world, &e->stream[axis], error) : PLAIT_OK;
    if (code) return code;
    if (!most.calls) continue;
    stream_set_chaos(e->stream[axis], p->chaos * ((uint64_t)axis + 1));
    if (!most.copies) stream_borrow_lists(e->stream[axis]); // those of Bound.buffer
    stream_reserve(e->stream[axis], (size_t)(most.calls * (1 + host_call_tasks(&e->binding))), (size_t)most.buffers);
  }
  return PLAIT_OK;
}

int executor_create(const Program *p, State *state, DeviceQueue *queue, PlaitComm *world, uint64_t seed, Executor **out,
                    Error *error) {
  Executor *e = xcalloc(1, sizeof *e);
  *e = (Executor){.program = p, .queue = queue, .world = world};
  int code = binding_make(&e->binding, p, state, queue, world, error);
  e->binding.parameters.seed = seed;
  if (!code) code = make_streams(e, error);
  if (!code && queue->device->spaces > 1) code = device_queue_create(queue->device, NULL, &e->moves, error);
  if (code) {
    executor_destroy(e);
    return code;
  }
  WalkPlan plan = program_walk(p);
  e->walk = walk_create(&plan);
  Arena *arena = &e->binding.arena;
  e->buffers = STAGING_BUFFERS;
  for EACH_PROGRAM_STAGE(s, p)
    if (p->slots[s].count > e->buffers) e->buffers = p->slots[s].count;
  e->sent = arena_array(arena, PlaitEvent, p->actions.count * e->buffers + 1);
  e->in_flight = arena_array(arena, int, p->graph->stages);
  e->most_in_flight = arena_array(arena, int, p->graph->stages);
  e->chaos = chaos_create(p, state, queue);
  executor_observe(e, OBSERVER_CHAOS, e->chaos);
  *out = e;
  return PLAIT_OK;
}

void executor_destroy(Executor *e) {
  if (!e) return;
  for (int axis = 0; axis < MAX_AXES; axis++) plait_stream_destroy(e->stream[axis]);
  device_queue_destroy(e->moves);
  chaos_destroy(e->chaos);
  walk_destroy(e->walk);
  binding_free(&e->binding);
  free(e);
}

// Collectives -------------------------------------------------------------------------------------------------------

static int comm_failed(const Executor *e, const Bound *b) {
  return comm_failure_in(b->comm, e->error, "%s", b->node->name);
}

static void announce_collective(const Executor *e, const Bound *b) {
  int64_t elements = 0;
  for (int i = 0; i < b->pieces && e->observed & OBSERVES(COLLECTIVE); i++) elements += b->piece[i].count;
  OBSERVE(e, COLLECTIVE, .node = b->node, .microbatch = (int)e->binding.parameters.microbatch, .elements = elements);
}

// Of the step of the action under way.
static Flight *flight_of(const Executor *e, const Bound *b) {
  return &b->flight[b->node->region == REGION_END ? e->binding.turn.step % e->program->sums_under_way : 0];
}

// On the communication stream of its axis: until wait_collective. action: the REDUCE that starts it, or NULL.
static int start_collective(Executor *e, Bound *b, const Action *action) {
  Flight *flight = flight_of(e, b);
  flight->started = 1;
  flight->issued = clock_seconds();
  announce_collective(e, b);
  int stream = collective_stream(&e->program->mesh, b->node);
  int code = host_call_start(&e->binding, b, flight, e->stream[stream]);
  OBSERVE(e, ISSUED, .node = b->node, .microbatch = (int)e->binding.parameters.microbatch, .bytes = b->called,
          .stream = stream, .action = action);
  return code ? comm_failed(e, b) : PLAIT_OK;
}

static int wait_collective(Executor *e, Bound *b) {
  double start = clock_seconds();
  Flight *flight = flight_of(e, b);
  int code = host_call_wait(&e->binding, b, flight);
  e->comm_seconds += clock_seconds() - start;
  flight->started = 0;
  OBSERVE(e, LANDED, .node = b->node, .microbatch = (int)e->binding.parameters.microbatch, .issued = flight->issued,
          .on = e->program->mesh.axis[collective_stream(&e->program->mesh, b->node)].name);
  if (code) return comm_failed(e, b);
  return b->masks ? mask_rows_count(&e->binding, b, e->error) : PLAIT_OK;
}

// In a body: does the collective, starts it, or waits for the one that a REDUCE started. The wait is exposed
// communication.
static int run_collective(Executor *e, Bound *b) {
  if (fault_drops(&e->program->mesh, b->node, b->piece[0].count)) { // left with what it had
    for (int i = 0; i < b->pieces; i++)
      device_move(e->queue, 0, (char *)b->output[b->piece[i].output].data + b->piece[i].recv, 0,
                  (char *)b->input[b->piece[i].input].data + b->piece[i].send,
                  b->piece[i].count * (int64_t)dtype_size(b->input[0].dtype));
    return PLAIT_OK;
  }
  if (flight_of(e, b)->started) return wait_collective(e, b);
  if (b->until && !e->synchronous) return start_collective(e, b, NULL);
  announce_collective(e, b);
  int code = host_call_open(&e->binding, b);
  double start = clock_seconds();
  if (!code) code = collective_call(&e->binding, b, NULL, NULL);
  e->comm_seconds += clock_seconds() - start;
  OBSERVE(e, ISSUED, .node = b->node, .microbatch = (int)e->binding.parameters.microbatch, .bytes = b->called,
          .stream = CALL_ALONE);
  if (code) return comm_failed(e, b);
  host_call_close(&e->binding, b);
  return PLAIT_OK;
}

// Kernels come after it in wait_move; the copy comes after the kernels that there are now.
static void start_move(const Executor *e, const Bound *b) {
  Flight *flight = flight_of(e, b);
  UNLESS_FAULT(moves_come_before_kernels) device_follow(e->moves, device_record(e->queue));
  device_move(e->moves, b->move->to_space, b->output->data, b->move->from_space, b->input->data, b->move->bytes);
  flight->moved = device_record(e->moves);
  flight->started = 1;
}

static void wait_move(const Executor *e, const Bound *b) {
  device_follow(e->queue, flight_of(e, b)->moved);
  flight_of(e, b)->started = 0;
}

// Waits for the collectives and MOVEs whose results an instruction (or what comes after the body) needs.
static int wait_due(Executor *e, BoundBody *body, const Bound *b) {
  int code = PLAIT_OK;
  for (int i = b->due; i && !code; i = body->bound[i - 1].next_due) {
    Bound *due = &body->bound[i - 1];
    if (!flight_of(e, due)->started) continue;
    if (bound_moves(due)) wait_move(e, due);
    else code = wait_collective(e, due);
  }
  return code;
}

// Bodies ------------------------------------------------------------------------------------------------------------

static int lacks(const Program *p, const Node *n, int input, int microbatch) {
  if (FAULT(second_microbatch_stores, 0, microbatch == 1)) microbatch = 0;
  return FAULT(first_microbatch_adds, program_call_lacks(p, n, input, microbatch), 0);
}

// The rows of compact operands, as their masks say.
static int pack_operands(Executor *e, Bound *b, int microbatch) {
  int code = PLAIT_OK;
  for (int k = 0; b->compact && k < b->ninput + b->node->noutput && !code; k++) {
    int64_t rows;
    if (!b->compact[k]) continue;
    code = mask_rows(&e->binding, b->compact[k] - 1, microbatch, &rows, e->error);
    rows_pack(k < b->ninput ? &b->input[k] : &b->output[k - b->ninput], rows);
  }
  return code;
}

static int point_operands(Executor *e, Bound *b, int microbatch) {
  Turn turn = e->binding.turn;
  const Instruction *of = b->instruction;
  turn.newest += b->newest;
  if (of->scratch)
    b->call.workspace =
        e->binding.state->in[0].work + e->program->offset[of->first + (microbatch + e->binding.base) % of->count];
  for (int k = 0; k < b->ninput; k++)
    b->input[k].data = b->tensor[k] < 0 || lacks(e->program, b->node, k, microbatch)
                           ? NULL
                           : binding_address(&e->binding, b->tensor[k], microbatch, turn);
  for (int k = 0; k < b->node->noutput; k++)
    b->output[k].data = binding_address(&e->binding, b->node->output[k], microbatch, turn);
  for (int k = 0; b->rows && k < b->ninput + b->node->noutput; k++)
    if (b->rows[k].count)
      rows_set(e->program, b->rows[k], microbatch, k < b->ninput ? &b->input[k] : &b->output[k - b->ninput]);
  int code = exchanged_rows_count(&e->binding, b, e->error);
  return code ? code : pack_operands(e, b, microbatch);
}

#ifdef PLAIT_FAULTS
static int has_no_row(const Bound *b) {
  for (int k = 0; b->rows && k < b->ninput; k++)
    if (b->rows[k].count && !b->input[k].size[0]) return 1;
  return 0;
}
#endif

static void run_kernel(Executor *e, Bound *b) {
  OBSERVE(e, KERNEL, .node = b->node, .call = &b->call, .scratch = b->call.workspace,
          .scratch_bytes = (int64_t)b->call.workspace_size);
  if (FAULT(empty_rank_computes_nothing, 0, has_no_row(b))) return;
  device_run(e->queue, &b->kernel, &b->call);
}

static void announce_left(const Executor *e, const Bound *b, const Action *action) {
  OBSERVE(e, ISSUED, .node = b->node, .microbatch = (int)e->binding.parameters.microbatch, .left_to_owner = 1,
          .stream =
              action || (b->until && !e->synchronous) ? collective_stream(&e->program->mesh, b->node) : CALL_ALONE,
          .action = action);
}

// Another rank does it alone. An output that all ranks have is a partial sum, to which this rank adds zeros.
static void leave_to_owner(const Executor *e, const Bound *b) {
  for (int k = 0; k < b->node->noutput; k++)
    if (FAULT(owner_is_not_alone, !graph_tensor(e->program->graph, b->node->output[k])->placement->owner_axes, 0))
      device_fill(e->queue, b->output[k].data, 0,
                  operand_elements(&b->output[k]) * (int64_t)dtype_size(b->output[k].dtype));
}

static int run_instruction(Executor *e, Bound *b, int microbatch) {
  int code = b->late ? binding_wait_inputs(&e->binding, e->error) : PLAIT_OK;
  if (!code) code = point_operands(e, b, microbatch);
  if (code) return code;
  OBSERVE(e, INSTRUCTION, .node = b->node, .microbatch = microbatch, .left_to_owner = b->left_to_owner);
  if (b->left_to_owner && b->communicates) announce_left(e, b, NULL);
  if (b->left_to_owner) leave_to_owner(e, b);
  else if (b->communicates) code = run_collective(e, b);
  else if (bound_moves(b)) start_move(e, b);
  else run_kernel(e, b);
  if (!code && b->masks && !(b->communicates && flight_of(e, b)->started))
    code = mask_rows_count(&e->binding, b, e->error);
  if (code) return code;
  OBSERVE(e, INSTRUCTION_END, .node = b->node, .microbatch = microbatch, .left_to_owner = b->left_to_owner,
          .input = b->input, .output = b->output, .tensor = b->tensor, .ninput = b->ninput, .queue = e->queue);
  return PLAIT_OK;
}

// Instructions [from, to) of a body; to 0: all.
static int run_body(Executor *e, BoundBody *body, const Action *a) {
  int end = a->to ? a->to : body->count, code = PLAIT_OK;
  if (FAULT(weights_of_a_microbatch_are_left_out, 0, a->kind == ACTION_WEIGHT && a->microbatch == 1)) return PLAIT_OK;
  e->binding.parameters.microbatch = a->microbatch;
  e->binding.parameters.rank_begins = binding_rank_begins(&e->binding, a->microbatch);
  e->binding.parameters.data_ranks = e->program->shares->ranks;
  e->binding.parameters.sample_base =
      FAULT(address_of_microbatch, shares_first(e->program->shares, a->microbatch, 0), 0);
  if (!a->from) OBSERVE(e, BODY, .action = a, .microbatch = a->microbatch);
  for (int i = a->from; i < end && !code; i++) {
    Bound *b = &body->bound[i];
    if (b->due) code = wait_due(e, body, b);
    if (!code && !(e->fresh && b->node->refreshes)) code = run_instruction(e, b, a->microbatch);
  }
  if (!code && end == body->count) code = wait_due(e, body, &body->bound[end]);
  return code;
}

// Actions -----------------------------------------------------------------------------------------------------------

static int run_reduce(Executor *e, const Action *a) {
  const BoundBody *end = &e->binding.end;
  int i = 0;
  while (i < end->count && end->bound[i].node->id != a->node) i++;
  CHECK(i < end->count, "REDUCE of a node that END lacks");
  Bound *b = &end->bound[i];
  if (b->left_to_owner) announce_left(e, b, a);
  if (b->left_to_owner || fault_drops(&e->program->mesh, b->node, b->piece[0].count)) return PLAIT_OK;
  int code = point_operands(e, b, 0);
  return code ? code : start_collective(e, b, a);
}

// In a stream the same SEND is run again from another buffer before the message from the first has been received.
static PlaitEvent *sent(const Executor *e, int action, int buffer) {
  return &e->sent[action * e->buffers + buffer];
}

static int run_transfer(Executor *e, const Action *a) {
  const Tensor *t = graph_tensor(e->program->graph, a->tensor);
  char *address = binding_address(&e->binding, a->tensor, a->microbatch, e->binding.turn);
  int send = a->kind == ACTION_SEND, peer = stage_coordinate(a->peer, e->program->schedule->map),
      direction = send ? a->peer > a->stage : a->stage > a->peer;
  int64_t count = rows_elements(e->program, t, e->binding.state->rank, a->microbatch),
          bytes = count * (int64_t)dtype_size(t->dtype);
  void *data;
  int code = host_call_open_message(&e->binding, address, bytes, send, &data, e->error);
  if (code) return code;
  PlaitBuffer buffer = {data, data, (size_t)count};
  OBSERVE(e, TRANSFER, .action = a, .microbatch = a->microbatch, .peer = peer, .direction = direction,
          .bytes = bytes, .offset = address - e->binding.state->in[0].work);
  PlaitComm *pipe = e->binding.pipe[direction];
  if (send) {
    int buffers = (a->kept ? &e->program->slots[a->stage] : &e->program->staging[a->stage][a->phase])->count;
    code = plait_send(pipe, &buffer, 1, (PlaitDtype)t->dtype, peer, NULL,
                      sent(e, (int)(a - e->program->actions.data), (a->microbatch + e->binding.base) % buffers));
  } else {
    double start = clock_seconds();
    code = plait_recv(pipe, &buffer, 1, (PlaitDtype)t->dtype, peer, NULL, NULL);
    e->stalled_seconds += clock_seconds() - start;
    if (!code) host_call_close_message(&e->binding, address, bytes);
  }
  if (!code) return PLAIT_OK;
  return comm_failure_in(e->world, e->error, "stage %d, microbatch %d", a->stage, a->microbatch);
}

// Where the action's step has its Variables, inputs and buffers. Programs of evaluation read those of training.
static void turn_to(Executor *e, const Action *a) {
  Binding *b = &e->binding;
  b->turn = e->binding.state->turn;
  b->parameters.step = e->step;
  if (!e->program->schedule->streams) return;
  b->turn.step = FAULT(stream_takes_the_other_instance, e->turn + a->step, e->turn);
  b->turn.newest = e->turn + a->step;
  b->parameters.step += (uint64_t)a->step;
  b->base = a->step * e->program->schedule->microbatches + walk_base(e->walk);
}

static int run_action(Executor *e, const Action *a) {
  turn_to(e, a);
  BoundBody *body = binding_body(&e->binding, a);
  OBSERVE(e, ACTION, .action = a, .microbatch = a->microbatch);
  int code = body ? run_body(e, body, a) : a->kind == ACTION_REDUCE ? run_reduce(e, a) : run_transfer(e, a);
  OBSERVE(e, ACTION_END, .action = a, .microbatch = a->microbatch);
  return code;
}

static int wait_received(Executor *e, const WalkStep *step) {
  double start = clock_seconds();
  int code =
      FAULT(buffer_is_reused_too_early, plait_event_wait(*sent(e, step->send, step->buffer.index)), PLAIT_OK);
  e->comm_seconds += clock_seconds() - start;
  return code ? plait_comm_failure(e->world, e->error) : PLAIT_OK;
}

static void enter(Executor *e, const WalkStep *step) {
  const WalkBuffer *b = &step->buffer;
  if (b->is_slot && ++e->in_flight[b->stage] > e->most_in_flight[b->stage])
    e->most_in_flight[b->stage] = e->in_flight[b->stage];
  OBSERVE(e, ENTER, .buffer = b, .microbatch = step->microbatch);
}

static int visit(void *context, const WalkStep *step) {
  Executor *e = context;
  int code = PLAIT_OK;
  switch (step->kind) {
  case WALK_WAIT: code = wait_received(e, step); break;
  case WALK_ENTER: enter(e, step); break;
  case WALK_RUN: code = run_action(e, step->action); break;
  case WALK_LEAVE: e->in_flight[step->buffer.stage] -= FAULT(slot_is_never_left, step->buffer.is_slot, 0); break;
  }
  return code ? code : 1;
}

static int run_part(Executor *e, ListPart part, int ahead) {
  walk_go(e->walk, part, ahead);
  return walk_run(e->walk, visit, e);
}

// A stream: what comes before the body, where nothing is under way; then the rest of the step among parts of those that
// follow it.
static int run_stream(Executor *e, int ahead) {
  State *s = e->binding.state;
  int code = e->under_way ? PLAIT_OK : run_part(e, LIST_PROLOGUE, ahead);
  if (!code) code = run_part(e, LIST_BODY, ahead);
  e->under_way = ahead;
  s->turn.step = e->turn++;
  s->turn.newest = e->turn;
  return code;
}

int executor_under_way(const Executor *e) { return e->under_way; }

static int is_message(const Action *a, const Action *other, StageMap map) {
  return stage_coordinate(a->peer, map) == stage_coordinate(other->stage, map) &&
         stage_coordinate(a->stage, map) == stage_coordinate(other->peer, map);
}

// Messages for this rank that a body leaves to the next part: sent from a RECV's rank in its direction, not received.
static int messages_left(const Executor *e, const Action *a) {
  const Schedule *s = e->program->schedule;
  int left = 0;
  const ActionList *there = &s->list[stage_coordinate(a->peer, s->map)], *here = &s->list[e->program->coordinate];
  for (int i = 0; i < there->count; i++)
    left += there->data[i].kind == ACTION_SEND && is_message(a, &there->data[i], s->map);
  for (int i = 0; i < here->count; i++)
    left -= here->data[i].kind == ACTION_RECV && here->data[i].peer == a->peer;
  return left;
}

static int only_wait(void *context, const WalkStep *step) {
  Executor *e = context;
  int code = step->kind == WALK_WAIT ? wait_received(e, step) : PLAIT_OK;
  return code ? code : 1;
}

int executor_take_back(Executor *e, Error *error) {
  const ActionList *list = &e->program->actions;
  Error unread = {0};
  int code = PLAIT_OK, taken = 0;
  if (!e->program->schedule->streams) return PLAIT_OK;
  CHECK(!e->program->schedule->at_once, "what stages have updated at once is not taken back");
  e->binding.state->turn.newest--;
  if (!e->under_way) return PLAIT_OK;
  e->error = error ? error : &unread;
  for (int i = 0; i < list->count && !code; i++) {
    const Action *a = &list->data[i];
    if (a->part != LIST_BODY || a->step || a->kind != ACTION_RECV || taken >= messages_left(e, a)) continue;
    taken++;
    turn_to(e, a);
    code = run_transfer(e, a);
  }
  walk_stop(e->walk);
  if (!code) code = walk_run(e->walk, only_wait, e);
  e->under_way = 0;
  e->error = NULL;
  return code < 0 ? code : PLAIT_OK;
}

int executor_run(Executor *e, uint64_t step, const StepInputs *inputs, int ahead, Error *error) {
  Error unread = {0};
  int streams = e->program->schedule->streams, most = e->program->schedule->steps - 1, code = PLAIT_OK;
  CHECK(ahead >= 0 && ahead <= most && ahead >= e->under_way - 1 &&
            (!e->under_way || e->under_way == most || ahead == e->under_way - 1),
        "%d steps ahead, of at most %d, after %d", ahead, most, e->under_way);
  if (streams && !e->under_way) e->turn = e->binding.state->turn.newest;
  for (int k = 0; k <= ahead && !code; k++)
    code = binding_inputs(&e->binding, &inputs[k], streams ? e->turn + k : 0, error);
  if (code) return code;
  CHECK(e->world || e->program->mesh.ranks == 1, "a Program of %d ranks that was bound without a world cannot run",
        e->program->mesh.ranks);
  e->step = step;
  e->error = error ? error : &unread;
  OBSERVE(e, STEP, .microbatch = 0);
  if (!e->under_way) {
    memset(e->in_flight, 0, sizeof *e->in_flight * (size_t)e->program->graph->stages);
    walk_rewind(e->walk);
  }
  State *s = e->binding.state;
  // It differs where another Program has run, or something was loaded or put back.
  e->fresh = FAULT(fresh_copies_are_made_again, FAULT(copies_are_always_fresh, s->changes == e->left, 1), 0);
  UNLESS_FAULT(other_programs_leave_copies) s->changes++;
  code = streams ? run_stream(e, ahead) : walk_run(e->walk, visit, e);
  int finished = device_drain(e->queue, code ? NULL : e->error); // inputs and kernels' operands are the caller's again
  e->left = code || finished ? 0 : s->changes;
  e->error = NULL;
  return code ? code : finished;
}
