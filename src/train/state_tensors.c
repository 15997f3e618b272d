// Variables as boxes: offset, valid extent and strides of a padded shard.
#include "train/state_tensors.h"

static CheckpointTensor as_box(const State *s, const Variable *v) {
  const Mesh *mesh = &s->program->mesh;
  CheckpointTensor t = {.name = v->name, .dtype = v->dtype, .rank = v->shape.rank, .data = s->memory + s->program->variable_offset[v->id]};
  int64_t stride = 1;
  for (int d = v->shape.rank - 1; d >= 0; d--) {
    IndexMap map = placement_map(mesh, v->storage, d, v->shape.size[d], s->rank);
    t.global[d] = v->shape.size[d];
    t.local[d] = map.valid;
    t.offset[d] = map.valid ? map.run[0].global : 0;
    t.stride[d] = stride;
    stride *= map.local;
  }
  t.primary = placement_primary(mesh, v->storage, s->rank, mesh_stage_coordinates(mesh, v->stages));
  return t;
}

int state_tensor(const State *s, int variable, CheckpointTensor *out) {
  const Graph *g = s->program->graph;
  CHECK(variable >= 0 && variable < g->variable.count, "Variable %d does not exist", variable);
  if (s->program->variable_offset[variable] < 0) return 0;
  *out = as_box(s, &g->variable.data[variable]);
  return 1;
}

int state_tensors(const State *s, unsigned kinds, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  int n = 0;
  *out = xcalloc((size_t)g->variable.count + 1, sizeof **out);
  for (int i = 0; i < g->variable.count; i++)
    if (kinds >> g->variable.data[i].kind & 1) n += state_tensor(s, i, &(*out)[n]);
  return n;
}

int state_tensors_of(const State *s, KnownOf of, CheckpointTensor **out) {
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
