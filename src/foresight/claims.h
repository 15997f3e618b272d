// Widely told claims about distributed training, recomputed by compiling recipes and replaying schedules:
// docs/claims.md.
//
// The claims are a table, foresight/claims.def. The numbers that are told are data there; plait's are counted when they
// are asked for, from the same recipes and keys that the claim's command names, and the verdict follows from them.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

enum { CLAIM_RUNS = 6, CLAIM_NUMBERS = 4 };

// A recipe of a claim, compiled.
typedef struct ClaimRun {
  char *words; // "recipes/claims.yaml mesh.dp=64": the recipe, and keys
  Recipe recipe;
  ModelConfig config;
  Job *job;
} ClaimRun;

// A number of one run, in the claim's unit.
typedef int ClaimMeasure(const ClaimRun *run, double *number, Error *error);
// The numbers of a claim from its runs, where they are not one measure of each.
typedef int ClaimCount(const ClaimRun *const *runs, double *numbers, Error *error);

typedef enum ClaimRelation {
  CLAIM_EQUAL, // plait's number is the claimed one, within Claim.within of it
  CLAIM_BELOW, // plait's is less, by more than that
  CLAIM_ABOVE,
} ClaimRelation;

typedef enum ClaimVerdict {
  CLAIM_CONFIRMED,
  CLAIM_CORRECTED,
} ClaimVerdict;

typedef struct Claim {
  const char *id;    // "states-65b"
  const char *topic; // heading in docs/claims.md
  const char *says;  // what is told, in a sentence
  const char *unit;  // of the numbers: "GB"; "": none
  int numbers;
  double claimed[CLAIM_NUMBERS];
  ClaimRelation relation;
  double within; // relative: how far a number may be off that was told with few digits, for a model of about a size
  const char *common; // recipe and keys of all runs
  const char *runs[CLAIM_RUNS]; // further keys of each; NULL ends them
  ClaimMeasure *measure;        // one number of each run
  int over_first;               // the numbers are those of the runs after the first, divided by that of the first
  ClaimCount *count;            // instead
  const char *tool;             // the command that shows it, after "plait "; NULL: "plan"
  const char *after;            // and what follows its words: " | grep …"; NULL: nothing
  const char *why;              // a sentence that holds whatever the verdict: where plait's number comes from
} Claim;

extern const Claim claims[];
extern const int claim_count;

// Compiled recipes, each once. `folder` has recipes/ and models/: the repository, or what `make install` makes.
typedef struct Claims Claims;
Claims *claims_open(const char *folder);
void claims_close(Claims *compiled); // NULL is fine

// Writes claim->numbers numbers. PLAIT_BAD_INPUT or PLAIT_INFEASIBLE, with the claim's id in the sentence, where one of
// its recipes cannot be compiled.
int claims_count(Claims *compiled, const Claim *claim, double numbers[CLAIM_NUMBERS], Error *error);
ClaimVerdict claim_verdict(const Claim *claim, const double numbers[CLAIM_NUMBERS]);
const char *claim_verdict_text(ClaimVerdict verdict); // "confirmed"

// The command that shows it, a line of sh: "plait plan recipes/claims.yaml mesh.dp=64". The caller frees it.
char *claim_command(const Claim *claim);
// Numbers as they are printed: "1,040 · 272 GB". `prefix` is of each: "< ". The caller frees it.
char *claim_numbers_text(const Claim *claim, const double numbers[CLAIM_NUMBERS], const char *prefix);
char *claim_claimed_text(const Claim *claim); // the claimed ones, with what relation says
