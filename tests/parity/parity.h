// Parity: runs a tiny model under a layout and records what one rank would have to reproduce.
#pragma once
#include "routing.h"
#include "recipe/recipe.h"
#include "runtime/session.h"

enum { PARITY_MAX_STEPS = 24, PARITY_GRADIENTS = 3 };

// What is gathered: parameters before the first step, gradients of the first steps, and the whole state at the end.
typedef enum ParityDump {
  DUMP_INITIAL,
  DUMP_GRADIENT,
  DUMP_FINAL = DUMP_GRADIENT + PARITY_GRADIENTS,
  DUMP_COUNT
} ParityDump;

typedef struct ParityResult ParityResult;
typedef struct ParityCase {
  const char *name;
  const char *model;    // "gpt", "gpt untied", "llama" or "llama tied"
  int pp, dp, tp, zero, micro;
  int cp;               // 0: 1
  RecomputeMode recompute;
  int sequence;
  const char *schedule; // NULL: 1f1b, for pp 1 and more
  Dtype precision;
  int steps;
  int reference;        // reference kernels instead of the fast ones
  int threads;          // of each rank; 0: 1
  int helpers;          // threads of others that may help a rank; a further thread does so all the time. 0: none
  int global;           // sequences of a step; 0: 16
  int seq, layers;      // tokens of a sample, layers of the model; 0: PARITY_SEQ, 4
  const char *settings, *more_settings; // further keys of the recipe, "parallel.shard_group=2 …"; they take precedence
  int bucket_bytes;     // 0: 4000
  Encoding moments;     // PLAIN: as the settings say
  void (*config)(ModelConfig *config); // changes the model before it is compiled; may be NULL
  const Device *device; // NULL: as `reference` says
  void (*edit)(Job *job, void *context); // changes what was compiled before ranks load it; may be NULL
  const Job *(*job_of)(const Job *job, int rank, void *context); // what one rank loads; NULL: all load the same
  void (*loaded)(Rank *r, void *context);                        // on every rank, before its first step; may be NULL
  void (*before_step)(Rank *r, int step, void *context);         // on every rank; may be NULL
  void *context;
  // Asked on rank 0 after each of the first PARITY_GRADIENTS steps (0 …); not 0: the run ends there, without an
  // evaluation. May be NULL.
  int (*enough)(const ParityResult *so_far, int step, void *judge);
  void *judge;
  int records;          // the choices of experts, in the result
  const Routing *follows; // the choices of experts are these, and flips are counted; may be NULL
  int poison;           // in this step (1 …) rank 0's first parameter is infinite, so that all must skip; 0: never
} ParityCase;

typedef struct NamedTensor {
  char *name;
  int64_t elements;
  double *data;
} NamedTensor; // an element that no rank holds is NaN
struct ParityResult {
  int steps;
  double loss[PARITY_MAX_STEPS], norm[PARITY_MAX_STEPS], tokens[PARITY_MAX_STEPS];
  double router_loss[PARITY_MAX_STEPS][2]; // balance and z, of a model whose graph has them
  double router_load[PARITY_MAX_STEPS];    // a sum over layers and experts of choices, each times another number
  int skipped[PARITY_MAX_STEPS];
  char non_finite[512];   // of the last skipped step: where it began
  double eval_loss, eval_tokens;
  Routing *routing;       // with `records`
  RoutingFlips flips;     // with `follows`
  char flip[512];         // the widest, in words
  int64_t helped;         // units of work that the further thread did
  int most_in_flight[MAX_STAGES], slots[MAX_STAGES]; // microbatches of a stage: of all its ranks, and as planned
  int tensors[DUMP_COUNT];
  NamedTensor *tensor[DUMP_COUNT];
};

// Runs the case on thread ranks. `corpus` is a prefix (see corpora.h). The result is freed by parity_free; after an
// error (of the recipe, the layout or the first rank that failed) it is empty.
int parity_run(const ParityCase *c, const char *corpus, ParityResult *result, Error *error);
void parity_free(ParityResult *result);
// The case as a recipe, which the caller frees; and its model's config.
int parity_recipe(const ParityCase *c, Recipe *recipe, Error *error);
int parity_config(const ParityCase *c, ModelConfig *config, Error *error);
// The case compiled, which nothing runs. The caller destroys the job.
int parity_job(const ParityCase *c, Job **job, Error *error);

// Steps to run: `full`, fewer under a sanitizer; environment PARITY_STEPS takes precedence (for scripts/mutants).
int parity_steps(int full);
// Environment PARITY_ONLY runs the cases whose name contains it, for work on one of them. (Of the matrix, see
// matrix.h.)
int parity_wanted(const ParityCase *c);
