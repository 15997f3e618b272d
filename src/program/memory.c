// The memory plan: where Variables lie in State's memory, and in which area each tensor of the working memory is. Its
// offsets there follow from lifetimes (lives.c).
#include "program/memory.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

int64_t memory_tensor_bytes(const Program *p, const Tensor *t) {
  int64_t elements = tensor_allocated(p->graph, t) > 0 ? tensor_allocated(p->graph, t) : 1;
  return round_up(elements * (int64_t)dtype_size(t->dtype), p->device->space[0].alignment);
}

static int64_t *category(MemoryPlan *m, const Variable *v) {
  switch (variable_memory(v)) {
  case MEMORY_OF_VERSIONS: return &m->versions;
  case MEMORY_OF_PARAMETERS: return &m->parameters;
  case MEMORY_OF_GRADIENTS: return &m->gradients;
  case MEMORY_OF_OPTIMIZER: return &m->optimizer;
  default: return &m->other;
  }
}

// Of one owner, or of what all ranks have: bytes of a space so far, and of which kinds.
typedef struct Share { int64_t bytes; MemoryPlan kinds; } Share;

// The storage of a Variable (copy -1), or a Copy, if it lies in that space.
static void place_storage(const Program *p, uint32_t axes, Place from, const Variable *v, int copy, int instances,
                          Share *share, Place *place) {
  const Placement *at = variable_placement(v, copy);
  if (at->owner_axes != axes || (copy < 0 ? v->space : 0) != from.space) return;
  CHECK(at->owner >= 0 && at->owner < mesh_size(&p->mesh, axes));
  Share *s = &share[axes ? at->owner : 0];
  int64_t bytes = instances * memory_variable_bytes(p, v, copy);
  *place = (Place){from.space, AREA_VARIABLE, from.offset + s->bytes};
  s->bytes += bytes;
  *category(&s->kinds, v) += bytes;
}

int64_t memory_variable_bytes(const Program *p, const Variable *v, int copy) {
  return round_up(variable_bytes(v, copy, variable_allocated(p->graph, v, copy)),
                  p->device->space[copy < 0 ? v->space : 0].alignment);
}

// The step of the actions of a kind in the body of this coordinate's list: all of them are of one.
static int step_of(const Program *p, ActionKind kind) {
  const ActionList *list = &p->schedule->list[p->coordinate];
  for (int i = 0; i < list->count; i++)
    if (list->data[i].kind == kind && list->data[i].part == LIST_BODY) return list->data[i].step;
  CHECK(0, "a stream without %s", action_name(kind));
}

// In a stream, of a Variable or Copy that a step writes for itself: how many steps are between where BEGIN may write it
// first and where it is read last. Counters and moments, parameters and their versions are carried from one step to the
// next.
static void note_instances(Program *p) {
  const Graph *g = p->graph;
  int begun = step_of(p, ACTION_BEGIN), updated = p->schedule->at_once ? step_of(p, ACTION_SUMS) : 0;
  p->sums_under_way = 1 + step_of(p, ACTION_SUMS);
  p->variable_instances = arena_array(&p->arena, int, g->variable.count + 1);
  p->copy_instances = arena_alloc(&p->arena, sizeof *p->copy_instances * (size_t)(g->variable.count + 1));
  for (int v = 0; v < g->variable.count; v++) {
    p->variable_instances[v] = 1;
    for (int c = 0; c < MAX_COPIES; c++) p->copy_instances[v][c] = 1;
  }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; k < n->noutput; k++) {
      const Tensor *t = graph_tensor(g, n->output[k]);
      const Variable *v = t->variable < 0 ? NULL : &g->variable.data[t->variable];
      if (!v) continue;
      if (v->kind == VARIABLE_METRIC && t->copy < 0) p->variable_instances[t->variable] = 1 + begun; // read after END
      if (n->region == REGION_END || (p->schedule->at_once && n->region == REGION_MICRO && n->phase != PHASE_FORWARD))
        continue; // what backward alone writes is read when it is done
      if (t->copy >= 0) p->copy_instances[t->variable][t->copy] = 1 + begun - updated;
      else if (FAULT(stream_has_one_instance, v->kind == VARIABLE_GRADIENT, 0))
        p->variable_instances[t->variable] = 1 + begun - updated;
    }
  }
}

