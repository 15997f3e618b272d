// Lower bounds on plans.
#include "foresight/search_bounds.h"
#include "foresight/predict.h"
#include "base/fault.h"
#include "ir/encoding.h"
#include "op/optimizer.h"
#include "sharding/zero_table.h"
#include "machine/machine.h"
#include "machine/machine_times.h"
#include "machine/simulate.h"
#include "setup/setup.h"
#include "schedule/schedule.h"
#include "machine/devices.h"
#include <math.h>
#include <string.h>

void bounds_create(const Space *space, const Cluster *cluster, Bounds *b) {
  const Recipe *r = &space->base;
  *b = (Bounds){.space = space, .cluster = cluster, .times = machine_times(cluster, NULL), .unhosted = *cluster};
  b->unhosted.device = *devices_fastest(cluster, (Dtype)r->precision); // of several kinds: nothing is faster
  b->unhosted.island.count = 0;
  b->unhosted.device.host = 0;
  b->flops =
      model_config_flops_per_token(space->config, r->data.seq_len) * (double)r->batch.global * (double)r->data.seq_len;
  b->rate = machine_rate(&b->times, (Dtype)r->precision);
  b->parameters = (double)space->config->facts.parameters;
  b->multiplied = (double)space->config->facts.multiplied;
  memset(b->bucket, -1, sizeof b->bucket);
}

void bounds_free(Bounds *b) {
  vec_free(&b->layers);
  vec_free(&b->flights);
  vec_free(&b->groups);
}

// Memory ------------------------------------------------------------------------------------------------------------

static int experts_apart(const Bounds *b, const Recipe *r) {
  return b->space->config->experts && (r->parallel.ep > 1 || r->layout.rows.row[LAYOUT_ROW_EXPERT].count > 0);
}

// States of the optimizer that every parameter has, at least.
static int states_of(const Recipe *r) {
  const OptimizerDef *o = op_def((Op)r->optimizer.name)->optimizer;
  int n = 0;
  while (o->state[n]) n++;
  if (o->keeps) return 0;
  return o->build ? 1 : n;
}

static ZeroCuts cuts_of(const Recipe *r) {
  return zero_cuts(r->parallel.zero, r->parallel.reshard, r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL);
}

static ZeroBytes parameter_bytes(const Recipe *r) {
  double wide = r->precision == DTYPE_F64 ? 8 : 4, narrow = (double)dtype_size((Dtype)r->precision);
  bool applied = r->parallel.update == RECIPE_UPDATE_IN_BACKWARD;
  double state = r->transform.states ? (double)encodings[r->transform.states].bits / 8 : wide;
  return (ZeroBytes){wide + state * states_of(r),
                     applied ? 0 : r->parallel.grad_dtype == DTYPE_BF16 ? 2 : wide,
                     narrow,
                     FAULT(bounds_copy_all, narrow < wide && !recipe_splits_masters(r), 1)};
}

// Whether the Layout itself cuts weights over data ranks, beside what ZeRO does. Rows for samples do not cut weights.
static bool stores_over_data(const Recipe *r) {
  for (int row = 0; row < LAYOUT_ROWS; row++) {
    if (row == LAYOUT_ROW_BATCH || row == LAYOUT_ROW_INTERIOR) continue;
    LayoutWords words = recipe_layout_row(r, (LayoutRow)row);
    for (int i = 0; i < words.count; i++)
      if (words.axis[i] == AXIS_DP) return true;
  }
  return false;
}

static double state_bytes(const Bounds *b, const Recipe *r) {
  double shards = (double)(r->parallel.shard_group ? r->parallel.shard_group : r->mesh.dp) * r->mesh.cp;
  double parts = (double)r->mesh.pp * r->mesh.tp;
  const ZeroBytes p = parameter_bytes(r);
  if (experts_apart(b, r)) parts *= (double)r->mesh.dp * r->mesh.cp, shards = 1;
  if (stores_over_data(r)) parts *= r->mesh.dp, shards = 1;
  return b->parameters / parts * zero_bytes(cuts_of(r), &p, shards);
}

// With more, as many are in flight. Some schedules take multiples of the pipeline ranks only, and then so is this.
static int counted_microbatches(const Recipe *r) {
  int m = recipe_microbatches(r), most = (256 + r->mesh.pp - 1) / r->mesh.pp * r->mesh.pp;
  return m < most ? m : most;
}

static int most_in_flight(const ScheduleGenerator *s, StageMap map, int stages, int microbatches, int coordinate) {
  ActionList list = {0};
  s->generate(map, stages, microbatches, coordinate, &list);
  int now = 0, most = 1;
  for (int i = 0; i < list.count; i++) {
    now += (list.data[i].kind == ACTION_FORWARD) - (list.data[i].kind == ACTION_BACKWARD);
    most = now > most ? now : most;
  }
  vec_free(&list);
  return most;
}

