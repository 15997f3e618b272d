// Which cores each worker of a machine gets, and which memory.
#pragma once
#include <sched.h>

// The share of worker i of n of the cores in `all`: neighbours, by package and core, so that threads of one core stay
// together. 0: there are fewer cores than workers, which then share all.
int binding_share(const cpu_set_t *all, int i, int n, cpu_set_t *share);

enum { BINDING_NODES = 1024 };
// nodes[n] = 1: node n of the machine's memory (folder: /sys/devices/system/node) has one of these cores. Returns how
// many do; 0 where all do, or there is only one.
int binding_nodes(const char *folder, const cpu_set_t *share, unsigned char nodes[BINDING_NODES]);
// From now on this thread, and what it starts, takes memory of those nodes alone. Does nothing where binding_nodes says
// 0, or the user has chosen a policy (numactl, srun --mem-bind).
void binding_memory(const cpu_set_t *share);
