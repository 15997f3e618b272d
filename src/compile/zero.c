// zero: where Variables are stored, by the ZeRO table (Rajbhandari et al., "ZeRO", SC 2020), and how BEGIN and END are
// placed.
//
//   stage | parameter storage | copy for MICRO            | gradient accumulator                | optimizer state
//   0     | as MICRO sees it  | none                      | partial, reduced in END             | as the parameter
//   1     | + data axes       | resident                  | partial, scattered in END           | + data axes
//   2     | + data axes       | resident                  | + data axes, scattered every microbatch | + data axes
//   3     | + data axes       | gathered in each segment  | + data axes, scattered every microbatch | + data axes
//
// With Storage.local_gradients the accumulators of stages 2 and 3 are stage 1's. Where the data axes have one rank they
// are so too: scattering them would save nothing, and sum what other axes (tp) left partial for every microbatch.
//
// With Storage.unsplit, where the table says "+ data axes" a tensor (or tp's shard of it) is not cut but lies whole on
// one of their ranks, its owner, which runs the update alone: reduced to and broadcast from it instead of scattered and
// gathered.
//
// "Data axes" are Storage.shard_axes: all of them, or with hybrid sharding (HSDP) the inner one, and gradients are then
// summed over the outer one in END. Without Storage.reshard, stage 3's copy is stage 2's.
//
// place has said what every node of MICRO wants; here only what is stored changes, and partition redistributes.
#include "base/fault.h"
#include "ir/encoding.h"
#include "op/build.h"
#include "sharding/zero_table.h"
#include "compile/unsplit.h"
#include "compile/pass.h"
#include "compile/place_node.h"
#include <string.h>

// The dim that storage is sharded on: least padding first, then the outermost. Only a dim with nothing but single
// elements before it may be padded, because then the padding lies after the data and no kernel meets it.
static int storage_dim(const Mesh *mesh, const Placement *p, const Shape *s, int shards) {
  int best = -1;
  int64_t waste = 0, outer = 1;
  for (int d = 0; d < s->rank; d++) {
    int64_t local = axis_list_local(mesh, &p->dim[d], s->size[d]);
    int64_t padded = (local + shards - 1) / shards * shards, w = (padded - local) * 1000 / local;
    if ((outer == 1 || padded == local) && (best < 0 || w < waste)) best = d, waste = w;
    outer *= local;
  }
  return best;
}

static int64_t local_elements(const Mesh *mesh, const Placement *p, const Shape *s) {
  int64_t local[MAX_RANK], n = 1;
  placement_local(mesh, p, s, local);
  for (int d = 0; d < s->rank; d++) n *= local[d];
  return n;
}

// Storage cut in rows of the first dims together, where cutting a dim would leave more than 1 % of padding: the
// placement under which a rank has least. Where dp is 48, 7 heads of 128 × 7168 are not 48 heads but 912 rows of 7168.
static void cut_rows(const Graph *g, const Mesh *mesh, const Variable *v, uint32_t axes, Placement *best) {
  int64_t least = local_elements(mesh, best, &v->shape), whole = local_elements(mesh, v->storage, &v->shape);
  double share = (double)whole / mesh_size(mesh, axes);
  if ((double)least <= FAULT(storage_is_never_rows, 1.01 * share, (double)least)) return;
  EncodingCuts cuts = encoding_cuts(g, v);
  int most = cuts.merged, last = v->shape.rank - 1;
  if (most > last && v->storage->dim[last].n) most = last; // its parts would not be whole blocks
  for (int merged = 2; merged <= most && placement_merges(mesh, v->storage, &v->shape, merged); merged++) {
    Placement p = *v->storage;
    p.merged = (int16_t)merged;
    if (merged > last) p.parts = (int)(v->shape.size[last] / cuts.part);
    for (int a = 0; a < mesh->naxis; a++)
      if (axes >> a & 1) axis_list_push(&p.rows, a);
    int64_t local = local_elements(mesh, &p, &v->shape);
    if (local < least) *best = p, least = local;
  }
}

static const Placement *sharded_storage(Graph *g, const Parallel *parallel, const Variable *v) {
  const Mesh *mesh = &parallel->mesh;
  Placement p = *v->storage;
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++) {
    if (!(parallel->storage.shard_axes >> a & 1) || mesh->axis[a].size == 1) continue;
    if (placement_axes(&p) >> a & 1) continue; // the Layout has cut it over this axis already
    int d = storage_dim(mesh, &p, &v->shape, mesh->axis[a].size);
    CHECK(d >= 0);
    axis_list_push(&p.dim[d], a);
    axes |= 1u << a;
  }
  if (axes) cut_rows(g, mesh, v, axes, &p);
  return placement_new(g, &p);
}

static const Placement *owned_storage(Graph *g, const Parallel *parallel, const Variable *v, int owner) {
  Placement p = *v->storage;
  p.owner_axes = owner_axes(parallel, v->storage);
  p.owner = owner;
  return placement_new(g, &p);
}

