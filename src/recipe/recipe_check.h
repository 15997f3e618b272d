// Checks of a recipe across its keys; the last step of loading one.
#pragma once
#include "recipe/recipe.h"

// Fills what depends on several keys and checks them together; `defaults` is a recipe of which no key was given.
// Adds the line "note: PLACE OF THE KEY: …" to recipe->notes.
__attribute__((format(printf, 3, 4))) void recipe_note(Recipe *r, const char *path, const char *format, ...);
// Refuses (PLAIT_BAD_INPUT, one sentence with the place) what contradicts itself, and puts into recipe->notes a line
// for each value that does nothing.
// Where mesh.dp is auto and the ranks are not known, what depends on the mesh is left to recipe_check_ranks.
int recipe_check(Recipe *recipe, const Recipe *defaults, Error *error);
int recipe_check_keys(Recipe *recipe, const Recipe *defaults, Error *error); // of one whose facts are settled
int recipe_check_ranks(Recipe *recipe, const Recipe *defaults, Error *error); // when recipe->ranks is known

// Parts of recipe_check: what `auto` is, of precision on this machine, and of mesh.dp before the ranks are known.
int recipe_settle_precision(Recipe *recipe, Error *error);
int recipe_settle_data_ranks(Recipe *recipe, Error *error);
