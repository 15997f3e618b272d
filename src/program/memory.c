// The memory plan: lifetimes give every buffer an offset. Variables lie in State's memory, what crosses bodies in
// slots, everything else in one workspace that all bodies share.
#include "program/memory.h"
#include "base/fault.h"
#include "sharding/redistribute.h"
#include <stdlib.h>
#include <string.h>

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

int64_t memory_tensor_bytes(const Program *p, const Tensor *t) {
  return round_up((t->allocated > 0 ? t->allocated : 1) * (int64_t)dtype_size(t->dtype), p->device->space.alignment);
}

static int64_t *category(MemoryPlan *m, const Variable *v) {
  VariableKind kind = v->kind;
  return v->version                  ? &m->versions
         : kind == VARIABLE_PARAMETER   ? &m->parameters
         : kind == VARIABLE_GRADIENT  ? &m->gradients
         : kind == VARIABLE_OPTIMIZER ? &m->optimizer
                                      : &m->other;
}

// Of one owner, or of what all ranks have: bytes so far, and of which kinds.
typedef struct Share { int64_t bytes; MemoryPlan kinds; } Share;

static void place_storage(const Program *p, const Placement *at, uint32_t axes, int64_t from, int64_t bytes,
                          const Variable *v, Share *share, int64_t *offset) {
  if (at->owner_axes != axes) return;
  CHECK(at->owner >= 0 && at->owner < mesh_size(&p->mesh, axes));
  Share *s = &share[axes ? at->owner : 0];
  *offset = from + s->bytes;
  s->bytes += bytes;
  *category(&s->kinds, v) += bytes;
}

int64_t memory_variable_bytes(const Program *p, int64_t elements, Dtype dtype) {
  return round_up(elements * (int64_t)dtype_size(dtype), p->device->space.alignment);
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
      if (v->kind == VARIABLE_METRIC && t->copy < 0) p->variable_instances[t->variable] = 1 + begun; // read behind END
      if (n->region == REGION_END || (p->schedule->at_once && n->region == REGION_MICRO && n->phase != PHASE_FORWARD))
        continue; // what backward alone writes is read when it is done
      if (t->copy >= 0) p->copy_instances[t->variable][t->copy] = 1 + begun - updated;
      else if (FAULT(stream_has_one_instance, v->kind == VARIABLE_GRADIENT, 0))
        p->variable_instances[t->variable] = 1 + begun - updated;
    }
  }
}

// A parameter with delay d and its versions have d + 1 places. What is the newest in one step is a version in the next,
// and the oldest is written then: nothing is moved.
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
// owns, so that all owners' shares begin at the same offset; what there is room for is the largest. Returns its end.
static int64_t place_shares(Program *p, uint32_t axes, int64_t from) {
  const Graph *g = p->graph;
  int count = g->variable.count, first = count ? (int)(p->chaos % (uint64_t)count) : 0,
      owners = mesh_size(&p->mesh, axes);
  Share *share = xcalloc((size_t)owners, sizeof *share), *most = share, *least = share;
  for (int k = 0; k < count; k++) {
    int i = (k + first) % count;
    const Variable *v = &g->variable.data[i];
    if (!mesh_runs_stages(&p->mesh, p->coordinate, graph_stages(p->graph, v->stages))) continue;
    int instances = p->variable_instances ? p->variable_instances[i] : 1;
    place_storage(p, v->storage, axes, from, instances * memory_variable_bytes(p, v->allocated, v->dtype), v, share,
                  &p->variable_offset[i]);
    for (int c = 0; c < v->copies; c++) {
      instances = p->copy_instances ? p->copy_instances[i][c] : 1;
      place_storage(p, v->copy[c].placement, axes, from,
                    instances * memory_variable_bytes(p, v->copy[c].allocated, v->copy[c].dtype), v, share,
                    &p->copy_offset[i][c]);
    }
  }
  for (int i = 1; i < owners; i++) {
    if (share[i].bytes > most->bytes) most = &share[i];
    if (share[i].bytes < least->bytes) least = &share[i];
  }
  MemoryPlan *m = &p->memory;
  m->parameters += most->kinds.parameters;
  m->gradients += most->kinds.gradients;
  m->optimizer += most->kinds.optimizer;
  m->other += most->kinds.other;
  m->versions += most->kinds.versions;
  if (axes) m->owned_most += most->bytes, m->owned_least += least->bytes;
  int64_t end = from + most->bytes;
  free(share);
  return end;
}

