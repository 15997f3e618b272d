// The measurements of a probe, as facts of a cluster.
#include "base/memory_usage.h"
#include "machine/cluster_machine.h"
#include "machine/kernel_table.h"
#include "foresight/probe_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// The best of kernels that use all cores, a core's part: FLOP/s of products, FLOP/s and bytes/s of the rest.
static void read_rates(const Probe *p, DeviceFacts *device) {
  const double LARGE = 1e5; // bytes: shorter kernels tell of their start only
  for (int i = 0; i < p->times.kernel.count; i++) {
    const MeasuredKernel *k = &p->times.kernel.data[i];
    if (k->active != p->cores) continue;
    double flops = k->flops / k->seconds / k->threads, bytes = k->bytes / k->seconds / k->threads;
    if (k->size[3] > 0) device->matrix[k->dtype] = fmax(device->matrix[k->dtype], flops);
    else if (!k->size[2] && k->bytes > LARGE) device->vector[k->dtype] = fmax(device->vector[k->dtype], flops);
    if (!k->size[2] && k->bytes > p->cache) device->bandwidth = fmax(device->bandwidth, bytes);
  }
  if (!(device->bandwidth > 0)) device->bandwidth = 1e10;
  if (!(device->vector[DTYPE_F32] > 0)) device->vector[DTYPE_F32] = device->matrix[DTYPE_F32];
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  if (n) qsort(x, (size_t)n, sizeof *x, by_value);
  return n ? x[n / 2] : 0;
}

void probe_describe(Probe *p, Cluster *c) {
  DeviceFacts *device = &c->device;
  time_t now = time(NULL);
  char day[32];
  strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
  c->name = c->path = "this machine";
  c->source = device->source = c->level[0].source =
      arena_format(&c->arena, "measured by plait probe on %s, in seconds of %d runs", day, p->runs);
  device->name = arena_strdup(&c->arena, cluster_machine());
  device->backend = DEVICE_CPU;
  device->sustained = 1;
  device->helping = p->helping;
  device->cache = p->cache;
  c->spread = fmin(1, median(p->skew.data, p->skew.count));
  device->units = 1;
  device->memory = fmax(1e6, (double)memory_usage_available());
  device->host = p->instructions > 0 ? p->beside / p->instructions : 0;
  c->level[0].name = "machine";
  c->level[0].kind = LEVEL_BUS;
  c->level[0].count = p->cores;
  if (p->nodes > 1) {
    c->level[1] = (LevelFacts){.name = "network", .kind = LEVEL_SWITCH, .count = p->nodes, .ports = 1,
                               .bandwidth = c->level[1].bandwidth, .latency = c->level[1].latency,
                               .oversubscription = 1, .source = c->source};
  }
  c->level[0].ports = 1;
  c->level[0].oversubscription = 1;
  if (!(c->level[0].bandwidth > 0)) c->level[0].bandwidth = device->bandwidth;
  c->levels = p->nodes > 1 ? 2 : 1;
  c->base[0] = c->base[1] = -1;
  c->software = (SoftwareFacts){.fusions = 1, .launches_per_op = 1};
  for (int i = 0; i < p->times.kernel.count; i++) vec_push(&c->kernel, p->times.kernel.data[i]);
  read_rates(p, device);
}

// Of the last level that a core has, bytes; 0: not told. (sysconf adds up what the whole processor has.)
double probe_last_cache(void) {
  char path[96];
  long kib = 0;
  for (int i = 0, more = 1; more; i++) {
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    FILE *in = fopen(path, "r");
    more = in && fscanf(in, "%ldK", &kib) == 1;
    if (in) fclose(in);
  }
  return 1024.0 * (double)kib;
}

// Two ranks of a pipeline of which one computes while the other one helps: naive, all microbatches one after the other,
// with this number of sequences each. The gain of a thread that helps, in the best of three runs: disturbances only
// slow down.
static int helping_with(Probe *p, const Cluster *c, int sequences, double *best, Error *error) {
  const ProbeShape *s = &probe_shapes[0];
  char batch[40], micro[40],
      *more[] = {"mesh.dp=1", "mesh.pp=2", "parallel.pipeline=naive", "run.work_stealing=true", batch, micro};
  snprintf(batch, sizeof batch, "batch.global=%d", 4 * s->sequences);
  snprintf(micro, sizeof micro, "batch.micro=%d", sequences);
  Recipe recipe = {0};
  ModelConfig config = {0};
  ExampleSizes sizes = {2, s->width, s->heads, s->sequence, s->vocabulary};
  int guessed = 0, threads = p->cores / 2, most = 2 * threads, code = probe_corpus(p, s->vocabulary, error);
  if (!code) code = probe_recipe(p, s, (Crew){2, threads}, DTYPE_F32, &recipe, 6, more, error);
  if (!code) code = model_config_example(&config, s->example, &sizes, error);
  *best = 0;
  for (int repeat = 0; repeat < 3 && !code; repeat++) {
    ProbeTimes times = {0};
    double alone = 0, helped = 0, measured = 0;
    code = probe_run(&recipe, &config, 2, p->cache, NULL, &times, NULL, error);
    for (int i = 0; i < times.kernel.count && !code; i++) {
      const MeasuredKernel *k = &times.kernel.data[i];
      alone += k->calls * kernel_table_seconds(c->table, &c->device, k, threads, threads, &guessed);
      helped += k->calls * kernel_table_seconds(c->table, &c->device, k, most, most, &guessed);
      measured += k->calls * k->seconds;
    }
    if (helped > 0 && alone > helped) *best = fmax(*best, (alone / measured - 1) / (alone / helped - 1));
    probe_times_free(&times);
  }
  recipe_free(&recipe);
  model_config_free(&config);
  return code;
}

// In long and in short kernels: whatever disturbs a thread that helps makes it count for less, so the larger counts.
int probe_helping(Probe *p, Cluster *c, Error *error) {
  double large = 1, small = 1;
  if (p->cores < 2 || p->comm) return PLAIT_OK;
  int code = helping_with(p, c, probe_shapes[0].sequences, &large, error);
  if (!code) code = helping_with(p, c, 1, &small, error);
  c->device.helping = fmin(1, fmax(large, small));
  return code;
}
