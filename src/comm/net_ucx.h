// The functions of UCX that the net wire calls. The library is loaded when the first world of net is made, so that
// other runs do without it, and so that UCX meets an environment in which it leaves signals and malloc alone.
#pragma once
#include "base/error.h"
#include <ucp/api/ucp.h>

typedef struct Ucx {
#define UCX(name) __typeof__(&name) name;
#include "comm/net_ucx.def"
#undef UCX
} Ucx;

// Whether UCX_NET_DEVICES lets UCX use adapters that move memory while no process makes progress: those of InfiniBand
// and RoCE, whose names have a port (mlx5_0:1), or all devices. Unless the user sets it, plait names one network
// interface (eth0), which is TCP.
int ucx_uses_adapters(void);

// PLAIT_FAILED with what to install where it cannot be loaded. Loads it once; from several threads.
int ucx_load(const Ucx **ucx, Error *error);
