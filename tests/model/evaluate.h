// Runs a graph on one rank with the reference kernels, its regions in order: what the graph means, without placing,
// partition, Program and executor.
#pragma once
#include "op/op.h"

typedef struct Evaluation {
  Graph *graph;     // borrowed
  void **variable;  // memory of each Variable, zeroed; the caller fills it
  void **tensor;    // of each tensor that is not bound to a Variable; inputs are for the caller to fill
} Evaluation;

void evaluation_begin(Evaluation *e, Graph *g);
void evaluation_run(Evaluation *e);
void evaluation_end(Evaluation *e);
void *evaluation_input(Evaluation *e, KnownInput known);    // NULL: the graph has no such input
void *evaluation_variable(Evaluation *e, KnownVariable known);
