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

// Its precision and loss scale, as keys; the caller frees them.
static char *keys_of(const Recipe *recipe) {
  const char *name = dtype_name((Dtype)recipe->precision);
  if (recipe->precision != DTYPE_F16) return xformat("precision=%s", name); // others have none
  return xformat("precision=%s loss_scale.initial=%.17g loss_scale.growth_interval=%lld", name,
                 recipe->loss_scale.initial, (long long)recipe->loss_scale.growth_interval);
}

// Those of the run that is there already, or NULL.
static char *keys_of_run(const Recipe *recipe, bool force) {
  Recipe before = {0};
  bool found = recipe->precision_is_auto && FAULT(auto_forgets_the_run, find_before(recipe, force, &before), false);
  char *keys = found ? keys_of(&before) : NULL;
  recipe_free(&before);
  return keys;
}

int precision_of_run(const Recipe *asked, Recipe *recipe, bool *kept, Error *error) {
  char *keys = keys_of_run(asked, false);
  *kept = keys != NULL;
  int code = recipe_variant(asked, keys ? keys : "", recipe, error);
  free(keys);
  return code;
}

// Of an auto that rank 0 has resolved for all.
static int describe(const Recipe *recipe, bool kept, char *text, size_t size) {
  const char *name = dtype_name((Dtype)recipe->precision);
  if (kept) return snprintf(text, size, "precision: auto is %s here, as in the run so far\n", name);
  if (recipe->precision == DTYPE_F32)
    return snprintf(text, size, "precision: auto is fp32 in this run: this machine does not compute bf16 faster\n");
  return snprintf(text, size, "precision: auto is %s in this run: this machine computes it fast\n", name);
}

int precision_resolve(const Recipe *asked, const Launch *launch, bool force, Recipe *recipe, char *text, size_t size,
                      Error *error) {
  *text = 0;
  if (!asked->precision_is_auto) return recipe_variant(asked, "", recipe, error);
  char *own = !launch || !launch->rank ? keys_of_run(asked, force) : NULL, *machine = keys_of(asked),
       *told = xformat("%c%s", own ? '+' : '-', own ? own : machine);
  int code = launch_tell(launch, &told, error);
  if (!code && !strcmp(told + 1, "precision=fp64") && asked->parallel.grad_dtype == DTYPE_BF16)
    code = error_set(error, PLAIT_BAD_INPUT,
                     "%sparallel.grad_dtype is bf16, but the run that precision: auto resumes is in fp64; leave it out",
                     recipe_where(asked, "parallel.grad_dtype"));
  if (!code) code = recipe_variant(asked, told + 1, recipe, error);
  if (!code) describe(recipe, *told == '+', text, size);
  free(own);
  free(machine);
  free(told);
  return code;
}
