// Recipe and model config → compile options, job, loader.
#include "setup/setup.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/file.h"
#include "tokenizer/folder_check.h"
#include "machine/cluster.h"
#include "machine/kernel_time.h"
#include "machine/simulate.h"
#include "recipe/recipe_device.h"
#include "recipe/recipe_keys.h"
#include "runtime/chaos.h"
#include "worker/worker.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int setup_threads(const Recipe *recipe) {
  int threads = (recipe->run.threads > 0 ? recipe->run.threads : cores_available()) / recipe_rank_count(recipe);
  return threads > 0 ? threads : 1;
}

int setup_helpers(const Recipe *recipe, int threads) {
  int ranks = recipe_rank_count(recipe);
  if (!recipe->run.work_stealing || ranks == 1 || recipe_has_processes(recipe) ||
      threads * ranks > cores_available())
    return 0;
  return threads < TEAM_MOST_HELPERS ? threads : TEAM_MOST_HELPERS;
}

int setup_describe_lend(const Recipe *recipe, int threads, bool processes, char *text, size_t size) {
  int ranks = recipe_rank_count(recipe), cores = cores_available();
  text[0] = 0;
  if (!recipe->run.work_stealing || !recipe_is_given(recipe, "run.work_stealing") || ranks == 1) return 0;
  const char *where = recipe_where(recipe, "run.work_stealing");
  if (processes)
    return snprintf(
        text, size,
        "note: %srun.work_stealing is true, but it works between threads only, and ranks are processes here\n", where);
  if (threads * ranks <= cores) return 0;
  return snprintf(
      text, size,
      "note: %srun.work_stealing is true, but %d ranks of %d thread%s share %d core%s, so there is no idle core to "
      "use\n",
      where, ranks, threads, threads > 1 ? "s" : "", cores, cores > 1 ? "s" : "");
}

int setup_model_config(const Recipe *recipe, ModelConfig *config, Error *error) {
  const char *init = recipe->model.init;
  int code = init[0] == '/' ? folder_check_model(init, false, error) : PLAIT_OK;
  if (code) return error_prefix(error, "%smodel.init", recipe_where(recipe, "model.init"));
  code = model_config_load(config, recipe->model.config, error);
  if (code) return error_prefix(error, "%smodel.config", recipe_where(recipe, "model.config"));
  return setup_check_init(recipe, config, error);
}

void setup_note_model(const Recipe *r, const ModelConfig *c, FILE *out) {
  char *unread = model_config_unread(c);
  if (unread)
    fprintf(out, "note: %smodel.config: plait does not read these keys of %s, which change nothing here: %s\n",
            recipe_where(r, "model.config"), c->path, unread);
  free(unread);
  if (r->data.seq_len > c->positions)
    fprintf(out,
            "note: %sdata.seq_len is %d, but %s is made for %lld positions (max_position_embeddings): the run uses the "
            "longer sequences all the same, and an export still says %lld; raise the number there if that is meant\n",
            recipe_where(r, "data.seq_len"), r->data.seq_len, c->path, (long long)c->positions,
            (long long)c->positions);
}

// The Layout: its name, and the recipe's own rows.
static size_t describe_layout(const Recipe *r, char *text, size_t size) {
  static const char *const names[] = {"auto",
#define LAYOUT_SHIPPED(id, name, ...) name,
#include "sharding/layout_rows.def"
  };
  static const char *const rows[] = {
#define LAYOUT_ROW(id, name, meaning) name,
#include "sharding/layout_rows.def"
  };
  int name = r->layout.name         ? r->layout.name
             : r->parallel.sequence ? RECIPE_LAYOUT_SEQUENCE
             : r->mesh.tp > 1       ? RECIPE_LAYOUT_TENSOR
                                    : RECIPE_LAYOUT_DATA;
  static const char *const tensors[] = {
#define LAYOUT_TENSOR(id, name, ...) name,
#include "sharding/layout_rows.def"
  };
  size_t n = (size_t)snprintf(text, size, "layout %s",
                              r->parallel.tensor != LAYOUT_TENSOR_1D ? tensors[r->parallel.tensor] : names[name]);
  for (int row = 0, said = 0; row < LAYOUT_ROWS && n < size; row++) {
    const LayoutWords *axes = &r->layout.rows.row[row];
    if (axes->count < 0) continue;
    n += (size_t)snprintf(text + n, size - n, "%s%s [", said++ ? ", " : " with ", rows[row]);
    for (int i = 0; i < axes->count && n < size; i++)
      n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", axis_names[axes->axis[i]]);
    if (n < size) n += (size_t)snprintf(text + n, size - n, "]");
  }
  return n;
}

