// The memory and time of a recipe, as text: memory of each rank by category, and FLOPs.
#pragma once
#include "runtime/job.h"
#include "recipe/recipe.h"

// Compiles the recipe and prints its plan to `out`, memory in whole bytes when `exact`. Allocates no memory of ranks
// and reads no data: the corpus need not exist. Returns PLAIT_OK or what setup_check_tokenizer and setup_job refuse;
// nothing is printed then.
int plan_print(const Recipe *recipe, bool exact, FILE *out, Error *error);

// Bytes of all ranks together by this plan.
int64_t plan_all_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job);
// Of the rank that takes the most.
int64_t plan_most_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job);
