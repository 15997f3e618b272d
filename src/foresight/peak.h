// How fast this machine computes products: measured once, and remembered (machine/cluster_machine.h).
#pragma once
#include "device/device.h"

// FLOP/s of products of a dtype with this many threads (at most one a core), 0 where the device does not tell. Measured
// in well under a second where it is not kept, by machine, device, dtype, threads and processes; kept where that is
// possible. processes: how many of them measure at the same time on this machine, at least 1: together each is slower
// than one alone.
double peak_flops(const Device *device, Dtype dtype, int threads, int processes);
// The same, but measured anyway; the faster of the two counts from now on: the machine may have been busy before.
double peak_flops_again(const Device *device, Dtype dtype, int threads, int processes);
