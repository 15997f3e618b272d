// Running a Program: binding at load, then actions, bodies, instructions.
#include "program/exec.h"
#include "program/agreement.h"
#include "program/chaos.h"
#include "program/memory.h"
#include <string.h>
#include <time.h>

typedef struct Piece { int64_t send, recv, count; int input, output; } Piece; // byte offsets into operands; count in elements

typedef struct Bound {
  const Node *node;
  int skip;               // another rank owns what it works on
  Kernel kernel;          // NULL for a collective
  int ninput;             // terms that live here, see stage
  const int *tensor;      // (ninput) their tensors
  Operand *input, *output;
  uint64_t name;
  PlaitComm *comm;        // collectives
  int group;              // the communicator's number
  int pieces;
  Piece *piece;
  PlaitBuffer *buffer;    // (pieces) scratch for the call
  int until;              // of a collective in flight: see Instruction.wait
  int due, next_due;      // 1 + the first collective to wait for before this instruction, and the next of that list; 0: none
  int started;            // in flight since `issued`, by a REDUCE or in its body; `done` is waited for
  PlaitEvent done;
  double issued;
} Bound;

typedef struct BoundBody { int count; Bound *bound; } BoundBody; // one more than count: what is due at the end
typedef struct GroupComm { uint32_t axes; uint64_t coordinates; PlaitComm *comm; } GroupComm;

// What became of a slot, or mail of a segment, in this step: who is in it, and what was sent from it and may still be read.
typedef struct BufferUse {
  int microbatch;             // -1: nobody yet
  int sends;
  PlaitEvent *sent;           // (sends of both segments of the stage)
} BufferUse;

