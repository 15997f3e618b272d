// plait plan --search: its options and what it prints.
#pragma once
#include "recipe/recipe.h"

typedef struct SearchAsked {
  const char *cluster, *ranks, *memory, *write;
  int64_t top;
  bool exhaustive, json;
} SearchAsked;

// Searches and prints plans, the fastest first; with a range of ranks the front of time against device-hours.
int plan_search(const Recipe *recipe, const SearchAsked *asked, Error *error);