void memory_place_variables(Program *p) {
  const Graph *g = p->graph;
  p->variable_offset = arena_array(&p->arena, int64_t, g->variable.count + 1);
  p->copy_offset = arena_alloc(&p->arena, sizeof *p->copy_offset * (size_t)(g->variable.count + 1));
  for (int i = 0; i < g->variable.count; i++) p->variable_offset[i] = -1;
  p->sums_under_way = 1;
  if (p->schedule->streams) note_instances(p), note_places(p);
  p->state_bytes = place_shares(p, 0, 0);
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
    p->state_bytes = place_shares(p, axes, p->state_bytes);
  }
}

static int by_weight(const void *a, const void *b) {
  const Life *x = a, *y = b;
  if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
  return x->tensor - y->tensor;
}

// What single ranks own lies in their workspace only: no rank has both of what different ones own.
static int on_one_rank(const Program *p, int a, int b) {
  const Placement *x = graph_tensor(p->graph, a)->placement, *y = graph_tensor(p->graph, b)->placement;
  return FAULT(what_others_own_takes_memory, !placements_apart(&p->mesh, x, y), 1);
}

// Largest first, each at the lowest offset where nothing that lives at the same time lies. Returns the end.
static int64_t pack(const Program *p, Life *life, int n) {
  uint64_t seed = p->chaos;
  if (!n) return 0;
  uint64_t chaos = seed * 0x9e3779b97f4a7c15; // any order must do
  for (int i = 0; i < n; i++)
    life[i].weight = chaos ? (chaos ^ (uint64_t)life[i].tensor) * 0xbf58476d1ce4e5b9 : (uint64_t)life[i].bytes;
  qsort(life, (size_t)n, sizeof *life, by_weight);
  struct {
    int64_t from, to;
    int first, last, tensor;
  } *placed = xcalloc((size_t)n, sizeof *placed); // by rising offset
  int64_t end = 0;
  for (int i = 0; i < n; i++) {
    int64_t at = 0, bytes = life[i].bytes;
    int before = i, first = life[i].first, last = life[i].last;
    for (int k = 0; k < i; k++) {
      if (placed[k].first > last || first > placed[k].last || !on_one_rank(p, placed[k].tensor, life[i].tensor))
        continue;
      if (placed[k].from - at >= bytes) break;
      if (placed[k].to > at) at = placed[k].to;
    }
    life[i].offset = at;
    if (at + bytes > end) end = at + bytes;
    while (before > 0 && placed[before - 1].from > at) before--;
    memmove(&placed[before + 1], &placed[before], sizeof *placed * (size_t)(i - before));
    placed[before].from = at;
    placed[before].to = at + bytes;
    placed[before].first = first;
    placed[before].last = last;
    placed[before].tensor = life[i].tensor;
  }
  free(placed);
  return end;
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

// Results of REDUCE outlive the body during which they are made, in a stream what END's second half reads of its first:
// each has a place of its own, and so have those of one owner.
void memory_place_reduced(Program *p) {
  Vec(Life) life = {0};
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (a->kind != ACTION_REDUCE) continue;
    const Node *n = &p->graph->node.data[a->node];
    for (int k = 0; k < n->noutput; k++) {
      if (p->place[n->output[k]].area != AREA_WORK) continue;
      p->place[n->output[k]].area = AREA_COMM;
      vec_push(&life,
               (Life){.tensor = n->output[k], .bytes = memory_tensor_bytes(p, graph_tensor(p->graph, n->output[k]))});
    }
  }
  int *first = first_uses(p);
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0 || p->place[t].area != AREA_WORK || first[t] >= p->end_cut || instruction_end(&p->end, i) < p->end_cut)
        continue;
      p->place[t].area = AREA_COMM;
      vec_push(&life, (Life){.tensor = t, .bytes = memory_tensor_bytes(p, graph_tensor(p->graph, t))});
    }
  }
  free(first);
  p->comm_bytes = pack(p, life.data, life.count) * p->sums_under_way;
  for (int i = 0; i < life.count; i++) p->place[life.data[i].tensor].offset = life.data[i].offset;
  vec_free(&life);
}

// A sum that one rank owns is made in the memory of the terms, where nothing else reads them: per tensor of the body 1
// + the one in whose memory it lies, 0: in its own.
static int *find_sums_in_place(const Program *p, const Body *body) {
  const Graph *g = p->graph;
  int *readers = xcalloc((size_t)g->tensor.count, sizeof(int)),
      *in_place = xcalloc((size_t)g->tensor.count, sizeof(int));
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] >= 0) readers[n->input[k]]++;
  }
  for (int i = 0; i < body->count; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; op_def(n->op)->rooted && op_def(n->op)->reduces && k < n->noutput; k++) {
      const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
      if (p->place[in->id].area == AREA_WORK && p->place[out->id].area == AREA_WORK && readers[in->id] == 1 &&
          memory_tensor_bytes(p, in) == memory_tensor_bytes(p, out))
        in_place[out->id] = 1 + in->id;
    }
  }
  free(readers);
  return in_place;
}

