// Time from a simulation, or from one measured product (machine/machine_times.h), and what is said of it.
#include "foresight/estimate.h"
#include "base/fault.h"
#include "base/cores.h"
#include "base/units.h"
#include "machine/cluster.h"
#include "machine/cluster_machine.h"
#include "machine/devices.h"
#include "machine/machine_times.h"
#include "recipe/recipe_device.h"
#include "setup/setup.h"
#include "foresight/peak.h"
#include <string.h>

enum { DAY = 86400 };

// The measurements that plait probe keeps of this machine; NULL: there are none, or they cannot be used.
static Cluster *kept_machine(void) {
  Cluster *cluster = NULL;
  Error ignored = {0};
  if (cluster_load("probe", &cluster, &ignored)) return NULL;
  if (devices_share_cores(cluster) && !strcmp(cluster->device.name, cluster_machine())) return cluster;
  cluster_free(cluster);
  return NULL;
}

// Whether the step was simulated by what is kept of this machine.
static bool simulated_step(const Compiled *of, Estimate *e) {
  Cluster *cluster = kept_machine();
  const MachineTimes times = machine_times(cluster, NULL);
  Error ignored = {0};
  bool known = cluster && !machine_step_seconds(&times, of->program, &e->step_seconds, &ignored);
  cluster_free(cluster);
  return known;
}

// By the peak. Ranks that help each other, or share cores, leave no core idle while another rank has work.
static void estimated_step(const Job *job, const Compiled *of, int processes, Estimate *e) {
  int ranks = processes ? 1 : job->options.parallel.mesh.ranks, threads = e->threads < e->cores ? e->threads : e->cores;
  bool busy = !processes && (job->run.helpers || e->threads > e->cores);
  const MachineTimes times = machine_times_of_peak(e->peak / ranks, (double)threads / ranks, busy);
  machine_step_seconds(&times, of->program, &e->step_seconds, NULL);
}

int estimate_step(const Job *job, const Compiled *of, Dtype dtype, int processes, Estimate *e) {
  int ranks = processes ? 1 : job->options.parallel.mesh.ranks;
  *e = (Estimate){.threads = job->run.threads * ranks, .cores = cores_available()};
  if (!device_shares_host(job->options.device->kind)) return 0;
  e->simulated = !processes && simulated_step(of, e);
  e->most = e->simulated ? 1 : FAULT(estimates_are_exact, constant(NULL, CONSTANT_ESTIMATE_MOST), 1);
  if (e->simulated) return 1;
  e->peak = peak_flops(job->options.device, dtype, e->threads, processes > 1 ? processes : 1);
  if (!(e->peak > 0)) return 0;
  estimated_step(job, of, processes, e);
  return 1;
}

bool estimate_has_measurements(void) {
  Cluster *cluster = kept_machine();
  cluster_free(cluster);
  return cluster != NULL;
}

bool estimate_measured_step(const Job *job, const Compiled *of, double *seconds) {
  Estimate e = {0};
  bool known = device_shares_host(job->options.device->kind) && simulated_step(of, &e);
  *seconds = e.step_seconds;
  return known;
}

int estimate_run(const Recipe *r, const Job *job, int processes, int64_t steps, Estimate *e) {
  if (!estimate_step(job, job_train(job), (Dtype)r->precision, processes, e)) return 0;
  e->tokens_per_s = (double)r->batch.global * r->data.seq_len / e->step_seconds;
  double evaluations = job_find(job, &role_evaluate) && r->eval.every ? (double)steps / (double)r->eval.every : 0;
  double measured = r->run.noise_scale ? (double)steps / (double)r->run.noise_scale : 0;
  double forward = constant(NULL, CONSTANT_ESTIMATE_FORWARD) * evaluations * r->eval.batches;
  e->run_seconds = e->step_seconds * ((double)steps + measured + forward);
  if (processes) e->peak *= job->options.parallel.mesh.ranks;
  return 1;
}

EstimateText estimate_duration(const Estimate *e, double seconds) {
  EstimateText text;
  if (e->most <= 1) snprintf(text.s, sizeof text.s, "about %s", units_duration(seconds).s);
  else
    snprintf(text.s, sizeof text.s, "%s to %s", units_duration(seconds).s, units_duration(e->most * seconds).s);
  return text;
}

EstimateText estimate_tokens(const Estimate *e) {
  EstimateText text;
  if (e->most <= 1) snprintf(text.s, sizeof text.s, "%s", units_count(e->tokens_per_s).s);
  else
    snprintf(text.s, sizeof text.s, "%s to %s", units_count(e->tokens_per_s / e->most).s,
             units_count(e->tokens_per_s).s);
  return text;
}

char *estimate_source(const Estimate *e) {
  if (e->simulated) return xstrdup("simulated by what plait probe measured of this machine");
  return xformat("estimated from a product at %s", units_flops(e->peak).s);
}

// The same recipe in the narrow precision that this machine computes fast, where it is another one.
static int in_fast_precision(const Recipe *recipe, const ModelConfig *config, int processes, int64_t steps,
                             Estimate *e) {
  Recipe other = {0};
  Job *job = NULL;
  Error ignored = {0};
  Dtype fast = recipe_fast_precision(recipe);
  if ((int)fast == recipe->precision) return 0;
  char *keys = xformat("precision=%s loss_scale.initial=null loss_scale.growth_interval=null", dtype_name(fast));
  int known = !recipe_variant(recipe, keys, &other, &ignored) && !setup_job(&other, config, NULL, &job, &ignored) &&
              estimate_run(&other, job, processes, steps, e);
  job_destroy(job);
  recipe_free(&other);
  free(keys);
  return known;
}

void estimate_warn(const Recipe *r, const ModelConfig *config, const Estimate *e, int processes, int64_t done,
                   int64_t steps, FILE *out) {
  Estimate fast;
  double days = e->run_seconds / DAY;
  if (days <= 1) return;
  fprintf(out, "warning: this run takes about %s, at %s tokens/s. Shorter would be:\n",
          units_duration(e->run_seconds).s, units_count(e->tokens_per_s).s);
  if (!done && in_fast_precision(r, config, processes, steps, &fast) && fast.run_seconds < 0.9 * e->run_seconds)
    fprintf(out, "  precision: auto (%s, which this machine computes fast): about %s\n",
            dtype_name((Dtype)recipe_fast_precision(r)), units_duration(fast.run_seconds).s);
  if (!done)
    fprintf(out, "  a smaller model: one of about %s parameters (this has %s) would take a day\n",
            units_count((double)model_config_parameters(config) / days).s,
            units_count((double)model_config_parameters(config)).s);
  if (r->batch.global / days >= 1)
    fprintf(out, "  a smaller batch: batch.global: %.0f (not %d) would take a day\n", r->batch.global / days,
            r->batch.global);
  else if (r->batch.global > 1)
    fprintf(out, "  a smaller batch: batch.global: 1 (not %d) would take about %s\n", r->batch.global,
            units_duration(e->run_seconds / r->batch.global).s);
  if ((double)steps / days >= 1)
    fprintf(out, "  fewer steps: schedule.steps: %.0f (not %lld) would take a day\n",
            (double)done + (double)steps / days, (long long)(done + steps));
}
