// Parity: runs a tiny model under a layout and records what one rank would have to reproduce.
#pragma once
#include "train/rank.h"

enum { PARITY_MAX_STEPS = 24, PARITY_DUMPS = 2 };

typedef struct ParityCase {
  const char *name;
  const char *model;   // "gpt" or "llama"
  int pp, dp, tp, zero, micro;
  const char *schedule; // NULL: 1f1b, for pp 1 and more
  Dtype precision;
  int steps;
  int reference;       // reference kernels instead of the fast ones
} ParityCase;

typedef struct NamedTensor { char *name; int64_t elements; double *data; } NamedTensor;
typedef struct ParityResult {
  int steps;
  double loss[PARITY_MAX_STEPS], norm[PARITY_MAX_STEPS], tokens[PARITY_MAX_STEPS];
  double eval_loss, eval_tokens;
  int tensors[PARITY_DUMPS + 1];            // gathered gradients of the first steps; parameters and moments at the end
  NamedTensor *tensor[PARITY_DUMPS + 1];
} ParityResult;

// Runs the case on thread ranks; dies (test failure by message) on an error. `corpus` is a prefix made by parity_corpus.
int parity_run(const ParityCase *c, const char *corpus, ParityResult *result, Error *error);
void parity_free(ParityResult *result);
// Largest relative difference of losses and norms; of gradients against the largest element of any; parameters likewise.
typedef struct ParityDifference { double loss, norm, gradient, parameter, eval; } ParityDifference;
ParityDifference parity_compare(const ParityResult *a, const ParityResult *b);
