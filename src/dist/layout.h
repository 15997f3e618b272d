// Layout: what goes where. A small table from (role, dim name) to ordered mesh axes; recipes and planners write Layouts.
#pragma once
#include "dist/placement.h"

typedef struct LayoutEntry { Role role; DimName dim; AxisList axes; } LayoutEntry;

// What a user said about one tensor or parameter of a graph of their own, by its name.
typedef struct LayoutTensor { const char *name; int dim; int axis; } LayoutTensor; // dim and axis -1: whole

typedef struct Layout {
  int n;
  LayoutEntry entry[64];
  uint32_t data_axes;  // axes over which the batch is sharded
  uint32_t shard_axes; // those of them over which ZeRO shards storage; over the others it replicates (hybrid sharding)
  int zero;            // stage 0 … 3: see the table in docs/design.md
  int keep_gathered;   // stage 3: parameters are gathered once a step
  int annotations;      // tensors that are placed by name; more than one line a tensor cuts further
  const LayoutTensor *annotation; // borrowed
  int propagate;        // parameters that nothing is said about lie as their first reader wants them
  int64_t bucket_bytes; // gradient collectives are joined up to this size
} Layout;

void layout_add(Layout *layout, Role role, DimName dim, int axis);
// The axes of a dim for a role (empty: replicated).
AxisList layout_axes(const Layout *layout, Role role, DimName dim);
// Placement of a whole shape. Axes of size 1 are left out, so that a one-rank mesh needs no special case.
Placement layout_placement(const Layout *layout, const Mesh *mesh, Role role, const Shape *shape);

// The placement that annotations give a tensor, and 1; 0 when they say nothing. Its batch stays on the data axes that they leave.
int layout_annotated(const Layout *layout, const Mesh *mesh, const char *name, const Shape *shape, Placement *out);

// The Megatron-style Layout over the axes named replica (if there is one) and dp (batch) and tp (1-D tensor parallel: heads, ffn, vocabulary).
// Shoeybi et al., "Megatron-LM", 2019.
Layout layout_standard(const Mesh *mesh, int zero, int64_t bucket_bytes);
// Sequence parallelism: the residual stream is sharded over tp along the sequence, so that reductions scatter and what lies
// between the tensor-parallel regions is done once (Korthikanti et al., 2022).
void layout_add_sequence(Layout *layout, const Mesh *mesh);
