// Inside of the far device, for those who describe one that always is.
#pragma once
#include "device/device.h"

extern const DeviceImplementation device_far_implementation;
int device_far_find(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel);
double device_far_flops(const Device *device, Op op, const Operand *input, const Operand *output, const void *attr);
double device_far_peak(const Device *device, Dtype dtype, Team *team);
