// Predictions: from a recipe and a cluster to seconds.
#include "train/predict.h"
#include "base/units.h"
#include "recipe/setup.h"
#include <math.h>
#include <string.h>

static double most_bytes(const Job *job) {
  double most = 0;
  for (int c = 0; c < job_pipeline_ranks(job); c++) most = fmax(most, (double)job->train.program[c]->memory.total);
  return most;
}

void predict_adapt(Recipe *r, const Cluster *cluster) {
  r->run.backend = RECIPE_BACKEND_CUDA;
  if (!r->precision_is_auto) return;
  r->precision = cluster->device.matrix[DTYPE_BF16] > 0 ? DTYPE_BF16 : DTYPE_F32; // not what this machine computes fast
  r->loss_scale.initial = 0;
}

int predict_cluster(const Recipe *recipe, const char *name, Cluster **out, Error *error) {
  char names[256];
  const char *given = name ? name : recipe->run.cluster;
  if (given) {
    int code = cluster_load(given, out, error);
    return code && !name ? error_prefix(error, "%srun.cluster", recipe_where(recipe, "run.cluster")) : code;
  }
  cluster_names(names, sizeof names);
  return error_set(error, PLAIT_BAD_INPUT,
                   "--cluster is missing, and so is run.cluster in the recipe: a file, or one of %s", names);
}

int predict_memory(const Recipe *asked, const ModelConfig *config, const Cluster *cluster, Prediction *out,
                   Error *error) {
  *out = (Prediction){.recipe = *asked};
  Recipe *r = &out->recipe;
  predict_adapt(r, cluster);
  int code = setup_job(r, config, &out->job, error);
  if (code) return prediction_free(out), code;
  out->bytes = most_bytes(out->job);
  out->room = cluster->device.memory - cluster->device.reserved;
  return PLAIT_OK;
}

int predict(const Recipe *asked, const ModelConfig *config, const SimulateOptions *options, Prediction *out,
            Error *error) {
  const Cluster *cluster = options->cluster;
  const Recipe *r = &out->recipe;
  int code = predict_memory(asked, config, cluster, out, error);
  if (!code) code = simulate(out->job->train.program, options, &out->simulation, error);
  if (code) {
    prediction_free(out);
    return code;
  }
  double rate = product_rate(&cluster->device, (Dtype)r->precision), ranks = out->job->options.parallel.mesh.ranks;
  out->tokens_per_s = (double)r->batch.global * r->data.seq_len / out->simulation->step;
  out->mfu =
      rate > 0 ? out->tokens_per_s * model_config_flops_per_token(config, r->data.seq_len) / (rate * ranks) : NAN;
  out->run_seconds = out->simulation->step * (double)r->schedule.steps;
  return PLAIT_OK;
}

void prediction_free(Prediction *p) {
  simulation_free(p->simulation);
  job_destroy(p->job);
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

// The cluster with one resource a tenth better: bandwidth of level i / 2, or its latency.
static void better(Cluster *c, int resource, char *name, size_t size) {
  static const char *const names[] = {"products (device.matrix)", "memory bandwidth (device.bandwidth)",
                                      "launches by the host (device.host)", "launches on the device (device.launch)"};
  const double tenth = 1.1;
  if (resource == RESOURCE_PRODUCTS)
    for (int d = 0; d < DTYPE_COUNT; d++) c->device.matrix[d] *= tenth;
  if (resource == RESOURCE_MEMORY) c->device.bandwidth *= tenth;
  if (resource == RESOURCE_HOST) c->device.host /= tenth;
  if (resource == RESOURCE_LAUNCH) c->device.launch /= tenth;
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
    Simulation *s;
    Error ignored = {0};
    better(&changed, i, limit[n].resource, sizeof limit[n].resource);
    SimulateOptions options = {.cluster = &changed};
    if (simulate(p->job->train.program, &options, &s, &ignored)) continue;
    limit[n].gain = 1 - s->step / p->simulation->step;
    n += 1;
    simulation_free(s);
  }
  if (n) qsort(limit, (size_t)n, sizeof *limit, by_gain);
  return n;
}
