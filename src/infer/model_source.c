// Tells checkpoints, runs and Hugging Face folders apart, and reads weights from any of them.
#include "infer/model_source.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/huggingface_files.h"
#include "tokenizer/folder_check.h"
#include "model/model.h"
#include "runtime/state_tensors.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int has(const char *folder, const char *name) {
  char *path = xformat("%s/%s", folder, name);
  int exists = file_exists(path);
  free(path);
  return exists;
}

static char *if_exists(char *path) { // takes the string; NULL when there is no such file
  if (path && file_exists(path)) return path;
  free(path);
  return NULL;
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

// A text that a checkpoint's `extra` must hold: config.json or the recipe. The caller frees it.
static char *extra_text(const Checkpoint *checkpoint, const char *key) {
  const json_t *value = json_object_get(checkpoint_extra(checkpoint), key);
  if (json_is_string(value)) return xstrdup(json_string_value(value));
  return json_is_object(value) ? json_dumps(value, JSON_COMPACT) : NULL;
}

static int read_config(ModelSource *s, Error *error) {
  char *text = extra_text(s->checkpoint, "config");
  if (!text)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: checkpoint.json has no \"config\", so it is not of a training run of plait", s->path);
  char *name = xformat("%s/checkpoint.json, key config", s->path);
  int code = model_config_parse(&s->config, text, strlen(text), name, error);
  free(name);
  free(text);
  return code;
}

static int read_recipe(ModelSource *s, Error *error) {
  char *text = extra_text(s->checkpoint, "recipe");
  if (!text) return PLAIT_OK;
  char *name = xformat("%s/checkpoint.json, key recipe", s->path);
  int code = recipe_parse(name, text, strlen(text), s->path, 0, NULL, &s->recipe, error);
  s->has_recipe = !code;
  free(name);
  free(text);
  return code;
}

// The checkpoint, the run, which has a copy of the one that it was trained with, then the recipe's path.
static char *find_tokenizer(const ModelSource *s) {
  char *path = if_exists(xformat("%s/tokenizer.json", s->path));
  if (!path) path = if_exists(xformat("%s/../../tokenizer.json", s->path));
  if (!path && s->has_recipe && s->recipe.data.tokenizer) path = if_exists(xstrdup(s->recipe.data.tokenizer));
  return path;
}

// Reads the text files that the run has kept; a checkpoint of an earlier plait has none.
static void read_text(ModelSource *s) {
  const json_t *extra = checkpoint_extra(s->checkpoint), *end = json_object_get(extra, "document_end");
  const char *init = s->has_recipe && s->recipe.model.init[0] == '/' ? s->recipe.model.init : NULL;
  json_t *files = json_object_get(extra, "huggingface_files");
  s->files = json_is_object(files) ? json_copy(files) : huggingface_files_collect(init, s->tokenizer);
  s->from_huggingface = init || json_object_get(extra, "huggingface_dtypes");
  if (document_marks_get(json_object_get(extra, "documents"), &s->documents)) s->documents_known = DOCUMENTS_RECORDED;
  else if (json_is_integer(end)) {
    s->documents_known = DOCUMENTS_SEEN;
    s->documents.end = (int32_t)json_integer_value(end);
  }
}

static int open_checkpoint(ModelSource *s, Error *error) {
  int code = s->checkpoint ? PLAIT_OK : checkpoint_open(&s->checkpoint, s->path, error);
  if (!code) code = read_config(s, error);
  if (!code) code = read_recipe(s, error);
  if (code) return code;
  s->tokenizer = find_tokenizer(s);
  read_text(s);
  return PLAIT_OK;
}

// 1 when the folder has checkpoints (step-N) in it.
static int holds_checkpoints(const char *folder) {
  DIR *d = opendir(folder);
  int found = 0;
  for (struct dirent *e; d && (e = readdir(d));) found |= !strncmp(e->d_name, "step-", 5);
  if (d) closedir(d);
  return found;
}

static int open_newest(ModelSource *s, const char *folder, Error *error) {
  int64_t step;
  char *warnings = NULL;
  int found = checkpoint_latest_valid(folder, &step, &s->checkpoint, &warnings, error);
  if (warnings) fprintf(stderr, "%s%s", warnings, warnings[0] && warnings[strlen(warnings) - 1] == '\n' ? "" : "\n");
  free(warnings);
  if (found < 0) return found;
  if (!found) return error_set(error, PLAIT_BAD_INPUT, "%s has no valid checkpoint yet", folder);
  free(s->path);
  s->path = xstrdup(checkpoint_path(s->checkpoint));
  return open_checkpoint(s, error);
}

// ---- all kinds -----------------------------------------------------------------------------------------------------

static int open_huggingface(ModelSource *s, Error *error) {
  s->tokenizer = if_exists(xformat("%s/tokenizer.json", s->path));
  s->files = huggingface_files_of_model(s->path);
  s->from_huggingface = 1;
  return model_config_load(&s->config, s->path, error);
}

