// Layout: what goes where. A small table from (role, dim name) to ordered mesh axes; recipes and planners write
// Layouts.
#pragma once
#include "sharding/placement.h"

typedef struct LayoutEntry { Role role; DimName dim; AxisList axes; } LayoutEntry;

// A user's placement of one tensor or parameter of their own graph, by its name.
typedef struct LayoutTensor { const char *name; int dim; int axis; } LayoutTensor; // dim and axis -1: whole

typedef struct Layout {
  int n;
  LayoutEntry entry[64];
  int annotations;     // tensors that are placed by name; more than one line a tensor cuts further
  const LayoutTensor *annotation; // borrowed
  int propagate;       // parameters that nothing is said about lie as their first reader wants them
} Layout;

void layout_add(Layout *layout, Role role, DimName dim, int axis, int zigzag); // zigzag: see AxisList
// The axes of a dim for a role (empty: replicated).
AxisList layout_axes(const Layout *layout, Role role, DimName dim);
// The axes (bits) over which the batch is sharded, and those over which batches are: their samples, and the positions
// of each.
uint32_t layout_data_axes(const Layout *layout);
uint32_t layout_input_axes(const Layout *layout);
uint32_t layout_expert_axes(const Layout *layout); // over which the experts of a layer are divided
// Placement of a whole shape. Axes of size 1 are left out, so that a one-rank mesh needs no special case. Vectors of
// the embedding width lie as the residual stream, where that is cut.
Placement layout_placement(const Layout *layout, const Mesh *mesh, Role role, const Shape *shape);

// The axes that the batch of the residual stream and that of interiors begin with in common: every product's rows are
// cut over these, before weights propose axes. Empty where the Layout says nothing of interiors.
AxisList layout_first_axes(const Layout *layout, const Mesh *mesh);

// The placement that annotations give a tensor, and 1; 0 when they say nothing. Its batch stays on the data axes that
// they leave.
int layout_annotated(const Layout *layout, const Mesh *mesh, const char *name, const Shape *shape, Placement *out);

// Layouts as recipes write them: a table from rows (layout_rows.def) to axes by name.
typedef enum LayoutRow {
#define LAYOUT_ROW(id, ...) LAYOUT_ROW_##id,
#include "sharding/layout_rows.def"
  LAYOUT_ROWS
} LayoutRow;
typedef enum LayoutShipped {
#define LAYOUT_SHIPPED(id, ...) LAYOUT_SHIPPED_##id,
#include "sharding/layout_rows.def"
  LAYOUT_SHIPPED_COUNT
} LayoutShipped;
typedef enum LayoutTensorKind { // parallel.tensor
#define LAYOUT_TENSOR(id, ...) LAYOUT_TENSOR_##id,
#include "sharding/layout_rows.def"
  LAYOUT_TENSORS
} LayoutTensorKind;
enum { LAYOUT_WORDS = 5 }; // axes that rows may name: dp, cp, tp, and the parts of tp that have names
extern const AxisId layout_axes_named[LAYOUT_WORDS];
typedef struct LayoutWords { int count; AxisId axis[LAYOUT_WORDS]; } LayoutWords;
int layout_words_equal(const LayoutWords *a, const LayoutWords *b);
typedef struct LayoutTable { LayoutWords row[LAYOUT_ROWS]; } LayoutTable;

LayoutTable layout_shipped(LayoutShipped name);
LayoutTable layout_of_tensor(LayoutTensorKind kind); // of 2-D, 2.5-D and 3-D tensors
LayoutWords layout_shipped_row(LayoutShipped name, LayoutRow row); // one row of these
LayoutWords layout_tensor_row(LayoutTensorKind kind, LayoutRow row);
// A Layout from a table. A word of it means the axis and the parts that were cut off it (mesh_cut); of AXIS_TP_GROUP
// the row `heads` cuts the query heads of a group. Axes for context in the row `seq` cut the data as well, the
// outermost of their parts in zigzag.
Layout layout_from_table(const LayoutTable *table, const Mesh *mesh);
