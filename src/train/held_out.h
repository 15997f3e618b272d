// Held-out losses: of each data source, and the best of a run, by which a checkpoint is kept and a run ends early.
#pragma once
#include "recipe/recipe.h"
#include "runtime/rank.h"

typedef struct HeldOut {
  double loss, tokens; // a mean over all target tokens, and how many
  int64_t windows, all; // sequences that it was measured on, and that the held-out text has
  int count;           // sources
  const RecipeCorpora *sources;
  double *source_loss, *source_tokens; // (count) NAN where no token of it was predicted; owned
} HeldOut;

// Evaluates on eval.batches batches; collective. The caller frees *result, also after an error.
int held_out_evaluate(Rank *r, const Recipe *recipe, HeldOut *result, Error *error);
void held_out_free(HeldOut *result);
enum { HELD_OUT_NAME = 64 };
// A source's name for people and for metrics, unlike that of the other sources: the last part of its prefix, and where
// several have the same, also its number in the list, from 1.
void held_out_name(const HeldOut *h, int source, char name[HELD_OUT_NAME]);

// The best held-out loss so far. Zeroed: there is none.
typedef struct BestLoss {
  double loss;
  int64_t step;    // 0: none
  int64_t without; // evaluations since then, none of which was better
} BestLoss;

bool best_update(BestLoss *best, int64_t step, double loss); // whether it is the best now
json_t *best_to_json(const BestLoss *best);
BestLoss best_from_json(const json_t *json); // zeroed where there is none
