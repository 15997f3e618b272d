// --iface of plait launch.
#pragma once
#include "base/error.h"

// list: words of UCX_NET_DEVICES, separated by commas: network interfaces, InfiniBand devices with or without a port
// (as mlx5_0:1), or all. PLAIT_BAD_INPUT: this machine has none of a name. Words with signs of a pattern are left to
// UCX.
int launch_check_interfaces(const char *list, Error *error);
