// From a recipe to a RunPlan, and from that to what is compiled.
#include "setup/run_plan.h"
#include "base/cores.h"
#include "base/fault.h"
#include "machine/cluster.h"
#include "recipe/recipe_device.h"
#include "recipe/recipe_keys.h"
#include "runtime/chaos.h"
#include "setup/setup.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_changed(const Recipe *r, const char *path) {
  char *value = recipe_value_text(r, path);
  bool changed = strcmp(value, recipe_key_find(path)->fallback) != 0;
  free(value);
  return changed;
}

// Keys moe.* say something about experts.
static int check_experts(const Recipe *r, const ModelConfig *c, Error *error) {
  const struct { const char *path; bool set; } keys[] = {{"moe.balance_loss", r->moe.balance_loss > 0},
                                                         {"moe.z_loss", r->moe.z_loss > 0},
                                                         {"moe.bias_rate", r->moe.bias_rate > 0},
#define TRANSFORM_OF_moe(path, ...) {path, is_changed(r, path)},
#include "recipe/recipe_transforms.h"
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys && !c->experts; i++) {
    if (!keys[i].set) continue;
    char *value = recipe_value_text(r, keys[i].path);
    int code = error_set(error, PLAIT_BAD_INPUT,
                         "%s%s is %s, but the %s model of %s has no experts; leave it out",
                         recipe_where(r, keys[i].path), keys[i].path, value, model_family_name(c->family), c->path);
    free(value);
    return code;
  }
  double balance = r->moe.balance_loss < 0 ? c->router_aux_loss_coef : r->moe.balance_loss;
  if (!c->experts || !r->run.noise_scale || (balance == 0 && r->moe.z_loss == 0)) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%srun.noise_scale is %lld, but it compares the gradients of parts of a batch, and losses of routers "
      "(moe.balance_loss %g, moe.z_loss %g) are of whole batches; set both to 0, or run.noise_scale to 0",
      recipe_where(r, "run.noise_scale"), (long long)r->run.noise_scale, balance, r->moe.z_loss);
}

static int recompute_list(const Recipe *r, const ModelConfig *config, RecomputeList *list, Error *error) {
  Error problem = {0};
  if (!r->parallel.recompute.list ||
      !recompute_list_parse(r->parallel.recompute.list, (int)config->layers, list, &problem))
    return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%sparallel.recompute: the list %s", recipe_where(r, "parallel.recompute"),
                   problem.message);
}

// Mesh, Layout, stages, precision, batch sizes (micro_samples = batch.micro × data ranks) and the optimizer, as far as
// the recipe and the model say them: overlap and recomputation where they are not auto, and layers cut by FLOPs.
static SameBits same_bits(const Recipe *r) {
  if (r->run.deterministic == RECIPE_DETERMINISTIC_OFF) return SAME_BITS_NEVER;
  return r->run.deterministic == RECIPE_DETERMINISTIC_ON || r->run.desync_check ? SAME_BITS_ALWAYS : SAME_BITS_AUTO;
}

static int read_options(RunPlan *plan, Error *error) {
  const Recipe *r = plan->recipe;
  CompileOptions *o = &plan->options;
  StepModel model;
  step_model_of(plan->config, &model);
  recipe_step(r, &model, &o->step);
  int code = recipe_check_step(r, &model, &o->step, error);
  if (!code) code = check_experts(r, plan->config, error);
  if (code) return code;
  o->device = plan->apart ? device_describe_apart((DeviceKind)r->run.backend) : recipe_device(r);
  o->same_bits = same_bits(r);
  o->chaos = chaos_of_environment();
  o->parallel = parallel_create(&o->step, &model);
  compile_set_batch(o, r->batch.global, r->batch.micro);
  return recompute_list(r, plan->config, &o->step.recompute.list, error);
}

// plan->cluster, where one is named: read when something is asked of it first.
static int find_cluster(RunPlan *plan, Error *error) {
  const char *name = plan->recipe->run.cluster;
  if (plan->cluster || !name) return PLAIT_OK;
  int code = cluster_load(name, &plan->loaded, error);
  plan->cluster = plan->loaded;
  return code ? error_prefix(error, "%srun.cluster", recipe_where(plan->recipe, "run.cluster")) : PLAIT_OK;
}

// plan->times; a cluster without a rate for the precision is left to whoever needs its times.
static int find_times(RunPlan *plan, Error *error) {
  CompileOptions *o = &plan->options;
  int code = find_cluster(plan, error);
  bool known = plan->cluster && product_rate(&plan->cluster->device, o->step.precision) > 0;
  plan->times = machine_times(known ? plan->cluster : NULL, o->device);
  return code;
}

// Layers are cut by seconds where a cluster is named and something is left to cut.
static int choose_seconds(RunPlan *plan, Error *error) {
  CompileOptions *o = &plan->options;
  if (o->parallel.pipeline.stages == 1 || o->parallel.pipeline.cut_given) return PLAIT_OK;
  int code = find_times(plan, error);
  if (code || !plan->times.cluster) return code;
  o->seconds = machine_seconds;
  o->times = &plan->times;
  return PLAIT_OK;
}

static int choose_recompute(RunPlan *plan, Error *error) {
  if (plan->recipe->parallel.recompute.word != RECIPE_RECOMPUTE_AUTO) return PLAIT_OK;
  int code = find_times(plan, error);
  return code ? code
              : recompute_auto(plan->recipe, plan->config, &plan->times, &plan->options, &plan->run, plan->recompute,
                               error);
}

