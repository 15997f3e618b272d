// Devices, clusters and random numbers for the tests of times.
#include "machines.h"
#include <math.h>

DeviceFacts h200(void) {
  return (DeviceFacts){.name = "H200",
                       .matrix[DTYPE_BF16] = 989.4e12,
                       .vector[DTYPE_F32] = 67e12,
                       .sustained = 0.786,
                       .units = 132,
                       .cache = 50e6,
                       .memory = 141e9,
                       .bandwidth = 4.8e12,
                       .launch = 2e-6};
}

DeviceFacts h100(void) {
  DeviceFacts d = h200();
  d.name = "H100", d.memory = 80e9, d.bandwidth = 3.35e12, d.sustained = 0.8;
  return d;
}

Cluster two_levels(int devices, int nodes, int ports) {
  return (Cluster){.level = {{"nvlink", LEVEL_SWITCH, devices, 1, 300e9, 1e-6, 1},
                             {"infiniband", LEVEL_SWITCH, nodes, ports, 25e9, 5e-6, 1}},
                   .levels = 2};
}

static double uniform(Random *r) {
  uint32_t bits[4];
  philox4x32(r->key, r->drawn++, 0, 0, 0, bits);
  return philox_uniform(bits[0]);
}

double random_between(Random *r, double low, double high) { return low * pow(high / low, uniform(r)); }
int random_int(Random *r, int low, int high) { return low + (int)(uniform(r) * (high - low + 1)); }
