// Binding at load: everything about an instruction that does not change from step to step.
#include "runtime/bind.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "program/in_flight.h"
#include "runtime/exchanged_rows.h"
#include "runtime/host_call.h"
#include "runtime/mask_rows.h"
#include "runtime/pieces.h"
#include <string.h>

char *binding_address(const Binding *b, int tensor, int microbatch, Turn turn) {
  const Program *p = b->program, *owner = b->state->program;
  const Tensor *t = graph_tensor(p->graph, tensor);
  switch (p->place[tensor].area) {
  case AREA_VARIABLE:
    return state_address(b->state, program_variable_place(owner, b->variable[t->variable], t->copy, turn));
  case AREA_INPUT:
    return (char *)(uintptr_t)binding_input_address(b, t->input, (int)(turn.step % p->schedule->steps), microbatch);
  case AREA_SLOT:
  case AREA_STAGING:
  case AREA_WORK:
  case AREA_COMM:
    return state_address(b->state, program_place(p, tensor, microbatch + b->base,
                                                 FAULT(sums_of_steps_are_one, turn.step, 0)));
  case AREA_NONE: break;
  }
  return NULL;
}

// Communicators -----------------------------------------------------------------------------------------------------

// Only a collective over the pipeline axis looks at coordinates: it spans those that run its node.
static Group group_of(const Graph *g, const Mesh *mesh, const Node *n) {
  Group group = {.axes = node_attr(n, CommAttr)->axes};
  if (group.axes >> mesh_pipeline(mesh) & 1)
    group.coordinates = mesh_stage_coordinates(mesh, graph_stages(g, n->stages));
  return group;
}

static int index_of(const GroupList *groups, const Group *group) {
  int i = 0;
  while (i < groups->count &&
         (groups->data[i].axes != group->axes || !stages_equal(&groups->data[i].coordinates, &group->coordinates)))
    i++;
  return i;
}

int group_find(const GroupList *groups, const Graph *g, const Mesh *mesh, const Node *node) {
  Group group = group_of(g, mesh, node);
  int i = index_of(groups, &group);
  CHECK(i < groups->count, "a collective without a group");
  return i;
}

void graph_groups(const Graph *g, const Mesh *mesh, GroupList *groups) {
  for (int i = 0; i < g->node.count; i++) {
    if (!op_def(g->node.data[i].op)->communicates) continue;
    Group group = group_of(g, mesh, &g->node.data[i]);
    if (index_of(groups, &group) == groups->count) vec_push(groups, group);
  }
}

// Every rank goes through all groups in the same order, and makes those that it is in; without a world none.
static int create_groups(Binding *b, PlaitComm *world, Error *error) {
  const Mesh *mesh = &b->program->mesh;
  int *ranks = arena_array(&b->arena, int, mesh->ranks), code = PLAIT_OK, rank = b->state->rank,
      pp = mesh_pipeline(mesh);
  graph_groups(b->program->graph, mesh, &b->group);
  for (int i = 0; i < b->group.count && !code; i++) {
    Group *group = &b->group.data[i];
    int member = !(group->axes >> pp & 1) || stages_have(&group->coordinates, mesh_coordinate(mesh, rank, pp));
    int count = mesh_group(mesh, rank, group->axes, &group->coordinates, ranks);
    if (member && world) code = plait_comm_create(world, ranks, count, &group->comm, error);
  }
  for (int direction = 0; direction < 2 && !code && world && mesh->axis[pp].size > 1; direction++) {
    int count = mesh_group(mesh, rank, 1u << pp, NULL, ranks);
    code = plait_comm_create(world, ranks, count, &b->pipe[direction], error);
  }
  return code;
}

// Instructions ------------------------------------------------------------------------------------------------------

