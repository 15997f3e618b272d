// This machine among clusters: what it is called, and where its measurements are kept.
#pragma once

// Its processor, the instructions that plait uses, and cores: what a cluster file of a CPU says as the device's name.
// Static; the same in all calls.
const char *cluster_machine(void);
// Where plait probe keeps this machine's cluster file, which the name "probe" stands for:
// $XDG_CACHE_HOME/plait/probe-….yaml or ~/.cache/plait/probe-….yaml. NULL: neither folder is known. The caller frees
// it.
char *cluster_machine_path(void);