// The number of microbatches whose activations of all layers the rank with the most holds, at least: with n_c layers
// and i_c passes in flight on coordinate c, max n_c·i_c ≥ L / Σ 1/i_c whatever the cut.
static double flight_share(Bounds *b, const Recipe *r) {
  const ScheduleGenerator *s = &schedules[r->parallel.pipeline];
  int pp = r->mesh.pp, v = recipe_virtual_stages(r), m = counted_microbatches(r);
  if (pp == 1) return 1;
  for (int i = 0; i < b->flights.count; i++) {
    FlightMemo *f = &b->flights.data[i];
    if (f->schedule == r->parallel.pipeline && f->pp == pp && f->stages == v && f->microbatches == m) return f->share;
  }
  double sum = 0;
  for (int c = 0; c < pp && !s->streams; c++)
    sum += 1.0 / most_in_flight(s, (StageMap){pp, s->folded}, pp * v, m, c);
  double share = s->streams ? 1.0 / pp : 1.0 / sum / v;
  vec_push(&b->flights, (FlightMemo){r->parallel.pipeline, pp, v, m, share});
  return share;
}

// The part of batch.micro that a microbatch has: all, but where a data rank has fewer sequences in all.
static double part_of_micro(const Recipe *r) {
  return fmin(1, (double)r->batch.global / recipe_data_ranks(r) / r->batch.micro);
}

// Time --------------------------------------------------------------------------------------------------------------

// Microbatches of `micro` sequences that a data rank computes, on average.
static double mean_microbatches(const Recipe *r) {
  return (double)r->batch.global / recipe_data_ranks(r) / r->batch.micro;
}

// Of the ranks of an axis, or of two (else `other` is AXIS_OWN). Found once for every mesh, of which a search has
// thousands of plans.
static GroupOnLinks group_over(Bounds *b, const Recipe *r, AxisId axis, AxisId other) {
  const int mesh[SPACE_MESH] = {r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp};
  Mesh m = mesh_of(4, (AxisId[]){AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP}, mesh);
  uint32_t axes = 1u << mesh_axis(&m, axis) | (other != AXIS_OWN ? 1u << mesh_axis(&m, other) : 0);
  for (int i = b->groups.count - 1; i >= 0; i--) {
    const GroupMemo *g = &b->groups.data[i];
    if (g->axes == axes && !memcmp(g->mesh, mesh, sizeof mesh)) return g->group;
  }
  GroupMemo memo = {.axes = axes, .group = machine_group(b->cluster, &m, axes, NULL, 0)};
  memcpy(memo.mesh, mesh, sizeof mesh);
  vec_push(&b->groups, memo);
  return memo.group;
}

// The table counts more than a step may need: gathers that forward and backward share at a pipeline's turn, heads that
// are read once, groups over dp and cp whose sums are joined. Simulated steps went down to 0.91 of the table.
static const double least_share = 0.85;

// Seconds of gradients and parameters on the links of data parallelism. 0 where more than the ZeRO table decides.
static double data_seconds(Bounds *b, const Recipe *r) {
  double d = (double)r->mesh.dp * r->mesh.cp, m = floor(mean_microbatches(r));
  if (d < 2 || r->parallel.shard_group || r->parallel.unsplit_tensors || b->space->config->experts || m < 1)
    return 0;
  if (stores_over_data(r)) return 0;
  GroupOnLinks group = group_over(b, r, AXIS_DP, r->mesh.cp > 1 ? AXIS_CP : AXIS_OWN);
  double n = b->multiplied / ((double)r->mesh.pp * r->mesh.tp);
  const ZeroBytes p = parameter_bytes(r);
  ZeroCuts cuts = cuts_of(r);
  double reduced = machine_collective_seconds(&b->times, COLLECTIVE_REDUCE_SCATTER, &group, n * p.gradient);
  double gathered = cuts.storage ? machine_collective_seconds(&b->times, COLLECTIVE_ALL_GATHER, &group, n * p.read) : 0;
  if (cuts.gradient) reduced *= m;
  if (cuts.resident) gathered *= 2 * m;
  return (reduced + gathered) * (r->mesh.cp > 1 || r->parallel.zero == 3 ? least_share : 1);
}

