// Creating, locking and filling of run folders.
#include "train/run_folder.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

char *run_folder_file(const RunFolder *folder, const char *name) { return xformat("%s/%s", folder->path, name); }

// Who holds the lock, for the message; 0 when the file does not say.
static long holder_of(int fd) {
  char text[32] = {0};
  return pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

static int in_use(const char *path, int fd, Error *error) {
  long holder = holder_of(fd);
  if (holder <= 0) return error_set(error, PLAIT_BAD_INPUT, "run.dir %s is in use by another run; set another", path);
  return error_set(error, PLAIT_BAD_INPUT, "run.dir %s is in use by process %ld; stop that run or set another run.dir",
                   path, holder);
}

// plait runs takes a lock for a moment, and that of a process which was killed is held until it is gone.
static int lock_soon(int fd) {
  int failed = 0;
  for (int i = 0; i < 20 && (!i || failed); i++) {
    if (i) nanosleep(&(struct timespec){.tv_nsec = 25 * 1000 * 1000}, NULL);
    failed = flock(fd, LOCK_EX | LOCK_NB);
    if (failed && errno != EWOULDBLOCK) break;
  }
  return failed;
}

static int take_lock(RunFolder *folder, Error *error) {
  char *name = run_folder_file(folder, "lock");
  int code = PLAIT_OK;
  folder->lock = file_open(name, O_RDWR | O_CREAT);
  if (folder->lock < 0) code = file_write_failed(name, errno, 0, error);
  else if (lock_soon(folder->lock)) {
    code = errno == EWOULDBLOCK ? in_use(folder->path, folder->lock, error)
                                : error_set(error, PLAIT_FAILED, "%s: cannot be locked: %s", name, strerror(errno));
  } else {
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(folder->lock, 0) || pwrite(folder->lock, text, (size_t)n, 0) != n)
      code = file_write_failed(name, errno ? errno : ENOSPC, 0, error);
  }
  free(name);
  return code;
}

int run_folder_open(RunFolder *folder, const Recipe *recipe, Error *error) {
  *folder = (RunFolder){xstrdup(recipe->run.dir), -1};
  int code = folder_create(folder->path, error);
  if (code == PLAIT_OK) code = take_lock(folder, error);
  else error_prefix(error, "run.dir");
  if (code < 0) run_folder_close(folder);
  return code;
}

int run_folder_write_recipe(const RunFolder *folder, const Recipe *recipe, Error *error) {
  char *name = run_folder_file(folder, "recipe.yaml");
  int code = recipe_write(recipe, name, error);
  free(name);
  return code;
}

// The lock file stays: removing it would let two runs lock two files of one name.
void run_folder_close(RunFolder *folder) {
  if (!folder->path) return;
  if (folder->lock >= 0) close(folder->lock);
  free(folder->path);
  *folder = (RunFolder){NULL, -1};
}
