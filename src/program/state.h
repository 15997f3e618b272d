// State owns all Variables of one rank, in one arena together with the memory in which Programs work. Train, evaluation
// and generation Programs borrow it: their Variables are those of the same names.
#pragma once
#include "program/program.h"

typedef struct State {
  const Program *program; // whose Variables these are; borrowed
  int rank;
  char *memory;           // the arena: 2 MiB aligned, huge pages asked for, every page touched
  int64_t bytes;
  char *work;             // slots, workspace and scratch of whichever Program runs
} State;

// Bytes that a Program needs beside the Variables.
int64_t program_work_bytes(const Program *p);
// Bytes that state_create will allocate: Variables and work, rounded up to whole 2 MiB pages.
int64_t state_plan_bytes(const Program *program, int64_t work_bytes);
// Allocates Variables and `work_bytes` (the most that any Program to be run on it needs), all zero.
int state_create(const Program *program, int64_t work_bytes, int rank, State **out, Error *error);
void state_destroy(State *s);

// The memory of a Variable (by its id; copy -1) or one of its Copies on this rank; NULL when it does not live here.
void *state_variable(const State *s, int variable, int copy);
// A scalar of graph/known.def as a number. One that the Program does not have is a bug: where it may lack one, state_has asks.
double state_scalar(const State *s, KnownVariable known);
int state_has(const State *s, KnownVariable known);

// Init rules of the Variables of these kinds (bits), addressed by (seed, name, global index): the same bits under every parallel
// configuration. Variables that no rule fills stay as they are: zero at first.
void state_init(State *s, uint64_t seed, unsigned kinds);
