// Turns the parallel part of a Step into what passes read.
#include "parallel/parallel.h"
#include "base/divisor.h"
#include "base/fault.h"
#include "parallel/parallel_experts.h"

int parallel_row_has(const StepParallel *o, LayoutRow row, AxisId axis) {
  for (int i = 0; i < o->layout.row[row].count; i++)
    if (o->layout.row[row].axis[i] == axis) return 1;
  return 0;
}

int parallel_kv_ranks(const StepModel *m, int ranks) {
  return (int)greatest_common_divisor(m->size[DIM_KV_HEADS], ranks);
}

AlgorithmCall parallel_context_call(const Step *s, const StepModel *m) {
  const StepParallel *o = &s->parallel;
  AxisId heads = parallel_heads_axis(o);
  int tp = heads != AXIS_OWN ? parallel_word_ranks(o, heads) : 1, of_kv = parallel_kv_ranks(m, tp);
  AlgorithmCall c = {.ranks = mesh_axis_size(&o->mesh, AXIS_CP), .inner = o->ulysses, .bytes = sizeof(float)};
  c.size['b' - 'a'] = s->batch.micro;
  c.size['s' - 'a'] = c.size['t' - 'a'] = s->batch.length[DIM_SEQ];
  c.size['g' - 'a'] = m->size[DIM_KV_HEADS] / of_kv;
  c.size['r' - 'a'] = m->size[DIM_GROUP] / (tp / of_kv);
  c.size['d' - 'a'] = m->size[DIM_HEAD_DIM];
  return c;
}

// The features that cut an axis of the users' in two.
static void cut_for_hybrid(Mesh *mesh, const StepParallel *o) {
  if (o->shard_group) mesh_cut(mesh, AXIS_DP, AXIS_REPLICA, mesh_axis_size(mesh, AXIS_DP) / o->shard_group);
}

static void cut_for_experts(Mesh *mesh, const StepParallel *o) {
  ExpertFold fold;
  if (parallel_expert_fold(o, o->experts, &fold) && fold.dp < mesh_axis_size(mesh, AXIS_DP))
    mesh_cut(mesh, AXIS_DP, AXIS_DP_EP, fold.dp);
}

static int cuts_tokens(const Layout *l, int axis) {
  uint32_t tokens = layout_data_axes(l);
  AxisList positions = layout_axes(l, ROLE_RESIDUAL, DIM_SEQ);
  return (tokens | axis_list_axes(&positions)) >> axis & 1;
}

// The axes that experts lie over: first those whose ranks have the same tokens, so that each computes its own experts
// of them; after these those over which rows move, all in one call (sharding/row_exchange.h).
static void lay_experts(Layout *l, const Mesh *mesh, const StepParallel *o) {
  ExpertFold fold;
  if (!parallel_expert_fold(o, o->experts, &fold)) return;
  int dp = mesh_axis(mesh, AXIS_DP), part = mesh_axis(mesh, AXIS_DP_EP);
  // All of dp as the user gave it, the replicas' axis too. The rest of it in this mesh may be less than the part that
  // has been cut off.
  int all =
      FAULT(part_of_dp_is_all, fold.dp == mesh_axis_size(&o->mesh, AXIS_DP), fold.dp > mesh_axis_size(mesh, AXIS_DP));
  for (int moves = 0; moves < 2; moves++)
    for (int a = 0; a < mesh->naxis; a++) {
      const Axis *axis = &mesh->axis[a];
      int in = axis->role == AXIS_TENSOR || (axis->role == AXIS_CONTEXT && fold.cp > 1) ||
               (axis->role == AXIS_DATA && fold.dp > 1 && (all || a == (part < 0 ? dp : part)));
      if (in && axis->size > 1 && cuts_tokens(l, a) == moves) layout_add(l, ROLE_WEIGHT, DIM_EXPERT, a, 0);
    }
}

static void cut_for_tensors(Mesh *mesh, const StepParallel *o) {
  TensorGrid grid = parallel_grid(o);
  if (mesh_axis(mesh, AXIS_TP) < 0) return;
  mesh_cut(mesh, AXIS_TP, AXIS_TP_DEPTH, grid.depth);
  mesh_cut(mesh, AXIS_TP, AXIS_TP_ROW, grid.rows);
}

