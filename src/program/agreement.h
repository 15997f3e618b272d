// Agreement of ranks (`run.check`): did all ranks of every group issue the same collectives in the same order, and do all ranks
// that hold the same part of a Variable hold the same bits? Costs a hash of all Variables and two gathers a step.
#pragma once
#include "plait/comm.h"
#include "program/state.h"

typedef struct Agreement Agreement;
typedef struct AgreementGroup { uint32_t axes; uint64_t coordinates; } AgreementGroup; // as the executor's communicators, in order

// Everything is borrowed. NULL for a world of one rank (world NULL): then there is nothing to agree on, and the others do nothing.
Agreement *agreement_create(const Program *p, const State *state, PlaitComm *world, const AgreementGroup *group, int groups);
void agreement_destroy(Agreement *a);

// This rank issues a collective of group `group`, of `elements` elements; or moves a tensor of a microbatch to (send 1) or from
// the rank at coordinate `peer` of the pp axis, in a direction (0 or 1).
void agreement_collective(Agreement *a, int group, const Node *n, int microbatch, int64_t elements);
void agreement_transfer(Agreement *a, int send, int direction, int peer, int tensor, int microbatch);

// After a step, collective over the world: PLAIT_FAILED on every rank, with two ranks, the step and the first collective or the
// Variable in which these differ, else PLAIT_OK. Forgets the step.
int agreement_check(Agreement *a, int64_t step, Error *error);
