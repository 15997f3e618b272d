// The implementation of devices whose memory the host cannot touch: for cpu.c's tables.
#pragma once
#include "device/device.h"

extern const DeviceImplementation device_far;
