// Recipes: the text, and after a NUL an override. What loads, prints as a recipe that loads as the same.
#include "fuzz.h"
#include "recipe/recipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
  size_t text_size = nul ? (size_t)(nul - data) : size, rest = nul ? size - text_size - 1 : 0;
  char *override = xcalloc(rest + 1, 1), *text = malloc(text_size + 1);
  if (rest) memcpy(override, nul + 1, rest);
  if (text_size) memcpy(text, data, text_size);
  Recipe recipe, again;
  Error error = {0};
  int code = recipe_parse("r.yaml", text, text_size, "/folder", nul != NULL, &override, &recipe, &error);
  fuzz_check(code, &error);
  if (!code) {
    char *printed = NULL;
    size_t printed_size = 0;
    FILE *f = open_memstream(&printed, &printed_size);
    CHECK(f);
    recipe_print(&recipe, f);
    fclose(f);
    code = recipe_parse("printed.yaml", printed, printed_size, "/elsewhere", 0, NULL, &again, &error);
    CHECK(!code && recipe_equal(&recipe, &again), "not the same when printed: %s", error.message);
    recipe_free(&again);
    free(printed);
  }
  recipe_free(&recipe);
  free(text);
  free(override);
  return 0;
}
