// A model on one rank for inference: graph, Program, State and executor of one mode, fp32, all cores as one team.
#pragma once
#include "infer/model_source.h"
#include "program/exec.h"
#include "train/compile.h"

typedef struct Single {
  Graph *graph;
  Program *program;
  State *state;
  Team *team;
  Executor *executor;
  int logits; // tensor (batch, vocab) in MODEL_GENERATE, else -1
} Single;

// Compiles `mode` (MODEL_EVALUATE or MODEL_GENERATE) for one microbatch of `batch` sequences of `seq` tokens,
// allocates, and loads the weights. threads >= 1. The caller destroys *single, also after an error.
int single_create(Single *single, const ModelSource *source, int mode, int64_t batch, int64_t seq, int threads,
                  Error *error);
void single_destroy(Single *single); // also safe twice

// Runs once. Inputs are found by the graph's names (tokens, positions, documents, targets, step_targets, index).
typedef struct SingleInput {
  const char *name;
  const void *data;
} SingleInput;
int single_run(Single *single, const SingleInput *inputs, int count, Error *error);
