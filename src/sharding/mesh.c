// Coordinates and groups of a mesh.
#include "sharding/mesh.h"
#include "base/fault.h"
#include <string.h>

const char *const axis_names[AXIS_IDS] = {
#define AXIS_NAME(id, name, role) [AXIS_##id] = name,
#define AXIS_PART(id, name, ...) [AXIS_##id] = name,
#include "sharding/axes.def"
};

AxisId axis_by_name(const char *name) {
  for (int id = AXIS_OWN + 1; id <= AXIS_BEFORE_PARTS; id++)
    if (*axis_names[id] == *name && !strcmp(axis_names[id], name)) return (AxisId)id;
  return AXIS_OWN;
}

AxisId axis_whole(AxisId id) {
  static const AxisId whole[AXIS_IDS] = {
#define AXIS_PART(id, name, of, ...) [AXIS_##id] = AXIS_##of,
#include "sharding/axes.def"
  };
  return axis_is_part(id) ? whole[id] : id;
}

static AxisRole role_of(AxisId id) {
  static const AxisRole role[AXIS_IDS] = {
      [AXIS_OWN] = AXIS_TENSOR,
#define AXIS_NAME(id, name, role) [AXIS_##id] = role,
#include "sharding/axes.def"
  };
  return role[id];
}

void mesh_add(Mesh *m, const char *name, int size) {
  CHECK(m->naxis < MAX_AXES);
  AxisId id = axis_by_name(name);
  m->axis[m->naxis++] = (Axis){name, size, role_of(id), id, id};
  m->ranks *= size;
}

Mesh mesh_create(int naxis, const char *const *name, const int *size) {
  Mesh m = {.ranks = 1};
  for (int a = 0; a < naxis; a++) mesh_add(&m, name[a], size[a]);
  return m;
}

Mesh mesh_of(int naxis, const AxisId *id, const int *size) {
  Mesh m = {.ranks = 1};
  for (int a = 0; a < naxis; a++) mesh_add(&m, axis_names[id[a]], size[a]);
  return m;
}

void mesh_cut(Mesh *m, AxisId axis, AxisId part, int size) {
  enum { AXIS_OUTER, AXIS_INNER };
  static const int side[AXIS_IDS] = {
#define AXIS_PART(id, name, of, side, what) [AXIS_##id] = side,
#include "sharding/axes.def"
  };
  static const int named[AXIS_IDS] = {
#define AXIS_PART_NAMED(id) [AXIS_##id] = 1,
#include "sharding/axes.def"
  };
  int at = mesh_axis(m, axis);
  if (size == 1) return;
  CHECK(axis_whole(axis) == axis_whole(part), "%s is not a part of %s", axis_names[part], axis_names[axis]);
  CHECK(at >= 0 && m->axis[at].size % size == 0, "the axis %s cannot be cut by %d", axis_names[axis], size);
  CHECK(m->naxis < MAX_AXES, "more than %d axes", MAX_AXES);
  m->axis[at].size /= size;
  Axis cut = {axis_names[part], size, m->axis[at].role, part, named[part] ? part : m->axis[at].of};
  at += side[part] == AXIS_INNER;
  memmove(&m->axis[at + 1], &m->axis[at], sizeof *m->axis * (size_t)(m->naxis - at));
  m->axis[at] = cut;
  m->naxis++;
}

int mesh_axes_of(const Mesh *mesh, AxisId word, int *axes) {
  int n = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].of == word) axes[n++] = a;
  return n;
}

int mesh_axis(const Mesh *mesh, AxisId id) {
  CHECK(id != AXIS_OWN, "only users know their own axes");
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].id == id) return a;
  return -1;
}

int mesh_find(const Mesh *mesh, const char *name) {
  for (int a = 0; a < mesh->naxis; a++)
    if (*mesh->axis[a].name == *name && !strcmp(mesh->axis[a].name, name)) return a;
  return -1;
}

int mesh_axis_size(const Mesh *mesh, AxisId id) {
  int a = mesh_axis(mesh, id);
  return a < 0 ? 1 : mesh->axis[a].size;
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
