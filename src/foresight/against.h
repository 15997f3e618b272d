// A simulated step beside a measured one, op by op: what `plait simulate --against TRACE` prints. The trace is one that
// run.trace wrote.
#pragma once
#include "foresight/predict.h"

// An instruction in all layers, microbatches, ranks and steps.
typedef struct AgainstOp {
  char name[96];          // layers folded: "layer.*.ffn.up"
  int communicates, flies; // flies: in flight beside what the rank did; these count apart
  double measured, simulated; // seconds
  double runs, simulated_runs; // how often it ran
} AgainstOp;

typedef struct Against {
  const char *path;       // of the trace, borrowed
  Vec(AgainstOp) op;
  int last;               // where the last look-up ended
  int ranks; // that the trace has spans of: all of a run, or one for each pipeline coordinate of a simulated one
  int run_ranks;          // of the run
  double steps;           // of each rank in it
  double step_seconds;    // of all steps of all ranks
  int simulated_steps;
} Against;

// PLAIT_BAD_INPUT, one sentence: no JSON, no trace, no instructions or whole steps in it. against_free also then.
int against_read(const char *path, Against *out, Error *error);
void against_free(Against *against);
SimulationSee against_see; // context: an Against

// After the simulation. PLAIT_BAD_INPUT where the trace is of another recipe: other ranks, kernels, or numbers of them.
int against_check(const Against *against, const Prediction *prediction, Error *error);
// Seconds of a step on a rank of each pipeline coordinate, together; the longest measured first.
void against_print(Against *against, const Prediction *prediction, FILE *out);
// The same as an object: path, steps, ranks, step (measured_seconds, simulated_seconds), and ops, each with its name,
// group (kernel, communication, in flight), calls and both seconds. The caller releases it.
struct json_t *against_json(Against *against, const Prediction *prediction);