static ZeroCuts cuts_of(const Storage *s) { return zero_cuts(s->zero, s->reshard, s->local_gradients); }

// Parameters: shard the storage by the table, and keep what MICRO reads as a Copy, which BEGIN makes, so that it is
// never stale (fuse may let the update make it). precision may have made the Copy already, in a narrower dtype.
static void store_parameter(Graph *g, const Parallel *parallel, int id, const int *owner) {
  Variable *v = &g->variable.data[id];
  const Placement *seen = v->storage;
  ZeroCuts cuts = cuts_of(&parallel->storage);
  if (cuts.storage) v->storage = owner ? owned_storage(g, parallel, v, owner[id]) : sharded_storage(g, parallel, v);
  const Placement *resident = cuts.resident ? v->storage : seen; // what MICRO finds
  if (v->copies) v->copy[0].placement = resident;
  else if (!placement_equal(v->storage, resident))
    v->copy[v->copies++] = (Copy){.dtype = v->dtype, .placement = resident};
}

// Tensors that are bound to a parameter: MICRO reads the Copy where there is one.
static void point_at_copies(Graph *g) {
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    const Variable *v = t->variable >= 0 ? &g->variable.data[t->variable] : NULL;
    if (!v || !variable_is_sharded_by_zero(v)) continue;
    if (v->copies) t->copy = 0;
    t->placement = v->copies ? v->copy[0].placement : v->storage;
  }
}

// The Variable that MICRO reads for a parameter: with delayed gradients its oldest version. Where there is a Copy, it
// is a Copy of that.
static int seen_variable(Graph *g, int id) {
  const Variable *v = &g->variable.data[id];
  return FAULT(newest_for_the_delayed, variable_is_trained(v) && v->delay, 0) ? graph_version(g, id, v->delay)
                                                                                     : id;
}

static void point_at_versions(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && !n->update && k < n->ninput; k++) {
      Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
      if (t && t->variable >= 0 && t->copy < 0) t->variable = seen_variable(g, t->variable);
    }
  }
}

// Stages 2 and 3: accumulators lie as their parameter, so every contribution is scattered as it comes. END may still
// sum, once a step, a tied one over its stages, and all of them over the replicas of hybrid sharding.
static void store_gradients(Graph *g, const Parallel *parallel) {
  const Mesh *mesh = &parallel->mesh;
  uint32_t later = 1u << mesh_pipeline(mesh) | (layout_data_axes(&parallel->layout) & ~parallel->storage.shard_axes);
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->kind != VARIABLE_GRADIENT) continue;
    Placement p = *g->variable.data[v->parameter].storage;
    p.partial = v->storage->partial & later;
    v->storage = placement_new(g, &p);
  }
  for (int i = 0; i < g->tensor.count; i++) {
    int v = g->tensor.data[i].variable;
    if (v >= 0 && g->variable.data[v].kind == VARIABLE_GRADIENT)
      g->tensor.data[i].placement = g->variable.data[v].storage;
  }
  for (int i = 0; i < g->node.count; i++) { // the sums are placed anew
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && k < n->noutput; k++) {
      int v = graph_tensor(g, n->output[k])->variable;
      if (v < 0 || g->variable.data[v].kind != VARIABLE_GRADIENT) continue;
      // One that rounds what it stores gives partial sums, so that what is scattered is narrow.
      if (FAULT(gradient_scattered_wide, !node_is(n, ROLE_CAST), 1)) place_node(g, i, mesh, NULL);
      break;
    }
  }
}

static void refresh_copies(Graph *g) {
  g->region = REGION_BEGIN;
  g->phase = PHASE_FORWARD;
  g->layer = -1;
  for (int id = 0; id < g->variable.count; id++) {
    const Variable *v = &g->variable.data[id];
    if (FAULT(copy_not_refreshed, !v->copies, 1)) continue;
    if (FAULT(copy_not_refreshed_in_bf16, 0, v->copy[0].dtype == DTYPE_BF16)) continue;
    g->scope = arena_format(&g->arena, "refresh.%s", v->name);
    int seen = seen_variable(g, id);
    v = &g->variable.data[id];
    int source = graph_read(g, seen), narrow = v->copy[0].dtype != v->dtype; // casting comes before gathering
    int copy = narrow ? op_cast(g, "copy", source, v->copy[0].dtype) : op_identity(g, "copy", source);
    v = &g->variable.data[id];
    graph_tensor(g, source)->placement = v->storage;
    graph_tensor(g, source)->stages = v->stages;
    graph_bind(g, copy, id, 0);
    Tensor *t = graph_tensor(g, copy);
    t->role = ROLE_WEIGHT;
    t->placement = v->copy[0].placement;
    t->stages = v->stages;
    g->node.data[t->producer].stages = v->stages;
  }
  g->scope = "";
  g->region = REGION_MICRO;
}

