// The parity matrix: layouts made from the table of features (src/recipe/layouts.def), each held to one rank's numbers.
// matrix.c makes them, matrix_cover.c those in which all triples are, matrix_run.c runs them.
#pragma once
#include "one_rank.h"
#include "recipe/layouts.h"

enum {
  MATRIX_MODELS = 10,
  MATRIX_LLAMA = 2 /* the first of them */,
  MATRIX_IN_TURN = 4 /* from here on, one a layout */,
  MATRIX_EXPERTS = 8 /* the first with experts; layouts with features of experts have these alone */,
  MATRIX_RANKS = 32,
  MATRIX_COVER_RANKS = 16, // of a layout that covers triples, unless a triple alone needs more
  MATRIX_STEPS = 3,
  MATRIX_GLOBAL = 16
};
extern const char *const matrix_models[MATRIX_MODELS]; // GPT and grouped-query Llama, tied and untied, which every
                                                       // layout has; and one of each other family

// In what the layouts are run, and held to one rank in the same.
typedef enum MatrixLeg {
  MATRIX_FP64,
  MATRIX_FP32,
  MATRIX_BF16,
  MATRIX_BF16_GRADIENTS, // bf16 with parallel.grad_dtype: bf16
  MATRIX_FP16, // with a loss scale that grows by each good step and is halved by the second, in which all skip
  MATRIX_LEGS
} MatrixLeg;
extern const char *const matrix_leg_names[MATRIX_LEGS];

typedef enum MatrixKind { MATRIX_SINGLE, MATRIX_PAIR, MATRIX_COVER, MATRIX_REAL, MATRIX_KINDS } MatrixKind;

// Why a combination is not in the matrix.
typedef enum MatrixReason {
  MATRIX_IN, // it is
  MATRIX_OF_A_KIND,
  MATRIX_REFUSED,
  MATRIX_NOT_BUILT,
  MATRIX_TOO_LARGE,
  MATRIX_REASONS
} MatrixReason;

typedef struct MatrixMesh { int dp, cp, tp, pp; } MatrixMesh; // 0: as the features need it
static inline int matrix_mesh_ranks(const MatrixMesh *m) { return m->dp * m->cp * m->tp * m->pp; }

typedef struct MatrixLayout {
  char name[384], settings[640];
  MatrixKind kind;
  uint64_t features;
  MatrixMesh mesh;
  int micro, global, layers, seq;
} MatrixLayout;
static inline int matrix_ranks(const MatrixLayout *l) { return matrix_mesh_ranks(&l->mesh); }

