// Holds the simulator against the executor: what both issue in a step.
#pragma once
#include "parity.h"

// Runs a step of the case (of a schedule that never drains, as many as the case has), and simulates it. 0: the first
// rank of each pipeline coordinate has issued the same collectives and messages in the same order, with the same bytes
// from the same slots, as its simulated coordinate, and all other ranks of it as the first, but for bytes that depend
// on their rows; and simulated one by one (--all-ranks) each rank as itself. 1: not, and `error` says where first.
// Negative: it did not run.
int simulated_differs(const ParityCase *c, Error *error);