struct Executor {
  const Program *program;
  State *state;
  const Backend *backend;
  Team *team;
  PlaitComm *world;
  CallParameters parameters;
  int64_t microbatch_samples; // over all data ranks
  const StepInput *inputs;
  int *variable;              // Variable of this graph → of the State's graph
  BoundBody begin, end, (*micro)[PHASE_COUNT];
  Vec(GroupComm) group;
  PlaitStream *stream;        // of all collectives in flight; NULL when there are none
  PlaitComm *pipe[2];         // backward and forward direction over the pp axis
  BufferUse **slot;           // (stages, slots of the stage)
  BufferUse *(*mail)[PHASE_COUNT]; // (stages), each (buffers)
  int *in_flight, *most_in_flight; // (stages) microbatches between their entrance and their last body, now and at most
  double comm_seconds, stalled_seconds;
  Trace *trace;               // NULL: none
  Agreement *agreement;       // NULL: nothing is compared
  Chaos *chaos;               // NULL: none
  NonFinite *check;           // NULL: nothing is looked at
  Arena arena;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *pointer(const Executor *e, int tensor, int microbatch) {
  const Program *p = e->program;
  const Place *place = &p->place[tensor];
  const Tensor *t = graph_tensor(p->graph, tensor);
  const Program *owner = e->state->program;
  switch (place->space) {
  case SPACE_VARIABLE: {
    int v = e->variable[t->variable];
    return e->state->memory + (t->copy < 0 ? owner->variable_offset[v] : owner->copy_offset[v][t->copy]);
  }
  case SPACE_INPUT: return (char *)e->inputs[t->input].base + microbatch * e->inputs[t->input].stride;
  case SPACE_SLOT:
  case SPACE_MAIL: {
    const Ring *ring = place->space == SPACE_SLOT ? &p->slots[place->stage] : &p->mail[place->stage][place->phase];
    return e->state->work + ring->offset + microbatch % ring->count * ring->bytes + place->offset;
  }
  case SPACE_COMM: return e->state->work + p->slot_bytes + p->mail_bytes + place->offset;
  case SPACE_WORK: return e->state->work + program_work_offset(p) + place->offset;
  case SPACE_NONE: break;
  }
  return NULL;
}

const void *executor_tensor(const Executor *e, int tensor) { return pointer(e, tensor, 0); }
double executor_comm_seconds(const Executor *e) { return e->comm_seconds; }
double executor_stalled_seconds(const Executor *e) { return e->stalled_seconds; }
void executor_set_trace(Executor *e, Trace *trace) { e->trace = trace; }
void executor_set_check(Executor *e, NonFinite *first) { e->check = first; }

// Communicators -----------------------------------------------------------------------------------------------------

static int find_group(const Executor *e, const CommAttr *attr) {
  for (int i = 0; i < e->group.count; i++)
    if (e->group.data[i].axes == attr->axes && e->group.data[i].coordinates == attr->stages) return i;
  CHECK(0, "a collective without a group");
}

// Every rank goes through the collectives of the whole graph in the same order, and makes the groups that it is in.
static int create_groups(Executor *e, Error *error) {
  const Graph *g = e->program->graph;
  const Mesh *mesh = &e->program->mesh;
  int *ranks = arena_array(&e->arena, int, mesh->ranks), code = PLAIT_OK;
  for (int i = 0; i < g->node.count && !code; i++) {
    const Node *n = &g->node.data[i];
    if (!op_def(n->op)->communicates) continue;
    const CommAttr *attr = node_attr(n, CommAttr);
    int seen = 0, pp = mesh_axis(mesh, "pp");
    for (int k = 0; k < e->group.count; k++) seen |= e->group.data[k].axes == attr->axes && e->group.data[k].coordinates == attr->stages;
    if (seen) continue;
    GroupComm group = {attr->axes, attr->stages, NULL};
    int member = !attr->stages || attr->stages >> mesh_coordinate(mesh, e->state->rank, pp) & 1;
    int count = mesh_group(mesh, e->state->rank, attr->axes, attr->stages, ranks);
    if (member) code = plait_comm_create(e->world, ranks, count, &group.comm, error);
    vec_push(&e->group, group);
  }
  int pp = mesh_axis(mesh, "pp");
  for (int direction = 0; direction < 2 && !code && mesh->axis[pp].size > 1; direction++) {
    int count = mesh_group(mesh, e->state->rank, 1u << pp, 0, ranks);
    code = plait_comm_create(e->world, ranks, count, &e->pipe[direction], error);
  }
  return code;
}

// Binding -----------------------------------------------------------------------------------------------------------

// In BEGIN and END a sum's terms may live on different stages (see stage): the ranks of a stage add those that they have, and of
// one that several stages have, the first adds it. Within MICRO what lives elsewhere has been received.
static int adds_here(const Executor *e, const Node *n, int k) {
  const Graph *g = e->program->graph;
  int spans = 0, first = 0;
  if (n->region == REGION_MICRO || n->input[k] < 0) return 1;
  for (int i = 0; i < n->ninput; i++) spans |= n->input[i] >= 0 && (graph_holders(g, n->input[i]) & n->stages) != n->stages;
  if (!spans) return 1;
  uint64_t holders = graph_holders(g, n->input[k]);
  while (!(holders >> first & 1)) first++;
  return first % e->program->schedule->coordinates == e->program->coordinate;
}

static int64_t extent(const Tensor *t, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= t->local[d];
  return n;
}

// The buffers of a collective: one a tensor, or one for each block of the dims outside the gathered or scattered dim.
static void bind_pieces(Executor *e, Bound *b) {
  const Graph *g = e->program->graph;
  const Node *n = b->node;
  for (int pass = 0; pass < 2; pass++) {
    int count = 0;
    for (int k = 0; k < n->ninput; k++) {
      const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
      const Tensor *whole = n->op == OP_REDUCE_SCATTER ? in : out, *shard = n->op == OP_REDUCE_SCATTER ? out : in;
      int d = 0, rank = in->shape.rank;
      while (d < rank && axis_list_equal(&in->placement->dim[d], &out->placement->dim[d])) d++;
      int same = n->op == OP_ALL_REDUCE || op_def(n->op)->rooted; // both sides
      int64_t blocks = same ? 1 : extent(shard, 0, d), size = (int64_t)dtype_size(in->dtype);
      int64_t elements = same ? extent(in, 0, rank) : extent(shard, d, rank);
      int64_t shards = same ? 1 : mesh_size(&e->program->mesh, node_attr(n, CommAttr)->axes);
      CHECK(blocks * shards * elements <= whole->allocated, "%s: room for %lld of %lld elements", n->name, (long long)whole->allocated,
            (long long)(blocks * shards * elements));
      for (int64_t i = 0; i < blocks; i++, count++) {
        if (!pass) continue;
        int64_t wide = i * shards * elements * size, narrow = i * elements * size;
        b->piece[count] = (Piece){n->op == OP_REDUCE_SCATTER ? wide : narrow, n->op == OP_ALL_GATHER ? wide : narrow, elements, k, k};
      }
    }
    if (pass) continue;
    b->pieces = count;
    b->piece = arena_array(&e->arena, Piece, count);
    b->buffer = arena_array(&e->arena, PlaitBuffer, count);
  }
}

static void bind_node(Executor *e, const Node *n, Bound *b) {
  const Program *p = e->program;
  const Placement *owner = node_owner(p->graph, n);
  b->node = n;
  b->skip = owner && !placement_here(&p->mesh, owner, e->state->rank);
  b->name = philox_name(n->name);
  b->input = arena_array(&e->arena, Operand, n->ninput + 1);
  b->output = arena_array(&e->arena, Operand, n->noutput + 1);
  program_operands(p, n, e->state->rank, b->input, b->output);
  int *tensor = arena_array(&e->arena, int, n->ninput + 1);
  for (int k = 0; k < n->ninput; k++) {
    if (!adds_here(e, n, k)) continue;
    b->input[b->ninput] = b->input[k];
    tensor[b->ninput++] = n->input[k];
  }
  b->tensor = tensor;
  if (op_def(n->op)->communicates) {
    b->group = find_group(e, node_attr(n, CommAttr));
    b->comm = e->group.data[b->group].comm;
    bind_pieces(e, b);
    return;
  }
  const KernelEntry *entry = e->backend->find(e->backend, n->op, node_dtype(p->graph, n));
  b->kernel = entry ? entry->kernel : op_def(n->op)->reference;
  CHECK(b->kernel, "op %s has no kernel", op_name(n->op));
}

static BoundBody bind_body(Executor *e, const Body *body) {
  BoundBody b = {body->count, arena_array(&e->arena, Bound, body->count + 1)};
  for (int i = 0; i < body->count; i++) {
    bind_node(e, &e->program->graph->node.data[body->instruction[i].node], &b.bound[i]);
    b.bound[i].until = body->instruction[i].wait;
    if (!b.bound[i].until) continue;
    b.bound[i].next_due = b.bound[b.bound[i].until].due;
    b.bound[b.bound[i].until].due = i + 1;
  }
  return b;
}

static int bind_variables(Executor *e, Error *error) {
  const Graph *g = e->program->graph, *owner = e->state->program->graph;
  e->variable = arena_array(&e->arena, int, g->variable.count + 1);
  for (int i = 0; i < g->variable.count; i++) {
    int v = e->variable[i] = graph_find_variable(owner, g->variable.data[i].name);
    if (e->program->variable_offset[i] < 0) continue;
    if (v < 0 || e->state->program->variable_offset[v] < 0 || owner->variable.data[v].allocated < g->variable.data[i].allocated ||
        owner->variable.data[v].copies < g->variable.data[i].copies || !placement_same_owner(g->variable.data[i].storage, owner->variable.data[v].storage))
      return error_set(error, PLAIT_FAILED, "Variable %s does not fit the state it should be in", g->variable.data[i].name);
  }
  return PLAIT_OK;
}

static void find_microbatch_samples(Executor *e) {
  const Graph *g = e->program->graph;
  for (int i = 0; i < g->input.count; i++) {
    const Tensor *t = graph_tensor(g, g->input.data[i].tensor);
    if (g->input.data[i].region == REGION_MICRO && t->shape.rank && t->shape.dim[0] == DIM_BATCH) e->microbatch_samples = t->shape.size[0];
  }
}

static int sends_of(const Program *p, int stage) {
  return p->segments->micro[stage][PHASE_FORWARD].send.count + p->segments->micro[stage][PHASE_BACKWARD].send.count;
}

static BufferUse *make_ring(Executor *e, const Ring *ring, int stage) {
  BufferUse *use = arena_array(&e->arena, BufferUse, ring->count + 1);
  for (int i = 0; i < ring->count; i++) use[i].sent = arena_array(&e->arena, PlaitEvent, sends_of(e->program, stage) + 1);
  return use;
}

static void make_buffers(Executor *e) {
  const Program *p = e->program;
  e->slot = arena_array(&e->arena, BufferUse *, p->graph->stages);
  e->mail = arena_alloc(&e->arena, sizeof *e->mail * (size_t)p->graph->stages);
  e->in_flight = arena_array(&e->arena, int, p->graph->stages);
  e->most_in_flight = arena_array(&e->arena, int, p->graph->stages);
  for (int s = 0; s < p->graph->stages; s++) {
    e->slot[s] = make_ring(e, &p->slots[s], s);
    for (int phase = 0; phase < PHASE_COUNT; phase++) e->mail[s][phase] = make_ring(e, &p->mail[s][phase], s);
  }
}

static int uses_stream(const Executor *e) {
  const Program *p = e->program;
  for (int i = 0; i < p->actions.count; i++)
    if (p->actions.data[i].kind == ACTION_REDUCE) return 1;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int i = 0; i < p->micro[s][phase].count; i++)
        if (p->micro[s][phase].instruction[i].wait) return 1;
  return 0;
}