// Opens a folder that is neither a run nor a checkpoint of plait.
static int open_other(ModelSource *s, Error *error) {
  bool nothing;
  Error why = {0};
  if (!folder_check_any(s->path, true, &nothing, &why)) return open_huggingface(s, error);
  if (!nothing) return error_take(error, &why);
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s is neither a checkpoint (checkpoint.json), nor a run (checkpoints/), nor a Hugging Face folder "
                   "(config.json and model.safetensors)",
                   s->path);
}

static int refuse_file(const char *path, Error *error) {
  const char *words;
  FileKind kind = file_kind(path, &words);
  bool told = kind == FILE_KIND_POINTER || kind == FILE_KIND_PACKED || kind == FILE_KIND_OTHER;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s %s; give the folder of a run (run.dir of its recipe), of a checkpoint, or a Hugging Face folder",
                   path, told ? words : "is a file");
}

int model_source_open(ModelSource *source, const char *path, Error *error) {
  *source = (ModelSource){.path = xstrdup(path), .documents = {.end = -1, .bos = -1}};
  for (size_t n = strlen(path); n > 1 && source->path[n - 1] == '/'; n--) source->path[n - 1] = 0;
  path = source->path;
  int code = folder_check_exists(path, "a run, a checkpoint or a Hugging Face folder", error);
  if (code) return code;
  if (!file_is_folder(path)) return refuse_file(path, error);
  if (has(path, "checkpoint.json")) return open_checkpoint(source, error);
  char *inside = xformat("%s/checkpoints", path);
  if (file_exists(inside)) code = open_newest(source, inside, error);
  else if (holds_checkpoints(path)) code = open_newest(source, path, error);
  else code = open_other(source, error);
  free(inside);
  return code;
}

void model_source_set_tokenizer(ModelSource *s, const char *path) {
  json_t *files = huggingface_files_collect(NULL, path);
  // Files beside an unknown or equal tokenizer belong to this one, too.
  if (!s->tokenizer || huggingface_same_file(path, s->tokenizer)) json_object_update_missing(files, s->files);
  json_decref(s->files);
  s->files = files;
}

void model_source_close(ModelSource *source) {
  json_decref(source->files);
  checkpoint_close(source->checkpoint);
  graph_destroy(source->model);
  if (source->has_recipe) recipe_free(&source->recipe);
  model_config_free(&source->config);
  free(source->path);
  free(source->tokenizer);
  *source = (ModelSource){0};
}

bool model_source_is_bf16(const ModelSource *s) {
  json_t *dtypes = NULL;
  Error ignored = {0};
  if (s->checkpoint || huggingface_dtypes(s->path, &s->config, &dtypes, &ignored)) return false;
  const char *most = json_string_value(json_object_get(dtypes, "*"));
  bool all = json_object_size(dtypes) == 1 && !strcmp(most, dtype_file_name(DTYPE_BF16));
  json_decref(dtypes);
  return all;
}

static int load(const ModelSource *s, const CheckpointTensor *wanted, int count, Error *error) {
  return s->checkpoint ? checkpoint_load(s->checkpoint, wanted, count, 1, error)
                       : huggingface_load(s->path, &s->config, wanted, count, error);
}

// What a model without training has of a checkpoint: counters of such a graph are biases of routers.
static int is_in_checkpoint(const Variable *v) { return variable_is_loaded(v) || v->kind == VARIABLE_COUNTER; }

int model_source_load(const ModelSource *source, State *state, int64_t *bytes, Error *error) {
  CheckpointTensor *wanted;
  int count = state_tensors(state, source->checkpoint ? is_in_checkpoint : variable_is_loaded, &wanted);
  for (int i = 0; bytes && i < count; i++) wanted[i].read = bytes;
  int code = load(source, wanted, count, error);
  free(wanted);
  return code;
}

// A Hugging Face folder must be asked with global shapes: the model's graph knows them.
static int find_shape(ModelSource *s, const char *name, CheckpointTensor *t, Error *error) {
  ModelOutputs outputs;
  int code = PLAIT_OK;
  if (!s->model) {
    s->model = graph_create();
    code = model_build(s->model, &s->config,
                       &(ModelOptions){.batch = 1, .length = {[DIM_SEQ] = 1}, .mode = MODEL_EVALUATE}, &outputs, error);
  }
  int v = code ? -1 : graph_find_variable(s->model, name);
  if (code || v < 0) return code ? code : error_set(error, PLAIT_FAILED, "the model has no parameter %s", name);
  const Shape *shape = &s->model->variable.data[v].shape;
  for (int d = 0; d < shape->rank; d++) t->global[d] = shape->size[d];
  t->rank = shape->rank;
  return PLAIT_OK;
}

int model_source_read(ModelSource *source, const char *name, const Box *part, float *out, Error *error) {
  CheckpointTensor t = {.name = name, .dtype = DTYPE_F32, .data = out};
  int code = find_shape(source, name, &t, error);
  if (!code && (part->rank != t.rank || !box_inside(part, t.global)))
    code = error_set(error, PLAIT_FAILED, "the part of %s that is asked for is not in it", name);
  if (code) return code;
  memcpy(t.offset, part->offset, sizeof t.offset);
  memcpy(t.local, part->local, sizeof t.local);
  return load(source, &t, 1, error);
}
