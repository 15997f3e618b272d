// Recipe and model config → compile options, job, loader.
#include "train/setup.h"
#include "base/cores.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "program/chaos.h"
#include "train/layouts.h"
#include <string.h>

static int setup_threads(const Recipe *recipe) {
  int threads = (recipe->run.threads > 0 ? recipe->run.threads : cores_available()) / recipe_rank_count(recipe);
  return threads > 0 ? threads : 1;
}

int setup_helpers(const Recipe *recipe, int threads) {
  int ranks = recipe_rank_count(recipe);
  if (!recipe->run.lend || ranks == 1 || recipe->run.comm == RECIPE_COMM_MPI || threads * ranks > cores_available()) return 0;
  return threads < TEAM_MOST_HELPERS ? threads : TEAM_MOST_HELPERS;
}

int setup_describe_lend(const Recipe *recipe, int threads, bool processes, char *text, size_t size) {
  int ranks = recipe_rank_count(recipe), cores = cores_available();
  text[0] = 0;
  if (!recipe->run.lend || !recipe_is_given(recipe, "run.lend") || ranks == 1) return 0;
  const char *where = recipe_where(recipe, "run.lend");
  if (processes) return snprintf(text, size, "note: %srun.lend is true, but ranks are processes, which help none\n", where);
  if (threads * ranks <= cores) return 0;
  return snprintf(text, size, "note: %srun.lend is true, but %d ranks of %d thread%s have %d core%s, so that no rank has a core to lend\n", where, ranks, threads,
                  threads > 1 ? "s" : "", cores, cores > 1 ? "s" : "");
}

int setup_model_config(const Recipe *recipe, ModelConfig *config, Error *error) {
  int code = model_config_load(config, recipe->model.config, error);
  return code ? error_prefix(error, "%smodel.config", recipe_where(recipe, "model.config")) : PLAIT_OK;
}

int setup_check_tokenizer(const Recipe *recipe, const ModelConfig *config, Error *error) {
  const char *path = recipe->data.tokenizer;
  Tokenizer *t;
  Error ignored = {0};
  if (!path || !file_exists(path) || tokenizer_load(path, &t, &ignored)) return PLAIT_OK;
  int size = tokenizer_vocab_size(t);
  tokenizer_destroy(t);
  if (size <= config->vocab) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%sdata.tokenizer: %s has a vocabulary of %d, but the model of %s one of %lld; make vocab_size there at least as large",
                   recipe_where(recipe, "data.tokenizer"), path, size, config->path, (long long)config->vocab);
}

// The Layout: its name, and the rows that the recipe has of its own.
static size_t describe_layout(const Recipe *r, char *text, size_t size) {
  static const char *const names[] = {"auto",
#define LAYOUT_SHIPPED(id, name, ...) name,
#include "dist/layout_rows.def"
  };
  static const char *const rows[] = {
#define LAYOUT_ROW(id, name, meaning) name,
#include "dist/layout_rows.def"
  };
  int name = r->layout.name ? r->layout.name : r->parallel.sequence ? RECIPE_LAYOUT_SEQUENCE : r->mesh.tp > 1 ? RECIPE_LAYOUT_TENSOR : RECIPE_LAYOUT_DATA;
  size_t n = (size_t)snprintf(text, size, "layout %s", names[name]);
  for (int row = 0, said = 0; row < RECIPE_ROWS && n < size; row++) {
    const RecipeAxes *axes = &r->layout.row[row];
    if (axes->count < 0) continue;
    n += (size_t)snprintf(text + n, size - n, "%s%s [", said++ ? ", " : " with ", rows[row]);
    for (int i = 0; i < axes->count && n < size; i++) n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", recipe_axis_names[axes->axis[i]]);
    if (n < size) n += (size_t)snprintf(text + n, size - n, "]");
  }
  return n;
}

