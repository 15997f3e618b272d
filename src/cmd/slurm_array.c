// Reading the lines of an array's file.
#include "cmd/slurm_array.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 4 << 20, MOST_RUNS = 100000 };

typedef struct Line { int number; char *folder; } Line;

static int has_folder(const Words *keys) {
  for (int i = 0; i < keys->count; i++)
    if (!strncmp(keys->word[i], "run.dir=", 8)) return 1;
  return 0;
}

// The recipe with these keys, as the task will load it; its run.dir.
static int load(const Operands *o, const Words *keys, char **folder, Error *error) {
  int own = o->count - 1, n = own + keys->count;
  char **all = xcalloc((size_t)n + 1, sizeof *all);
  Recipe recipe = {0};
  for (int i = 0; i < own; i++) all[i] = o->words[i + 1];
  for (int i = 0; i < keys->count; i++) all[own + i] = keys->word[i];
  int code = recipe_load(o->words[0], n, all, &recipe, error);
  *folder = code ? NULL : xstrdup(recipe.run.dir);
  recipe_free(&recipe);
  free(all);
  return code;
}

static int read_line(const char *text, const Operands *o, const Recipe *base, SlurmArray *array, char **folder,
                     Error *error) {
  Words keys;
  int code = words_split(text, &keys, error);
  *folder = NULL;
  if (code || !keys.count) return code;
  if (!has_folder(&keys)) {
    char *key = xformat("run.dir=%s/%d", base->run.dir, array->count + 1);
    words_add(&keys, key);
    free(key);
  }
  array->runs = xrealloc(array->runs, sizeof *array->runs * ((size_t)array->count + 1));
  array->runs[array->count++] = keys;
  if (array->count > MOST_RUNS) return error_set(error, PLAIT_BAD_INPUT, "there are more than %d runs", MOST_RUNS);
  return load(o, &keys, folder, error);
}

static int check_folder(const Line *lines, int count, Error *error) {
  for (int i = 0; i < count; i++)
    if (!strcmp(lines[i].folder, lines[count].folder))
      return error_set(error, PLAIT_BAD_INPUT, "its run.dir, %s, is that of line %d, too; give each run its own",
                       lines[count].folder, lines[i].number);
  return PLAIT_OK;
}

int slurm_array_read(const char *path, const Operands *o, const Recipe *base, SlurmArray *array, Error *error) {
  char *data = NULL, *line;
  size_t bytes;
  Line *lines = NULL; // with a run
  *array = (SlurmArray){0};
  int code = file_read(path, MOST_BYTES, &data, &bytes, error), number = 0, count = 0;
  if (code) return error_prefix(error, "--array"), code;
  for (char *rest = data; !code && (line = strsep(&rest, "\n"));) {
    char *folder;
    number++;
    code = read_line(line, o, base, array, &folder, error);
    if (folder) {
      lines = xrealloc(lines, sizeof *lines * ((size_t)count + 1));
      lines[count++] = (Line){number, folder};
      code = check_folder(lines, count - 1, error);
    }
    if (code) error_prefix(error, "%s:%d", path, number);
  }
  if (!code && !count) code = error_set(error, PLAIT_BAD_INPUT, "%s has no line with key=value", path);
  for (int i = 0; i < count; i++) free(lines[i].folder);
  free(lines);
  free(data);
  return code;
}

void slurm_array_free(SlurmArray *array) {
  for (int i = 0; i < array->count; i++) words_free(&array->runs[i]);
  free(array->runs);
  *array = (SlurmArray){0};
}
