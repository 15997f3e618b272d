// Writing launch.jsonl.
#include "elastic/journal.h"
#include "base/error.h"
#include "base/file.h"
#include "elastic/failure.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// One write to a file opened to append: lines of several machines do not mix.
static void append(const char *folder, json_t *object) {
  char *text = json_dumps(object, JSON_REAL_PRECISION(6)), *path = xformat("%s/launch.jsonl", folder);
  char *line = xformat("%s\n", text ? text : "{}");
  int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND);
  if (fd >= 0) {
    ssize_t ignored = write(fd, line, strlen(line));
    (void)ignored;
    close(fd);
  }
  free(line);
  free(path);
  free(text);
  json_decref(object);
}

void journal_round(const char *folder, const JournalRound *r) {
  if (!folder) return;
  json_t *object = json_pack("{s:i, s:s, s:i, s:o*}", "round", r->round, "cause", r->cause, "restarts", r->restarts,
                             "members", json_loads(r->members, 0, NULL));
  if (!object) return;
  if (r->seconds >= 0) json_object_set_new(object, "first_step", json_integer(r->first_step));
  json_object_set_new(object, "seconds_to_step", r->seconds >= 0 ? json_real(r->seconds) : json_null());
  append(folder, object);
}

// Whether the last line is one of journal_end.
static int has_ended(const char *folder) {
  char text[1 << 14], *path = xformat("%s/launch.jsonl", folder);
  int fd = file_open(path, O_RDONLY);
  off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0, from = size > (off_t)sizeof text ? size - (off_t)sizeof text : 0;
  ssize_t n = fd >= 0 ? pread(fd, text, sizeof text, from) : 0;
  if (fd >= 0) close(fd);
  free(path);
  if (n < 2 || text[n - 1] != '\n') return 0;
  const char *before = memrchr(text, '\n', (size_t)n - 1), *line = before ? before + 1 : text;
  return !strncmp(line, "{\"rounds\": ", 11);
}

void journal_end(const char *folder, int rounds, int restarts, int status, const JournalFailure *failure) {
  if (!folder || has_ended(folder)) return;
  json_t *object = json_pack("{s:i, s:i, s:i}", "rounds", rounds, "restarts", restarts, "status", status);
  if (failure) {
    char text[FAILURE_SENTENCE];
    failure_print(failure->how, failure->words, text, sizeof text);
    json_object_set_new(object, "failure", json_string(text));
    json_object_set_new(object, "rank", json_integer(failure->rank));
    if (*failure->words) json_object_set_new(object, "words", json_string(failure->words));
  }
  append(folder, object);
}