void setup_describe(const Recipe *r, char *text, size_t size) {
  static const char *const recompute[] = {[RECIPE_RECOMPUTE_NONE] = "", [RECIPE_RECOMPUTE_SELECTIVE] = ", recompute selective", [RECIPE_RECOMPUTE_FULL] = ", recompute full"};
  char hybrid[48] = "", pipeline[64] = "", layout[160];
  if (r->parallel.hybrid) snprintf(hybrid, sizeof hybrid, " over groups of %d (hybrid)", r->parallel.hybrid);
  if (r->mesh.pp > 1) snprintf(pipeline, sizeof pipeline, ", pipeline %s", schedules[r->parallel.pipeline].name);
  if (r->mesh.pp > 1 && recipe_virtual_stages(r) > 1) snprintf(pipeline, sizeof pipeline, ", pipeline %s of %d stages a rank", schedules[r->parallel.pipeline].name, recipe_virtual_stages(r));
  describe_layout(r, layout, sizeof layout);
  snprintf(text, size, "zero %d%s%s%s%s%s%s, %s", r->parallel.zero, r->parallel.ownership == RECIPE_OWN_TENSORS ? " by whole tensors" : "",
           r->parallel.reshard ? "" : " without reshard", hybrid, pipeline, recompute[r->parallel.recompute],
           r->parallel.update == RECIPE_UPDATE_IN_BACKWARD ? ", update in backward" : "", layout);
}

static UpdateOptions update_options(const Recipe *r) {
  return (UpdateOptions){.optimizer = (Op)r->optimizer.name,
                         .beta1 = r->optimizer.betas[0],
                         .beta2 = r->optimizer.betas[1],
                         .epsilon = r->optimizer.epsilon,
                         .decay = r->optimizer.weight_decay,
                         .momentum = r->optimizer.momentum,
                         .clip = r->optimizer.clip,
                         .dump_gradients = r->run.dump_gradients != NULL,
                         .loss_scale = r->loss_scale.initial,
                         .loss_scale_interval = r->loss_scale.growth_interval,
                         .in_backward = r->parallel.update == RECIPE_UPDATE_IN_BACKWARD};
}

static int row_has_tp(const Recipe *r, RecipeRow row) {
  RecipeAxes axes = recipe_layout_row(r, row);
  for (int i = 0; i < axes.count; i++)
    if (!strcmp(recipe_axis_names[axes.axis[i]], "tp")) return 1;
  return 0;
}

static Layout layout_of(const Recipe *r, const Mesh *mesh) {
  LayoutTable table = {0};
  for (int row = 0; row < RECIPE_ROWS; row++) {
    RecipeAxes axes = recipe_layout_row(r, (RecipeRow)row);
    table.row[row].count = axes.count;
    for (int i = 0; i < axes.count; i++) table.row[row].axis[i] = recipe_axis_names[axes.axis[i]];
  }
  return layout_from_table(&table, mesh);
}

static int common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return (int)a;
}

// The recipe's axes as atoms: hybrid sharding cuts dp in two, neighbouring ranks sharing shards; where tp has more ranks than
// there are key and value heads, neighbouring ranks of it share these and take parts of their group of query heads.
static Mesh make_mesh(const Recipe *r, const ModelConfig *config) {
  int shards = r->parallel.hybrid ? r->parallel.hybrid : r->mesh.dp, kv = row_has_tp(r, RECIPE_ROW_HEADS) ? common_divisor(config->kv_heads, r->mesh.tp) : r->mesh.tp;
  const struct { const char *name; int size, needed; } axes[] = {{"pp", r->mesh.pp, 1},        {"replica", r->mesh.dp / shards, 0}, {"dp", shards, 1},
                                                                 {"cp", r->mesh.cp, 1}, {"tp", kv, 1}, {"tp_group", r->mesh.tp / kv, 0}};
  const char *name[6];
  int size[6], n = 0;
  for (int i = 0; i < 6; i++)
    if (axes[i].needed || axes[i].size > 1) name[n] = axes[i].name, size[n++] = axes[i].size;
  return mesh_create(n, name, size);
}

static Parallel parallel_of(const Recipe *r, const ModelConfig *config) {
  int overlap = r->parallel.bucket_mb > 0;
  Parallel p = {0};
  p.mesh = make_mesh(r, config);
  p.layout = layout_of(r, &p.mesh);
  p.storage = (Storage){r->parallel.zero, r->parallel.reshard, r->parallel.ownership == RECIPE_OWN_TENSORS, 1u << mesh_axis(&p.mesh, "dp")};
  p.overlap = (Overlap){overlap, (int64_t)r->parallel.bucket_mb * 1000000, overlap};
  // With one stage there is nothing to fill: backward follows forward, and one slot serves all microbatches.
  p.pipeline = (Pipeline){.schedule = &schedules[r->mesh.pp > 1 ? r->parallel.pipeline : SCHEDULE_1F1B], .stages = r->mesh.pp * recipe_virtual_stages(r),
                          .cut_given = r->parallel.layers.count > 0};
  for (int s = 0; s < r->parallel.layers.count; s++) p.pipeline.layers[s] = r->parallel.layers.items[s];
  return p;
}

