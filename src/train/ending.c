// How runs have ended, from what lies in their folders.
#include "train/ending.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/run_lock.h"
#include "recipe/recipe.h"
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[RUN_STATES] = {"running", "done", "stopped", "failed"};

const char *ending_state_name(EndingState state) { return names[state]; }

void ending_write(const char *folder, int rank, const Error *error) {
  if (!error->message[0]) return; // another rank has it
  char *path = xformat("%s/ended.json", folder);
  json_t *object = json_pack("{s:s, s:s, s:i}", "state", "failed", "sentence", error->message, "rank", rank);
  AtomicFile file;
  Error ignored = {0};
  if (object && !file_begin(&file, path, &ignored)) {
    if (json_dumpf(object, file.stream, 0) || fputc('\n', file.stream) == EOF) file_abandon(&file);
    else file_commit(&file, &ignored);
  }
  json_decref(object);
  free(path);
}

void ending_clear(const char *folder) {
  char *path = xformat("%s/ended.json", folder);
  unlink(path);
  free(path);
}

// The lock is taken for a moment, shared: a run that starts meanwhile tries again (run_folder.c).
static int is_locked(const char *folder) {
  char *path = xformat("%s/lock", folder);
  int fd = file_open(path, O_RDONLY), held = 0;
  if (fd >= 0) {
    held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    close(fd);
  }
  free(path);
  return held;
}

static void copy_text(const json_t *object, const char *key, char *text, size_t size) {
  const char *value = json_string_value(json_object_get(object, key));
  if (value) snprintf(text, size, "%s", value);
}

static void see_line(const json_t *line, Ending *e) {
  const json_t *step = json_object_get(line, "step"), *loss = json_object_get(line, "loss");
  const char *summary = json_string_value(json_object_get(line, "summary"));
  if (json_is_integer(step)) e->step = json_integer_value(step);
  if (json_is_number(loss)) e->loss = json_number_value(loss);
  e->state = RUN_FAILED; // until a summary says something else
  e->sentence[0] = 0;
  if (!summary) return;
  e->state = strncmp(summary, "stopped", 7) ? RUN_DONE : RUN_STOPPED;
  if (e->state == RUN_STOPPED) snprintf(e->sentence, sizeof e->sentence, "%s", summary);
}

// The last lines are enough; a run of weeks has many. A line that is cut at its beginning is not JSON.
static void see_last_lines(const FileMap *map, Ending *e) {
  enum { LAST_BYTES = 256 << 10 };
  size_t at = map->size > LAST_BYTES ? map->size - LAST_BYTES : 0;
  while (at < map->size) {
    const uint8_t *end = memchr(map->data + at, '\n', map->size - at);
    if (!end) return; // torn by a crash
    size_t size = (size_t)(end - (map->data + at));
    json_t *line = json_loadb((const char *)map->data + at, size, 0, NULL);
    if (json_is_object(line)) see_line(line, e);
    json_decref(line);
    at += size + 1;
  }
}

static void see_metrics(const char *folder, Ending *e) {
  char *path = xformat("%s/metrics.jsonl", folder);
  FileMap map;
  Error ignored = {0};
  if (file_exists(path) && !file_map(path, &map, &ignored)) {
    see_last_lines(&map, e);
    file_unmap(&map);
  }
  free(path);
}

// The last line of a file of JSON objects; NULL where there is none.
static json_t *last_line(const char *folder, const char *name) {
  char *path = xformat("%s/%s", folder, name);
  FileMap map;
  Error ignored = {0};
  json_t *line = NULL;
  if (file_exists(path) && !file_map(path, &map, &ignored)) {
    size_t end = map.size && map.data[map.size - 1] == '\n' ? map.size - 1 : map.size;
    const uint8_t *before = end ? memrchr(map.data, '\n', end) : NULL;
    size_t at = before ? (size_t)(before - map.data) + 1 : 0;
    line = json_loadb((const char *)map.data + at, end - at, 0, NULL);
    file_unmap(&map);
  }
  free(path);
  return line;
}

// The rank of a failure, as a line has it; -1: it does not say.
static long rank_in(const json_t *line) {
  const json_t *rank = json_object_get(line, "rank");
  return json_is_integer(rank) ? (long)json_integer_value(rank) : -1;
}

// The supervisor repeats the sentence of a rank about itself.
static bool repeats(const json_t *seen, const json_t *said) {
  return json_is_string(json_object_get(seen, "words")) && rank_in(seen) >= 0 && rank_in(seen) == rank_in(said);
}

// A rank says of another only that its connection has ended; the supervisor says afterwards how. A run that was
// continued since, without plait launch, is not the supervisor's.
static bool supervisor_knows_better(const char *folder, const json_t *seen, const json_t *said) {
  char *ended = xformat("%s/ended.json", folder), *journal = xformat("%s/launch.jsonl", folder);
  RunHolder last = run_lock_read(folder);
  struct stat theirs, mine;
  bool is_newer = !stat(ended, &mine) && !stat(journal, &theirs) &&
                  (theirs.st_mtim.tv_sec != mine.st_mtim.tv_sec ? theirs.st_mtim.tv_sec > mine.st_mtim.tv_sec
                                                                : theirs.st_mtim.tv_nsec >= mine.st_mtim.tv_nsec);
  free(ended);
  free(journal);
  long rounds = (long)json_integer_value(json_object_get(seen, "rounds"));
  bool has_seen = json_string_length(json_object_get(seen, "failure")) > 0;
  return FAULT(survivors_are_believed, *last.job && rounds > last.round && is_newer, false) && has_seen &&
         !repeats(seen, said);
}

// Reads the sentence of training (ended.json) or of its supervisor (the end of a job in launch.jsonl).
static void find_failure(const char *folder, Ending *e) {
  json_t *said = last_line(folder, "ended.json"), *seen = last_line(folder, "launch.jsonl");
  char failure[sizeof e->sentence] = "";
  copy_text(said, "sentence", e->sentence, sizeof e->sentence);
  copy_text(seen, "failure", failure, sizeof failure);
  if (!e->sentence[0] || supervisor_knows_better(folder, seen, said))
    memcpy(e->sentence, failure, sizeof failure);
  if (!e->sentence[0])
    snprintf(e->sentence, sizeof e->sentence, "it has ended without a word: it was killed, or its machine failed");
  json_decref(said);
  json_decref(seen);
}

int ending_read(const char *folder, Ending *e, Error *error) {
  *e = (Ending){.state = RUN_FAILED, .loss = NAN};
  char *path = xformat("%s/recipe.yaml", folder), *lock = xformat("%s/lock", folder);
  Recipe recipe = {0};
  Error ignored = {0};
  int is_run = file_exists(lock); // a folder with recipes has none
  free(lock);
  if (!is_run) {
    free(path);
    return error_set(error, PLAIT_BAD_INPUT, "%s is not a run folder: it has no file lock", folder);
  }
  if (file_exists(path) && !recipe_load(path, 0, NULL, &recipe, &ignored)) e->steps = recipe.schedule.steps;
  recipe_free(&recipe);
  free(path);
  see_metrics(folder, e);
  if (is_locked(folder)) e->state = RUN_RUNNING, e->sentence[0] = 0;
  else if (e->state == RUN_FAILED) find_failure(folder, e);
  return PLAIT_OK;
}
