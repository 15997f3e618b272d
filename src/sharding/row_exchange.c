// From placements to exchanges of rows of experts.
#include "sharding/row_exchange.h"

enum { EXPERTS = 2 }; // the dim

// The axes of `list` that are in `to` and not in `from`.
static uint32_t axes_that_leave(const AxisList *list, const AxisList *from, const AxisList *to) {
  return axis_list_axes(list) & axis_list_axes(to) & ~axis_list_axes(from);
}

// Cuts the dim of `list`, samples or positions, over those axes of the set `axes` that cut `as`, and multiplies *parts
// (*zigzag for the axis in zigzag) by their ranks. They must come in the mesh's order, after `last`, and outermost; the
// axis in zigzag first. Returns the last of them (`last` where there is none); -1 where they are not in this order.
static int cut_tokens(const Mesh *mesh, AxisList *list, const AxisList *as, uint32_t axes, int last, int32_t *zigzag,
                      int32_t *parts) {
  int first = list->n;
  for (int i = 0; i < as->n; i++) {
    int axis = as->axis[i];
    if (!(axes >> axis & 1)) continue;
    if (axis < last || list->n != i) return -1;
    if (as->zigzag == i + 1 && list->n != first) return -1;
    *(as->zigzag == i + 1 ? zigzag : parts) *= mesh->axis[axis].size;
    axis_list_take(list, as, i);
    last = axis;
  }
  return last;
}

int row_exchange(const Mesh *mesh, const Placement *from, const Placement *to, RowExchange *e) {
  const AxisList *here = &from->dim[EXPERTS], *there = &to->dim[EXPERTS];
  uint32_t out = 0, home = 0;
  for (int d = 0; d < EXPERTS; d++) {
    out |= axes_that_leave(&from->dim[d], here, there);
    home |= axes_that_leave(&to->dim[d], there, here);
  }
  if (!out && !home) return 0;
  if (out && home) return -1;
  const Placement *tokens = home ? to : from, *experts = home ? from : to;
  *e = (RowExchange){.axes = out | home, .parts = {1, 1, 1, home != 0}};
  Placement whole = *experts;
  for (int n = 0, last = MAX_AXES; n < __builtin_popcount(e->axes); n++) { // at the end, in the mesh's order
    int axis = whole.dim[EXPERTS].n ? axis_list_pop(&whole.dim[EXPERTS]) : MAX_AXES;
    if (axis >= last || !(e->axes >> axis & 1)) return -1;
    last = axis;
  }
  int last = cut_tokens(mesh, &whole.dim[0], &tokens->dim[0], e->axes, -1, &e->parts.zigzag, &e->parts.batch);
  if (e->parts.zigzag > 1 || cut_tokens(mesh, &whole.dim[1], &tokens->dim[1], e->axes, last, &e->parts.zigzag,
                                        &e->parts.seq) < last)
    return -1;
  e->before = home ? *experts : whole;
  e->after = home ? whole : *experts;
  return 1;
}