// Can so many ranks share out the heads and the feed-forward width?
static bool tensor_fits(const Recipe *r, const ModelConfig *config, int tp) {
  bool heads = config->heads / config->kv_heads % (tp / common_divisor(config->kv_heads, tp)) == 0, ffn = config->ffn % tp == 0;
  return (heads || !row_has_tp(r, RECIPE_ROW_HEADS)) && (ffn || !row_has_tp(r, RECIPE_ROW_FFN));
}

static int check_tensor(const Recipe *r, const ModelConfig *config, Error *error) {
  int tp = r->mesh.tp, below = tp, above = tp;
  if (tensor_fits(r, config, tp)) return PLAIT_OK;
  while (!tensor_fits(r, config, below)) below--; // 1 does
  while (above <= config->heads && !tensor_fits(r, config, above)) above++;
  char nearest[64];
  if (above <= config->heads) snprintf(nearest, sizeof nearest, "%d or %d", below, above);
  else snprintf(nearest, sizeof nearest, "%d", below);
  return error_set(error, PLAIT_BAD_INPUT, "%smesh.tp is %d, but it must share out the %lld heads (with %lld key and value heads) and the feed-forward width %lld of "
                   "%s evenly; the nearest is %s", recipe_where(r, "mesh.tp"), tp, (long long)config->heads, (long long)config->kv_heads, (long long)config->ffn, config->path, nearest);
}

static int check_stages(const Recipe *r, const ModelConfig *config, Error *error) {
  int v = recipe_virtual_stages(r);
  int64_t stages = (int64_t)r->mesh.pp * v, most = config->layers < MAX_STAGES ? config->layers : MAX_STAGES, sum = 0;
  char limit[512];
  if (config->layers <= MAX_STAGES) snprintf(limit, sizeof limit, "the model of %.400s has only %lld layers to share out", config->path, (long long)most);
  else snprintf(limit, sizeof limit, "at most %lld stages are built", (long long)most);
  if (stages > 1 && stages > most && v > 1) {
    char nearest[64] = "take parallel.pipeline 1f1b";
    if (most / r->mesh.pp > 1) snprintf(nearest, sizeof nearest, "the nearest parallel.virtual is %lld", (long long)(most / r->mesh.pp));
    return error_set(error, PLAIT_BAD_INPUT, "%sparallel.virtual is %d with mesh.pp %d, which makes %lld stages, but %s; %s", recipe_where(r, "parallel.virtual"), v, r->mesh.pp,
                     (long long)stages, limit, nearest);
  }
  if (stages > 1 && stages > most)
    return error_set(error, PLAIT_BAD_INPUT, "%smesh.pp is %d, but %s; the nearest mesh.pp is %lld", recipe_where(r, "mesh.pp"), r->mesh.pp, limit, (long long)most);
  for (int s = 0; s < r->parallel.layers.count; s++) sum += r->parallel.layers.items[s];
  if (r->parallel.layers.count && sum != config->layers)
    return error_set(error, PLAIT_BAD_INPUT, "%sparallel.layers adds up to %lld, but the model of %s has %lld layers", recipe_where(r, "parallel.layers"), (long long)sum, config->path,
                     (long long)config->layers);
  return PLAIT_OK;
}

// A row of the Layout that cuts what the model does not have.
static int check_position(const Recipe *r, const ModelConfig *config, Error *error) {
  if (config->family == MODEL_GPT2 || r->layout.row[RECIPE_ROW_POSITION].count <= 0) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%slayout.position is given, but the %s model of %s has no learned positions; leave it out",
                   recipe_where(r, "layout.position"), model_family_name(config->family), config->path);
}

