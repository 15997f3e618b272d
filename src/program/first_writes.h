// Accumulators that the first microbatch of a step stores into, so that BEGIN need not set them to zero: a write of
// the whole accumulator and its first reading are left out. It follows from a rank's list of actions: BEGIN sets the
// Variable to zero and does nothing else with it, and what touches it first in a step is a node that adds to it
// (op_accumulator), in microbatch 0. The zeros stay where anything else comes first.
#pragma once
#include "program/program.h"

// Fills p->stores, and takes the zeros out of BEGIN. To be called when bodies are made, before anything counts the
// instructions of BEGIN.
void first_writes(Program *p);
