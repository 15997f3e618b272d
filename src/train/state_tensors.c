// Variables as boxes: offset, valid extent and strides of a padded shard.
#include "train/state_tensors.h"
#include <string.h>

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

int state_tensors(const State *s, unsigned kinds, const char *prefix, int strip, CheckpointTensor **out) {
  const Graph *g = s->program->graph;
  int n = 0;
  *out = xcalloc((size_t)g->variable.count + 1, sizeof **out);
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!(kinds >> v->kind & 1) || s->program->variable_offset[i] < 0 || strncmp(v->name, prefix, strlen(prefix))) continue;
    (*out)[n] = as_box(s, v);
    if (strip) (*out)[n].name += strlen(prefix);
    n++;
  }
  return n;
}