int setup_compile_options(const Recipe *recipe, const ModelConfig *config, CompileOptions *out, Error *error) {
  int refused = layouts_check(recipe, error);
  if (refused) return refused;
  int code = check_stages(recipe, config, error);
  if (!code) code = check_tensor(recipe, config, error);
  if (!code) code = check_position(recipe, config, error);
  if (code) return code;
  *out = (CompileOptions){
      .mode = MODEL_TRAIN,
      .micro_samples = (int64_t)recipe->batch.micro * recipe->mesh.dp,
      .step_samples = recipe->batch.global,
      .seq = recipe->data.seq_len,
      .precision = (Dtype)recipe->precision,
      .bf16_gradients = recipe->parallel.grad_dtype == DTYPE_BF16,
      .recompute = (RecomputeMode)recipe->parallel.recompute,
      .recompute_layers = recipe->parallel.recompute_layers,
      .parallel = parallel_of(recipe, config),
      .update = update_options(recipe),
      .chaos = chaos_of_environment()};
  if (recipe->parallel.sequence && recipe->data.seq_len % recipe->mesh.tp)
    return error_set(error, PLAIT_BAD_INPUT, "%sdata.seq_len is %d, but with parallel.sequence it must be a multiple of mesh.tp (%d); the nearest is %d or %d", recipe_where(recipe, "data.seq_len"), recipe->data.seq_len,
                     recipe->mesh.tp, recipe->data.seq_len / recipe->mesh.tp * recipe->mesh.tp, (recipe->data.seq_len / recipe->mesh.tp + 1) * recipe->mesh.tp);
  return PLAIT_OK;
}

static int find_backend(const Recipe *recipe, const Backend **backend, Error *error) {
  static const char *const names[] = {
      [RECIPE_BACKEND_AUTO] = "auto", [RECIPE_BACKEND_CPU] = "cpu", [RECIPE_BACKEND_CUDA] = "cuda"};
  int code = backend_by_name(names[recipe->run.backend], backend, error);
  return code ? error_prefix(error, "run.backend") : PLAIT_OK;
}

int setup_job(const Recipe *recipe, const ModelConfig *config, Job **job, Error *error) {
  int threads = setup_threads(recipe);
  return setup_job_for(recipe, config, MODEL_TRAIN, threads, setup_helpers(recipe, threads), job, error);
}

int setup_job_for(const Recipe *recipe, const ModelConfig *config, ModelMode mode, int threads, int helpers, Job **job, Error *error) {
  CompileOptions options;
  JobOptions run = {.threads = threads, .helpers = helpers, .seed = (uint64_t)recipe->run.seed, .check = recipe->run.check,
                    .evaluate_samples = recipe->data.valid.count ? recipe->batch.global : 0};
  int code = setup_compile_options(recipe, config, &options, error);
  if (!code) code = find_backend(recipe, &run.backend, error);
  if (code) return code;
  options.mode = mode;
  return job_create(config, &options, &run, job, error);
}

WatchdogLimits setup_watchdog(const Recipe *r) {
  return (WatchdogLimits){.seconds = {[ACTIVITY_START] = r->watchdog.start, [ACTIVITY_DATA] = r->watchdog.data, [ACTIVITY_STEP] = r->watchdog.step,
                                      [ACTIVITY_CHECKPOINT] = r->watchdog.checkpoint}};
}

int setup_launch(Launch *launch, const Recipe *r, Error *error) {
  static const LaunchComm comm[] = {[RECIPE_COMM_AUTO] = LAUNCH_AUTO, [RECIPE_COMM_LOCAL] = LAUNCH_LOCAL, [RECIPE_COMM_MPI] = LAUNCH_MPI};
  char mesh[96];
  snprintf(mesh, sizeof mesh, "pp %d × dp %d × cp %d × tp %d", r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp);
  return launch_choose(launch, comm[r->run.comm], recipe_rank_count(r), mesh, error);
}

LoaderConfig setup_loader(const Recipe *recipe, const ModelConfig *config, int validation, DataSource *sources) {
  const RecipeCorpora *list = validation ? &recipe->data.valid : &recipe->data.train;
  for (int i = 0; i < list->count; i++) sources[i] = (DataSource){list->items[i].prefix, list->items[i].weight};
  return (LoaderConfig){.sources = sources,
                        .source_count = list->count,
                        .seq_len = recipe->data.seq_len,
                        .document_mask = recipe->data.document_mask,
                        .vocab_size = (int)config->vocab,
                        .evaluation = validation,
                        .seed = (uint64_t)recipe->run.seed,
                        .prefetch_steps = recipe->data.prefetch};
}
