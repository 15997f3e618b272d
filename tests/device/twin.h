// A second kind of device for tests: the CPU's kernels, with memory of which a process has two. A kernel that finds an
// operand in the other instance's memory ends the test, as a GPU would fault.
#pragma once
#include "device/device.h"

enum { TWINS = 2 };
// Its description. Kernels are those of `of`, which must stay; called once.
const Device *twin_device(const Device *of);
// How often memory was allocated, and a kernel ran, on an instance of this process.
int64_t twin_allocations(int instance);
int64_t twin_runs(int instance);
