// Which cores each worker of a machine gets.
#pragma once
#include <sched.h>

// The share of worker i of n of the cores in `all`: neighbours, by package and core, so that threads of one core stay
// together. 0: there are fewer cores than workers, which then share all.
int binding_share(const cpu_set_t *all, int i, int n, cpu_set_t *share);