// Without offsets. in_place: as find_sums_in_place; what lies in another tensor's memory prolongs that one's life.
static void collect_lives(const Program *p, const Body *body, const int *in_place, LifeList *life) {
  int *index = xcalloc((size_t)p->graph->tensor.count, sizeof(int));
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->noutput + n->ninput; k++) {
      int t = k < n->noutput ? n->output[k] : n->input[k - n->noutput];
      if (t < 0 || p->place[t].area != AREA_WORK) continue;
      while (in_place[t]) t = in_place[t] - 1;
      if (!index[t]) {
        vec_push(
            life,
            (Life){.tensor = t, .bytes = memory_tensor_bytes(p, graph_tensor(p->graph, t)), .first = i, .last = i});
        index[t] = life->count;
      }
      int last = FAULT(memory_dies_too_early, instruction_end(body, i), k < n->noutput ? instruction_end(body, i) : 0);
      if (last > life->data[index[t] - 1].last) life->data[index[t] - 1].last = last;
    }
  }
  free(index);
}

void memory_body_lives(const Program *p, const Body *body, LifeList *list) {
  int *in_place = find_sums_in_place(p, body), from = list->count;
  collect_lives(p, body, in_place, list);
  for (int i = from; i < list->count; i++) list->data[i].offset = p->place[list->data[i].tensor].offset;
  free(in_place);
}

void memory_place_body(Program *p, const Body *body) {
  LifeList life = {0};
  int *in_place = find_sums_in_place(p, body);
  collect_lives(p, body, in_place, &life);
  int64_t end = pack(p, life.data, life.count);
  for (int i = 0; i < life.count; i++) p->place[life.data[i].tensor].offset = life.data[i].offset;
  for (int t = 0; t < p->graph->tensor.count; t++)
    if (in_place[t]) p->place[t].offset = p->place[in_place[t] - 1].offset;
  free(in_place);
  if (end > p->work_bytes) p->work_bytes = end;
  vec_free(&life);
}

static void hold(Program *p, int tensor, Area area, int stage, Phase phase) {
  if (p->place[tensor].area == AREA_WORK) p->place[tensor] = (Place){area, stage, phase, 0};
}

// What a body of a stage leaves to another one lies in the stage's slot; a tensor that two stages of this coordinate
// read in the slot of the one that made or received it. What is only sent or received lies in a staging buffer of the
// segment.
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

static void lay_out(Ring *ring, int count, int64_t *at, int64_t from) {
  ring->count = count;
  ring->offset = from + *at;
  *at += ring->count * ring->bytes;
}

void memory_place_tensors(Program *p) {
  const Graph *g = p->graph;
  p->place = arena_array(&p->arena, Place, g->tensor.count + 1);
  p->slots = arena_array(&p->arena, Ring, g->stages);
  p->staging = arena_alloc(&p->arena, sizeof *p->staging * (size_t)g->stages);
  for (int i = 0; i < g->tensor.count; i++) {
    const Tensor *t = &g->tensor.data[i];
    p->place[i].area = t->variable >= 0 ? AREA_VARIABLE : t->input >= 0 ? AREA_INPUT : AREA_WORK;
    if (t->variable >= 0)
      p->place[i].offset = t->copy < 0 ? p->variable_offset[t->variable] : p->copy_offset[t->variable][t->copy];
  }
  for EACH_PROGRAM_STAGE(s, p) mark_slots(p, s);
}

// ---- tensors of a slot ----------------------------------------------------------------------------------------------

enum { AS_LONG_AS_THE_SLOT = 1 << 30 };

// When a slot's microbatch is at an instruction: the stage's bodies stand one behind the other, with room between them
// for what is received before the first instruction of each.
static int time_in_slot(const Program *p, int stage, Phase phase, int instruction) {
  int time = 1 + instruction;
  for (int before = 0; before < (int)phase; before++) time += p->micro[stage][before].count + 1;
  return time;
}

static int *life_index(const Program *p, int stage, int tensor, int *index) {
  return tensor >= 0 && p->place[tensor].area == AREA_SLOT && p->place[tensor].stage == stage ? &index[tensor] : NULL;
}

static void lives_until(Life *life, int time) {
  if (life->last < time) life->last = time;
}

