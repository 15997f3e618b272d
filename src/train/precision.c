// Where a run's precision comes from when its recipe says auto.
#include "train/precision.h"
#include "base/fault.h"
#include "base/file.h"
#include "setup/setup.h"
#include "train/resume.h"
#include <stdlib.h>
#include <string.h>

static int from_checkpoint(const Recipe *recipe, bool force, Recipe *before) {
  char *checkpoints = xformat("%s/checkpoints", recipe->run.dir);
  ResumeFrom from;
  Error ignored = {0};
  int code = resume_find(recipe, checkpoints, force, RESUME_PEEK, &from, &ignored);
  const char *text =
      !code && from.checkpoint ? json_string_value(json_object_get(checkpoint_extra(from.checkpoint), "recipe")) : NULL;
  int found = text && !recipe_parse("recipe", text, strlen(text), "/", 0, NULL, before, &ignored);
  resume_free(&from);
  free(checkpoints);
  return found;
}

// The recipe of the checkpoint that the run will start from, or else the one in run.dir. 0: neither can be read.
static int find_before(const Recipe *recipe, bool force, Recipe *before) {
  Error ignored = {0};
  if (!strcmp(recipe->checkpoint.resume, "never")) return 0;
  if (from_checkpoint(recipe, force, before)) return 1;
  char *path = xformat("%s/recipe.yaml", recipe->run.dir);
  int found = file_exists(path) && !recipe_load(path, 0, NULL, before, &ignored);
  free(path);
  return found;
}

static void take(Recipe *recipe, const Recipe *from) {
  recipe->precision = from->precision;
  recipe->loss_scale.initial = from->loss_scale.initial;
  recipe->loss_scale.growth_interval = from->loss_scale.growth_interval;
}

// Rank 0's answer for the others: dtype, loss scale, whether it is the run's.
static int tell(Recipe *recipe, const Launch *launch, int *kept, Error *error) {
  char *text = xformat("%d %.17g %lld %d", recipe->precision, recipe->loss_scale.initial,
                       (long long)recipe->loss_scale.growth_interval, *kept);
  int code = launch_tell(launch, &text, error);
  long long interval;
  if (!code && sscanf(text, "%d %lg %lld %d", &recipe->precision, &recipe->loss_scale.initial, &interval, kept) == 4)
    recipe->loss_scale.growth_interval = interval;
  free(text);
  return code;
}

bool precision_of_run(Recipe *recipe, bool force) {
  Recipe before = {0};
  bool kept = recipe->precision_is_auto && find_before(recipe, force, &before);
  if (FAULT(auto_forgets_the_run, kept, false)) take(recipe, &before);
  recipe_free(&before);
  return kept;
}

int precision_resolve(Recipe *recipe, const Launch *launch, bool force, char *text, size_t size, Error *error) {
  int kept = 0;
  *text = 0;
  if (!recipe->precision_is_auto) return PLAIT_OK;
  if (!launch || !launch->rank) kept = precision_of_run(recipe, force);
  int code = tell(recipe, launch, &kept, error);
  if (code) return code;
  const char *name = dtype_name((Dtype)recipe->precision);
  if (recipe->precision == DTYPE_F64 && recipe->parallel.grad_dtype == DTYPE_BF16)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%sparallel.grad_dtype is bf16, but the run that precision: auto resumes is in fp64; leave it out",
                     recipe_where(recipe, "parallel.grad_dtype"));
  if (kept) snprintf(text, size, "precision: auto is %s here, as in the run so far\n", name);
  else if (recipe->precision == DTYPE_F32)
    snprintf(text, size, "precision: auto is fp32 in this run: this machine does not compute bf16 faster\n");
  else snprintf(text, size, "precision: auto is %s in this run: this machine computes it fast\n", name);
  return PLAIT_OK;
}
