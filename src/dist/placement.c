// Shards, boxes and text of placements.
#include "dist/placement.h"
#include <string.h>

int axis_list_equal(const AxisList *a, const AxisList *b) {
  return a->n == b->n && !memcmp(a->axis, b->axis, (size_t)a->n);
}

int placement_equal(const Placement *a, const Placement *b) {
  if (a == b) return 1;
  if (a->rank != b->rank || a->partial != b->partial) return 0;
  for (int d = 0; d < a->rank; d++)
    if (!axis_list_equal(&a->dim[d], &b->dim[d])) return 0;
  return 1;
}

uint32_t placement_axes(const Placement *p) {
  uint32_t axes = 0;
  for (int d = 0; d < p->rank; d++)
    for (int i = 0; i < p->dim[d].n; i++) axes |= 1u << p->dim[d].axis[i];
  return axes;
}

int axis_list_shards(const Mesh *mesh, const AxisList *list) {
  int n = 1;
  for (int i = 0; i < list->n; i++) n *= mesh->axis[list->axis[i]].size;
  return n;
}

int64_t axis_list_local(const Mesh *mesh, const AxisList *list, int64_t size) {
  for (int i = 0; i < list->n; i++) {
    int64_t n = mesh->axis[list->axis[i]].size;
    size = (size + n - 1) / n;
  }
  return size;
}

// A shard of a shard: 5 rows over tp 2 are 3 and 2 (+1 of padding); the second, over dp 2, is cut into 2 and 2, of which 2
// and 0 are valid.
IndexMap axis_list_map(const Mesh *mesh, const AxisList *list, int64_t size, int rank) {
  int64_t length = size, valid = size, offset = 0;
  for (int i = 0; i < list->n; i++) {
    int64_t n = mesh->axis[list->axis[i]].size, c = mesh_coordinate(mesh, rank, list->axis[i]);
    length = (length + n - 1) / n;
    offset += c * length;
    valid -= c * length;
    valid = valid < 0 ? 0 : valid > length ? length : valid;
  }
  return (IndexMap){.local = length, .valid = valid, .global = size, .runs = 1, .run = {{0, offset}}};
}

void placement_local(const Mesh *mesh, const Placement *p, const Shape *shape, int64_t *local) {
  for (int d = 0; d < shape->rank; d++) local[d] = axis_list_local(mesh, &p->dim[d], shape->size[d]);
}

int placement_primary(const Mesh *mesh, const Placement *p, int rank, uint64_t coordinates) {
  uint32_t axes = placement_axes(p);
  int pp = mesh_axis(mesh, "pp");
  for (int a = 0; a < mesh->naxis; a++) {
    int first = a == pp && coordinates ? __builtin_ctzll(coordinates) : 0;
    if (!(axes >> a & 1) && mesh_coordinate(mesh, rank, a) != first) return 0;
  }
  return 1;
}

static size_t append(char *text, size_t size, size_t used, const char *a, const char *b) {
  int n = snprintf(text + used, size - used, "%s%s", a, b);
  return n < 0 || (size_t)n >= size - used ? size - 1 : used + (size_t)n;
}

void placement_text(const Mesh *mesh, const Placement *p, const Shape *shape, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int d = 0; d < p->rank; d++) {
    if (!p->dim[d].n) continue;
    char number[16];
    snprintf(number, sizeof number, "%d", d);
    used = append(text, size, used, used ? " " : "", shape ? dim_name(shape->dim[d]) : number);
    for (int i = 0; i < p->dim[d].n; i++) used = append(text, size, used, i ? "," : ":", mesh->axis[p->dim[d].axis[i]].name);
  }
  if (!p->partial) return;
  used = append(text, size, used, used ? " " : "", "partial");
  for (int a = 0, first = 1; a < mesh->naxis; a++)
    if (p->partial >> a & 1) used = append(text, size, used, first ? ":" : ",", mesh->axis[a].name), first = 0;
}

void placement_printer(const void *mesh, const Placement *p, char *text, size_t size) {
  placement_text(mesh, p, NULL, text, size);
}
