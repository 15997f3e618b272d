// Desync check (`run.desync_check`): did all ranks of every group issue the same collectives in the same order,
// and do all ranks that hold the same part of a Variable hold the same bits? Costs a hash of all Variables and two
// gathers a step.
#pragma once
#include "plait/comm.h"
#include "runtime/state.h"

typedef struct Desync Desync;

// An observer of the executor that runs the Program; it remembers the collectives and transfers of a step. Everything
// is borrowed. NULL for a world of one rank (world NULL): then there is nothing to compare.
Desync *desync_create(const Program *p, const State *state, PlaitComm *world);
void desync_destroy(Desync *a);

// After a step, collective over the world: PLAIT_FAILED on every rank, with two ranks, the step and the first
// collective or the Variable in which these differ, else PLAIT_OK. Forgets the step. Nothing to do for NULL.
int desync_check(Desync *a, int64_t step, Error *error);
