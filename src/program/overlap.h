// Overlap of communication with computing.
#pragma once
#include "program/program.h"

// In a stream the sums over the stages of END start at the end of its first half, and are waited for in the second.
void overlap_sums(Program *p);
// Fills p->actions from the schedule. With `overlap`, collectives of END that read only accumulators become REDUCE
// actions after the instruction that completes their last accumulator, and that body is cut there.
void overlap_actions(Program *p, int overlap);
// Sets Instruction.wait of the body's collectives that have something to compute between them and their first reader.
void overlap_body(Program *p, Body *body);
// Sets it of all MOVEs: their queue is another one than that of kernels.
void overlap_moves(Program *p);