// Every feature alone, at the sizes of the table; every pair that the table does not refuse; layouts in which all such
// triples are (matrix_cover); the real layouts. Features that are not built are left out. The caller frees the list.
// Environment PARITY_ONLY="=A + B": the layout of just these features, in the matrix or not, at its sizes or at those
// that are given as "=A + B (dp 2 cp 4)"; it counts as real.
int matrix_layouts(MatrixLayout **out);
// The layout of these features. Sizes 0: as small as shows them.
MatrixLayout matrix_layout(uint64_t features, MatrixKind kind, MatrixMesh mesh);
// "dp + tp + sequence (dp 2 cp 4)" → features and sizes. Returns a name that the table does not have, or NULL.
const char *matrix_parse(const char *text, uint64_t *features, MatrixMesh *mesh);
// Why the matrix leaves a combination out, at these sizes; MATRIX_IN: it does not.
MatrixReason matrix_reason(uint64_t features, MatrixMesh mesh);
MatrixMesh matrix_mesh(uint64_t features, MatrixMesh mesh); // with what the features need where sizes are 0
// Prints how many combinations of features there are, in the matrix and left out by each reason; with names, also those
// that are left out, except those of two features of one kind.
void matrix_print_left_out(int names);
// A covering array of strength 3: sets of features that go together, such that every triple that matrix_reason leaves
// in is part of one at least. Greedy: each begins with a triple that none has yet, and takes the feature that brings
// most further ones, as long as MATRIX_COVER_RANKS suffice. Always the same. The caller frees the list.
int matrix_cover(uint64_t **sets);
// A sample: `count` of them by the seed, in place.
int matrix_sample(MatrixLayout *layout, int count, int wanted, uint64_t seed);
// Does the layout have this leg? What backward has applied cannot be skipped; and an optimizer whose update jumps (by
// the sign of a gradient) takes a whole step where rounding decides, so that only fp64 can be compared.
int matrix_fits(const MatrixLayout *layout, MatrixLeg leg);
// The model that is run for model m: not GPT with an update that jumps. The bias of GPT's keys, which softmax does not
// see, has a gradient that is nothing but rounding; rope makes it matter.
int matrix_model(const MatrixLayout *layout, int model);
// What is run of a layout with this model and leg: of one that covers triples, without the features that the model or
// the leg cannot have, so that it still has the triples of all others.
MatrixLayout matrix_fitted(const MatrixLayout *layout, int model, MatrixLeg leg);
// A covering layout without what only models with experts can have.
MatrixLayout matrix_dense(const MatrixLayout *layout);
// Is it compared with the one rank that most are, of MATRIX_GLOBAL sequences and with clipping?
int matrix_like_any(const MatrixLayout *layout);
// Those of its settings that change the numbers of one rank, too: "optimizer.kind=lion ".
void matrix_settings_of_one(const MatrixLayout *layout, char *out, size_t size);
// The layout with model m of matrix_models; where 3 ranks divide heads and widths, with
// its twin whose sizes divide by 3.
ParityCase matrix_case(const MatrixLayout *layout, int model, MatrixLeg leg);

// What was run, and the worst of it.
typedef struct MatrixTally {
  int runs, wrong, ranks; // ranks: the most
  double worst[MEASURES],
      share[MEASURES]; // share of the bound, which depends on the layers, sequences and tokens of the case
} MatrixTally;

// Runs a case of the leg against one rank, whose run is kept for later calls (one_rank_forget frees them): 0 within the
// tolerance, 1 not; negative: it did not run.
typedef struct MatrixResult {
  ParityDifference difference;
  ParityTolerance tolerance;
  const char *initial; // a parameter that begins with other bits, or NULL
  int64_t flips;       // tokens that would have gone to other experts than in one rank (routing.h)
} MatrixResult;
int matrix_compare(const ParityCase *c, MatrixLeg leg, MatrixResult *result, Error *error);
// As matrix_compare, but the run ends with the first step that is beyond the tolerance: for cases that are expected to
// fail.
int matrix_differs(const ParityCase *c, MatrixLeg leg, Error *error);
// The case of a narrow leg in fp64, with the leg's other settings.
ParityCase matrix_in_fp64(const ParityCase *c);
// How far `wide`, made by matrix_in_fp64 and then edited, is from one rank run so: the largest share of the bounds of
// `narrow` that a measure takes, and which measure. Both make the choices of experts that one rank makes in the narrow
// leg. Negative: it did not run. For what a narrow leg does not notice.
double matrix_effect(const ParityCase *wide, const ParityCase *narrow, MatrixLeg leg, const char **measure,
                     Error *error);
// matrix_compare for a layout with the model, as matrix_fitted has it. Prints a line; adds to the tally. A layout of
// several features that fails is reduced: features are taken out as long as it fails without them, and what is left is
// printed, with how to run it.
void matrix_run(const MatrixLayout *layout, int model, MatrixLeg leg, MatrixTally *tally);
// PARITY_PART=I/N divides the work among N processes: does number `index` belong to this one?
int matrix_mine(int index);
// The seed of this run: PARITY_SEED, else always the same. Printed. scripts/parity sets it to the date.
uint64_t matrix_seed(void);

// For scripts/parity: with PARITY_RESULTS=FILE every run appends a line to it, as does this; is a line there that
// begins so?
void matrix_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
int matrix_recorded(const char *begin);
void matrix_print_table(void); // features, refused pairs, and what is left out
