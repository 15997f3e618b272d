// Compares two runs tensor by tensor, and says how far they may be apart.
#pragma once
#include "parity.h"

// What is compared: losses and norms of all steps and the evaluation's loss, relative; and of each tensor the root mean
// square (RMS) of its difference, and the difference of its worst element (see compare.c for what these are divided
// by).
typedef enum ParityMeasure {
  MEASURE_LOSS,
  MEASURE_NORM,
  MEASURE_GRADIENT,
  MEASURE_GRADIENT_ELEMENT,
  MEASURE_CHANGE, // of parameters: final − initial
  MEASURE_CHANGE_ELEMENT,
  MEASURE_MOMENT,
  MEASURE_MOMENT_ELEMENT,
  MEASURE_EVAL,
  MEASURE_ROUTING, // the widest gap at which a token would have gone to other experts (routing.h); routers' losses,
                   // relative; infinite where experts were chosen by other numbers of tokens
  MEASURES
} ParityMeasure;
extern const char *const parity_measure_names[MEASURES];

// AdamW divides a gradient that is only rounding (a key's bias) by its own size, and makes a whole step of it. With
// this, for narrow types, it is divided by what is larger than any root of a second moment, so that parameters are as
// near as gradients are.
#define PARITY_SMOOTH "optimizer.epsilon=0.1"

typedef struct ParityTolerance {
  double most[MEASURES];
  double storage; // the unit roundoff of stored parameters
  double version; // of their older versions, where these are stored in less
  int magnifies;  // AdamW's epsilon is below the rounding of gradients
} ParityTolerance;

// The worst of each measure; infinite where counts of tokens, names or sizes differ, or a value is not a number.
typedef struct ParityDifference {
  double worst[MEASURES];
  char tensor[MEASURES][512]; // that has it; of MEASURE_ROUTING, the token
} ParityDifference;

// Every measure to `most`: for fp64, whose rounding is far below what any fault does.
ParityTolerance parity_exactly(double most);
// From the unit roundoff of the case's precision and the number of roundings; see compare.c. `one`: the run that it is
// compared with.
ParityTolerance parity_tolerance(const ParityCase *c, const ParityResult *one);

ParityDifference parity_compare(const ParityResult *a, const ParityResult *b, const ParityTolerance *t);
// The same of a step (0 …) alone.
ParityDifference parity_compare_step(const ParityResult *a, const ParityResult *b, int step, const ParityTolerance *t);
// The largest share of its bound that a measure takes: above 1, the runs differ.
double parity_share(const ParityDifference *d, const ParityTolerance *t);
int parity_differs(const ParityDifference *d, const ParityTolerance *t);
// Prints a line when the runs differ, or always: model, precision, name, the worst of each measure. Returns whether
// they differ.
int parity_report(const ParityCase *c, const ParityDifference *d, const ParityTolerance *t, int always);

// The norm of the gathered gradients of a step (0 …): what the run must have reported, over all parameters, each once.
double parity_norm(const ParityResult *result, int step);
// The first tensor of a dump whose bits differ, or that one of both lacks; NULL: none.
const char *parity_first_different(const ParityResult *a, const ParityResult *b, ParityDump dump);
// Same bits of all losses, norms, gradients, and of the whole state at the end.
int parity_same_bits(const ParityResult *a, const ParityResult *b);
