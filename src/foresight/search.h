// The search for the fastest plans of a recipe on a cluster: best first, over lower bounds.
//
// Every plan of the space (search_space.h) goes through four stages, and the one with the least number is the next, but
// for kinds of plans whose estimates were far from their bounds, which wait: a bound by arithmetic, a bound by the
// times of layers, an estimate from few layers, and the prediction of the whole plan by the real passes. Only
// predictions are results. A plan that does not fit leaves at the first stage that says so. The search ends when `top`
// plans are predicted and no bound or estimate is below the last of them. Of plans that are the same Programs under
// other words the first that is found is a result; the neighbours of all of them are looked at.
#pragma once
#include "foresight/predict.h"
#include "foresight/search_nearest.h"
#include "foresight/search_space.h"

typedef struct SearchOptions {
  const Cluster *cluster;
  int ranks;
  int top;
  double room;     // bytes of memory that a rank may use; 0: what the cluster's device has
  bool exhaustive; // compiles every plan whole
  bool limits;     // finds out what limits each plan
  FILE *progress;  // where a search of more than two seconds says how far it is; NULL: nowhere
} SearchOptions;

// keys: what the plan changes of the recipe, for recipe_variant; "": nothing. limit: the resource of which a tenth more
// would shorten the step the most; resource "": not asked, or nothing does.
typedef struct SearchPlan {
  char *keys;
  double seconds, tokens_per_s, mfu, bytes;
  Limit limit;
} SearchPlan;

typedef struct SearchCount {
  int64_t judged;      // combinations that the judge was asked about
  int64_t plans;       // that it allowed
  int64_t too_large;   // that cannot fit, by a bound or an estimate
  int64_t bounded;     // by the times of layers
  int64_t layers;      // times of layers that were found for that
  int64_t estimated;   // from few layers
  int64_t compiled;    // whole
  int64_t left;        // that might be faster and were not looked at, because of the search's limit
  double seconds;      // of processor time
} SearchCount;

typedef struct SearchNearest { // what needs the least memory where nothing fits
  bool found;
  SearchPlan plan;
  Nearest by;
} SearchNearest;

typedef struct Search {
  SearchPlan *plan; // (plans) the fastest first
  int plans;
  double room;
  SearchCount count;
  SearchNearest nearest; // found: nothing fits
} Search;

// config: of the recipe's model. PLAIT_INFEASIBLE: nothing fits, or the judge allows nothing; the sentence says what
// is nearest, and *out is filled. PLAIT_BAD_INPUT: as space_create and predict. search_free in any case.
int search_plans(const Recipe *recipe, const ModelConfig *config, const SearchOptions *options, Search *out,
                 Error *error);
void search_free(Search *search);

// Whether two plans have the same Programs under other words: their predictions are equal to the last bit.
bool search_twins(const SearchPlan *a, const SearchPlan *b);

// A sentence where the search has come to its most and left plans out; else NULL. The caller frees it.
char *search_left(const SearchCount *count);