// How attention crosses cp, and whether plait chose it.
static void describe_context(const Recipe *r, const ModelConfig *config, char *text, size_t size) {
  StepModel model;
  Step step;
  step_model_of(config, &model);
  recipe_step(r, &model, &step);
  AlgorithmName taken = step.algorithm[CHOICE_CONTEXT];
  text[0] = 0;
  if (taken) snprintf(text, size, ", context %s%s", algorithm_text(taken), step.parallel.context ? "" : " (auto)");
  if (taken == ALGORITHM_RING && step.parallel.ulysses > 1)
    snprintf(text + strlen(text), size - strlen(text), " over groups of %d by ulysses", step.parallel.ulysses);
}

void setup_describe(const Recipe *r, const ModelConfig *config, char *text, size_t size) {
  char hybrid[48] = "", pipeline[80] = "", layout[160], context[64], recompute[96] = "";
  char *again = recipe_value_text(r, "parallel.recompute");
  if (r->parallel.recompute.word != RECIPE_RECOMPUTE_NONE)
    snprintf(recompute, sizeof recompute, strlen(again) > 80 ? ", recompute %.77s…" : ", recompute %s", again);
  free(again);
  if (r->parallel.shard_group) snprintf(hybrid, sizeof hybrid, " over groups of %d (hybrid)", r->parallel.shard_group);
  if (r->mesh.pp > 1) snprintf(pipeline, sizeof pipeline, ", pipeline %s", schedules[r->parallel.pipeline].name);
  if (r->mesh.pp > 1 && recipe_virtual_stages(r) > 1)
    snprintf(pipeline, sizeof pipeline, ", pipeline %s of %d stages a rank", schedules[r->parallel.pipeline].name,
             recipe_virtual_stages(r));
  bool logits_again = *pipeline && schedules[r->parallel.pipeline].splits && r->parallel.logits;
  describe_layout(r, layout, sizeof layout);
  describe_context(r, config, context, sizeof context);
  snprintf(text, size, "zero %d%s%s%s%s%s%s%s%s, %s%s", r->parallel.zero,
           r->parallel.unsplit_tensors ? " by whole tensors" : "", r->parallel.reshard ? "" : " without reshard",
           r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL ? ", gradients added locally" : "", hybrid, pipeline,
           logits_again ? ", logits recomputed" : "", recompute,
           r->parallel.update == RECIPE_UPDATE_IN_BACKWARD ? ", update in backward" : "", layout, context);
}

