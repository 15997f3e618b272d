// Chaos, for tests: what a correct Program cannot notice. With a seed (ProgramOptions.chaos; the environment's
// PLAIT_CHAOS for runs of recipes) memory is NaN from when the plan gives it free until it is written again (workspace,
// slots, staging buffers, results of REDUCE, kernels' scratch), buffers are packed in a random order, and collectives
// and transfers start after random delays.
#pragma once
#include "runtime/state.h"

typedef struct Chaos Chaos;

// PLAIT_CHAOS of the environment as a number; 0: none. Who makes Programs asks, nobody below.
uint64_t chaos_of_environment(void);
// An observer for one executor's Program, which works in the State with this queue. NULL where the Program's seed is 0.
Chaos *chaos_create(const Program *p, const State *state, DeviceQueue *queue);
void chaos_destroy(Chaos *c);