// A parameter with delay d and its versions have d + 1 places. The newest of one step is a version in the next, and the
// oldest is written then: nothing is moved.
static void note_places(Program *p) {
  const Graph *g = p->graph;
  p->places = arena_array(&p->arena, int *, g->variable.count + 1);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!v->version) continue;
    int places = g->variable.data[v->parameter].delay + 1;
    if (!p->places[v->parameter]) p->places[v->parameter] = arena_array(&p->arena, int, places);
    p->places[v->parameter][0] = v->parameter;
    p->places[v->parameter][places - v->version] = i;
    p->places[i] = p->places[v->parameter];
  }
}

// Places what the ranks of `axes` own each on its own, or with axes 0 what all ranks have. No rank has what another one
// owns, so that all owners' shares begin at the same offset; what there is room for is the largest. The plan that is
// printed is that of the first space.
static void place_shares(Program *p, int space, uint32_t axes) {
  Place from = {space, AREA_VARIABLE, p->state_bytes[space]};
  const Graph *g = p->graph;
  int count = g->variable.count, first = count ? (int)(p->chaos % (uint64_t)count) : 0,
      owners = mesh_size(&p->mesh, axes);
  Share *share = xcalloc((size_t)owners, sizeof *share), *most = share, *least = share;
  for (int k = 0; k < count; k++) {
    int i = (k + first) % count;
    const Variable *v = &g->variable.data[i];
    if (!mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, v->stages))) continue;
    place_storage(p, axes, from, v, -1, p->variable_instances ? p->variable_instances[i] : 1, share,
                  &p->variable_place[i]);
    for (int c = 0; c < v->copies; c++)
      place_storage(p, axes, from, v, c, p->copy_instances ? p->copy_instances[i][c] : 1, share, &p->copy_place[i][c]);
  }
  for (int i = 1; i < owners; i++) {
    if (share[i].bytes > most->bytes) most = &share[i];
    if (share[i].bytes < least->bytes) least = &share[i];
  }
  p->state_bytes[space] += most->bytes;
  MemoryPlan unread = {0}, *m = space ? &unread : &p->memory;
  m->parameters += most->kinds.parameters;
  m->gradients += most->kinds.gradients;
  m->optimizer += most->kinds.optimizer;
  m->other += most->kinds.other;
  m->versions += most->kinds.versions;
  if (axes) m->owned_most += most->bytes, m->owned_least += least->bytes;
  free(share);
}

void memory_place_variables(Program *p) {
  const Graph *g = p->graph;
  p->variable_place = arena_array(&p->arena, Place, g->variable.count + 1);
  p->copy_place = arena_alloc(&p->arena, sizeof *p->copy_place * (size_t)(g->variable.count + 1));
  for (int i = 0; i < g->variable.count; i++) p->variable_place[i].offset = -1;
  p->sums_under_way = 1;
  if (p->schedule->streams) note_instances(p), note_places(p);
  for (int s = 0; s < p->device->spaces; s++) place_shares(p, s, 0);
  // The axes that owners are on: ZeRO's, less those over which the Layout has cut a tensor already.
  uint32_t placed[MAX_AXES];
  int sets = 0;
  for (int i = 0; i < g->variable.count; i++) {
    uint32_t axes = g->variable.data[i].storage->owner_axes;
    int k = 0;
    while (k < sets && placed[k] != axes) k++;
    if (!axes || k < sets) continue;
    CHECK(sets < MAX_AXES);
    placed[sets++] = axes;
    for (int s = 0; s < p->device->spaces; s++) place_shares(p, s, axes);
  }
}

// (tensors) the first instruction of END that gives it; 0 where none does. The caller frees it.
static int *first_uses(const Program *p) {
  int *first = xcalloc((size_t)p->graph->tensor.count + 1, sizeof *first);
  for (int i = p->end.count - 1; i >= 0; i--) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    for (int k = 0; k < n->noutput; k++) first[n->output[k]] = i;
  }
  return first;
}