// Seconds of a layer's two sums over tp, forward and backward, on its links: three of the four all_reduces, since the
// first layer's last one has no reader. 0 where blocks are cut otherwise.
static double tensor_seconds(Bounds *b, const Recipe *r) {
  const ModelConfig *c = b->space->config;
  if (r->mesh.tp < 2 || r->parallel.tensor != LAYOUT_TENSOR_1D || c->experts) return 0;
  StepParallel o = recipe_parallel(r);
  if (!parallel_row_has(&o, LAYOUT_ROW_FFN, AXIS_TP) || !parallel_row_has(&o, LAYOUT_ROW_HEADS, AXIS_TP)) return 0;
  GroupOnLinks group = group_over(b, r, AXIS_TP, AXIS_OWN);
  double bytes = (double)r->batch.micro * r->data.seq_len / r->mesh.cp * (double)c->embed *
                 (double)dtype_size((Dtype)r->precision);
  return 3 * machine_collective_seconds(&b->times, COLLECTIVE_ALL_REDUCE, &group, bytes) * floor(mean_microbatches(r)) *
         (double)c->layers / r->mesh.pp;
}

// The first microbatch goes through all stages before the last one works, and the last one's gradient comes back, in
// microbatches' time of one coordinate. A third of a layer's FLOPs are forward.
static double pipeline_fill(const Recipe *r) {
  const ScheduleGenerator *s = &schedules[r->parallel.pipeline];
  double filled = (double)(r->mesh.pp - 1) / recipe_virtual_stages(r);
  return s->streams || s->folded ? 0 : filled * (s->splits ? 0.5 : 1);
}

static double together(const Recipe *r, double compute, double communication) {
  bool beside = r->parallel.overlap != RECIPE_OVERLAP_OFF && r->parallel.bucket_mb > 0;
  double most = beside ? fmax(compute, communication) : compute + communication;
  return FAULT(search_bound_is_no_bound, most, 3 * most);
}

PlanBound bound_by_arithmetic(Bounds *b, const Candidate *c, const Recipe *r) {
  (void)c;
  const ModelConfig *config = b->space->config;
  double input = part_of_micro(r) * (double)r->batch.micro * r->data.seq_len * (double)config->embed *
                 (double)dtype_size((Dtype)r->precision);
  double kept = input / ((double)r->mesh.cp * r->mesh.tp) * (double)config->layers * flight_share(b, r);
  double compute = b->rate > 0 ? b->flops / b->rate / devices_at_once(b->cluster, recipe_rank_count(r)) : 0;
  double layers = (double)config->layers * (double)config->embed * (double)config->embed * 12 / b->multiplied;
  if (!devices_share_cores(b->cluster)) // else ranks that wait help those that compute
    compute *= 1 + fmin(1, layers) * pipeline_fill(r) / fmax(1, mean_microbatches(r));
  double data = data_seconds(b, r);
  double links = together(r, data, tensor_seconds(b, r)); // those of two axes may be side by side
  return (PlanBound){fmax(together(r, compute, data), links),
                     state_bytes(b, r) + 0.9 * kept};
}

// Layers ------------------------------------------------------------------------------------------------------------

// The plan with all that a layer's kernels do not see left out.
static Candidate layer_key(const Bounds *b, const Candidate *c) {
  static const char *const outside[] = {"zero", "hybrid", "pp", "gather", "gradients", "ownership", "buckets"};
  const Space *s = b->space;
  Candidate key = *c;
  int dp = 0;
  for (int k = 0; k < s->kinds; k++) {
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
      if (!strcmp(s->kind[k].name, outside[i])) key.feature[k] = -1, key.number[k] = 0;
    if (key.feature[k] >= 0) {
      const LayoutTraits *t = s->kind[k].feature[key.feature[k]].traits;
      dp |= !strcmp(t->axis, axis_names[AXIS_DP]) || strstr(t->settings, axis_names[AXIS_DP]);
    }
  }
  key.mesh[0] = 1;
  if (!dp && !s->config->experts) key.mesh[1] = 1;
  key.stages = 0;
  key.bucket = s->base.parallel.bucket_mb;
  key.recomputed = s->base.parallel.recompute_layers;
  return key;
}

static unsigned key_hash(const Candidate *key) {
  const unsigned char *at = (const unsigned char *)key;
  unsigned h = 2166136261u;
  for (size_t i = 0; i < sizeof *key; i++) h = (h ^ at[i]) * 16777619u;
  return h % LAYER_BUCKETS;
}

// The variant by which the plan's layers are measured: one stage's, in two microbatches, without ZeRO.
static int layer_recipe(const Bounds *b, const Candidate *key, Recipe *variant, Error *error) {
  Recipe r;
  space_recipe(b->space, key, &r);
  char *keys =
      xformat("parallel.zero=0 parallel.reshard=null parallel.shard_group=null parallel.unsplit_tensors=null "
              "parallel.gather=null parallel.accumulate=null parallel.pipeline=1f1b "
              "parallel.stages_per_rank=null parallel.layers=null parallel.recompute_layers=null "
              "batch.global=%d optimizer.delay=%d",
              2 * r.batch.micro * recipe_data_ranks(&r), r.optimizer.delay.count ? r.optimizer.delay.items[0] : 0);
  int code = recipe_variant(&r, keys, variant, error);
  free(keys);
  return code;
}