// In BEGIN and END a sum's terms may live on different stages (see stage): the ranks of a stage add those that they
// have, and of one that several stages have, the first adds it. Within MICRO what lives elsewhere has been received.
static int terms_span_stages(const Graph *g, const Node *n) {
  for (int i = 0; i < n->ninput && n->region != REGION_MICRO; i++)
    if (n->input[i] >= 0 &&
        !stages_include(graph_stages(g, graph_holders(g, n->input[i])), graph_stages(g, n->stages)))
      return 1;
  return 0;
}

static int adds_here(const Binding *b, const Node *n, int k) {
  const Graph *g = b->program->graph;
  if (n->input[k] < 0) return 1;
  const StageSet *holders = graph_stages(g, graph_holders(g, n->input[k]));
  return FAULT(norm_counts_tied_twice,
               stage_coordinate(stages_next(holders, 0), b->program->schedule->map) == b->program->coordinate,
               mesh_runs_stages(&b->program->mesh, b->program->coordinate, holders));
}

static void reserve_collective(const Bound *b) {
  int64_t elements = 0;
  for (int i = 0; i < b->pieces; i++) elements += b->piece[i].count;
  if (node_comm(b->node)->scatters) elements *= plait_comm_size(b->comm);
  if (!node_comm(b->node)->reduces) elements = 0;
  comm_reserve_collective(b->comm, (size_t)b->pieces, (size_t)elements * dtype_size(b->input[0].dtype));
}

static void reserve_messages(Binding *b) {
  const Program *p = b->program;
  for (int forward = 0; forward < 2 && b->pipe[forward]; forward++)
    for (int c = 0, n; c < p->schedule->map.coordinates; c++)
      if ((n = in_flight_messages(p, forward, c))) comm_reserve_messages(b->pipe[forward], c, (size_t)n, (size_t)n);
}

static int bind_kernel(Binding *binding, Bound *b, Error *error) {
  const Program *p = binding->program;
  const Device *device = binding->queue->device;
  const Node *n = b->node;
  DeviceKernel kernel;
  int code = device_kernel(device, n->op, node_dtype(p->graph, n), n->name, &kernel, error);
  b->call = (KernelCall){.ninput = b->ninput,
                         .noutput = n->noutput,
                         .input = b->input,
                         .output = b->output,
                         .attr = n->attr,
                         .name = philox_name(n->name),
                         .parameters = &binding->parameters,
                         .queue = binding->queue,
                         .workspace_size = (size_t)b->instruction->scratch};
  if (!code) code = device->implementation->bind(device, &kernel, &b->call, &binding->arena, &b->kernel, error);
  if (code || !device->implementation->check) return code;
  // where work will lie nothing does yet
  const State *s = binding->state;
  int64_t work = s->in[0].work ? s->in[0].bytes - (s->in[0].work - s->in[0].memory) : 0;
  return device->implementation->check(binding->queue, &b->kernel, &b->call, s->in[0].work, work, error);
}

// Sets the rows of operands of the batch that BEGIN and END use: they are the same in every step.
static void bind_rows(Binding *binding, Bound *b) {
  const Program *p = binding->program;
  int any = 0;
  b->rows = arena_array(&binding->arena, Rows, b->ninput + b->node->noutput + 1);
  for (int k = 0; k < b->ninput + b->node->noutput; k++) {
    int tensor = k < b->ninput ? b->tensor[k] : b->node->output[k - b->ninput];
    if (tensor >= 0) b->rows[k] = rows_of(p, graph_tensor(p->graph, tensor), binding->state->rank);
    if (b->rows[k].count && b->node->region != REGION_MICRO)
      rows_set(p, b->rows[k], -1, k < b->ninput ? &b->input[k] : &b->output[k - b->ninput]);
    any |= b->rows[k].count;
  }
  if (!any || b->node->region != REGION_MICRO) b->rows = NULL;
}

