// Variables as boxes.
#include "train/state_tensors.h"
#include <string.h>

static void read_part(void *state, int variable, const Box *part, void *out) { state_read(state, variable, -1, part, out); }
static void write_part(void *state, int variable, const Box *part, const void *in) { state_write(state, variable, -1, part, in); }
static const PieceAccess access_of_state = {read_part, write_part};

int state_tensor(State *s, int variable, CheckpointTensor *out) {
  Box box;
  if (!state_box(s, variable, -1, &box)) return 0;
  const Mesh *mesh = &s->program->mesh;
  const Variable *v = &s->program->graph->variable.data[variable];
  *out = (CheckpointTensor){.name = v->name, .dtype = v->dtype, .rank = v->shape.rank, .access = &access_of_state, .owner = s, .id = variable};
  memcpy(out->global, v->shape.size, sizeof *out->global * (size_t)v->shape.rank);
  memcpy(out->local, box.local, sizeof out->local);
  memcpy(out->offset, box.offset, sizeof out->offset);
  StageSet coordinates = mesh_stage_coordinates(mesh, graph_stages(s->program->graph, v->stages));
  out->primary = placement_primary(mesh, v->storage, s->rank, &coordinates);
  return 1;
}

int state_tensors(State *s, unsigned kinds, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  int n = 0;
  *out = xcalloc((size_t)g->variable.count + 1, sizeof **out);
  for (int i = 0; i < g->variable.count; i++)
    if (kinds >> g->variable.data[i].kind & 1) n += state_tensor(s, i, &(*out)[n]);
  return n;
}

int state_tensors_of(State *s, KnownOf of, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  int n = 0;
  *out = xcalloc((size_t)g->variable.count + 1, sizeof **out);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v->of != of || !state_tensor(s, i, &(*out)[n])) continue;
    (*out)[n++].name = g->variable.data[v->parameter].name;
  }
  return n;
}