// Of the first microbatch: seconds forward and backward, bytes that are kept for backward.
typedef struct LayersTime { double forward, backward, kept; } LayersTime;

static bool simulate_layers(const Bounds *b, const Recipe *r, int layers, LayersTime *out) {
  ModelConfig config = *b->space->config;
  Error ignored = {0};
  Job *job = NULL;
  Simulation *s;
  SimulateOptions options = {.cluster = &b->unhosted};
  config.layers = layers;
  *out = (LayersTime){0};
  if (setup_job(r, &config, &(RunSetting){.sketch = true, .cluster = predict_cut(b->cluster)}, &job, &ignored))
    return false;
  bool good = !simulate(job_train(job)->program, &options, &s, &ignored);
  for (int i = 0; good && i < s->spans.span.count; i++) {
    const ScheduleSpan *span = &s->spans.span.data[i];
    if (span->microbatch) continue;
    if (span->kind == ACTION_FORWARD) out->forward += span->end - span->start;
    else out->backward += span->end - span->start;
  }
  if (good) out->kept = (double)job_train(job)->program[0]->memory.kept, simulation_free(s);
  job_destroy(job);
  return good;
}

static LayerCost measure_layer(const Bounds *b, const Candidate *key) {
  Recipe r;
  Error ignored = {0};
  LayersTime few, more; // models that differ by one layer
  int least = b->space->config->layers < 3 ? 1 : 2;
  if (layer_recipe(b, key, &r, &ignored)) return (LayerCost){0};
  bool good = simulate_layers(b, &r, least, &few) && simulate_layers(b, &r, least + 1, &more);
  recipe_free(&r);
  if (!good) return (LayerCost){0};
  LayerCost c = {true, more.forward - few.forward,   more.backward - few.backward, 0,
                 0,    fmax(0, more.kept - few.kept)};
  c.rest_forward = fmax(0, few.forward - least * c.forward);
  c.rest_backward = fmax(0, few.backward - least * c.backward);
  return c;
}

static const LayerCost *layer_cost(Bounds *b, const Candidate *c) {
  Candidate key;
  memset(&key, 0, sizeof key);
  key = layer_key(b, c);
  unsigned h = key_hash(&key);
  for (int i = b->bucket[h]; i >= 0; i = b->layers.data[i].next)
    if (!memcmp(&b->layers.data[i].key, &key, sizeof key)) return &b->layers.data[i].cost;
  LayerCost cost = measure_layer(b, &key);
  LayerMemo memo = {.cost = cost, .next = b->bucket[h]};
  memcpy(&memo.key, &key, sizeof key);
  b->bucket[h] = b->layers.count;
  vec_push(&b->layers, memo);
  return &b->layers.data[b->layers.count - 1].cost;
}

// Models whose layers are not all alike are bounded by arithmetic alone.
static bool layers_alike(const ModelConfig *c) {
  for (int64_t l = 0; c->experts && l < c->layers; l++)
    if (model_layer_has_experts(c, l) != model_layer_has_experts(c, 0)) return false;
  return !c->window;
}

// Between layers of 2-D and 3-D tensors some blocks are moved that a stage's first layer does not: a difference of
// models has a little more of them.
static const double blocks_share = 0.95;

PlanBound bound_by_layers(Bounds *b, const Candidate *c, const Recipe *r) {
  PlanBound bound = bound_by_arithmetic(b, c, r);
  if (!layers_alike(b->space->config) || recipe_recompute_differs(r)) return bound;
  const LayerCost *cost = layer_cost(b, c);
  if (!cost->known) return bound;
  const ScheduleGenerator *s = &schedules[r->parallel.pipeline];
  double layers = (double)b->space->config->layers, pp = r->mesh.pp;
  double forward = layers * cost->forward / pp, backward = layers * cost->backward / pp;
  double rest = (cost->rest_forward + cost->rest_backward) / pp, filled = (pp - 1) / recipe_virtual_stages(r);
  double ends = s->streams || s->folded ? 0 : filled * (forward + (s->splits ? 0.3 : 1) * backward);
  double compute = mean_microbatches(r) * (forward + backward + rest) + part_of_micro(r) * ends;
  if (r->parallel.tensor != LAYOUT_TENSOR_1D) compute *= blocks_share;
  if (!devices_share_cores(b->cluster)) // else what a layer takes depends on who else computes
    bound.seconds = fmax(bound.seconds, together(r, compute, data_seconds(b, r)));
  bound.bytes =
      fmax(bound.bytes, state_bytes(b, r) + 0.95 * part_of_micro(r) * cost->kept * layers * flight_share(b, r));
  return bound;
}
