// Mesh: named axes and sizes; a rank is a set of coordinates on it (the last axis on neighbouring ranks).
#pragma once
#include "base/error.h"
#include "base/stage_set.h"
#include <stdint.h>

enum { MAX_AXES = 16, MAX_AXES_PER_DIM = 12 };

typedef enum AxisRole { AXIS_DATA, AXIS_CONTEXT, AXIS_TENSOR, AXIS_EXPERT, AXIS_PIPELINE } AxisRole;
AxisRole axis_role(const char *name); // by axes.def

// Features cut axes of users' in two (axes.def): the part is a separate axis, and the rest keeps the name.
typedef enum AxisPart {
  AXIS_WHOLE, // or what is left of it
#define AXIS_PART(id, ...) AXIS_PART_##id,
#include "sharding/axes.def"
  AXIS_PARTS
} AxisPart;

// of: the word of a Layout that means it: the users' axis that it is, or is a part of, or a part that has a name there.
// Names are in static storage.
typedef struct Axis { const char *name; int size; AxisRole role; const char *of; AxisPart part; } Axis;
// folded: virtual stages lie on the pipeline axis there and back (StageMap).
typedef struct Mesh { int naxis, ranks, folded; Axis axis[MAX_AXES]; } Mesh;

// Axes in the order given; the rank count is the product of the sizes.
Mesh mesh_create(int naxis, const char *const *name, const int *size);
void mesh_add(Mesh *mesh, const char *name, int size); // one more axis, after the others
// Cuts `size` ranks off an axis as a part, which stands beside it on the side that axes.def says. Nothing where size is
// 1.
void mesh_cut(Mesh *mesh, const char *axis, AxisPart part, int size);
int mesh_axis(const Mesh *mesh, const char *name); // index, or -1
int mesh_axes_of(const Mesh *mesh, const char *name,
                 int *axes); // the axes that a word of a Layout means, outer first; returns how many
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
