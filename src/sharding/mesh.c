// Coordinates and groups of a mesh.
#include "sharding/mesh.h"
#include "base/fault.h"
#include <string.h>

void mesh_add(Mesh *m, const char *name, int size) {
  CHECK(m->naxis < MAX_AXES);
  m->axis[m->naxis++] = (Axis){name, size, axis_role(name), name, AXIS_WHOLE};
  m->ranks *= size;
}

Mesh mesh_create(int naxis, const char *const *name, const int *size) {
  Mesh m = {.ranks = 1};
  for (int a = 0; a < naxis; a++) mesh_add(&m, name[a], size[a]);
  return m;
}

void mesh_cut(Mesh *m, const char *axis, AxisPart part, int size) {
  enum { AXIS_OUTER, AXIS_INNER };
  static const struct { const char *name; int side; } parts[] = {
      [AXIS_WHOLE] = {"", 0},
#define AXIS_PART(id, name, side, what) [AXIS_PART_##id] = {name, side},
#include "sharding/axes.def"
  };
  static const int named[] = {
      [AXIS_WHOLE] = 0,
#define AXIS_PART_NAMED(id) [AXIS_PART_##id] = 1,
#include "sharding/axes.def"
      [AXIS_PARTS] = 0,
  };
  int at = mesh_axis(m, axis);
  if (size == 1) return;
  CHECK(at >= 0 && m->axis[at].size % size == 0, "the axis %s cannot be cut by %d", axis, size);
  CHECK(m->naxis < MAX_AXES, "more than %d axes", MAX_AXES);
  m->axis[at].size /= size;
  Axis cut = {parts[part].name, size, m->axis[at].role, named[part] ? parts[part].name : m->axis[at].of, part};
  at += parts[part].side == AXIS_INNER;
  memmove(&m->axis[at + 1], &m->axis[at], sizeof *m->axis * (size_t)(m->naxis - at));
  m->axis[at] = cut;
  m->naxis++;
}

int mesh_axes_of(const Mesh *mesh, const char *name, int *axes) {
  int n = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (!strcmp(mesh->axis[a].of, name)) axes[n++] = a;
  return n;
}

int mesh_axis(const Mesh *mesh, const char *name) {
  for (int a = 0; a < mesh->naxis; a++)
    if (*mesh->axis[a].name == *name && !strcmp(mesh->axis[a].name, name)) return a;
  return -1;
}

AxisRole axis_role(const char *name) {
  static const struct { const char *name; AxisRole role; } known[] = {
#define AXIS_NAME(name, role) {name, role},
#include "sharding/axes.def"
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (*known[i].name == *name && !strcmp(known[i].name, name)) return known[i].role;
  return AXIS_TENSOR;
}

int mesh_pipeline(const Mesh *mesh) {
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].role == AXIS_PIPELINE) return a;
  return -1;
}

int mesh_pipeline_ranks(const Mesh *mesh) {
  int axis = mesh_pipeline(mesh);
  return axis < 0 ? 1 : mesh->axis[axis].size;
}

int mesh_pipeline_coordinate(const Mesh *mesh, int rank) {
  int axis = mesh_pipeline(mesh);
  return axis < 0 ? 0 : mesh_coordinate(mesh, rank, axis);
}

StageMap mesh_stage_map(const Mesh *mesh) { return (StageMap){mesh_pipeline_ranks(mesh), mesh->folded}; }

int mesh_coordinate(const Mesh *mesh, int rank, int axis) {
  for (int a = mesh->naxis - 1; a > axis; a--) rank /= mesh->axis[a].size;
  return rank % mesh->axis[axis].size;
}

int mesh_index(const Mesh *mesh, int rank, uint32_t axes) {
  int index = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (axes >> a & 1) index = index * mesh->axis[a].size + mesh_coordinate(mesh, rank, a);
  return index;
}

int mesh_size(const Mesh *mesh, uint32_t axes) {
  int n = 1;
  for (int a = 0; a < mesh->naxis; a++)
    if (axes >> a & 1) n *= mesh->axis[a].size;
  return n;
}

int mesh_group(const Mesh *mesh, int rank, uint32_t axes, const StageSet *coordinates, int *ranks) {
  int n = 0, pp = mesh_pipeline(mesh);
  for (int r = 0; r < mesh->ranks; r++) {
    int in = 1;
    for (int a = 0; a < mesh->naxis && in; a++) {
      int c = mesh_coordinate(mesh, r, a);
      if (!(axes >> a & 1))
        in = c == mesh_coordinate(mesh, rank, a) || FAULT(collective_group_of_tp, 0, a == mesh->naxis - 1);
      else if (a == pp && coordinates) in = stages_have(coordinates, c);
    }
    if (in) ranks[n++] = r;
  }
  return n;
}

StageSet mesh_stage_coordinates(const Mesh *mesh, const StageSet *stages) {
  return stages_coordinates(stages, mesh_stage_map(mesh));
}

int mesh_runs_stages(const Mesh *mesh, int coordinate, const StageSet *stages) {
  StageMap map = mesh_stage_map(mesh);
  for EACH_STAGE(stage, stages)
    if (stage_coordinate(stage, map) == coordinate) return 1;
  return 0;
}
