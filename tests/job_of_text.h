// A job of a recipe and a model that a test has as texts. For tests of what jobs are compiled to.
#pragma once
#include "model/config.h"
#include "setup/setup.h"
#include <stdlib.h>
#include <string.h>

enum { JOB_MOST_KEYS = 16 };

// keys: "mesh.tp=2 precision=bf16", fewer than JOB_MOST_KEYS. The caller destroys *job.
static inline int job_of_text(const char *recipe_text, const char *model, const char *keys, ModelMode mode, Job **job,
                              Error *error) {
  char *text = xstrdup(recipe_text), *words = xstrdup(keys), *rest = words, *key[JOB_MOST_KEYS];
  int count = 0;
  while ((key[count] = strtok_r(rest, " ", &rest))) count++;
  Recipe recipe = {0};
  ModelConfig config = {0};
  int code = recipe_parse("test", text, strlen(text), "/", count, key, &recipe, error);
  if (!code) code = model_config_parse(&config, model, strlen(model), "model", error);
  if (!code) code = setup_job(&recipe, &config, &(RunSetting){.mode = mode, .threads = 1}, job, error);
  recipe_free(&recipe);
  model_config_free(&config);
  free(words);
  free(text);
  return code;
}
