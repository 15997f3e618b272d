// Devices and clusters for the tests of times.
#pragma once
#include "base/philox.h"
#include "machine/facts.h"

DeviceFacts h200(void); // whose product of 8192 x 8192 x 8192 takes what 755 TFLOP/s do, in bf16
DeviceFacts h100(void);
Cluster two_levels(int devices, int nodes, int ports); // switches; no base, latencies 1 and 5 µs, 300 and 25 GB/s

// Numbers whose logarithms are uniform between low and high, the same in every run.
typedef struct Random { PhiloxKey key; uint32_t drawn; } Random;
double random_between(Random *random, double low, double high);
int random_int(Random *random, int low, int high); // low … high, all alike
