// The Layout table and the Layouts that ship with plait.
#include "dist/layout.h"
#include <string.h>

void layout_add(Layout *layout, Role role, DimName dim, int axis) {
  for (int i = 0; i < layout->n; i++) {
    LayoutEntry *e = &layout->entry[i];
    if (e->role != role || e->dim != dim) continue;
    CHECK(e->axes.n < MAX_AXES_PER_DIM);
    e->axes.axis[e->axes.n++] = (int8_t)axis;
    return;
  }
  CHECK(layout->n < (int)(sizeof layout->entry / sizeof *layout->entry));
  layout->entry[layout->n++] = (LayoutEntry){role, dim, {1, {(int8_t)axis}}};
}

AxisList layout_axes(const Layout *layout, Role role, DimName dim) {
  for (int i = 0; i < layout->n; i++)
    if (layout->entry[i].role == role && layout->entry[i].dim == dim) return layout->entry[i].axes;
  return (AxisList){0};
}

Placement layout_placement(const Layout *layout, const Mesh *mesh, Role role, const Shape *shape) {
  Placement p = {.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    AxisList axes = layout_axes(layout, role, shape->dim[d]);
    for (int i = 0; i < axes.n; i++)
      if (mesh->axis[axes.axis[i]].size > 1) p.dim[d].axis[p.dim[d].n++] = axes.axis[i];
  }
  return p;
}

int layout_annotated(const Layout *layout, const Mesh *mesh, const char *name, const Shape *shape, Placement *out) {
  uint32_t taken = 0;
  int found = 0;
  for (int i = 0; i < layout->annotations; i++) {
    const LayoutTensor *a = &layout->annotation[i];
    if (strcmp(a->name, name)) continue;
    found = 1;
    if (a->axis >= 0) taken |= 1u << a->axis;
  }
  if (!found) return 0;
  *out = (Placement){.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    AxisList *list = &out->dim[d], data = shape->dim[d] == DIM_BATCH ? layout_axes(layout, ROLE_DATA, DIM_BATCH) : (AxisList){0};
    for (int i = 0; i < data.n; i++)
      if (!(taken >> data.axis[i] & 1) && mesh->axis[data.axis[i]].size > 1) list->axis[list->n++] = data.axis[i];
    for (int i = 0; i < layout->annotations; i++) {
      const LayoutTensor *a = &layout->annotation[i];
      if (strcmp(a->name, name) || a->axis < 0 || a->dim != d || mesh->axis[a->axis].size == 1) continue;
      CHECK(list->n < MAX_AXES_PER_DIM);
      list->axis[list->n++] = (int8_t)a->axis;
    }
  }
  return 1;
}

Layout layout_standard(const Mesh *mesh, int zero, int64_t bucket_bytes) {
  Layout l = {.zero = zero, .bucket_bytes = bucket_bytes};
  int replica = mesh_axis(mesh, "replica"), dp = mesh_axis(mesh, "dp"), tp = mesh_axis(mesh, "tp");
  int data[] = {replica, dp}; // the outer one first: it has the larger stride in the batch
  for (int i = replica < 0; i < 2; i++) {
    l.data_axes |= 1u << data[i];
    layout_add(&l, ROLE_DATA, DIM_BATCH, data[i]);
    layout_add(&l, ROLE_RESIDUAL, DIM_BATCH, data[i]);
  }
  l.shard_axes = 1u << dp;
  static const DimName sharded[] = {DIM_KV_HEADS, DIM_FFN, DIM_VOCAB};
  for (int i = 0; i < 3; i++) layout_add(&l, ROLE_WEIGHT, sharded[i], tp);
  return l;
}

void layout_add_sequence(Layout *layout, const Mesh *mesh) { layout_add(layout, ROLE_RESIDUAL, DIM_SEQ, mesh_axis(mesh, "tp")); }
