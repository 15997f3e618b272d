// batch.balance: measured. Ranks of different speed get different shares of the batch, by what their steps have taken.
//
// After every BALANCE_EVERY-th step the ranks tell each other how long they have computed; all come to the same new
// shares. They change where the busiest rank would be done sooner by a twentieth of a step. metrics.jsonl has a line
// with the shares of each step that begins with others, and the first of each start, so that a run can be repeated to
// the bit (batch.replay) and resumes with the shares that it had.
#pragma once
#include "train/trainer.h"

enum { BALANCE_EVERY = 10 };

// New shares, in rows (ranks of `shares`), by the seconds that each data rank has computed in a step of `step_seconds`;
// false: too little would be won. *saved: the seconds that a step is estimated to become shorter by.
bool balance_decide(const Shares *shares, const double *computed, double step_seconds, int *rows, double *saved);

// The shares that the run begins with, from its own metrics or those that it repeats; and these for later steps.
// Called by all processes, before the ranks are started. PLAIT_BAD_INPUT: batch.replay has no shares for this run.
int balance_begin(Trainer *t, Error *error);
