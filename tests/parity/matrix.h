// The parity matrix: layouts made from the table of features (src/train/layouts.def), each held to one rank's numbers.
#pragma once
#include "parity.h"
#include "train/layouts.h"

enum { MATRIX_MODELS = 4, MATRIX_RANKS = 16, MATRIX_STEPS = 3, MATRIX_GLOBAL = 16 };
extern const char *const matrix_models[MATRIX_MODELS]; // GPT and grouped-query Llama, tied and untied

typedef enum MatrixKind { MATRIX_SINGLE, MATRIX_PAIR, MATRIX_TRIPLE, MATRIX_REAL, MATRIX_KINDS } MatrixKind;

typedef struct MatrixLayout {
  char name[160], settings[256];
  MatrixKind kind;
  uint64_t features;
  int dp, tp, pp, micro, layers;
} MatrixLayout;

// Every feature alone, at 2 and at 3 or 4; every pair and triple that the table does not refuse; the real layouts. Features
// that are not built are left out. The caller frees the list.
int matrix_layouts(MatrixLayout **out);
// A sample: `count` of them by the seed, in place.
int matrix_sample(MatrixLayout *layout, int count, int wanted, uint64_t seed);
ParityCase matrix_case(const MatrixLayout *layout, const char *model, Dtype precision);

typedef struct MatrixTolerance { double loss, norm, gradient, parameter, moment; } MatrixTolerance;
MatrixTolerance matrix_tolerance(Dtype precision);

// What was run, and the worst of it.
typedef struct MatrixTally {
  int runs, wrong, refused; // refused: by the model's sizes, with a sentence
  int of[MATRIX_KINDS];
  int ranks;                // the most
  ParityDifference worst;
} MatrixTally;

// Runs a case of the matrix against one rank, whose run is kept for later calls (matrix_forget frees them): 0 within the
// tolerance, 1 not; negative: it did not run. *initial: a parameter that begins with other bits, or NULL.
int matrix_compare(const ParityCase *c, ParityDifference *difference, const char **initial, Error *error);
// The same for a layout with the model. Prints a line; adds to the tally.
void matrix_run(const MatrixLayout *layout, const char *model, Dtype precision, MatrixTally *tally);
void matrix_forget(void);
// The seed of this run: PARITY_SEED, else the date. Printed.
uint64_t matrix_seed(void);

// For scripts/parity: with PARITY_RESULTS=FILE every run appends a line to it, as do these.
void matrix_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
void matrix_record_table(void); // features and refused pairs
