// The part of the state that the ranks of one machine have together. Where that is all of it, a machine that is lost
// takes nothing along that another one lacks.
#pragma once
#include "checkpoint/checkpoint.h"
#include "runtime/job.h"

// Whether the ranks first … first + count - 1 of a job hold all that a checkpoint holds.
bool machine_has_all(const Job *job, int first, int count);
// Of the pieces of a rank (state_tensors) marks those as `spare` that a rank elsewhere writes, and that no other rank
// from `first` on, before this one, has.
void machine_mark_spare(const Job *job, int first, int rank, CheckpointTensor *pieces, int count);
// Bytes of the spare pieces of these ranks.
int64_t machine_spare_bytes(const Job *job, int first, int count);
