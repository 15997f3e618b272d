// plait recipe: checks a recipe and prints the effective one; --docs prints docs/recipes.md.
#include "cmd/cmd.h"
#include "cli/options.h"
#include "setup/setup.h"
#include <limits.h>
#include <stdlib.h>

// The first checks of a run: plait has the model, and the corpora open.
static int check_contents(const Recipe *recipe, Error *error) {
  ModelConfig config = {0};
  char *note = NULL, *tokenizer = NULL;
  int code = setup_model_config(recipe, &config, error);
  if (!code) code = setup_check_tokenizer(recipe, &config, true, &tokenizer, error);
  if (!code) code = setup_check_data(recipe, &config, &note, NULL, error);
  if (!code) setup_note_model(recipe, &config, stderr);
  if (!code && note) fputs(note, stderr);
  if (!code && tokenizer) fputs(tokenizer, stderr);
  free(tokenizer);
  free(note);
  note = NULL;
  if (!code) code = setup_check_documents(recipe, &note, error);
  if (!code) fputs(note, stderr);
  free(note);
  model_config_free(&config);
  return code;
}

int cmd_recipe(int argc, char **argv) {
  bool docs = false;
  const Option options[] = {
      {.name = "docs", .value = &docs, .help = "print the reference of all keys, docs/recipes.md"}};
  const CommandHelp help = {
      "recipe", "[options] [RECIPE [key=value …]]",
      "Checks a recipe and prints it as a run would use it: every default filled in, all paths absolute. Then it opens "
      "the files that the recipe names; the exit status is 2 if one is missing or cannot be used. plait-recipe(5) and "
      "docs/recipes.md explain the keys.",
      "  plait recipe recipes/demo.yaml\n"
      "  plait recipe recipes/demo.yaml mesh.dp=4 batch.micro=2\n"
      "  plait recipe --docs > docs/recipes.md\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  if (docs && operands.count == 0) return recipe_print_docs(stdout), 0;
  if (docs || operands.count == 0)
    return error_set(&error, PLAIT_BAD_INPUT, "give either a recipe or --docs"), command_fail("recipe", &error);
  Recipe recipe;
  int code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  int missing = code ? 0 : setup_check_files(&recipe, &error); // a recipe may be written before its files
  if (!code && !missing) code = check_contents(&recipe, &error);
  if (!code) {
    fflush(stdout); // notes come after what was printed, where both go to one file
    if (recipe.notes) fputs(recipe.notes, stderr);
    if (recipe.precision_is_auto)
      fprintf(stderr, "note: %sprecision: auto is %s on this machine\n", recipe_where(&recipe, "precision"),
              dtype_name((Dtype)recipe.precision));
    recipe_print(&recipe, stdout);
    fflush(stdout);
    code = missing;
  }
  recipe_free(&recipe);
  return code ? command_fail("recipe", &error) : 0;
}
