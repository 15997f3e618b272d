// The operands of kernels that a device's last-level cache still holds.
#pragma once
#include "program/program.h"

// Of each instruction of a body on a microbatch (-1: BEGIN and END): bytes of its inputs that the cache still has. An
// operand is held whole, where all that was touched since its last kernel began, that kernel's own operands among them,
// is no more than `cache` bytes; else not at all, since what is read in order drives out what comes next. At the
// beginning of a body the cache holds nothing. held: room for body->count.
void cache_held(const Program *program, const Body *body, int microbatch, double cache, double *held);
