// Saving and loading the State of all ranks.
#include "train/save.h"
#include "recipe/recipe_keys.h"
#include "runtime/state_tensors.h"
#include "train/run_folder.h"
#include <stdio.h>
#include <string.h>

int save_extra_create(const Recipe *recipe, const ModelConfig *config, SaveExtra *out, Error *error) {
  *out = (SaveExtra){0};
  size_t size;
  FILE *f = open_memstream(&out->recipe, &size);
  CHECK(f);
  recipe_print(recipe, f);
  fclose(f);
  char *json = json_dumps(config->json, JSON_INDENT(2));
  CHECK(json);
  out->config = json;
  return PLAIT_OK;
}

void save_extra_free(SaveExtra *extra) {
  free(extra->recipe);
  free(extra->config);
  json_decref(extra->dtypes);
  json_decref(extra->facts);
  json_decref(extra->began_at);
  json_decref(extra->text);
  *extra = (SaveExtra){0};
}

json_t *save_extra_json(const SaveExtra *e) {
  json_t *o = json_pack("{s:I, s:f, s:s, s:s}", "step", (json_int_t)e->step, "tokens", e->tokens, "recipe", e->recipe,
                        "config", e->config);
  CHECK(o);
  if (e->dtypes) json_object_set(o, "huggingface_dtypes", e->dtypes);
  if (e->best.step || e->best.without) json_object_set_new(o, "best", best_to_json(&e->best));
  if (e->facts) json_object_set(o, "facts", e->facts);
  if (e->began_at) json_object_set(o, "began_at", e->began_at);
  if (e->text) json_object_update(o, e->text);
  return o;
}

// run_folder_fence of the run whose checkpoints lie in dir.
static int folder_fence(const char *dir, Error *error) {
  char *folder = xstrdup(dir), *inner = strrchr(folder, '/'); // not DIR/..: the first time there is no DIR yet
  if (inner) *inner = 0;
  int code = run_folder_fence(folder, error);
  free(folder);
  return code;
}

// A later round that takes run.dir over removes what it finds half written. A failure after that is reported as the
// takeover.
static int tell_of_fence(const char *dir, int code, Error *error) {
  Error fenced = {0};
  int later = code ? folder_fence(dir, &fenced) : PLAIT_OK;
  if (later) *error = fenced;
  return later ? later : code;
}

int save_begin(const char *dir, int64_t step, Error *error) {
  int code = folder_fence(dir, error);
  return code ? code : tell_of_fence(dir, checkpoint_begin(dir, step, error), error);
}

int save_part(const char *dir, int64_t step, int rank, const CheckpointTensor *tensors, int count, Error *error) {
  int code = folder_fence(dir, error);
  return code ? code : tell_of_fence(dir, checkpoint_write_part(dir, step, rank, tensors, count, error), error);
}

int save_commit(const SaveCommit *c, Error *error) {
  int code = folder_fence(c->dir, error);
  if (code) return code;
  code = checkpoint_finish(c->dir, c->step, c->parts, c->extra, error);
  if (!code && c->is_best) code = checkpoint_mark_best(c->dir, c->step, error);
  if (!code) code = checkpoint_prune(c->dir, c->step, c->keep, error);
  return tell_of_fence(c->dir, code, error);
}

int save_checkpoint(Rank *r, const char *dir, const SaveExtra *extra, int keep, Error *error) {
  int code = r->rank == 0 ? save_begin(dir, extra->step, error) : PLAIT_OK;
  if (!code) code = rank_barrier(r, error);
  if (code) return code;
  CheckpointTensor *tensors;
  int count = state_tensors(r->state, variable_is_saved, &tensors);
  code = save_part(dir, extra->step, r->rank, tensors, count, error);
  free(tensors);
  if (!code) code = rank_barrier(r, error);
  if (r->rank != 0) return code ? code : rank_barrier(r, error);
  if (!code) {
    json_t *object = save_extra_json(extra);
    SaveCommit commit = {dir, extra->step, r->job->options.parallel.mesh.ranks, keep, extra->is_best, object};
    code = save_commit(&commit, error);
    json_decref(object);
  }
  return code ? code : rank_barrier(r, error);
}

int save_compare(const Job *job, Checkpoint *checkpoint, Error *error) {
  const Graph *g = job_train(job)->graph;
  const char **names = xcalloc((size_t)g->variable.count, sizeof *names);
  CheckpointTensor *wanted = xcalloc((size_t)g->variable.count, sizeof *wanted);
  double scalar; // of rank 0, the only ones that are read: all other pieces are empty
  int n = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!variable_is_saved(v)) continue;
    wanted[n] = (CheckpointTensor){.name = v->name, .dtype = variable_dtype(v), .rank = v->shape.rank, .data = &scalar};
    memcpy(wanted[n].global, v->shape.size, sizeof *v->shape.size * (size_t)v->shape.rank);
    names[n++] = v->name;
  }
  int code = checkpoint_compare_names(checkpoint, names, n, NULL, NULL, error);
  if (!code) code = checkpoint_load(checkpoint, wanted, n, 1, error);
  free(names);
  free(wanted);
  return code;
}

int save_explain(const Recipe *recipe, Checkpoint *checkpoint, Error *error) {
  static const char *const keys[] = {"model.config", "optimizer.name", "optimizer.momentum", "optimizer.delay",
                                     "precision"};
  const char *text = json_string_value(json_object_get(checkpoint_extra(checkpoint), "recipe"));
  char list[256] = "";
  Recipe before;
  Error ignored = {0};
  if (recipe->checkpoint.resume[0] == '/')
    error_append(error, "; to resume from it, take the model and optimizer of its run, or else leave out "
                        "checkpoint.resume");
  else
    error_append(error, "; to train this model, choose another run.dir; to resume the run, take its own recipe: "
                        "plait train %s/recipe.yaml", recipe->run.dir);
  if (!text || recipe_parse("recipe", text, strlen(text), "/", 0, NULL, &before, &ignored)) return error->code;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char *a = recipe_value_text(&before, keys[i]), *b = recipe_value_text(recipe, keys[i]);
    size_t n = strlen(list);
    if (strcmp(a, b)) snprintf(list + n, sizeof list - n, "%s%s was %s and is %s", n ? ", " : "", keys[i], a, b);
    free(a);
    free(b);
  }
  recipe_free(&before);
  return *list ? error_prefix(error, "%s in this run", list) : error->code;
}

int save_load(Rank *r, Checkpoint *checkpoint, Error *error) {
  CheckpointTensor *tensors;
  int count = state_tensors(r->state, variable_is_saved, &tensors);
  state_before_loading(r->state);
  int code = checkpoint_load(checkpoint, tensors, count, 1, error);
  free(tensors);
  return code;
}