static void bind_compact(Binding *binding, Bound *b) {
  const Graph *g = binding->program->graph;
  int *compact = arena_array(&binding->arena, int, b->ninput + b->node->noutput + 1);
  for (int k = 0; k < b->ninput + b->node->noutput; k++) {
    int tensor = k < b->ninput ? b->tensor[k] : b->node->output[k - b->ninput];
    const Tensor *t = tensor < 0 ? NULL : graph_tensor(g, tensor);
    if (t && tensor_is_compact(t)) compact[k] = binding->mask[t->mask], b->compact = compact;
    if (t && k >= b->ninput && binding->mask[tensor]) b->masks = 1;
  }
}

// The versions of a delayed parameter move on before it is updated.
static int after_versions(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput], v = t < 0 ? -1 : graph_tensor(g, t)->variable;
    if (v >= 0 && g->variable.data[v].version) return 0;
  }
  return n->region == REGION_END;
}

// An input that is filled while the forward pass runs.
static int reads_late(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput; k++) {
    int input = n->input[k] < 0 ? -1 : graph_tensor(g, n->input[k])->input;
    if (input >= 0 && g->input.data[input].filled == FILLED_LATE) return 1;
  }
  return 0;
}

static int space_of(const Graph *g, int tensor) {
  const Tensor *t = graph_tensor(g, tensor);
  return t->variable >= 0 && t->copy < 0 ? g->variable.data[t->variable].space : 0;
}

static void bind_move(Binding *binding, Bound *b) {
  const Graph *g = binding->program->graph;
  BoundMove *move = arena_array(&binding->arena, BoundMove, 1);
  move->from_space = space_of(g, b->node->input[0]);
  move->to_space = space_of(g, b->node->output[0]);
  int stored = move->from_space ? b->node->input[0] : b->node->output[0]; // perhaps as codes of a few bits
  move->bytes = tensor_bytes(g, graph_tensor(g, stored), operand_elements(b->input));
  b->move = move;
}

static int bind_node(Binding *binding, const Instruction *instruction, Bound *b, Error *error) {
  const Program *p = binding->program;
  const Node *n = &p->graph->node.data[instruction->node];
  const Placement *owner = node_owner(p->graph, n);
  b->node = n;
  b->instruction = instruction;
  b->left_to_owner = owner && !placement_here(&p->mesh, owner, binding->state->rank);
  b->input = arena_array(&binding->arena, Operand, n->ninput + 1);
  b->output = arena_array(&binding->arena, Operand, n->noutput + 1);
  program_operands(p, n, binding->state->rank, b->input, b->output);
  int *tensor = arena_array(&binding->arena, int, n->ninput + 1);
  int spans = terms_span_stages(binding->program->graph, n);
  for (int k = 0; k < n->ninput; k++) {
    if (spans && !adds_here(binding, n, k)) continue;
    b->input[b->ninput] = b->input[k];
    tensor[b->ninput++] = n->input[k];
  }
  b->tensor = tensor;
  if (n->ninput && !b->ninput) // a sum of which this stage has no term, as one without parameters
    b->left_to_owner = FAULT(stage_without_a_term, 1, 0);
  if (!p->shares->even) bind_rows(binding, b);
  bind_compact(binding, b);
  b->newest = FAULT(update_writes_the_delayed, p->schedule->streams && after_versions(p->graph, n), 0);
  b->late = reads_late(p->graph, n);
  b->communicates = op_def(n->op)->communicates;
  int moves = node_is(n, ROLE_MOVE);
  if (!b->communicates && !moves) return bind_kernel(binding, b, error);
  b->flight = arena_array(&binding->arena, Flight, n->region == REGION_END ? p->sums_under_way : 1);
  if (moves) return bind_move(binding, b), PLAIT_OK;
  b->comm = binding->group.data[group_find(&binding->group, p->graph, &p->mesh, n)].comm;
  pieces_bind(binding, b);
  if (b->comm) reserve_collective(b);
  host_call_bind(binding, b);
  if (!node_calls(n, COMM_ALL_TO_ALL_V)) return PLAIT_OK;
  b->call.workspace_size = (size_t)instruction->scratch;
  return exchanged_rows_bind(binding, b, mesh_size(&p->mesh, node_attr(n, CommAttr)->axes), error);
}