// What follows from overlap.
static int choose_rest(RunPlan *plan, Error *error) {
  int code = choose_seconds(plan, error);
  return code ? code : choose_recompute(plan, error);
}

static void set_overlap(CompileOptions *o, bool on) {
  o->step.parallel.overlap.on = o->step.parallel.overlap.read_ahead = on;
  o->parallel.overlap = o->step.parallel.overlap;
}

// Seconds of a step of the plan, which lets communication overlap, or does not; INFINITY: they cannot be told.
static double step_seconds(const RunPlan *plan, bool overlap) {
  RunPlan other = *plan; // not decided yet; shares the cluster
  const MachineTimes times = machine_times(plan->cluster, NULL);
  double seconds = INFINITY;
  Job *job = NULL;
  Error ignored = {0};
  other.recompute = NULL;
  set_overlap(&other.options, overlap);
  int code = choose_rest(&other, &ignored);
  if (!code) code = run_plan_job(&other, &job, &ignored);
  if (!code) machine_step_seconds(&times, job_train(job)->program, &seconds, &ignored);
  job_destroy(job);
  return seconds;
}

// parallel.overlap auto becomes what takes less on the cluster; without one it is true.
static int choose_overlap(RunPlan *plan, Error *error) {
  const Recipe *r = plan->recipe;
  if (r->parallel.overlap != RECIPE_OVERLAP_AUTO || !r->parallel.bucket_mb || recipe_rank_count(r) == 1)
    return PLAIT_OK;
  int code = find_cluster(plan, error);
  if (code || !plan->cluster) return code;
  double on = step_seconds(plan, true), off = step_seconds(plan, false);
  set_overlap(&plan->options, !FAULT(overlap_auto_is_true, off < on, 0));
  return PLAIT_OK;
}

// Tokens of requests for each sequence, in one microbatch.
static void set_generation_batch(CompileOptions *o, const RunSetting *s) {
  StepBatch *batch = &o->step.batch;
  int64_t context = s->context ? s->context : batch->length[DIM_SEQ], requests = s->requests ? s->requests : 1;
  batch->balance = (Balance){0};
  batch->page = s->page ? s->page : context;
  batch->length[DIM_REQUEST] = requests;
  batch->length[DIM_PAGE] = (context + batch->page - 1) / batch->page;
  batch->length[DIM_CACHE] = (s->pages ? s->pages : requests * batch->length[DIM_PAGE]) * batch->page;
  batch->length[DIM_LOGITS] = s->logits ? s->logits : 1;
  compile_set_batch(o, o->step.batch.micro * parallel_data_ranks(&o->parallel), o->step.batch.micro);
}

static JobOptions job_options(const Recipe *r, const RunSetting *s) {
  int all = r->run.threads > 0 ? r->run.threads : cores_available(), mine = all / recipe_rank_count(r);
  int threads = s->threads ? s->threads : mine > 0 ? mine : 1;
  return (JobOptions){.threads = threads,
                      .helpers = s->threads ? s->helpers : setup_helpers(r, threads),
                      .seed = (uint64_t)r->run.seed,
                      .check = r->run.desync_check,
                      .believes = r->run.verify == RECIPE_VERIFY_OFF,
                      .verify = r->run.verify == RECIPE_VERIFY_STEP,
                      .devices = recipe_devices(r),
                      .sketch = s->sketch,
                      .evaluate_samples = recipe_corpora(r, true)->count ? r->batch.global : 0};
}

int resolve(const Recipe *recipe, const ModelConfig *config, const RunSetting *setting, RunPlan *plan, Error *error) {
  bool shows = setting->shows_recompute && recipe->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO;
  *plan = (RunPlan){.recipe = recipe,
                    .config = config,
                    .run = job_options(recipe, setting),
                    .cluster = setting->cluster,
                    .apart = setting->apart,
                    .recompute = shows ? xcalloc(1, sizeof(RecomputeChoice)) : NULL};
  plan->options.mode = setting->mode;
  int code = read_options(plan, error);
  Step *step = &plan->options.step;
  if (!code)
    step->bf16_weights = setting->bf16_weights && step->precision == DTYPE_F32 && setting->mode != MODEL_TRAIN &&
                         plan->options.device->widens_weights;
  plan->options.panels = setting->mode == MODEL_GENERATE;
  if (!code && setting->mode == MODEL_TRAIN) code = choose_overlap(plan, error);
  if (!code) code = setting->mode == MODEL_TRAIN ? choose_rest(plan, error) : choose_seconds(plan, error);
  if (!code && setting->mode == MODEL_GENERATE) set_generation_batch(&plan->options, setting);
  return code;
}

void run_plan_free(RunPlan *plan) {
  cluster_free(plan->loaded);
  free(plan->recompute);
  *plan = (RunPlan){0};
}

int run_plan_job(const RunPlan *plan, Job **job, Error *error) {
  int code = job_create(plan->config, &plan->options, &plan->run, job, error);
  if (!code) (*job)->options.seconds = NULL, (*job)->options.times = NULL; // its graphs are cut
  return code;
}

int run_plan_graph(const RunPlan *plan, const char *after, Graph **graph, Error *error) {
  CompileOptions options = plan->options;
  options.after = after;
  return compile_graph(plan->config, &options, graph, error);
}

int setup_job(const Recipe *recipe, const ModelConfig *config, const RunSetting *setting, Job **job, Error *error) {
  RunPlan plan;
  int code = resolve(recipe, config, setting ? setting : &(RunSetting){0}, &plan, error);
  if (!code) code = run_plan_job(&plan, job, error);
  run_plan_free(&plan);
  return code;
}