static int is_update(const Node *n) { return n->region != REGION_MICRO || n->update; }

// Updates read and write storage: tensors there that are bound to a parameter mean the storage, not the Copy.
static void rebind_update(Graph *g) {
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    if (!is_update(n)) continue;
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int id = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (id < 0) continue;
      Tensor *t = graph_tensor(g, id);
      if (t->variable < 0) continue;
      if (t->copy >= 0) t->copy = -1;
      t->placement = g->variable.data[t->variable].storage;
    }
  }
}

// A node that needs a whole matrix runs on the owner, and its result goes back to where the parameter is stored.
static void place_at_owner(Graph *g, const Mesh *mesh, int id, const Placement *owned) {
  Tensor *t = graph_tensor(g, g->node.data[id].output[0]);
  const Placement *stored = t->placement;
  t->placement = owned;
  place_node(g, id, mesh, NULL);
  graph_tensor(g, g->node.data[id].output[0])->placement = stored;
}

static void place_update(Graph *g, const Mesh *mesh, int id, const Placement *const *owned) {
  const Node *n = &g->node.data[id];
  for (int k = 0; k < n->noutput; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    if (t->role == ROLE_WEIGHT_GRADIENT && t->variable < 0 && t->parameter >= 0)
      t->placement = g->variable.data[t->parameter].storage;
  }
  const Placement *owner =
      node_is(n, ROLE_WHOLE_MATRIX) ? owned[graph_tensor(g, n->output[0])->parameter] : NULL;
  if (owner) place_at_owner(g, mesh, id, owner);
  else place_node(g, id, mesh, NULL);
}

// A scalar that an update in MICRO writes lies as it is written.
static void store_written_scalars(Graph *g, int id) {
  const Node *n = &g->node.data[id];
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(g, n->output[k]);
    Variable *v = t->variable >= 0 ? &g->variable.data[t->variable] : NULL;
    if (v && !v->shape.rank)
      v->storage = FAULT(square_not_of_all_ranks, t->placement,
                         graph_tensor(g, t->id)->placement = n->give_[k] = placement_new(g, &(Placement){0}));
  }
}

// Updates in MICRO: those of parameters whose gradient is complete there.
static void place_updates_in_backward(Graph *g, const Mesh *mesh, const Placement *const *owned) {
  int any = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO || !n->update) continue;
    place_update(g, mesh, i, owned);
    store_written_scalars(g, i);
    any = 1;
  }
  for (int i = 0; any && i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    if (t->variable >= 0 && !t->placement) t->placement = g->variable.data[t->variable].storage;
  }
}

// Scales of a moment: their last dim counts blocks, of which a rank has all; those before it are the parameter's.
static const Placement *scales_storage(Graph *g, const Variable *v) {
  Placement p = *g->variable.data[v->parameter].storage;
  p.rank = v->shape.rank;
  for (int d = p.rank - 1; d < MAX_RANK; d++) p.dim[d] = (AxisList){0};
  return placement_new(g, &p);
}

// Variables of a parameter (moments, dumps) are stored as the parameter is.
static void store_as_parameters(Graph *g) {
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (v->storage || v->parameter < 0) continue;
    v->storage = variable_is_of_blocks(v) ? scales_storage(g, v) : g->variable.data[v->parameter].storage;
  }
}

// Scalars that nothing was said about are the same everywhere.
static void store_scalars(Graph *g) {
  const Placement *everywhere = placement_new(g, &(Placement){0});
  for (int i = 0; i < g->variable.count; i++)
    if (!g->variable.data[i].storage) g->variable.data[i].storage = everywhere;
}

// Every region's nodes were appended where they were made; BEGIN's refresh nodes come last, which keeps their order.
int pass_zero(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  const Parallel *parallel = &o->parallel;
  const Mesh *mesh = &parallel->mesh;
  int *owner = parallel->storage.unsplit ? unsplit_owners(g, parallel) : NULL;
  for (int i = 0; i < g->variable.count; i++)
    if (variable_is_sharded_by_zero(&g->variable.data[i])) store_parameter(g, parallel, i, owner);
  free(owner);
  point_at_copies(g);
  point_at_versions(g);
  int shards = FAULT(gradients_stored_over_one_rank, mesh_size(mesh, parallel->storage.shard_axes), 2);
  if (cuts_of(&parallel->storage).gradient && shards > 1) store_gradients(g, parallel);
  store_as_parameters(g);
  rebind_update(g);
  const Placement **owned = matrix_owners(g, parallel);
  place_updates_in_backward(g, mesh, owned); // which says where the scalars are that they write and END reads
  store_scalars(g);
  rebind_update(g);
  refresh_copies(g);
  for (int i = 0; i < g->node.count; i++)
    if (g->node.data[i].region != REGION_MICRO) place_update(g, mesh, i, owned);
  free(owned);
  return PLAIT_OK;
}
