// The public interface for recipes (include/plait/plait.h) over the training loop.
#include "plait/plait.h"
#include "train/train.h"
#include "train/plan_print.h"
#include <errno.h>
#include <string.h>

const char *plait_version(void) { return PLAIT_VERSION; }

// What is done with a recipe that was loaded. Prints to `out`.
typedef int (*Use)(const Recipe *recipe, FILE *out, Error *error);

static int plan(const Recipe *recipe, FILE *out, Error *error) { return plan_print(recipe, false, out, error); }

static int print(const Recipe *recipe, FILE *out, Error *error) { return recipe_print(recipe, out), PLAIT_OK; }

static int use_recipe(Use use, const char *path, int count, const char *const *overrides, FILE *out, Error *error) {
  FILE *nowhere = out ? NULL : fopen("/dev/null", "we");
  if (!out && !nowhere) return error_set(error, PLAIT_FAILED, "/dev/null: cannot be opened: %s", strerror(errno));
  Error unread = {0};
  if (!error) error = &unread;
  Recipe recipe;
  int code = recipe_load(path, count, (char **)overrides, &recipe, error); // reads them only
  if (!code) code = use(&recipe, out ? out : nowhere, error);
  recipe_free(&recipe);
  if (nowhere) fclose(nowhere);
  return code;
}

int plait_train(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(train_run, recipe, override_count, overrides, out, error);
}

int plait_plan(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(plan, recipe, override_count, overrides, out, error);
}

int plait_recipe(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error) {
  return use_recipe(print, recipe, override_count, overrides, out, error);
}
