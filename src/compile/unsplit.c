// Which data rank each parameter lies on whole, where ZeRO does not cut tensors (Storage.unsplit).
#include "compile/unsplit.h"
#include "base/fault.h"
#include <stdlib.h>

typedef struct Owned { int variable; int64_t elements; StageSet coordinates; } Owned;

uint32_t owner_axes(const Parallel *parallel, const Placement *seen) {
  uint32_t axes = 0;
  for (int a = 0; a < parallel->mesh.naxis; a++)
    if (parallel->mesh.axis[a].size > 1) axes |= parallel->storage.shard_axes & 1u << a;
  return axes & ~placement_axes(seen); // the Layout has cut it over those already
}

static int64_t local_elements(const Mesh *mesh, const Variable *v) {
  int64_t local[MAX_RANK], n = 1;
  placement_local(mesh, v->storage, &v->shape, local);
  for (int d = 0; d < v->shape.rank; d++) n *= local[d];
  return n;
}

// Those that several pipeline ranks have come first, while loads are equal or nearly so on each of them; then the
// largest.
static int by_size(const void *a, const void *b) {
  const Owned *x = a, *y = b;
  int shared = stages_count(&x->coordinates) > 1, also = stages_count(&y->coordinates) > 1;
  if (shared != also) return also - shared;
  if (x->elements != y->elements) return x->elements < y->elements ? 1 : -1;
  return x->variable - y->variable;
}

static int64_t load_of(const int64_t *load, int ranks, int rank, const StageSet *coordinates) {
  int64_t sum = 0;
  for EACH_STAGE(c, coordinates) sum += load[c * ranks + rank];
  return sum;
}

int *unsplit_owners(const Graph *g, const Parallel *parallel) {
  const Mesh *mesh = &parallel->mesh;
  int *owner = xcalloc((size_t)g->variable.count + 1, sizeof *owner), n = 0,
      most = mesh_size(mesh, parallel->storage.shard_axes);
  Owned *list = xcalloc((size_t)g->variable.count + 1, sizeof *list);
  int64_t *load = xcalloc((size_t)parallel_pipeline_ranks(parallel) * (size_t)most,
                          sizeof *load); // (pipeline coordinates, ranks of the shard axes) elements
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v->kind == VARIABLE_PARAMETER)
      list[n++] = (Owned){i, local_elements(mesh, v), mesh_stage_coordinates(mesh, graph_stages(g, v->stages))};
  }
  if (n) qsort(list, (size_t)n, sizeof *list, by_size);
  for (int i = 0; i < n; i++) {
    int ranks = mesh_size(mesh, owner_axes(parallel, g->variable.data[list[i].variable].storage)), best = 0;
    if (ranks == 1) continue;
    for (int r = 1; r < ranks; r++)
      if (load_of(load, most, r, &list[i].coordinates) < load_of(load, most, best, &list[i].coordinates)) best = r;
    owner[list[i].variable] = FAULT(owners_are_not_balanced, best, 0);
    for EACH_STAGE(c, &list[i].coordinates) load[c * most + best] += list[i].elements;
  }
  free(list);
  free(load);
  return owner;
}
