// The choice of the checkpoint that a run starts from. See resume.h.
#include "train/resume.h"
#include "base/fault.h"
#include "base/file.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

// Paths ---------------------------------------------------------------------------------------------------------------

// Without links, so that RUN/checkpoints/best is the checkpoint that it names now. The caller frees it.
static char *resolve(const char *path) {
  char *real = realpath(path, NULL);
  return real ? real : xstrdup(path);
}

bool resume_lies_in(const char *path, const char *folder) {
  char *inner = resolve(path), *outer = resolve(folder);
  size_t n = strlen(outer);
  bool inside = !strncmp(inner, outer, n) && inner[n] == '/';
  free(inner);
  free(outer);
  return inside;
}

// A run's folder is easily named instead of one of its checkpoints.
static int check_checkpoint(const char *path, Error *error) {
  char *file = xformat("%s/checkpoint.json", path), *inside = xformat("%s/checkpoints", path);
  int code = PLAIT_OK;
  if (!file_exists(path)) code = error_set(error, PLAIT_BAD_INPUT, "%s does not exist", path);
  else if (!file_exists(file) && file_exists(inside))
    code = error_set(error, PLAIT_BAD_INPUT, "%s is a run and not a checkpoint; take one of %s", path, inside);
  else if (!file_exists(file))
    code = error_set(error, PLAIT_BAD_INPUT,
                     "%s is not a checkpoint: expected a folder with checkpoint.json, such as RUN/checkpoints/step-100",
                     path);
  free(file);
  free(inside);
  return code;
}

static const char *where(const Recipe *recipe) { return recipe_where(recipe, "checkpoint.resume"); }

// Origins -------------------------------------------------------------------------------------------------------------

static bool holds(const json_t *list, const char *path) {
  size_t i;
  const json_t *item;
  json_array_foreach((json_t *)list, i, item) if (!strcmp(json_string_value(item), path)) return true;
  return false;
}

// Checkpoints of earlier versions have only their recipe, which says where that start began.
static json_t *origins_of(const Checkpoint *checkpoint) {
  json_t *extra = checkpoint_extra(checkpoint), *stored = json_object_get(extra, "began_at"), *list = json_array();
  const char *text = json_string_value(json_object_get(extra, "recipe"));
  size_t i;
  json_t *item;
  json_array_foreach(stored, i, item) if (json_is_string(item)) json_array_append(list, item);
  Recipe was = {0};
  Error ignored = {0};
  if (!stored && text && !recipe_parse("recipe", text, strlen(text), "/", 0, NULL, &was, &ignored) &&
      was.checkpoint.resume[0] == '/') {
    char *path = resolve(was.checkpoint.resume);
    json_array_append_new(list, json_string(path));
    free(path);
  }
  recipe_free(&was);
  return list;
}

json_t *resume_origins(const Recipe *recipe, const Checkpoint *own) {
  json_t *list = own ? FAULT(origin_is_forgotten, origins_of(own), json_array()) : json_array();
  const char *how = recipe->checkpoint.resume;
  char *path = how[0] == '/' ? resolve(how) : NULL;
  if (path && !holds(list, path)) json_array_append_new(list, json_string(path));
  free(path);
  return list;
}

// Is this checkpoint of a run that was told to begin at `named`?
static bool began_at(const Checkpoint *checkpoint, const char *named) {
  json_t *list = origins_of(checkpoint);
  char *path = resolve(named);
  bool found = holds(list, path);
  free(path);
  json_decref(list);
  return found;
}

// Finding -------------------------------------------------------------------------------------------------------------

// The newest checkpoint of run.dir: 1, or 0 where there is none. Where there are some and none can be read, to begin
// again would drop the metrics of what a person may still save.
static int find_newest(const char *checkpoints, ResumeLook look, ResumeFrom *from, Error *error) {
  char *warnings = NULL;
  int64_t step;
  if (look == RESUME_PEEK) return checkpoint_peek_latest(checkpoints, &from->checkpoint, error);
  int found = checkpoint_latest_valid(checkpoints, &step, &from->checkpoint, &warnings, error);
  if (warnings && found > 0) from->notes = xformat("%s\n", warnings);
  if (warnings && !found)
    found = error_set(error, PLAIT_BAD_INPUT,
                      "run.dir: no checkpoint in %s can be read (%.*s); move them away to start over", checkpoints,
                      (int)strcspn(warnings, "\n"), warnings);
  free(warnings);
  return found;
}

static int open_named(const Recipe *recipe, ResumeLook look, Checkpoint **checkpoint, Error *error) {
  const char *path = recipe->checkpoint.resume;
  int code = check_checkpoint(path, error);
  if (!code) code = checkpoint_open(checkpoint, path, error);
  if (!code && look == RESUME_VERIFY) code = checkpoint_verify(*checkpoint, error);
  if (code) error_prefix(error, "%scheckpoint.resume", where(recipe));
  return code;
}

