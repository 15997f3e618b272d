// Predictions: from a recipe and a cluster to seconds.
#include "foresight/predict.h"
#include "foresight/probe.h"
#include "base/units.h"
#include "machine/cluster_machine.h"
#include "machine/devices.h"
#include "recipe/recipe_device.h"
#include "setup/setup.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double predict_bytes(const Job *job) {
  double most = 0;
  for (int c = 0; c < job_pipeline_ranks(job); c++) most = fmax(most, (double)job_train(job)->program[c]->memory.total);
  return most;
}

// Of the pipeline rank whose smallest device has the least left.
static void find_memory(const Cluster *cluster, Prediction *out) {
  const Mesh *mesh = &out->job->options.parallel.mesh;
  double left = INFINITY;
  for (int c = 0; c < job_pipeline_ranks(out->job); c++) {
    double bytes = (double)job_train(out->job)->program[c]->memory.total,
           room = devices_room(cluster, mesh->ranks, cluster->island.count ? mesh : NULL, c);
    if (room - bytes >= left) continue;
    left = room - bytes;
    out->bytes = bytes;
    out->room = room;
  }
}

const Device *predict_device(const Cluster *cluster) {
  return device_describe((DeviceKind)cluster->device.backend);
}

// On this machine a run does as the recipe says, also where plait found the precision by itself.
int predict_adapt(const Recipe *r, const Cluster *cluster, const char *also, Recipe *variant, Error *error) {
  bool here = devices_share_cores(cluster), narrow = cluster->device.matrix[DTYPE_BF16] > 0;
  for (int i = 0; i < cluster->island.count; i++) narrow &= cluster->island.data[i].device.matrix[DTYPE_BF16] > 0;
  const char *precision = here || !r->precision_is_auto ? "" : narrow ? "precision=bf16" : "precision=fp32";
  char *keys = xformat("run.backend=%s %s %s", device_kind_name((DeviceKind)cluster->device.backend), precision, also);
  int code = recipe_variant(r, keys, variant, error);
  free(keys);
  return code;
}

const Cluster *predict_cut(const Cluster *cluster) {
  return devices_share_cores(cluster) ? NULL : cluster;
}

int predict_load_cluster(const char *name, Cluster **out, Error *error) {
  int code = !name || !strcmp(name, "probe") ? probe_kept(out, error) : cluster_load(name, out, error);
  if (code || !devices_share_cores(*out) || !strcmp((*out)->device.name, cluster_machine()))
    return code;
  code = error_set(error, PLAIT_BAD_INPUT,
                   "%s was measured on another machine (%s); this one is %s: measure it with plait probe",
                   (*out)->path, (*out)->device.name, cluster_machine());
  cluster_free(*out);
  *out = NULL;
  return code;
}

// This machine's times would be those of a CPU.
static int check_backend(const Recipe *recipe, Error *error) {
  char names[512];
  DeviceKind kind = recipe_device(recipe)->kind;
  if (device_shares_host(kind)) return PLAIT_OK;
  cluster_names(names, sizeof names);
  return error_set(error, PLAIT_BAD_INPUT,
                   "%srun.backend: %s is not what this machine has, so say which machine has it: --cluster NAME, or "
                   "run.cluster, with a file or one of %s",
                   recipe_where(recipe, "run.backend"), device_kind_name(kind), names);
}

int predict_cluster(const Recipe *recipe, const char *name, Cluster **out, Error *error) {
  if (!name && !recipe->run.cluster) {
    *out = NULL;
    int refused = check_backend(recipe, error);
    if (refused) return refused;
  }
  int code = predict_load_cluster(name ? name : recipe->run.cluster, out, error);
  return code && !name && recipe->run.cluster
             ? error_prefix(error, "%srun.cluster", recipe_where(recipe, "run.cluster"))
             : code;
}

