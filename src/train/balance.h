// batch.balance: measured. Ranks of different speed get different shares of the batch, by what their steps have taken.
//
// After every BALANCE_EVERY-th step the ranks tell each other how long they have computed; all come to the same new
// shares. They change where the busiest rank would be done sooner by a twentieth of a step. metrics.jsonl has a line
// with the shares of each step that begins with others, and the first of each start, so that a run can be repeated to
// the bit (batch.replay) and resumes with the shares that it had.
#pragma once
#include "train/trainer.h"

enum { BALANCE_EVERY = 10 };

// The measurements of a rank since shares could last change. Zeroed at first.
typedef struct BalanceTimes { double computed, seconds; int steps; bool warm; } BalanceTimes;
void balance_add(BalanceTimes *times, const StepResult *result); // a start's first step is not typical and left out

// New shares, in rows (ranks of `shares`), by the seconds that each data rank has computed in a step of `step_seconds`;
// false: too little would be won. *saved: the seconds that a step is estimated to become shorter by.
bool balance_decide(const Shares *shares, const double *computed, double step_seconds, int *rows, double *saved);

// Whether shares may change after a step, before the next one.
bool balance_due(const Trainer *t, int64_t step);
// Changes them then, where it is worth it. Called by all ranks after each step but the last.
int balance_after(Trainer *t, Rank *r, BalanceTimes *times, int64_t step, Error *error);

// The shares that the run begins with, from its own metrics or those that it repeats; and these for later steps.
// Called by all processes, before the ranks are started. PLAIT_BAD_INPUT: batch.replay has no shares for this run.
int balance_begin(Trainer *t, Error *error);
// A line of metrics with the shares, where this step is the first that has them. By rank 0.
int balance_report(Trainer *t, int64_t step, Error *error);
