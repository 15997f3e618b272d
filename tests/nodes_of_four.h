// Machines for tests that simulate: nodes of 4 devices, which share 4 ports.
#pragma once
#include "machine/facts.h"

static inline Cluster nodes_of_four(int nodes) {
  Cluster c = {.name = "test", .levels = 2, .base = {5e-6, 8e-6}};
  c.device = (DeviceFacts){.name = "device", .sustained = 0.8, .units = 108, .cache = 40e6, .memory = 80e9,
                           .bandwidth = 2e12, .launch = 2e-6, .host = 1e-6};
  for (int d = 0; d < DTYPE_COUNT; d++) c.device.matrix[d] = 300e12, c.device.vector[d] = 20e12;
  c.level[0] = (LevelFacts){"inside", LEVEL_SWITCH, .count = 4, .ports = 1, .bandwidth = 300e9, .latency = 3e-6,
                            .oversubscription = 1};
  c.level[1] = (LevelFacts){"outside", LEVEL_SWITCH, .count = nodes, .ports = 4, .bandwidth = 25e9, .latency = 9e-6,
                            .oversubscription = 1};
  return c;
}
