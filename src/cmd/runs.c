// plait runs: a table of the runs in a folder.
#include "base/file.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "train/ending.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Run { char *path, *name; Ending ending; } Run;
typedef struct Runs { Run *run; int count; } Runs;

static void add(Runs *runs, const char *path, const char *name) {
  Ending ending;
  Error none = {0};
  if (ending_read(path, &ending, &none)) return; // another folder
  runs->run = xrealloc(runs->run, sizeof *runs->run * ((size_t)runs->count + 1));
  runs->run[runs->count++] = (Run){xstrdup(path), xstrdup(name), ending};
}

// Numbers in names count as numbers: run 10 comes after run 9.
static int by_name(const void *a, const void *b) { return strverscmp(((const Run *)a)->name, ((const Run *)b)->name); }

// The folder itself, and those in it.
static int find(const char *folder, Runs *runs, Error *error) {
  DIR *d = opendir(folder);
  if (!d && errno == ENOENT)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: there is no such folder; give that of your runs, as in plait runs FOLDER", folder);
  if (!d) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read as a folder: %s", folder, strerror(errno));
  int first = runs->count;
  for (struct dirent *entry; (entry = readdir(d));) {
    if (entry->d_name[0] == '.') continue;
    char *path = xformat("%s/%s", folder, entry->d_name);
    if (file_is_folder(path)) add(runs, path, entry->d_name);
    free(path);
  }
  closedir(d);
  if (runs->count > first + 1)
    qsort(runs->run + first, (size_t)(runs->count - first), sizeof *runs->run, by_name);
  add(runs, folder, folder);
  return PLAIT_OK;
}

static int width_of_names(const Runs *runs) {
  int width = 3;
  for (int i = 0; i < runs->count; i++)
    if ((int)strlen(runs->run[i].name) > width) width = (int)strlen(runs->run[i].name);
  return width;
}

static void print(const Runs *runs) {
  int width = width_of_names(runs);
  printf("%-*s %17s      loss  state\n", width, "run", "step");
  for (int i = 0; i < runs->count; i++) {
    const Ending *e = &runs->run[i].ending;
    char step[48], loss[32] = "";
    int n = snprintf(step, sizeof step, "%lld", (long long)e->step);
    if (e->steps) snprintf(step + n, sizeof step - (size_t)n, "/%lld", (long long)e->steps);
    if (!isnan(e->loss)) snprintf(loss, sizeof loss, "%.4f", e->loss);
    printf("%-*s %17s %9s  %s%s%s\n", width, runs->run[i].name, step, loss, ending_state_name(e->state),
           e->sentence[0] ? ": " : "", e->state == RUN_STOPPED && !strncmp(e->sentence, "stopped ", 8)
                                           ? e->sentence + 8 : e->sentence);
  }
}

static int print_json(const Runs *runs, Error *error) {
  json_t *list = json_array();
  for (int i = 0; i < runs->count; i++) {
    const Ending *e = &runs->run[i].ending;
    json_t *run = json_pack("{s:s, s:I, s:s}", "run", runs->run[i].path, "step", (json_int_t)e->step, "state",
                            ending_state_name(e->state));
    json_object_set_new(run, "steps", e->steps ? json_integer(e->steps) : json_null());
    json_object_set_new(run, "loss", isfinite(e->loss) ? json_real(e->loss) : json_null());
    if (e->sentence[0]) json_object_set_new(run, "sentence", json_string(e->sentence));
    json_array_append_new(list, run);
  }
  int failed = json_dumpf(list, stdout, JSON_INDENT(2)) || fputs("\n", stdout) == EOF;
  json_decref(list);
  return failed ? error_set(error, PLAIT_FAILED, "the table cannot be written as JSON") : PLAIT_OK;
}

int cmd_runs(int argc, char **argv) {
  bool json = false;
  const Option options[] = {{.name = "json", .value = &json, .help = "print a list of JSON objects"}};
  const CommandHelp help = {"runs", "[options] [FOLDER…]",
                            "Prints a table of runs: each FOLDER that is a run's (run.dir), and the runs in it, with "
                            "their last step and loss; without FOLDER those in runs/. "
                            "A run is running, done, stopped by a signal, or failed; then the sentence of the failure "
                            "stands there. A run that "
                            "was killed says nothing itself; plait launch says it then.",
                            "  plait runs\n"
                            "  plait runs --json runs/sweep | jq -r '.[] | select(.state == \"failed\").run'\n",
                            .takes = TAKES_FILES};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  char *usual[] = {"runs"};
  if (!operands.count) operands = (Operands){usual, 1};
  Error error = {0};
  Runs runs = {0};
  int code = PLAIT_OK;
  for (int i = 0; i < operands.count && !code; i++) code = find(operands.words[i], &runs, &error);
  if (!code && !runs.count)
    code = error_set(&error, PLAIT_BAD_INPUT, "%s: there is no run in it, neither here nor in one of its folders",
                     operands.words[0]);
  if (!code && json) code = print_json(&runs, &error);
  else if (!code) print(&runs);
  for (int i = 0; i < runs.count; i++) {
    free(runs.run[i].path);
    free(runs.run[i].name);
  }
  free(runs.run);
  return code ? command_fail("runs", &error) : 0;
}
