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

// Writes the variant of a recipe with a plan's keys, whole or not at all. by: the command that found it, for a comment
// at the top.
int plan_write(const Recipe *recipe, const char *keys, const char *by, const char *path, Error *error);
// The keys of a plan that differ from the recipe, as a JSON object of texts.
struct json_t *plan_settings_json(const Recipe *recipe, const char *keys);
