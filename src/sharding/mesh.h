// Mesh: named axes and sizes; a rank is a set of coordinates on it (the last axis on neighbouring ranks).
#pragma once
#include "base/error.h"
#include "base/stage_set.h"
#include <stdint.h>

enum { MAX_AXES = 16, MAX_AXES_PER_DIM = 12 };

typedef enum AxisRole { AXIS_DATA, AXIS_CONTEXT, AXIS_TENSOR, AXIS_EXPERT, AXIS_PIPELINE } AxisRole;

// Axes that plait itself speaks of: handles to axes.def, which has their names. Features cut axes of users' in two: the
// part is an axis with its own handle, and the rest keeps that of the whole.
typedef enum AxisId {
  AXIS_OWN, // an axis of a user's own name, in a graph by hand
#define AXIS_NAME(id, ...) AXIS_##id,
#include "sharding/axes.def"
  AXIS_NAMES,
  AXIS_BEFORE_PARTS = AXIS_NAMES - 1,
#define AXIS_PART(id, ...) AXIS_##id,
#include "sharding/axes.def"
  AXIS_IDS
} AxisId;
extern const char *const axis_names[AXIS_IDS]; // "dp", "tp_row"; NULL of AXIS_OWN
AxisId axis_by_name(const char *name);         // of a users' axis: AXIS_OWN where plait does not speak of it
static inline int axis_is_part(AxisId id) { return id > AXIS_BEFORE_PARTS; }
AxisId axis_whole(AxisId id); // the users' axis that a part is cut off; itself of another one

// of: the word of a Layout that means it: the users' axis that it is, or is a part of, or a part that has a name there.
// Names are in static storage.
typedef struct Axis { const char *name; int size; AxisRole role; AxisId id, of; } Axis;
// folded: virtual stages lie on the pipeline axis there and back (StageMap).
typedef struct Mesh { int naxis, ranks, folded; Axis axis[MAX_AXES]; } Mesh;

// Axes in the order given; the rank count is the product of the sizes.
Mesh mesh_create(int naxis, const char *const *name, const int *size);
Mesh mesh_of(int naxis, const AxisId *id, const int *size); // the same of axes of axes.def
void mesh_add(Mesh *mesh, const char *name, int size); // one more axis, after the others
// Cuts `size` ranks off an axis as a part, which stands beside it on the side that axes.def says. Nothing where size is
// 1.
void mesh_cut(Mesh *mesh, AxisId axis, AxisId part, int size);
int mesh_axis(const Mesh *mesh, AxisId id);         // index, or -1
int mesh_find(const Mesh *mesh, const char *name);  // the same by a name that a user gave
int mesh_axis_size(const Mesh *mesh, AxisId id);    // 1 where there is none
int mesh_axes_of(const Mesh *mesh, AxisId word, int *axes); // what a word of a Layout means, outer first: how many
int mesh_coordinate(const Mesh *mesh, int rank, int axis);
int mesh_pipeline(const Mesh *mesh);                            // the axis of the pipeline, or -1
int mesh_pipeline_ranks(const Mesh *mesh);                      // its size; 1 where there is none
int mesh_pipeline_coordinate(const Mesh *mesh, int rank);       // on it
StageMap mesh_stage_map(const Mesh *mesh);                      // which of its coordinates run which stages
// A rank's place among those of a set of axes (bits), as mesh_group lists them: the last axis counts first.
int mesh_index(const Mesh *mesh, int rank, uint32_t axes);
// Product of the sizes of a set of axes (bits).
int mesh_size(const Mesh *mesh, uint32_t axes);
// Ranks that differ from `rank` only in `axes`, in mesh order; along the pipeline axis only those whose coordinate is
// in `coordinates` (NULL: all). Writes to ranks[mesh->ranks] and returns the count.
int mesh_group(const Mesh *mesh, int rank, uint32_t axes, const StageSet *coordinates, int *ranks);
// Coordinates on the pipeline axis that run a set of virtual stages.
StageSet mesh_stage_coordinates(const Mesh *mesh, const StageSet *stages);
// 1 when the coordinate on the pipeline axis runs any of the stages.
int mesh_runs_stages(const Mesh *mesh, int coordinate, const StageSet *stages);