int predict_name_cluster(const Recipe *recipe, const char *name, Recipe *variant, Error *error) {
  size_t n = name ? strlen(name) : 0;
  bool path = n && (strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml")));
  char *real = path ? realpath(name, NULL) : NULL,
       *key = name ? recipe_key_text("run.cluster", real ? real : name) : NULL;
  int code = recipe_variant(recipe, key ? key : "", variant, error);
  free(real);
  free(key);
  return code;
}

int predict_memory(const Recipe *asked, const ModelConfig *config, const Cluster *cluster, Prediction *out,
                   Error *error) {
  *out = (Prediction){.job = NULL};
  int code = predict_adapt(asked, cluster, "", &out->recipe, error);
  const RunSetting setting = {.cluster = predict_cut(cluster),
                              .apart = FAULT(all_systems_fuse, !cluster->software.fusions, false)};
  if (!code) code = setup_job(&out->recipe, config, &setting, &out->job, error);
  if (code) return prediction_free(out), code;
  find_memory(cluster, out);
  return PLAIT_OK;
}

int predict(const Recipe *asked, const ModelConfig *config, const SimulateOptions *options, Prediction *out,
            Error *error) {
  const Cluster *cluster = options->cluster;
  const Recipe *r = &out->recipe;
  int code = predict_memory(asked, config, cluster, out, error);
  if (!code) code = simulate(job_train(out->job)->program, options, &out->simulation, error);
  if (code) {
    prediction_free(out);
    return code;
  }
  double rate = devices_rate(cluster, out->job->options.parallel.mesh.ranks, (Dtype)r->precision);
  if (devices_share_cores(cluster)) rate *= out->job->run.threads; // a rank has as many cores
  out->tokens_per_s = (double)r->batch.global * r->data.seq_len / out->simulation->step;
  out->mfu =
      rate > 0 ? out->tokens_per_s * model_config_flops_per_token(config, r->data.seq_len) / rate : NAN;
  out->run_seconds = out->simulation->step * (double)r->schedule.steps;
  return PLAIT_OK;
}

void prediction_free(Prediction *p) {
  simulation_free(p->simulation);
  job_destroy(p->job);
  recipe_free(&p->recipe);
  p->simulation = NULL;
  p->job = NULL;
}

void axes_text(const Mesh *mesh, uint32_t axes, char *text, size_t size) {
  text[0] = 0;
  for (int a = 0; a < mesh->naxis; a++) {
    size_t n = strlen(text);
    if (axes >> a & 1) snprintf(text + n, size - n, "%s%s", n ? "·" : "", mesh->axis[a].name);
  }
}

// Limits ------------------------------------------------------------------------------------------------------------

enum { RESOURCE_PRODUCTS, RESOURCE_MEMORY, RESOURCE_HOST, RESOURCE_LAUNCH, RESOURCE_LEVELS };

static void better_device(DeviceFacts *device, int resource) {
  const double tenth = 1.1;
  if (resource == RESOURCE_PRODUCTS)
    for (int d = 0; d < DTYPE_COUNT; d++) device->matrix[d] *= tenth;
  if (resource == RESOURCE_MEMORY) device->bandwidth *= tenth;
  if (resource == RESOURCE_HOST) device->host /= tenth;
  if (resource == RESOURCE_LAUNCH) device->launch /= tenth;
}

// The cluster with one resource a tenth better: of all devices, or bandwidth of level i / 2, or its latency.
static void better(Cluster *c, int resource, char *name, size_t size) {
  static const char *const names[] = {"products (device.matrix)", "memory bandwidth (device.bandwidth)",
                                      "launches by the host (device.host)", "launches on the device (device.launch)"};
  const double tenth = 1.1;
  better_device(&c->device, resource);
  for (int i = 0; i < c->island.count; i++) better_device(&c->island.data[i].device, resource);
  if (resource < RESOURCE_LEVELS) {
    snprintf(name, size, "%s", names[resource]);
    return;
  }
  LevelFacts *level = &c->level[(resource - RESOURCE_LEVELS) / 2];
  int latency = (resource - RESOURCE_LEVELS) % 2;
  if (latency) level->latency /= tenth;
  else level->bandwidth *= tenth;
  snprintf(name, size, "%s %s", level->name, latency ? "latency" : "bandwidth");
}

static int by_gain(const void *a, const void *b) {
  const Limit *x = a, *y = b;
  return (x->gain < y->gain) - (x->gain > y->gain);
}

int predict_limits(const Prediction *p, const Cluster *cluster, Limit *limit) {
  int n = 0;
  for (int i = 0; i < RESOURCE_LEVELS + 2 * cluster->levels && n < LIMITS_MOST; i++) {
    Cluster changed = *cluster; // borrows its texts
    changed.island.data = xcalloc((size_t)cluster->island.count + 1, sizeof *changed.island.data);
    for (int k = 0; k < cluster->island.count; k++) changed.island.data[k] = cluster->island.data[k];
    Simulation *s;
    Error ignored = {0};
    better(&changed, i, limit[n].resource, sizeof limit[n].resource);
    SimulateOptions options = {.cluster = &changed, .all_ranks = p->simulation->all_ranks};
    int failed = simulate(job_train(p->job)->program, &options, &s, &ignored);
    free(changed.island.data);
    if (failed) continue;
    limit[n].gain = 1 - s->step / p->simulation->step;
    n += 1;
    simulation_free(s);
  }
  if (n) qsort(limit, (size_t)n, sizeof *limit, by_gain);
  return n;
}
