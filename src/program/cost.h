// What the kernels of a step cost on one rank, counted from its Program: for estimates of time.
#pragma once
#include "program/program.h"

// Of kernels, collectives left out: FLOPs (those of products and attention; others hardly count), bytes of operands
// that are read and written, and calls. Of reference kernels none of these, but their FLOPs or elements, whatever is
// more: they are plain loops in double.
typedef struct ProgramCost { double flops, bytes, calls, reference; } ProgramCost;
ProgramCost program_cost(const Program *p);
