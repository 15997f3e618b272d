// The parallel configuration of a recipe: its keys as a Step, and the judge's answer with the places of these
// keys.
#include "base/fault.h"
#include "base/shares.h"
#include "recipe/recipe.h"
#include <string.h>

LayoutWords recipe_layout_row(const Recipe *r, LayoutRow row) {
  if (r->layout.rows.row[row].count >= 0) return r->layout.rows.row[row];
  if (row == LAYOUT_ROW_SEQ && r->parallel.sequence) return layout_shipped_row(LAYOUT_SHIPPED_SEQUENCE, row);
  if (r->parallel.tensor != LAYOUT_TENSOR_1D) return layout_tensor_row((LayoutTensorKind)r->parallel.tensor, row);
  return layout_shipped_row(r->layout.name ? (LayoutShipped)(r->layout.name - 1) : LAYOUT_SHIPPED_TENSOR, row);
}

int recipe_virtual_stages(const Recipe *r) {
  return r->parallel.stages_per_rank ? r->parallel.stages_per_rank
         : r->mesh.pp > 1           ? schedules[r->parallel.pipeline].least_stages
                                    : 1;
}

StepParallel recipe_parallel(const Recipe *r) {
  int overlap = r->parallel.overlap != RECIPE_OVERLAP_OFF && r->parallel.bucket_mb > 0; // auto: see resolve
  StepParallel o = {.mesh = mesh_of(4, (AxisId[]){AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP},
                                           (int[]){r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp}),
                       .sequence = r->parallel.sequence,
                       .tensor = (LayoutTensorKind)r->parallel.tensor,
                       .rows = FAULT(rows_are_ignored, r->parallel.rows, 0),
                       .depth = r->parallel.depth,
                       .summa = r->parallel.summa,
                       .zero = r->parallel.zero,
                       .reshard = FAULT(reshard_is_ignored, r->parallel.reshard, 1),
                       .local_gradients = r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL,
                       .unsplit = r->parallel.unsplit_tensors,
                       .shard_group = FAULT(shard_group_is_ignored, r->parallel.shard_group, 0),
                       .experts = r->parallel.ep > 1 ? r->parallel.ep : 0,
                       .context = FAULT(context_is_ignored, (AlgorithmName)r->parallel.context, ALGORITHM_NONE),
                       .ulysses = FAULT(ulysses_is_ignored, r->parallel.ulysses, 0),
                       .overlap = {overlap, (int64_t)FAULT(bucket_mb_is_ignored, r->parallel.bucket_mb, 25) * 1000000,
                                   overlap, FAULT(gather_is_ignored, r->parallel.gather, GATHER_BLOCK)},
                       .schedule = &schedules[r->parallel.pipeline],
                       .stages_per_rank = recipe_virtual_stages(r),
                       .cut = r->parallel.layers.count,
                       .layers = r->parallel.layers.items};
  for (int row = 0; row < LAYOUT_ROWS; row++) o.layout.row[row] = recipe_layout_row(r, (LayoutRow)row);
  return o;
}

bool recipe_splits_masters(const Recipe *r) {
  return r->transform.master && r->precision == DTYPE_BF16;
}

int recipe_data_ranks(const Recipe *r) {
  StepParallel o = recipe_parallel(r);
  return parallel_row_ranks(&o, LAYOUT_ROW_BATCH);
}

Balance recipe_balance(const Recipe *r) {
  const ScheduleGenerator *s = &schedules[r->parallel.pipeline];
  bool fits = r->dp_is_auto && r->mesh.pp > 1 && s->microbatches_multiple_of_ranks; // whatever the ranks are
  return (Balance){.weight = r->batch.balance.items,
                   .count = r->batch.balance.count > 0 ? r->batch.balance.count : 0,
                   .most = recipe_is_measured(r) ? r->batch.most : 0,
                   .multiple = fits ? r->mesh.pp : 0};
}

