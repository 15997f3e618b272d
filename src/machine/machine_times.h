// How long things take on a machine, for whoever asks before anything runs: estimates, bounds of a search, the cut into
// stages, recomputation. What is known of the machine may be a cluster (a cluster file, or what plait probe has
// measured), one measured product, or only which kind of device it has; the question is the same.
#pragma once
#include "machine/collective_time.h"
#include "machine/kernel_time.h"
#include "program/program.h"

typedef struct MachineTimes {
  const Cluster *cluster; // borrowed; NULL: the machine is not described
  double peak;            // then: FLOP/s of a product that was measured, of the threads of a rank; 0: not measured
  double threads;         // that a rank computes with; below 1 where ranks share cores
  bool busy;              // no core waits while any rank has work
  double balance;         // where nothing was measured: FLOPs that a device like it computes while it moves a byte
} MachineTimes;

// By a cluster; where it is NULL only `device` is known, and seconds are a number in proportion to them.
MachineTimes machine_times(const Cluster *cluster, const Device *device);
// By one product, measured on this machine (foresight/peak.h).
MachineTimes machine_times_of_peak(double peak, double threads, bool busy);

// One call of an op in a dtype, on the device of the cluster with nothing in its cache. A WorkSeconds (compile/pass.h).
double machine_seconds(const MachineTimes *times, Dtype dtype, const OpWork *work);
// One collective (bytes: as collective_seconds counts them). Only a cluster has links.
double machine_collective_seconds(const MachineTimes *times, CollectiveKind kind, const GroupOnLinks *group,
                                  double bytes);
// One step of a job (its Programs, one a pipeline rank): simulated on the cluster; else by what its kernels count, and
// by the time that the schedule leaves ranks without work. PLAIT_BAD_INPUT, PLAIT_INFEASIBLE: as simulate.
int machine_step_seconds(const MachineTimes *times, Program *const *programs, double *seconds, Error *error);
// FLOP/s of products in a dtype on the fastest device of the cluster: no step computes them faster. 0: not known.
double machine_rate(const MachineTimes *times, Dtype dtype);