// Results of REDUCE outlive the body during which they are made, and in a stream what END's second half reads of its
// first outlives that.
void memory_place_reduced(Program *p) {
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (a->kind != ACTION_REDUCE) continue;
    const Node *n = &p->graph->node.data[a->node];
    for (int k = 0; k < n->noutput; k++)
      if (p->place[n->output[k]].area == AREA_WORK) p->place[n->output[k]].area = AREA_COMM;
  }
  int *first = first_uses(p);
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0 || p->place[t].area != AREA_WORK || first[t] >= p->end_cut || instruction_end(&p->end, i) < p->end_cut)
        continue;
      p->place[t].area = AREA_COMM;
    }
  }
  free(first);
}

static void hold(Program *p, int tensor, Area area, int stage, Phase phase) {
  if (p->place[tensor].area == AREA_WORK)
    p->place[tensor] = (TensorPlace){.area = area, .stage = stage, .phase = phase};
}

// A tensor that a body of a stage leaves to another one lies in the stage's slot; a tensor that two stages of this
// coordinate read in the slot of the one that made or received it. A tensor that is only sent or received lies in a
// staging buffer of the segment.
static void mark_slots(Program *p, int stage) {
  const Graph *g = p->graph;
  for (int phase = 0; phase < PHASE_COUNT; phase++) {
    const Segment *s = &p->segments->micro[stage][phase];
    for (int i = 0; i < s->node.count; i++) {
      const Node *n = &g->node.data[s->node.data[i]];
      for (int k = 0; k < n->ninput; k++) {
        const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
        if (!t || t->producer < 0) continue;
        const Node *maker = &g->node.data[t->producer];
        if (program_runs(p, maker->stage) && (maker->stage != n->stage || maker->phase != n->phase))
          hold(p, t->id, AREA_SLOT, maker->stage, PHASE_FORWARD);
      }
    }
    const CrossingList *lists[] = {&s->send, &s->receive};
    for (int l = 0; l < 2; l++)
      for (int i = 0; i < lists[l]->count; i++) {
        const Crossing *c = &lists[l]->data[i];
        if (!program_runs(p, c->stage)) hold(p, c->tensor, c->kept ? AREA_SLOT : AREA_STAGING, stage, (Phase)phase);
      }
  }
}

void memory_place_tensors(Program *p) {
  const Graph *g = p->graph;
  p->place = arena_array(&p->arena, TensorPlace, g->tensor.count + 1);
  p->slots = arena_array(&p->arena, Ring, g->stages);
  p->staging = arena_alloc(&p->arena, sizeof *p->staging * (size_t)g->stages);
  for (int i = 0; i < g->tensor.count; i++) {
    const Tensor *t = &g->tensor.data[i];
    p->place[i].area = t->variable >= 0 ? AREA_VARIABLE : t->input >= 0 ? AREA_INPUT : AREA_WORK;
  }
  for EACH_PROGRAM_STAGE(s, p) mark_slots(p, s);
}

void memory_place_inputs(Program *p) {
  const Graph *g = p->graph;
  if (p->device->space[0].is_host) return;
  p->input_offset = arena_array(&p->arena, int64_t, g->input.count + 1);
  for (int i = 0; i < g->input.count; i++) {
    int microbatches;
    int64_t bytes = round_up(program_input_bytes(p, i, &microbatches), p->device->space[0].alignment);
    p->input_offset[i] = p->input_bytes;
    p->input_bytes += bytes * microbatches;
  }
  p->begins_offset = p->input_bytes;
  p->input_bytes += round_up(program_begins_bytes(p), p->device->space[0].alignment);
  p->input_bytes *= p->schedule->steps; // that are under way
}

void memory_total(Program *p) {
  MemoryPlan *m = &p->memory;
  m->workspace += p->input_bytes;
  m->total = p->state_bytes[0] + p->arena_bytes + p->input_bytes;
}
