// Seconds by what is known of a machine.
#include "machine/machine_times.h"
#include "base/fault.h"
#include "machine/devices.h"
#include "machine/simulate.h"
#include "program/cost.h"
#include "program/traffic.h"
#include <math.h>

MachineTimes machine_times(const Cluster *cluster, const Device *device) {
  ConstantId balance = device && device_shares_host(device->kind) ? CONSTANT_UNKNOWN_HOST : CONSTANT_UNKNOWN_GPU;
  return (MachineTimes){.cluster = cluster, .balance = constant(NULL, balance)};
}

MachineTimes machine_times_of_peak(double peak, double threads, bool busy) {
  return (MachineTimes){.peak = peak, .threads = threads, .busy = busy};
}

// By the measured product: what the kernels of a rank count, one after the other.
static double by_peak(const MachineTimes *t, const ProgramCost *cost) {
  double loops = constant(NULL, CONSTANT_ESTIMATE_REFERENCE) * fmin(t->threads, 1); // one thread runs them
  return cost->flops / (constant(NULL, CONSTANT_ESTIMATE_PRODUCTS) * t->peak) +
         cost->bytes / (constant(NULL, CONSTANT_ESTIMATE_BYTES) * t->threads) +
         cost->calls * constant(NULL, CONSTANT_ESTIMATE_CALL) + cost->reference / loops;
}

static double by_balance(const MachineTimes *t, const OpWork *work) {
  return constant(NULL, CONSTANT_UNKNOWN_FLOP) * fmax(work->matrix, t->balance * (work->read + work->written)) +
         constant(NULL, CONSTANT_UNKNOWN_VECTOR) * work->vector;
}

double machine_seconds(const MachineTimes *t, Dtype dtype, const OpWork *work) {
  const Cluster *c = t->cluster;
  if (c) return kernel_seconds(&c->device, &c->software, dtype, work, 0, 0, c->constants);
  if (!(t->peak > 0)) return by_balance(t, work);
  return by_peak(t, &(ProgramCost){.flops = work->matrix, .bytes = work->read + work->written, .calls = 1});
}

double machine_collective_seconds(const MachineTimes *t, CollectiveKind kind, const GroupOnLinks *group, double bytes) {
  return collective_seconds(t->cluster, kind, group, bytes).seconds;
}

double machine_rate(const MachineTimes *t, Dtype dtype) {
  return t->cluster ? product_rate(devices_fastest(t->cluster, dtype), dtype) : t->peak;
}

// ---- a step by the measured product --------------------------------------------------------------------------------

// What a rank sends in collectives is read and written in memory.
static double rank_seconds(const MachineTimes *t, const Program *p) {
  ProgramCost cost = program_cost(p);
  TrafficList traffic = {0};
  program_traffic(p, &traffic);
  for (int i = 0; i < traffic.count; i++) cost.bytes += 2 * traffic.data[i].bytes;
  vec_free(&traffic);
  return by_peak(t, &cost);
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

static double step_by_peak(const MachineTimes *t, Program *const *programs) {
  int pipeline = programs[0]->schedule->map.coordinates;
  double sum = 0, most = 0;
  for (int c = 0; c < pipeline; c++) {
    double seconds = rank_seconds(t, programs[c]);
    sum += seconds;
    most = fmax(most, seconds);
  }
  return t->busy ? sum / pipeline : most / (1 - FAULT(estimates_see_no_bubble, bubble(programs[0]), 0));
}

int machine_step_seconds(const MachineTimes *t, Program *const *programs, double *seconds, Error *error) {
  if (!t->cluster) return *seconds = step_by_peak(t, programs), PLAIT_OK;
  Simulation *simulation = NULL;
  int code = simulate(programs, &(SimulateOptions){.cluster = t->cluster}, &simulation, error);
  if (!code) *seconds = simulation->step;
  simulation_free(simulation);
  return code;
}
