// Removing what the dead have left.
#include "checkpoint/left.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/run_lock.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The number of the process whose temporary file this is; 0: it is none of a run's own files. Others in the folder are
// the user's.
static long writer_of(const char *name) {
  static const char *const own[] = {"ended.json.tmp.", "recipe.yaml.tmp.", "metrics.jsonl.tmp.", "lock."};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    size_t n = strlen(own[i]);
    char *end;
    if (strncmp(name, own[i], n) || name[n] < '1' || name[n] > '9') continue;
    long pid = strtol(name + n, &end, 10);
    return *end ? 0 : pid;
  }
  return 0;
}

static bool is_dead(long pid) { return pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH; }

static bool is_half_a_checkpoint(const char *name) {
  size_t n = strlen(name);
  return n > 9 && !strncmp(name, "step-", 5) && name[5] >= '0' && name[5] <= '9' && !strcmp(name + n - 4, ".tmp");
}

static void remove_in(const char *folder, bool checkpoints) {
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    bool is_left = checkpoints ? is_half_a_checkpoint(e->d_name) || !strcmp(e->d_name, "best.tmp")
                               : is_dead(writer_of(e->d_name));
    if (!is_left) continue;
    char *path = xformat("%s/%s", folder, e->d_name);
    if (unlink(path) && (errno == EISDIR || errno == EPERM)) folder_remove(path, NULL);
    free(path);
  }
  if (d) closedir(d);
}

void left_remove(const char *run_folder, bool is_locked) {
  char *lock = xformat("%s/lock", run_folder), *checkpoints = xformat("%s/checkpoints", run_folder);
  int fd = is_locked ? -1 : file_open(lock, O_RDWR);
  if (FAULT(dead_writers_leave_files, is_locked || (fd >= 0 && !run_lock_take(fd)), false)) {
    remove_in(run_folder, false);
    remove_in(checkpoints, true);
  }
  if (fd >= 0) close(fd);
  free(lock);
  free(checkpoints);
}
