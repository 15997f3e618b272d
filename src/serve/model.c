// The model's name, and sampling as generation_config.json has it.
#include "serve/model.h"
#include "checkpoint/huggingface_files.h"
#include <string.h>

int served_model_check(const ServedModel *m, const char *name, Refusal *f) {
  if (!strcmp(name, m->name)) return 0;
  return refusal_set(f, 404, "model_not_found", "model", "the model %.100s is not served here; this is %.200s", name,
                     m->name);
}

static void take_number(const json_t *file, const char *key, double least, double most, double *value) {
  const json_t *v = json_object_get(file, key);
  double number = json_number_value(v);
  if (json_is_number(v) && number >= least && number <= most) *value = number;
}

int served_model_usual(const ModelSource *source, SampleOptions *usual, Error *error) {
  json_t *file = NULL;
  double top_k = 0;
  *usual = (SampleOptions){.temperature = 1, .top_p = 1, .repetition = 1};
  int code = huggingface_files_parse(source->files, "generation_config.json", &file, error);
  if (code) return error_prefix(error, "%s", source->path);
  take_number(file, "temperature", 0, 100, &usual->temperature);
  take_number(file, "top_p", 1e-9, 1, &usual->top_p);
  take_number(file, "min_p", 0, 1, &usual->min_p);
  take_number(file, "repetition_penalty", 0.01, 100, &usual->repetition);
  take_number(file, "top_k", 0, 1e9, &top_k);
  usual->top_k = (int64_t)top_k;
  if (json_is_false(json_object_get(file, "do_sample"))) usual->temperature = 0;
  json_decref(file);
  return PLAIT_OK;
}