static int bind_body(Binding *binding, const Body *body, BoundBody *b, Error *error) {
  *b = (BoundBody){body->count, arena_array(&binding->arena, Bound, body->count + 1)};
  for (int i = 0, code; i < body->count; i++) {
    if ((code = bind_node(binding, &body->instruction[i], &b->bound[i], error))) return code;
    b->bound[i].until = body->instruction[i].wait;
    if (!b->bound[i].until) continue;
    b->bound[i].next_due = b->bound[b->bound[i].until].due;
    b->bound[b->bound[i].until].due = i + 1;
  }
  return PLAIT_OK;
}

static int bind_variables(Binding *b, Error *error) {
  const Graph *g = b->program->graph, *owner = b->state->program->graph;
  b->variable = arena_array(&b->arena, int, g->variable.count + 1);
  for (int i = 0; i < g->variable.count; i++) {
    int v = b->variable[i] = graph_find_variable(owner, g->variable.data[i].name);
    if (b->program->variable_place[i].offset < 0) continue;
    if (v < 0 || b->state->program->variable_place[v].offset < 0 ||
        owner->variable.data[v].space != g->variable.data[i].space ||
        owner->variable.data[v].panels.rows != g->variable.data[i].panels.rows ||
        owner->variable.data[v].panels.lead != g->variable.data[i].panels.lead ||
        variable_allocated(owner, &owner->variable.data[v], -1) < variable_allocated(g, &g->variable.data[i], -1) ||
        owner->variable.data[v].copies < g->variable.data[i].copies ||
        !placement_same_owner(g->variable.data[i].storage, owner->variable.data[v].storage))
      return error_set(error, PLAIT_FAILED, "Variable %s does not fit the state it should be in",
                       g->variable.data[i].name);
  }
  return PLAIT_OK;
}

int binding_make(Binding *b, const Program *p, State *state, DeviceQueue *queue, PlaitComm *world, Error *error) {
  *b = (Binding){.program = p, .state = state, .queue = queue};
  b->input = arena_array(&b->arena, BoundInputs, p->schedule->steps);
  for (int set = 0; set < p->schedule->steps; set++) {
    b->input[set].of = arena_array(&b->arena, StepInput, p->graph->input.count + 1);
    if (program_begins_bytes(p)) b->input[set].begins = arena_alloc(&b->arena, (size_t)program_begins_bytes(p));
  }
  b->input_rows = arena_array(&b->arena, Rows, p->graph->input.count + 1);
  for (int i = 0; i < p->graph->input.count; i++)
    b->input_rows[i] = rows_of(p, graph_tensor(p->graph, p->graph->input.data[i].tensor), state->rank);
  int code = bind_variables(b, error);
  if (!code) code = host_call_create(b, error);
  mask_rows_bind(b);
  if (!code && p->mesh.ranks > 1) code = create_groups(b, world, error);
  if (!code) code = bind_body(b, &p->begin, &b->begin, error);
  if (!code) code = bind_body(b, &p->end, &b->end, error);
  b->micro = arena_alloc(&b->arena, sizeof *b->micro * (size_t)p->graph->stages);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT && !code; phase++)
      code = bind_body(b, &p->micro[s][phase], &b->micro[s][phase], error);
  if (!code) reserve_messages(b);
  return code;
}

void binding_free(Binding *b) {
  for (int i = 0; i < b->group.count; i++) plait_comm_destroy(b->group.data[i].comm);
  for (int i = 0; i < 2; i++) plait_comm_destroy(b->pipe[i]);
  host_call_destroy(b);
  vec_free(&b->group);
  arena_free(&b->arena);
}

BoundBody *binding_body(Binding *b, const Action *a) {
  if (a->kind == ACTION_BEGIN) return &b->begin;
  if (a->kind == ACTION_SUMS || a->kind == ACTION_END) return &b->end;
  return action_runs_body(a) ? &b->micro[a->stage][action_phase(a)] : NULL;
}
