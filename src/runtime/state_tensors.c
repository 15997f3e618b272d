// Variables as boxes.
#include "runtime/state_tensors.h"
#include "base/vec.h"
#include <string.h>

static void read_part(void *state, int variable, const Box *part, void *out) {
  state_read(state, variable, -1, part, out);
}
static void write_part(void *state, int variable, const Box *part, const void *in) {
  state_write(state, variable, -1, part, in);
}
static const PieceAccess access_of_state = {read_part, write_part};

typedef Vec(CheckpointTensor) Pieces;

static void add_boxes(State *s, int variable, const char *name, Pieces *out) {
  const Mesh *mesh = &s->program->mesh;
  const Variable *v = &s->program->graph->variable.data[variable];
  StageSet coordinates = mesh_stage_coordinates(mesh, graph_stages(s->program->graph, v->stages));
  CheckpointTensor t = {.name = name,
                        .dtype = variable_dtype(v),
                        .rank = v->shape.rank,
                        .access = &access_of_state,
                        .owner = s,
                        .id = variable};
  memcpy(t.global, v->shape.size, sizeof *t.global * (size_t)v->shape.rank);
  t.primary = placement_primary(mesh, v->storage, s->rank, &coordinates);
  for (ShardBoxes b = state_boxes(s, variable, -1); shard_next(&b);) {
    memcpy(t.local, b.box.local, sizeof t.local);
    memcpy(t.offset, b.box.offset, sizeof t.offset);
    vec_push(out, t);
  }
}

// One at least, so that a list of none can be freed and sorted as any other.
static int give(Pieces *pieces, CheckpointTensor **out) {
  vec_reserve(pieces, 1);
  *out = pieces->data;
  return pieces->count;
}

int state_tensor(State *s, int variable, CheckpointTensor **out) {
  Pieces pieces = {0};
  add_boxes(s, variable, s->program->graph->variable.data[variable].name, &pieces);
  return give(&pieces, out);
}

int state_tensors(State *s, VariableTest *wanted, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  Pieces pieces = {0};
  for (int i = 0; i < g->variable.count; i++)
    if (wanted(&g->variable.data[i])) add_boxes(s, i, g->variable.data[i].name, &pieces);
  return give(&pieces, out);
}

int state_tensors_of(State *s, KnownOf of, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  Pieces pieces = {0};
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].of == of) add_boxes(s, i, g->variable.data[g->variable.data[i].parameter].name, &pieces);
  return give(&pieces, out);
}

int program_primary_boxes(const Program *p, int variable, int rank, Box **boxes) {
  const Variable *v = &p->graph->variable.data[variable];
  StageSet coordinates = mesh_stage_coordinates(&p->mesh, graph_stages(p->graph, v->stages));
  Vec(Box) all = {0};
  vec_reserve(&all, 1);
  *boxes = all.data;
  if (p->variable_place[variable].offset < 0 || !placement_primary(&p->mesh, v->storage, rank, &coordinates)) return 0;
  for (ShardBoxes b = {.shard = shard_of(&p->mesh, variable_placement(v, -1), &v->shape, rank)}; shard_next(&b);)
    vec_push(&all, b.box);
  *boxes = all.data;
  return all.count;
}

const void *state_view(const State *s, int variable, const Box *part, Dtype dtype, int64_t *stride) {
  const Variable *v = &s->program->graph->variable.data[variable];
  Place place = program_variable_place(s->program, variable, -1, s->turn);
  if (v->encoding || v->dtype != dtype || place.offset < 0 || !s->device->space[place.space].is_host) return NULL;
  ShardBoxes held = state_boxes(s, variable, -1);
  CHECK(shard_find(&held, part), "%s: rank %d does not have this part", v->name, s->rank);
  shard_strides(&held.shard, stride);
  int64_t at = 0;
  for (int d = 0; d < part->rank; d++) at += (held.at[d] + part->offset[d] - held.box.offset[d]) * stride[d];
  return state_address(s, place) + at * (int64_t)dtype_size(dtype);
}