// The named checkpoint, although run.dir holds newer ones that did not begin at it.
static int leave_newer(const Recipe *recipe, bool own, bool force, const Checkpoint *named, int64_t newest,
                       ResumeFrom *from, Error *error) {
  long long step = checkpoint_step(named);
  from->keep_until = own ? step : -1;
  if (force) return PLAIT_OK;
  if (own)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%scheckpoint.resume names step %lld, but %s has later checkpoints, up to step %lld; leave "
        "checkpoint.resume out to resume from there, or go back to step %lld with --force, which moves the "
        "later ones to a folder of their own",
        where(recipe), step, recipe->run.dir, (long long)newest, step);
  return error_set(error, PLAIT_BAD_INPUT,
                   "%scheckpoint.resume: %s holds checkpoints already, up to step %lld, and this run did not begin at "
                   "%s; choose another run.dir, or checkpoint.resume: auto to resume this run, or --force, which moves "
                   "its checkpoints to a folder of their own",
                   where(recipe), recipe->run.dir, (long long)newest, recipe->checkpoint.resume);
}

static void note_newest(const Recipe *recipe, ResumeFrom *from) {
  char *before = from->notes;
  from->notes = xformat("%snote: %scheckpoint.resume is where the run began; %s has later checkpoints of its own, and "
                        "the run resumes from the newest\n",
                        before ? before : "", where(recipe), recipe->run.dir);
  free(before);
}

// A run that began at the named checkpoint and has later checkpoints itself resumes from these: the same command
// continues the run.
static int find_named(const Recipe *recipe, const char *checkpoints, bool force, ResumeLook look, ResumeFrom *from,
                      Error *error) {
  const char *how = recipe->checkpoint.resume;
  int found = find_newest(checkpoints, look, from, error);
  if (found <= 0) return found ? found : open_named(recipe, look, &from->checkpoint, error);
  Checkpoint *newest = from->checkpoint, *named = NULL;
  char *path = resolve(how), *its = resolve(checkpoint_path(newest));
  bool is_newest = !strcmp(path, its), own = resume_lies_in(how, checkpoints);
  free(path);
  free(its);
  if (is_newest) return PLAIT_OK;
  if (began_at(newest, how)) return note_newest(recipe, from), PLAIT_OK;
  int code = open_named(recipe, look, &named, error);
  if (!code && (!own || checkpoint_step(named) < checkpoint_step(newest)))
    code = leave_newer(recipe, own, force, named, checkpoint_step(newest), from, error);
  checkpoint_close(newest);
  from->checkpoint = named;
  return code;
}

int resume_find(const Recipe *recipe, const char *checkpoints, bool force, ResumeLook look, ResumeFrom *from,
                Error *error) {
  const char *how = recipe->checkpoint.resume;
  *from = (ResumeFrom){.keep_until = INT64_MAX};
  if (how[0] == '/') return find_named(recipe, checkpoints, force, look, from, error);
  int found = find_newest(checkpoints, look, from, error);
  if (found <= 0 || strcmp(how, "never")) return found < 0 ? found : PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "run.dir: %s holds a checkpoint of step %lld already; choose another folder, or checkpoint.resume: auto",
      recipe->run.dir, (long long)checkpoint_step(from->checkpoint));
}

void resume_free(ResumeFrom *from) {
  checkpoint_close(from->checkpoint);
  free(from->notes);
  *from = (ResumeFrom){.keep_until = INT64_MAX};
}

// Moving away ---------------------------------------------------------------------------------------------------------

static int copy_file(const char *from, const char *to, Error *error) {
  FileMap map = {0};
  AtomicFile file = {0};
  if (!file_exists(from)) return PLAIT_OK;
  int code = file_map(from, &map, error);
  if (!code) code = file_begin(&file, to, error);
  if (!code && map.size) fwrite(map.data, 1, map.size, file.stream); // commit sees an error
  if (!code) code = file_commit(&file, error);
  file_unmap(&map);
  return code;
}

int resume_set_aside(const Recipe *recipe, const char *checkpoints, int64_t keep_until, FILE *out, Error *error) {
  const char *dir = recipe->run.dir;
  char *to = NULL;
  for (int n = 1; !to || file_exists(to); n++) {
    free(to);
    to = xformat("%s/checkpoints.abandoned-%d", dir, n);
  }
  char *metrics = xformat("%s/metrics.jsonl", dir), *copy = xformat("%s/metrics.jsonl", to);
  int code = folder_create(to, error);
  if (!code) code = copy_file(metrics, copy, error);
  if (!code) code = checkpoint_move_later(checkpoints, keep_until, to, error);
  if (!code && keep_until < 0)
    fprintf(out, "note: --force: the checkpoints of the run that was in %s are in %s now\n", dir, to);
  else if (!code)
    fprintf(out, "note: --force: the checkpoints after step %lld are in %s now\n", (long long)keep_until, to);
  free(metrics);
  free(copy);
  free(to);
  return code;
}
