// Which data rank each parameter lies on whole, where ZeRO does not cut tensors (Storage.unsplit), and which rank makes
// what an update needs whole.
#include "compile/unsplit.h"
#include "base/fault.h"
#include "compile/place_node.h"
#include "sharding/rule.h"
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
    if (variable_is_sharded_by_zero(v))
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

// Matrices that updates need whole -----------------------------------------------------------------------------------

enum { ROUND_BYTES = 32 << 20 }; // of an owner's matrices that are made side by side, about

typedef struct Matrix {
  int node, variable;
  double flops;
  int64_t bytes;
  Placement owned;
} Matrix;

static uint32_t cutting_axes(const Mesh *mesh) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].size > 1 && a != mesh_pipeline(mesh)) axes |= 1u << a;
  return axes;
}

// The dims that the op takes in parts lie as in storage; over all other axes one rank has it whole.
static Matrix matrix_of(const Graph *g, const Parallel *parallel, const Node *n) {
  Arena scratch = {0};
  const Tensor *u = graph_tensor(g, n->input[0]);
  const Variable *v = &g->variable.data[u->parameter];
  Rule r = rule_of(&scratch, g, n);
  Matrix m = {.node = n->id, .variable = v->id, .owned = {.rank = u->shape.rank}};
  for (int d = 0; d < u->shape.rank; d++)
    if (!(r.whole >> r.input[0][d] & 1)) m.owned.dim[d] = v->storage->dim[d];
  arena_free(&scratch);
  m.owned.owner_axes = cutting_axes(&parallel->mesh) & ~placement_axes(&m.owned);
  int64_t local[MAX_RANK];
  Operand x = {.rank = u->shape.rank};
  placement_local(&parallel->mesh, &m.owned, &u->shape, local);
  for (int d = 0; d < x.rank; d++) x.size[d] = local[d];
  m.flops = op_work(op_def(n->op), &x, 1, &x, 1, n->attr).matrix;
  m.bytes = operand_elements(&x) * (int64_t)dtype_size(u->dtype);
  return m;
}

static int by_flops(const void *a, const void *b) {
  const Matrix *x = a, *y = b;
  return x->flops != y->flops ? (x->flops < y->flops ? 1 : -1) : x->variable - y->variable;
}

static int runs_stage(const Mesh *mesh, const StageSet *coordinates, int rank) {
  int pp = mesh_pipeline(mesh);
  return pp < 0 || stages_have(coordinates, mesh_coordinate(mesh, rank, pp));
}

// Of the ranks that may own it, the one whose busiest has the least to do; all of them have their FLOPs added.
static void choose_owner(const Mesh *mesh, const StageSet *coordinates, const Placement *storage, Matrix *m,
                         double *load) {
  uint32_t axes = m->owned.owner_axes;
  int ranks = mesh_size(mesh, axes), best = -1;
  double *busiest = xcalloc((size_t)ranks, sizeof *busiest);
  char *may = xcalloc((size_t)ranks, 1);
  for (int r = 0; r < mesh->ranks; r++) {
    if (!runs_stage(mesh, coordinates, r) || !placement_here(mesh, storage, r)) continue;
    int index = mesh_index(mesh, r, axes);
    may[index] = 1;
    if (load[r] > busiest[index]) busiest[index] = load[r];
  }
  for (int i = 0; i < ranks; i++)
    if (may[i] && (best < 0 || busiest[i] < busiest[best])) best = i;
  m->owned.owner = FAULT(owners_are_not_balanced, best, 0);
  for (int r = 0; r < mesh->ranks; r++)
    if (runs_stage(mesh, coordinates, r) && mesh_index(mesh, r, axes) == m->owned.owner)
      load[r] += m->flops;
  free(busiest);
  free(may);
}

// The op, the node that makes its operand, and those that read its result.
static void set_round(Graph *g, int node, int round) {
  Node *n = &g->node.data[node];
  int out = n->output[0], before = graph_tensor(g, n->input[0])->producer;
  n->round = round;
  if (before >= 0) g->node.data[before].round = round;
  for (int i = node + 1; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] == out) g->node.data[i].round = round;
}

// Matrices of the same stages, in the order of the list, a multiple of the owners' number at a time.
static void make_rounds(Graph *g, const Mesh *mesh, const Matrix *list, int n) {
  typedef struct Round { int stages, round, count; int64_t bytes; } Round;
  Vec(Round) open = {0};
  int rounds = 0;
  for (int i = 0; i < n; i++) {
    int owners = mesh_size(mesh, list[i].owned.owner_axes), stages = g->variable.data[list[i].variable].stages, k = 0;
    if (owners == 1 || g->node.data[list[i].node].region != REGION_END) continue;
    while (k < open.count && open.data[k].stages != stages) k++;
    if (k == open.count) vec_push(&open, (Round){.stages = stages});
    Round *r = &open.data[k];
    if (!r->round || (r->count % owners == 0 && r->bytes + owners * list[i].bytes > (int64_t)owners * ROUND_BYTES))
      *r = (Round){.stages = stages, .round = ++rounds};
    r->count++;
    r->bytes += list[i].bytes;
    set_round(g, list[i].node, r->round);
  }
  vec_free(&open);
}

const Placement **matrix_owners(Graph *g, const Parallel *parallel) {
  const Mesh *mesh = &parallel->mesh;
  const Placement **owned = xcalloc((size_t)g->variable.count + 1, sizeof(Placement *));
  Matrix *list = xcalloc((size_t)g->node.count + 1, sizeof *list);
  double *load = xcalloc((size_t)mesh->ranks, sizeof *load);
  int n = 0;
  for (int i = 0; i < g->node.count; i++)
    if (node_is(&g->node.data[i], ROLE_WHOLE_MATRIX)) list[n++] = matrix_of(g, parallel, &g->node.data[i]);
  if (n) qsort(list, (size_t)n, sizeof *list, by_flops);
  for (int i = 0; i < n; i++) {
    const Variable *v = &g->variable.data[list[i].variable];
    StageSet coordinates = mesh_stage_coordinates(mesh, graph_stages(g, v->stages));
    if (!list[i].owned.owner_axes) continue;
    choose_owner(mesh, &coordinates, v->storage, &list[i], load);
    owned[v->id] = placement_new(g, &list[i].owned);
  }
  make_rounds(g, mesh, list, n);
  free(list);
  free(load);
  return owned;
}