int executor_create(const Program *p, State *state, const Backend *backend, Team *team, PlaitComm *world, uint64_t seed,
                    Executor **out, Error *error) {
  Executor *e = xcalloc(1, sizeof *e);
  *e = (Executor){.program = p, .state = state, .backend = backend, .team = team, .world = world, .parameters = {.seed = seed}};
  find_microbatch_samples(e);
  int code = bind_variables(e, error);
  if (!code && p->mesh.ranks > 1) code = create_groups(e, error);
  if (code) {
    executor_destroy(e);
    return code;
  }
  e->begin = bind_body(e, &p->begin);
  e->end = bind_body(e, &p->end);
  e->micro = arena_alloc(&e->arena, sizeof *e->micro * (size_t)p->graph->stages);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) e->micro[s][phase] = bind_body(e, &p->micro[s][phase]);
  if (uses_stream(e)) code = plait_stream_create(world, &e->stream, error);
  if (code) {
    executor_destroy(e);
    return code;
  }
  make_buffers(e);
  e->chaos = chaos_create(p, state->work, (uint64_t)state->rank);
  *out = e;
  return PLAIT_OK;
}

void executor_destroy(Executor *e) {
  if (!e) return;
  plait_stream_destroy(e->stream);
  agreement_destroy(e->agreement);
  chaos_destroy(e->chaos);
  for (int i = 0; i < e->group.count; i++) plait_comm_destroy(e->group.data[i].comm);
  for (int i = 0; i < 2; i++) plait_comm_destroy(e->pipe[i]);
  vec_free(&e->group);
  arena_free(&e->arena);
  free(e);
}

