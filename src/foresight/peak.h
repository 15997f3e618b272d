// How fast this machine computes products: measured once, and remembered in the user's cache.
#pragma once
#include "device/device.h"

// FLOP/s of products of a dtype with this many threads (at most one a core), 0 where the device does not tell. Measured
// in well under a second where $XDG_CACHE_HOME/plait/peaks.json (or ~/.cache/plait/peaks.json) does not know it from
// the last 30 days, by machine, device, dtype, threads and processes; written there where that is possible. processes:
// how many of them measure at the same time on this machine, at least 1: together each is slower than one alone.
double peak_flops(const Device *device, Dtype dtype, int threads, int processes);
// The same, but measured anyway; the faster of the two counts from now on: the machine may have been busy before.
double peak_flops_again(const Device *device, Dtype dtype, int threads, int processes);
