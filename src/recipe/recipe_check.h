// Checks of a recipe across its keys; the last step of loading one.
#pragma once
#include "recipe/recipe.h"

// Fills what depends on several keys and checks them together; `defaults` is a recipe of which no key was given.
// Refuses (PLAIT_BAD_INPUT, one sentence with the place) what contradicts itself, and puts into recipe->notes a line
// for each value that does nothing.
int recipe_check(Recipe *recipe, const Recipe *defaults, Error *error);
