// This machine among clusters: what it is called, and where what was measured of it is kept.
#pragma once
#include <stddef.h>

// Its processor, the instructions that plait uses, and cores: what a cluster file of a CPU says as the device's name.
// Static; the same in all calls.
const char *cluster_machine(void);
// The processor's name as the system says it; "" where it does not.
void cluster_machine_processor(char *out, size_t size);
// Where a file of measurements is kept: $XDG_CACHE_HOME/plait/NAME or ~/.cache/plait/NAME. NULL: neither folder is
// known. The caller frees it.
char *cluster_machine_cache(const char *name);
// Where plait probe keeps this machine's cluster file, which the name "probe" stands for:
// probe-….yaml in this cache, or NULL. The caller frees it.
char *cluster_machine_path(void);
