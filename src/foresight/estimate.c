// Time from counts: a rank's FLOPs at the measured peak, its other work by the bytes that it touches, its calls, and
// the time that the pipeline's schedule leaves it without work.
#include "foresight/estimate.h"
#include "base/fault.h"
#include "base/cores.h"
#include "base/units.h"
#include "machine/cluster.h"
#include "machine/cluster_machine.h"
#include "machine/devices.h"
#include "machine/simulate.h"
#include "program/cost.h"
#include "program/traffic.h"
#include "recipe/recipe_device.h"
#include "setup/setup.h"
#include "foresight/peak.h"
#include <string.h>

// Calibrated by runs of models/*.json in fp32 and bf16 on one and two threads of an AMD EPYC with AVX-512 BF16: steps
// of 2 ms to 2.6 s were met within a fifth. A machine with slower memory or more cores differs more: others took up to
// 1.5 times as long.
static const double OF_PEAK = 0.95;    // what products inside of a step reach
static const double BYTES = 12e9;      // a second and thread, of operands, some of them in caches
static const double CALL = 6e-6;       // seconds
static const double REFERENCE = 200e6; // FLOPs or elements a second, of one thread
static const double FORWARD = 0.35;    // of a step: an evaluation
static const double MOST = 2;          // times as long at most, as is said of an estimate

enum { DAY = 86400 };

// Seconds of the kernels and collectives of a pipeline rank. share: the part of the threads that it has.
static double rank_seconds(const Program *p, const Estimate *e, double share) {
  ProgramCost cost = program_cost(p);
  TrafficList traffic = {0};
  int threads = e->threads < e->cores ? e->threads : e->cores;
  double speed = threads * share; // in threads
  program_traffic(p, &traffic);
  for (int i = 0; i < traffic.count; i++) cost.bytes += 2 * traffic.data[i].bytes;
  vec_free(&traffic);
  return cost.flops / (OF_PEAK * e->peak * share) + cost.bytes / (BYTES * speed) + cost.calls * CALL +
         cost.reference / (REFERENCE * (speed < 1 ? speed : 1));
}

// The part of the pipeline ranks' time in which the schedule has nothing for them, were all segments equally long.
static double bubble(const Program *p) {
  ScheduleSpans spans = {0};
  Error ignored = {0};
  double part = 0;
  if (p->schedule->map.coordinates > 1 && !schedule_replay(p->schedule, p->segments, NULL, &spans, &ignored))
    part = 1 - spans.busy / (p->schedule->map.coordinates * spans.total);
  schedule_spans_free(&spans);
  return part;
}

// The measurements that plait probe keeps of this machine; NULL: there are none, or they cannot be used.
static Cluster *kept_machine(void) {
  Cluster *cluster = NULL;
  Error ignored = {0};
  if (cluster_load("probe", &cluster, &ignored)) return NULL;
  if (devices_share_cores(cluster) && !strcmp(cluster->device.name, cluster_machine())) return cluster;
  cluster_free(cluster);
  return NULL;
}

// Seconds of a step as plait simulate says them for this machine; 0: it cannot.
static double simulated_step(const Job *job) {
  Cluster *cluster = kept_machine();
  SimulateOptions options = {.cluster = cluster};
  Simulation *simulation = NULL;
  Error ignored = {0};
  double step = 0;
  if (cluster && !simulate(job_train(job)->program, &options, &simulation, &ignored)) step = simulation->step;
  simulation_free(simulation);
  cluster_free(cluster);
  return step;
}

// From the peak.
static double estimated_step(const Job *job, const Estimate *e, int processes) {
  int ranks = processes ? 1 : job->options.parallel.mesh.ranks, pipeline = job_pipeline_ranks(job);
  double sum = 0, most = 0;
  for (int c = 0; c < pipeline; c++) {
    double seconds = rank_seconds(job_train(job)->program[c], e, 1.0 / ranks);
    sum += seconds;
    most = seconds > most ? seconds : most;
  }
  // Ranks that help each other, or share cores, leave no core idle while another rank has work.
  bool busy = !processes && (job->run.helpers || e->threads > e->cores);
  return busy ? sum / pipeline : most / (1 - bubble(job_train(job)->program[0]));
}

int estimate_run(const Recipe *r, const Job *job, int processes, int64_t steps, Estimate *e) {
  int ranks = processes ? 1 : job->options.parallel.mesh.ranks;
  *e = (Estimate){.threads = job->run.threads * ranks, .cores = cores_available()};
  if (!job->options.device->implementation) return 0;
  e->step_seconds = processes ? 0 : simulated_step(job);
  e->simulated = e->step_seconds > 0;
  e->most = e->simulated ? 1 : FAULT(estimates_are_exact, MOST, 1);
  if (!e->simulated) {
    e->peak = peak_flops(job->options.device, (Dtype)r->precision, e->threads, processes > 1 ? processes : 1);
    if (!(e->peak > 0)) return 0;
    e->step_seconds = estimated_step(job, e, processes);
  }
  e->tokens_per_s = (double)r->batch.global * r->data.seq_len / e->step_seconds;
  double evaluations = job_find(job, &role_evaluate) && r->eval.every ? (double)steps / (double)r->eval.every : 0;
  double measured = r->run.noise_scale ? (double)steps / (double)r->run.noise_scale : 0;
  e->run_seconds = e->step_seconds * ((double)steps + measured + FORWARD * evaluations * r->eval.batches);
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
