// Shards, boxes and text of placements.
#include "sharding/placement.h"
#include "base/fault.h"
#include <string.h>

int axis_list_equal(const AxisList *a, const AxisList *b) {
  return a->n == b->n && !memcmp(a->axis, b->axis, (size_t)a->n);
}

int placement_same_owner(const Placement *a, const Placement *b) {
  return a->owner_axes == b->owner_axes && (!a->owner_axes || a->owner == b->owner);
}

int placement_equal(const Placement *a, const Placement *b) {
  if (a == b) return 1;
  if (a->rank != b->rank || a->partial != b->partial || !placement_same_owner(a, b)) return 0;
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

int placement_here(const Mesh *mesh, const Placement *p, int rank) {
  return !p->owner_axes || mesh_index(mesh, rank, p->owner_axes) == p->owner;
}

const Placement *node_owner(const Graph *g, const Node *n) {
  for (int k = 0; k < n->ninput + n->noutput && !op_def(n->op)->rooted; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Placement *p = t < 0 ? NULL : graph_tensor(g, t)->placement;
    if (p && p->owner_axes) return p;
  }
  return NULL;
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

// A shard of a shard: 5 rows over tp 2 are 3 and 2 (+1 of padding); the second, over dp 2, is cut into 2 and 2, of
// which 2 and 0 are valid.
IndexMap axis_list_map(const Mesh *mesh, const AxisList *list, int64_t size, int rank) {
  int64_t length = size, valid = size, offset = 0;
  for (int i = 0; i < list->n; i++) {
    int64_t n = mesh->axis[list->axis[i]].size, c = mesh_coordinate(mesh, rank, list->axis[i]);
    length = (length + n - 1) / n;
    offset = FAULT(address_of_nested_shard, offset, 0) + c * length;
    valid -= c * length;
    valid = valid < 0 ? 0 : valid > length ? length : valid;
  }
  return (IndexMap){
      .local = length, .valid = valid, .global = size, .runs = 1, .run = {{0, FAULT(address_of_shard, offset, 0)}}};
}

IndexMap placement_map(const Mesh *mesh, const Placement *p, int d, int64_t size, int rank) {
  IndexMap map = axis_list_map(mesh, &p->dim[d], size, rank);
  if (!placement_here(mesh, p, rank)) map.valid = 0;
  return map;
}

void placement_local(const Mesh *mesh, const Placement *p, const Shape *shape, int64_t *local) {
  for (int d = 0; d < shape->rank; d++) local[d] = axis_list_local(mesh, &p->dim[d], shape->size[d]);
}

int placement_primary(const Mesh *mesh, const Placement *p, int rank, const StageSet *coordinates) {
  uint32_t axes = placement_axes(p) | p->owner_axes;
  int pp = mesh_pipeline(mesh);
  if (!placement_here(mesh, p, rank)) return 0;
  for (int a = 0; a < mesh->naxis; a++) {
    int first = a == pp && coordinates ? stages_next(coordinates, 0) : 0;
    if (!(axes >> a & 1) && mesh_coordinate(mesh, rank, a) != first) return 0;
  }
  return 1;
}

static size_t append(char *text, size_t size, size_t used, const char *a, const char *b) {
  int n = snprintf(text + used, size - used, "%s%s", a, b);
  return n < 0 || (size_t)n >= size - used ? size - 1 : used + (size_t)n;
}

static size_t append_axes(const Mesh *mesh, uint32_t axes, char *text, size_t size, size_t used, const char *what) {
  used = append(text, size, used, used ? " " : "", what);
  for (int a = 0, first = 1; a < mesh->naxis; a++)
    if (axes >> a & 1) used = append(text, size, used, first ? ":" : ",", mesh->axis[a].name), first = 0;
  return used;
}

void placement_text(const Mesh *mesh, const Placement *p, const Shape *shape, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int d = 0; d < p->rank; d++) {
    if (!p->dim[d].n) continue;
    char number[16];
    snprintf(number, sizeof number, "%d", d);
    used = append(text, size, used, used ? " " : "", shape ? dim_name(shape->dim[d]) : number);
    for (int i = 0; i < p->dim[d].n; i++)
      used = append(text, size, used, i ? "," : ":", mesh->axis[p->dim[d].axis[i]].name);
  }
  if (p->partial) used = append_axes(mesh, p->partial, text, size, used, "partial");
  if (!p->owner_axes) return;
  char owner[16];
  snprintf(owner, sizeof owner, "%d", p->owner);
  used = append_axes(mesh, p->owner_axes, text, size, used, "owner");
  append(text, size, used, "=", owner);
}

void placement_printer(const void *mesh, const Placement *p, const Shape *shape, char *text, size_t size) {
  placement_text(mesh, p, shape, text, size);
}