// Reads of a body of any stage of this coordinate. When another stage reads a slot is not known here.
static void note_reads(const Program *p, int stage, int reader, Phase phase, int *index, Life *life) {
  const Body *body = &p->micro[reader][phase];
  for (int i = 0; i < body->count; i++) {
    const Node *n = &p->graph->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int *at = life_index(p, stage, k < n->ninput ? n->input[k] : n->output[k - n->ninput], index);
      if (!at || FAULT(slot_dies_before_weights, 0, phase == PHASE_WEIGHT)) continue;
      Life *x = &life[*at - 1];
      int time = time_in_slot(p, stage, phase, i), end = time_in_slot(p, stage, phase, instruction_end(body, i));
      if (k >= n->ninput && reader == stage) x->first = time;
      lives_until(x, reader == stage ? end : AS_LONG_AS_THE_SLOT);
    }
  }
}

// What is received lives from before its segment on; what is sent from a slot may be under way until that is left.
static void note_messages(const Program *p, int stage, int *index, Life *life) {
  for (int phase = 0; phase < PHASE_COUNT; phase++) {
    const Segment *s = &p->segments->micro[stage][phase];
    const CrossingList *lists[] = {&s->receive, &s->send};
    for (int l = 0; l < 2; l++)
      for (int i = 0; i < lists[l]->count; i++) {
        const Crossing *c = &lists[l]->data[i];
        int *at = program_runs(p, c->stage) ? NULL : life_index(p, stage, c->tensor, index);
        if (at && l) lives_until(&life[*at - 1], AS_LONG_AS_THE_SLOT);
        else if (at) life[*at - 1].first = time_in_slot(p, stage, (Phase)phase, -1);
      }
  }
}

// Where backward is split, a slot has much that forward leaves to B alone, and as much that B leaves to W: they take
// each other's place.
static void pack_slot(Program *p, int stage) {
  const Graph *g = p->graph;
  Vec(Life) life = {0};
  int *index = xcalloc((size_t)g->tensor.count + 1, sizeof *index);
  for (int t = 0; t < g->tensor.count; t++) {
    if (p->place[t].area != AREA_SLOT || p->place[t].stage != stage) continue;
    vec_push(&life, (Life){.tensor = t, .bytes = memory_tensor_bytes(p, graph_tensor(g, t))});
    index[t] = life.count;
  }
  for EACH_PROGRAM_STAGE(reader, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++) note_reads(p, stage, reader, (Phase)phase, index, life.data);
  note_messages(p, stage, index, life.data);
  p->slots[stage].bytes = pack(p, life.data, life.count);
  for (int i = 0; i < life.count; i++) p->place[life.data[i].tensor].offset = life.data[i].offset;
  free(index);
  vec_free(&life);
}

void memory_place_rings(Program *p) {
  const Graph *g = p->graph;
  for (int i = 0; i < g->tensor.count; i++) {
    Place *place = &p->place[i];
    if (place->area != AREA_SLOT && place->area != AREA_STAGING) continue;
    Ring *ring = place->area == AREA_SLOT ? &p->slots[place->stage] : &p->staging[place->stage][place->phase];
    place->offset = FAULT(memory_overlaps_slots, ring->bytes, ring->bytes / 2);
    ring->bytes += memory_tensor_bytes(p, &g->tensor.data[i]);
  }
  int staging = p->schedule->microbatches < STAGING_BUFFERS && !p->schedule->streams ? p->schedule->microbatches
                                                                                     : STAGING_BUFFERS;
  for EACH_PROGRAM_STAGE(s, p)
    if (p->micro[s][PHASE_WEIGHT].count) pack_slot(p, s);
  for EACH_PROGRAM_STAGE(s, p) lay_out(&p->slots[s], p->schedule->slots[s], &p->slot_bytes, 0);
  for EACH_PROGRAM_STAGE(s, p)
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    lay_out(&p->staging[s][phase], staging, &p->staging_bytes, p->slot_bytes);
}

void memory_place_inputs(Program *p) {
  const Graph *g = p->graph;
  if (p->device->space.is_host) return;
  p->input_offset = arena_array(&p->arena, int64_t, g->input.count + 1);
  for (int i = 0; i < g->input.count; i++) {
    int microbatches;
    int64_t bytes = round_up(program_input_bytes(p, i, &microbatches), p->device->space.alignment);
    p->input_offset[i] = p->input_bytes;
    p->input_bytes += bytes * microbatches;
  }
  p->input_bytes *= p->schedule->steps; // that are under way
}

void memory_total(Program *p) {
  MemoryPlan *m = &p->memory;
  m->activations = p->slot_bytes;
  m->communication = p->staging_bytes + p->comm_bytes;
  m->workspace = p->work_bytes + p->scratch_bytes + p->input_bytes;
  m->total = p->state_bytes + m->activations + m->communication + m->workspace;
}