AxisId parallel_heads_axis(const StepParallel *o) {
  return parallel_row_has(o, LAYOUT_ROW_HEADS, AXIS_TP)       ? AXIS_TP
         : parallel_row_has(o, LAYOUT_ROW_HEADS, AXIS_TP_ROW) ? AXIS_TP_ROW
                                                           : AXIS_OWN;
}

static void cut_for_heads(Mesh *mesh, const Step *s, const StepModel *m) {
  const StepParallel *o = &s->parallel;
  AxisId axis = parallel_heads_axis(o);
  if (axis == AXIS_OWN || mesh_axis(mesh, axis) < 0) return;
  int ranks = mesh_axis_size(mesh, axis);
  mesh_cut(mesh, axis, AXIS_TP_GROUP, ranks / parallel_kv_ranks(m, ranks));
}

// Ranks of cp that exchange positions for heads. Where they are more than the key and value heads that tp leaves, some
// of them share these.
static void cut_for_context(Mesh *mesh, const Step *s, const StepModel *m) {
  AlgorithmName context = s->algorithm[CHOICE_CONTEXT];
  AlgorithmCall call = parallel_context_call(s, m);
  int inner = context == ALGORITHM_ULYSSES ? call.ranks : context == ALGORITHM_RING && call.inner ? call.inner : 1,
      of_kv = (int)greatest_common_divisor(call.size['g' - 'a'], inner);
  mesh_cut(mesh, AXIS_CP, AXIS_ULYSSES, of_kv);
  mesh_cut(mesh, AXIS_CP, AXIS_CP_GROUP, inner / of_kv); // outside: k and v, once moved, are gathered over it
}

// The axes over which ZeRO divides storage: ranks for data and for context compute with the same weights.
static uint32_t shard_axes(const Mesh *mesh) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++) {
    int shares = mesh->axis[a].role == AXIS_DATA || mesh->axis[a].role == AXIS_CONTEXT;
    if (shares && mesh->axis[a].id != AXIS_REPLICA) axes |= 1u << a;
  }
  return axes;
}

Parallel parallel_create(const Step *s, const StepModel *m) {
  const StepParallel *o = &s->parallel;
  Parallel p = {.overlap = o->overlap, .mesh = o->mesh, .summa = o->summa};
  cut_for_hybrid(&p.mesh, o);
  cut_for_tensors(&p.mesh, o);
  cut_for_experts(&p.mesh, o);
  cut_for_context(&p.mesh, s, m);
  cut_for_heads(&p.mesh, s, m);
  p.layout = layout_from_table(&o->layout, &p.mesh);
  lay_experts(&p.layout, &p.mesh, o);
  p.layout.annotations = o->annotations;
  p.layout.annotation = o->annotation;
  p.layout.propagate = o->propagate;
  p.storage = (Storage){o->zero, o->reshard, o->unsplit, o->local_gradients, shard_axes(&p.mesh)};
  int pp = parallel_pipeline_ranks(&p);
  // With one rank there is nothing to fill: backward follows forward, and one slot serves all microbatches.
  const ScheduleGenerator *schedule = pp > 1 ? o->schedule : &schedules[SCHEDULE_1F1B];
  p.mesh.folded = schedule->folded;
  p.pipeline = (Pipeline){.schedule = schedule,
                          .stages = pp * o->stages_per_rank,
                          .cut_given = o->cut > 0};
  for (int i = 0; i < o->cut; i++) p.pipeline.layers[i] = o->layers[i];
  return p;
}

int parallel_row_ranks(const StepParallel *o, LayoutRow row) {
  int n = 1;
  for (int i = 0; i < o->layout.row[row].count; i++) n *= parallel_word_ranks(o, o->layout.row[row].axis[i]);
  return n;
}

StepParallel parallel_default(int pp, int dp, int tp, int zero) {
  return (StepParallel){.mesh = mesh_of(3, (AxisId[]){AXIS_PP, AXIS_DP, AXIS_TP}, (int[]){pp, dp, tp}),
                           .layout = layout_shipped(LAYOUT_SHIPPED_TENSOR),
                           .zero = zero,
                           .reshard = 1,
                           .overlap = {.on = 1, .bucket_bytes = 25000000, .read_ahead = 1},
                           .schedule = &schedules[SCHEDULE_1F1B],
                           .stages_per_rank = 1};
}

int parallel_pipeline_ranks(const Parallel *p) { return mesh_pipeline_ranks(&p->mesh); }

int parallel_data_ranks(const Parallel *p) { return mesh_size(&p->mesh, layout_data_axes(&p->layout)); }