static Shares shares_of(const Recipe *r) {
  Balance balance = recipe_balance(r);
  return shares_balanced(r->batch.global, recipe_data_ranks(r), r->batch.micro, &balance);
}

int recipe_microbatches(const Recipe *r) {
  Shares shares = shares_of(r);
  int microbatches = shares.microbatches;
  return microbatches;
}

bool recipe_is_even(const Recipe *r) {
  Shares shares = shares_of(r);
  bool even = shares.even;
  return even;
}

static StepUpdate update_of(const Recipe *r, const StepModel *model) {
  StepUpdate u = {.optimizer = (Op)r->optimizer.name,
                  .beta1 = r->optimizer.betas[0],
                  .beta2 = r->optimizer.betas[1],
                  .epsilon = r->optimizer.epsilon,
                  .decay = r->optimizer.weight_decay,
                  .momentum = r->optimizer.momentum,
                  .muon_scale = r->optimizer.muon_scale,
                  .clip = r->optimizer.clip,
                  .dump_gradients = r->run.dump_gradients != NULL,
                  .skips = r->run.non_finite == RECIPE_SKIP,
                  .trials = r->run.noise_scale > 0,
                  .loss_scale = r->loss_scale.initial,
                  .loss_scale_interval = r->loss_scale.growth_interval,
                  .coefficient = {[LOSS_BALANCE] = r->moe.balance_loss < 0 ? model->balance_loss : r->moe.balance_loss,
                                  [LOSS_Z] = r->moe.z_loss},
                  .bias_rate = r->moe.bias_rate,
                  .delay = {.count = r->optimizer.delay.count},
                  .in_backward = r->parallel.update == RECIPE_UPDATE_IN_BACKWARD};
  _Static_assert((int)RECIPE_MAX_INTS <= (int)MAX_DELAYS, "a number for each layer");
  memcpy(u.delay.of, r->optimizer.delay.items, sizeof(int) * (size_t)u.delay.count);
  return u;
}

Dtype recipe_cache_dtype(const Recipe *r) {
  return (Dtype)(r->infer.kv_dtype == RECIPE_KV_AUTO ? r->precision : r->infer.kv_dtype);
}

static RecomputeMode recompute_mode(const Recipe *r) {
  return r->parallel.recompute.word == RECIPE_RECOMPUTE_SELECTIVE ? RECOMPUTE_SELECTIVE
         : r->parallel.recompute.word == RECIPE_RECOMPUTE_FULL    ? RECOMPUTE_FULL
                                                                  : RECOMPUTE_NONE;
}

void recipe_step(const Recipe *r, const StepModel *model, Step *step) {
  *step = (Step){.parallel = recipe_parallel(r),
                 .batch = {.samples = r->batch.global,
                           .micro = r->batch.micro,
                           .length = {[DIM_SEQ] = r->data.seq_len},
                           .one_document = FAULT(attention_forgets_documents, !r->data.document_mask, 1),
                           .balance = recipe_balance(r)},
                 .update = update_of(r, model),
                 .recompute = {.mode = recompute_mode(r), .layers = r->parallel.recompute_layers},
                 .precision = (Dtype)r->precision,
                 .cache = recipe_cache_dtype(r),
                 .transform = r->transform,
                 .bf16_gradients = r->parallel.grad_dtype == DTYPE_BF16};
  step_choose(step, model);
}

int recipe_check_step(const Recipe *r, const StepModel *model, const Step *step, Error *error) {
  ParallelProblem problem;
  if (!parallel_check(step, model, &problem)) return PLAIT_OK;
  const char *key = problem.also && !recipe_is_given(r, problem.key) ? problem.also : problem.key;
  return error_set(error, PLAIT_BAD_INPUT, "%s%s", recipe_where(r, key), problem.text);
}

int recipe_check_parallel(const Recipe *r, const ModelConfig *config, Error *error) {
  StepModel model;
  Step step;
  step_model_of(config, &model);
  recipe_step(r, &model, &step);
  return recipe_check_step(r, &model, &step, error);
}
