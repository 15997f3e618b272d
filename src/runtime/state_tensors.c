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