void executor_agree(Executor *e) {
  AgreementGroup *group = arena_array(&e->arena, AgreementGroup, e->group.count + 1);
  for (int i = 0; i < e->group.count; i++) group[i] = (AgreementGroup){e->group.data[i].axes, e->group.data[i].coordinates};
  e->agreement = agreement_create(e->program, e->state, e->world, group, e->group.count);
}

int executor_check_agreement(Executor *e, int64_t step, Error *error) { return agreement_check(e->agreement, step, error); }

// Running -----------------------------------------------------------------------------------------------------------

// Calls a collective on the buffers as they are bound now; with a stream it only starts there.
static int call_collective(Bound *b, PlaitStream *stream, PlaitEvent *done) {
  for (int i = 0; i < b->pieces; i++) {
    const Piece *p = &b->piece[i];
    b->buffer[i] = (PlaitBuffer){(char *)b->input[p->input].data + p->send, (char *)b->output[p->output].data + p->recv, (size_t)p->count};
  }
  PlaitDtype dtype = (PlaitDtype)b->input[0].dtype;
  PlaitOp op = node_attr(b->node, CommAttr)->maximum ? PLAIT_MAX : PLAIT_SUM;
  size_t n = (size_t)b->pieces;
  if (b->node->op == OP_ALL_REDUCE) return plait_all_reduce(b->comm, b->buffer, n, dtype, op, stream, done);
  if (b->node->op == OP_ALL_GATHER) return plait_all_gather(b->comm, b->buffer, n, dtype, stream, done);
  if (b->node->op == OP_REDUCE_SCATTER) return plait_reduce_scatter(b->comm, b->buffer, n, dtype, op, stream, done);
  int root = node_attr(b->node, CommAttr)->root;
  if (b->node->op == OP_REDUCE_TO) return plait_reduce(b->comm, b->buffer, n, dtype, op, root, stream, done);
  if (b->node->op == OP_BROADCAST) return plait_broadcast(b->comm, b->buffer, n, dtype, root, stream, done);
  return PLAIT_FAILED;
}