// Keys moe.* say something about experts.
static int check_experts(const Recipe *r, const ModelConfig *c, Error *error) {
  const struct { const char *path; bool set; } keys[] = {{"moe.balance_loss", r->moe.balance_loss > 0},
                                                         {"moe.z_loss", r->moe.z_loss > 0},
                                                         {"moe.bias_rate", r->moe.bias_rate > 0},
                                                         {"moe.capacity", r->moe.capacity > 0},
                                                         {"moe.chunks", r->moe.chunks > 1}};
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

int setup_compile_options(const Recipe *recipe, const ModelConfig *config, CompileOptions *out, Error *error) {
  StepModel model;
  *out = (CompileOptions){.mode = MODEL_TRAIN, .chaos = chaos_of_environment()};
  step_model_of(config, &model);
  recipe_step(recipe, &model, &out->step);
  int code = recipe_check_step(recipe, &model, &out->step, error);
  if (!code) code = check_experts(recipe, config, error);
  if (code) return code;
  out->device = recipe_device(recipe);
  out->parallel = parallel_create(&out->step, &model);
  compile_set_batch(out, recipe->batch.global, recipe->batch.micro);
  return recompute_list(recipe, config, &out->step.recompute.list, error);
}

// Layers are cut by seconds where a cluster is named and something is left to cut. *loaded: the caller frees it after
// the compile; may be NULL. A cluster without a rate for the dtype is left to whoever needs its times.
static int use_seconds(const Recipe *r, CompileOptions *o, Cluster **loaded, Error *error) {
  const Cluster *cluster = r->cluster;
  *loaded = NULL;
  if (o->parallel.pipeline.stages == 1 || o->parallel.pipeline.cut_given) return PLAIT_OK;
  if (!cluster && r->run.cluster) {
    int code = cluster_load(r->run.cluster, loaded, error);
    if (code) return error_prefix(error, "%srun.cluster", recipe_where(r, "run.cluster"));
    cluster = *loaded;
  }
  if (!cluster || !(product_rate(&cluster->device, o->step.precision) > 0)) return PLAIT_OK;
  o->seconds = cluster_work_seconds;
  o->machine = cluster;
  return PLAIT_OK;
}

static int job_for(const Recipe *recipe, const ModelConfig *config, ModelMode mode, JobOptions run,
                   RecomputeChoice *choice, Job **job, Error *error);

// Seconds of a step of the recipe, which lets communication overlap, or does not; INFINITY: they cannot be told.
static double step_seconds(const Recipe *recipe, const ModelConfig *config, JobOptions run, const Cluster *cluster) {
  SimulateOptions options = {.cluster = cluster};
  Simulation *simulation = NULL;
  Job *job = NULL;
  Error ignored = {0};
  int code = job_for(recipe, config, MODEL_TRAIN, run, NULL, &job, &ignored);
  if (!code) code = simulate(job_train(job)->program, &options, &simulation, &ignored);
  double seconds = code ? INFINITY : simulation->step;
  simulation_free(simulation);
  job_destroy(job);
  return seconds;
}

// parallel.overlap auto becomes what takes less on the cluster. `own`: a copy of the recipe.
static int choose_overlap(Recipe *own, const ModelConfig *config, JobOptions run, Error *error) {
  if (own->parallel.overlap != RECIPE_OVERLAP_AUTO) return PLAIT_OK;
  Cluster *loaded = NULL;
  own->parallel.overlap = RECIPE_OVERLAP_ON;
  if (!own->parallel.bucket_mb || recipe_rank_count(own) == 1 || (!own->cluster && !own->run.cluster)) return PLAIT_OK;
  int code = own->cluster ? PLAIT_OK : cluster_load(own->run.cluster, &loaded, error);
  if (code) return error_prefix(error, "%srun.cluster", recipe_where(own, "run.cluster"));
  const Cluster *cluster = loaded ? loaded : own->cluster;
  Recipe without = *own;
  without.parallel.overlap = RECIPE_OVERLAP_OFF;
  double on = step_seconds(own, config, run, cluster), off = step_seconds(&without, config, run, cluster);
  if (FAULT(overlap_auto_is_true, off < on, 0)) own->parallel.overlap = RECIPE_OVERLAP_OFF;
  cluster_free(loaded);
  return PLAIT_OK;
}

static JobOptions job_options(const Recipe *recipe, int threads, int helpers) {
  return (JobOptions){.threads = threads,
                      .helpers = helpers,
                      .seed = (uint64_t)recipe->run.seed,
                      .check = recipe->run.desync_check,
                      .evaluate_samples = recipe_corpora(recipe, true)->count ? recipe->batch.global : 0};
}

int setup_graph(const Recipe *asked, const ModelConfig *config, const char *after, CompileOptions *options,
                Graph **graph, Error *error) {
  Recipe own = *asked, *recipe = &own;
  Cluster *loaded = NULL;
  int code = choose_overlap(&own, config, job_options(asked, setup_threads(asked), 0), error);
  if (!code) code = setup_compile_options(recipe, config, options, error);
  if (!code) code = use_seconds(recipe, options, &loaded, error);
  if (!code && recipe->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO) {
    JobOptions run = job_options(recipe, setup_threads(recipe), 0);
    code = recompute_auto(recipe, config, options, &run, NULL, error);
  }
  options->after = after;
  if (!code) code = compile_graph(config, options, graph, error);
  options->seconds = NULL;
  options->machine = NULL;
  cluster_free(loaded);
  return code;
}

int setup_job(const Recipe *recipe, const ModelConfig *config, Job **job, Error *error) {
  int threads = setup_threads(recipe);
  return setup_job_for(recipe, config, MODEL_TRAIN, threads, setup_helpers(recipe, threads), job, error);
}

int setup_job_for(const Recipe *recipe, const ModelConfig *config, ModelMode mode, int threads, int helpers, Job **job,
                  Error *error) {
  return job_for(recipe, config, mode, job_options(recipe, threads, helpers), NULL, job, error);
}

int setup_job_sketch(const Recipe *recipe, const ModelConfig *config, Job **job, Error *error) {
  int threads = setup_threads(recipe);
  JobOptions run = job_options(recipe, threads, setup_helpers(recipe, threads));
  run.sketch = 1;
  return job_for(recipe, config, MODEL_TRAIN, run, NULL, job, error);
}

int setup_job_chosen(const Recipe *recipe, const ModelConfig *config, RecomputeChoice *choice, Job **job,
                     Error *error) {
  int threads = setup_threads(recipe);
  return job_for(recipe, config, MODEL_TRAIN, job_options(recipe, threads, setup_helpers(recipe, threads)), choice, job,
                 error);
}

// A token of each sequence: one microbatch.
static void set_generation_batch(CompileOptions *o) {
  o->step.batch.balance = (Balance){0};
  compile_set_batch(o, o->step.batch.micro * parallel_data_ranks(&o->parallel), o->step.batch.micro);
}

static int job_for(const Recipe *asked, const ModelConfig *config, ModelMode mode, JobOptions run,
                   RecomputeChoice *choice, Job **job, Error *error) {
  Recipe own = *asked, *recipe = &own;
  CompileOptions options;
  Cluster *loaded = NULL;
  int code = mode == MODEL_TRAIN ? choose_overlap(&own, config, run, error) : PLAIT_OK;
  if (!code) code = setup_compile_options(recipe, config, &options, error);
  if (!code) code = use_seconds(recipe, &options, &loaded, error);
  if (!code && mode == MODEL_TRAIN && recipe->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO)
    code = recompute_auto(recipe, config, &options, &run, choice, error);
  if (code) {
    cluster_free(loaded);
    return code;
  }
  options.mode = mode;
  if (mode == MODEL_GENERATE)
    set_generation_batch(&options);
  code = job_create(config, &options, &run, job, error);
  if (!code) (*job)->options.seconds = NULL, (*job)->options.machine = NULL; // its graphs are cut
  cluster_free(loaded);
  return code;
}

WatchdogLimits setup_watchdog(const Recipe *r) {
  return (WatchdogLimits){.seconds = {[ACTIVITY_START] = r->watchdog.start,
                                      [ACTIVITY_DATA] = r->watchdog.data,
                                      [ACTIVITY_STEP] = r->watchdog.step,
                                      [ACTIVITY_EVALUATION_DATA] = r->watchdog.data,
                                      [ACTIVITY_EVALUATION] = r->watchdog.step,
                                      [ACTIVITY_CHECKPOINT] = r->watchdog.checkpoint}};
}

static LaunchComm launch_comm(const Recipe *r) {
  static const LaunchComm comm[] = {
      [RECIPE_COMM_AUTO] = LAUNCH_AUTO, [RECIPE_COMM_LOCAL] = LAUNCH_LOCAL, [RECIPE_COMM_MPI] = LAUNCH_MPI,
      [RECIPE_COMM_NET] = LAUNCH_NET};
  return worker_supervised()->net ? LAUNCH_NET : comm[r->run.comm]; // plait launch decides before the recipe
}

int setup_launch(Launch *launch, const Recipe *r, Error *error) {
  char mesh[96];
  snprintf(mesh, sizeof mesh, "pp %d × dp %d × cp %d × tp %d", r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp);
  int code = recipe_check_runs(r, error);
  if (!code && r->dp_is_auto && launch_comm(r) != LAUNCH_LOCAL)
    code = launch_use(launch, recipe_rank_count(r), error);
  if (launch->idle) return code;
  return code ? code : launch_choose(launch, launch_comm(r), recipe_rank_count(r), mesh, error);
}

LaunchWish setup_wish(const Recipe *r) {
  static const NetWireChoice wire[] = {
      [RECIPE_WIRE_AUTO] = NET_WIRE_AUTO, [RECIPE_WIRE_SOCKETS] = NET_WIRE_SOCKETS, [RECIPE_WIRE_UCX] = NET_WIRE_UCX};
  return (LaunchWish){launch_comm(r), r->run.silence, wire[r->run.wire]};
}

LaunchWish setup_wish_of_keys(int count, char **keys) {
  static const struct { const char *key; LaunchComm comm; } words[] = {
      {"run.comm=mpi", LAUNCH_MPI}, {"run.comm=net", LAUNCH_NET}, {"run.comm=local", LAUNCH_LOCAL}};
  static const struct { const char *key; NetWireChoice wire; } wires[] = {{"run.wire=sockets", NET_WIRE_SOCKETS},
                                                                          {"run.wire=ucx", NET_WIRE_UCX}};
  LaunchWish wish = {0};
  for (int k = 0; k < count; k++) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (!strcmp(keys[k], words[i].key)) wish.comm = words[i].comm;
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
      if (!strcmp(keys[k], wires[i].key)) wish.wire = wires[i].wire;
  }
  return wish;
}
