// This machine among clusters: what it is called, and the one file that keeps what was measured of it: the speeds of
// products that runs measure, and the cluster that plait probe does.
#pragma once
#include "machine/cluster.h"

// Its processor, the instructions that plait uses, and cores: what a cluster file of a CPU says as the device's name.
// Static; the same in all calls.
const char *cluster_machine(void);
// The file: machine-….yaml in $XDG_CACHE_HOME/plait or ~/.cache/plait, by the hash of the name, since machines may
// share a home. It is a cluster file, for which the name "probe" stands, after comments that have the peaks. NULL:
// neither folder is known. The caller frees it.
char *cluster_machine_path(void);

bool cluster_machine_is_measured(void); // the file has a cluster, readable or not, and not only peaks
// Before a measurement that is to be kept: its path, which the caller frees in any case, in a folder that is there.
// PLAIT_BAD_INPUT: none is known.
int cluster_machine_prepare(char **path, Error *error);
// Writes the cluster there, in place of the one before. Errors as cluster_machine_prepare, or as file_begin.
int cluster_machine_keep(const Cluster *cluster, Error *error);

// FLOP/s that were kept under a key in the last 30 days, since machines get new kernels and cooling; 0: none. A key is
// a line.
double cluster_machine_peak(const char *key);
// Keeps them, where that is possible, in place of the key's own and of the oldest where there are too many. A failure
// is not an error: they are measured again.
void cluster_machine_keep_peak(const char *key, double flops);