static void before_collective(Executor *e, const Bound *b) {
  int64_t elements = 0;
  for (int i = 0; i < b->pieces && e->agreement; i++) elements += b->piece[i].count;
  agreement_collective(e->agreement, b->group, b->node, (int)e->parameters.microbatch, elements);
  chaos_before(e->chaos, b->node);
}

// On the communication stream: until wait_collective.
static int start_collective(Executor *e, Bound *b) {
  b->started = 1;
  b->issued = now();
  before_collective(e, b);
  return call_collective(b, e->stream, &b->done);
}

static int wait_collective(Executor *e, Bound *b) {
  double start = now();
  int code = plait_event_wait(b->done);
  double end = now();
  if (e->trace && e->trace->on) // until the wait was over; it may have been done before
    trace_add(e->trace, &(TraceSpan){op_name(b->node->op), b->node->name, "in flight", b->issued, end, -1, -1, true});
  b->started = 0;
  e->comm_seconds += end - start;
  return code;
}

// In a body: does the collective, starts it, or waits for the one that a REDUCE started. What is waited for is exposed
// communication.
static int run_collective(Executor *e, Bound *b) {
  if (b->started) return wait_collective(e, b);
  if (b->until && !e->check) return start_collective(e, b); // what is looked at must be there
  before_collective(e, b);
  double start = now();
  int code = call_collective(b, NULL, NULL);
  e->comm_seconds += now() - start;
  return code;
}

static void point_operands(const Executor *e, Bound *b, int microbatch) {
  for (int k = 0; k < b->ninput; k++) b->input[k].data = b->tensor[k] < 0 ? NULL : pointer(e, b->tensor[k], microbatch);
  for (int k = 0; k < b->node->noutput; k++) b->output[k].data = pointer(e, b->node->output[k], microbatch);
}

static void run_kernel(Executor *e, Bound *b) {
  KernelCall call = {.ninput = b->ninput, .noutput = b->node->noutput, .input = b->input, .output = b->output, .attr = b->node->attr,
                     .name = b->name, .parameters = &e->parameters, .workspace = e->state->work + program_scratch_offset(e->program),
                     .workspace_size = (size_t)e->program->scratch_bytes, .team = e->team};
  chaos_before(e->chaos, b->node);
  b->kernel(&call);
}

// Another rank does it alone. What is not its own but all ranks' is a partial sum, of which this rank has nothing.
static void leave_to_owner(const Executor *e, const Bound *b) {
  for (int k = 0; k < b->node->noutput; k++)
    if (!graph_tensor(e->program->graph, b->node->output[k])->placement->owner_axes)
      memset(b->output[k].data, 0, (size_t)operand_elements(&b->output[k]) * dtype_size(b->output[k].dtype));
}

// Waits for the collectives whose results an instruction (or what comes behind the body) needs.
static int wait_due(Executor *e, BoundBody *body, Bound *b, Error *error) {
  for (int i = b->due; i; i = body->bound[i - 1].next_due) {
    Bound *c = &body->bound[i - 1];
    if (c->started && wait_collective(e, c)) return error_set(error, PLAIT_FAILED, "%s: %s", c->node->name, plait_comm_error(c->comm));
  }
  return PLAIT_OK;
}

// Instructions [from, to) of a body; to 0: all.
static int run_body(Executor *e, BoundBody *body, int microbatch, int from, int to, Error *error) {
  e->parameters.microbatch = microbatch;
  e->parameters.sample_base = microbatch * e->microbatch_samples;
  int end = to ? to : body->count;
  if (!from) chaos_begin_body(e->chaos);
  for (int i = from; i < end; i++) {
    Bound *b = &body->bound[i];
    if (b->due && wait_due(e, body, b, error)) return PLAIT_FAILED;
    point_operands(e, b, microbatch);
    double begin = trace_begin(e->trace);
    if (b->skip) leave_to_owner(e, b);
    else if (b->kernel) run_kernel(e, b);
    else if (run_collective(e, b)) return error_set(error, PLAIT_FAILED, "%s: %s", b->node->name, plait_comm_error(b->comm));
    if (!b->skip) trace_end(e->trace, begin, op_name(b->node->op), b->node->name, b->comm ? "communication" : "kernel", -1, -1);
    if (e->check && !b->skip) finite_look(e->check, e->program->graph, b->node, microbatch, b->input, b->tensor, b->ninput, b->output);
    chaos_after(e->chaos, b->node);
  }
  if (end == body->count && body->bound[end].due) return wait_due(e, body, &body->bound[end], error);
  return PLAIT_OK;
}

static int run_reduce(Executor *e, const Action *a, Error *error) {
  Bound *b = NULL;
  for (int i = 0; i < e->end.count && !b; i++)
    if (e->end.bound[i].node->id == a->node) b = &e->end.bound[i];
  CHECK(b, "REDUCE of a node that END lacks");
  if (b->skip) return PLAIT_OK;
  point_operands(e, b, 0);
  if (start_collective(e, b)) return error_set(error, PLAIT_FAILED, "%s: %s", b->node->name, plait_comm_error(b->comm));
  return PLAIT_OK;
}

static int wait_sends(Executor *e, BufferUse *b) {
  int code = PLAIT_OK;
  if (!b->sends) return PLAIT_OK;
  double start = now();
  for (int i = 0; i < b->sends && !code; i++) code = plait_event_wait(b->sent[i]);
  b->sends = 0;
  e->comm_seconds += now() - start;
  return code;
}

static BufferUse *slot_of(Executor *e, const Action *a) { return &e->slot[a->stage][a->microbatch % e->program->slots[a->stage].count]; }

static Phase phase_of(const Action *a) {
  return a->kind == ACTION_FORWARD ? PHASE_FORWARD : a->kind == ACTION_BACKWARD ? PHASE_BACKWARD : a->phase;
}

static BufferUse *mail_of(Executor *e, const Action *a) {
  Phase phase = phase_of(a);
  return &e->mail[a->stage][phase][a->microbatch % e->program->mail[a->stage][phase].count];
}

static int run_transfer(Executor *e, const Action *a) {
  const Tensor *t = graph_tensor(e->program->graph, a->tensor);
  int peer = a->peer % e->program->schedule->coordinates;
  char *data = pointer(e, a->tensor, a->microbatch);
  PlaitBuffer buffer = {data, data, (size_t)extent(t, 0, t->shape.rank)};
  int send = a->kind == ACTION_SEND, direction = send ? a->peer > a->stage : a->stage > a->peer;
  chaos_before(e->chaos, NULL);
  agreement_transfer(e->agreement, send, direction, peer, a->tensor, a->microbatch);
  if (send) {
    BufferUse *from = a->kept ? slot_of(e, a) : mail_of(e, a);
    CHECK(from->sends < sends_of(e->program, a->stage));
    return plait_send(e->pipe[direction], &buffer, 1, (PlaitDtype)t->dtype, peer, NULL, &from->sent[from->sends++]);
  }
  double start = now();
  int code = plait_recv(e->pipe[direction], &buffer, 1, (PlaitDtype)t->dtype, peer, NULL, NULL);
  e->stalled_seconds += now() - start;
  return code;
}

static int run_action(Executor *e, const Action *a, Error *error) {
  switch (a->kind) {
  case ACTION_BEGIN: return run_body(e, &e->begin, 0, 0, 0, error);
  case ACTION_END: return run_body(e, &e->end, 0, 0, 0, error);
  case ACTION_BACKWARD: return run_body(e, &e->micro[a->stage][PHASE_BACKWARD], a->microbatch, a->from, a->to, error);
  case ACTION_FORWARD: return run_body(e, &e->micro[a->stage][PHASE_FORWARD], a->microbatch, a->from, a->to, error);
  case ACTION_REDUCE: return run_reduce(e, a, error);
  case ACTION_RECV: // the first thing that happens to a slot may be a receive
  case ACTION_SEND:
    if (run_transfer(e, a)) return error_set(error, PLAIT_FAILED, "stage %d, microbatch %d: %s", a->stage, a->microbatch, plait_comm_error(e->world));
    return PLAIT_OK;
  case ACTION_COUNT: break;
  }
  return PLAIT_OK;
}

// Before a microbatch enters a stage's slot or a segment's mail, what its predecessor there sent must have arrived.
static int enter_buffers(Executor *e, const Action *a) {
  if (a->kind != ACTION_FORWARD && a->kind != ACTION_BACKWARD && a->kind != ACTION_RECV) return PLAIT_OK;
  BufferUse *slot = slot_of(e, a), *mail = mail_of(e, a);
  int code = PLAIT_OK;
  if (mail->microbatch != a->microbatch) {
    code = wait_sends(e, mail);
    chaos_enter_mail(e->chaos, a->stage, phase_of(a), a->microbatch);
  }
  mail->microbatch = a->microbatch;
  if (code || phase_of(a) == PHASE_BACKWARD || slot->microbatch == a->microbatch) return code;
  slot->microbatch = a->microbatch;
  if (++e->in_flight[a->stage] > e->most_in_flight[a->stage]) e->most_in_flight[a->stage] = e->in_flight[a->stage];
  code = wait_sends(e, slot);
  chaos_enter_slot(e->chaos, a->stage, a->microbatch);
  return code;
}

// A microbatch has left its slot when the stage's last body on it is done.
static void leave_slot(Executor *e, const Action *a) {
  int last = e->micro[a->stage][PHASE_BACKWARD].count ? ACTION_BACKWARD : ACTION_FORWARD;
  if ((int)a->kind == last && a->to >= e->micro[a->stage][last == ACTION_BACKWARD ? PHASE_BACKWARD : PHASE_FORWARD].count) e->in_flight[a->stage]--;
}

int executor_most_in_flight(const Executor *e, int stage) { return e->most_in_flight[stage]; }

static void empty_ring(BufferUse *use, const Ring *ring) {
  for (int i = 0; i < ring->count; i++) use[i].microbatch = -1;
}

static void empty_buffers(Executor *e, int stage) {
  empty_ring(e->slot[stage], &e->program->slots[stage]);
  for (int phase = 0; phase < PHASE_COUNT; phase++) empty_ring(e->mail[stage][phase], &e->program->mail[stage][phase]);
}

static int wait_ring(Executor *e, BufferUse *use, const Ring *ring) {
  int code = PLAIT_OK;
  for (int i = 0; i < ring->count && !code; i++) code = wait_sends(e, &use[i]);
  return code;
}

static int wait_all_sends(Executor *e, int stage) {
  int code = wait_ring(e, e->slot[stage], &e->program->slots[stage]);
  for (int phase = 0; phase < PHASE_COUNT && !code; phase++) code = wait_ring(e, e->mail[stage][phase], &e->program->mail[stage][phase]);
  return code;
}

// Each instruction, and each once more in flight.
static int body_spans(const BoundBody *b, int from, int to) { return 2 * ((to ? to : b->count) - from); }

int executor_trace_spans(const Executor *e) {
  const ActionList *list = &e->program->actions;
  int n = 0;
  for (int i = 0; i < list->count; i++) {
    const Action *a = &list->data[i];
    n += 2; // the action, and what a REDUCE starts
    if (a->kind == ACTION_BEGIN) n += body_spans(&e->begin, 0, 0);
    if (a->kind == ACTION_END) n += body_spans(&e->end, 0, 0);
    if (a->kind == ACTION_FORWARD) n += body_spans(&e->micro[a->stage][PHASE_FORWARD], a->from, a->to);
    if (a->kind == ACTION_BACKWARD) n += body_spans(&e->micro[a->stage][PHASE_BACKWARD], a->from, a->to);
  }
  return n;
}

int executor_run(Executor *e, uint64_t step, const StepInput *inputs, Error *error) {
  e->inputs = inputs;
  e->parameters.step = step;
  chaos_begin_step(e->chaos);
  const ActionList *list = &e->program->actions;
  const Program *p = e->program;
  int code = PLAIT_OK;
  for (int s = 0; s < p->graph->stages; s++) empty_buffers(e, s);
  for (int i = 0; i < list->count && !code; i++) {
    if (enter_buffers(e, &list->data[i])) return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(e->world));
    const Action *a = &list->data[i];
    double begin = trace_begin(e->trace);
    code = run_action(e, a, error);
    leave_slot(e, a);
    int in_slot = a->kind != ACTION_BEGIN && a->kind != ACTION_END && a->kind != ACTION_REDUCE;
    trace_end(e->trace, begin, action_name(a->kind), NULL, "action", in_slot ? a->stage : -1, in_slot ? a->microbatch : -1);
  }
  for (int s = 0; s < p->graph->stages && !code; s++)
    if (wait_all_sends(e, s)) code = error_set(error, PLAIT_FAILED, "%s", plait_comm_error(e->world));
  return code;
}
