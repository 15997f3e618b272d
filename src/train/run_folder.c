// Creating, locking and filling of run folders.
#include "train/run_folder.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/run_lock.h"
#include "checkpoint/left.h"
#include "worker/worker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

char *run_folder_file(const RunFolder *folder, const char *name) { return xformat("%s/%s", folder->path, name); }

// Rounds --------------------------------------------------------------------------------------------------------------

static RunHolder own(void) {
  const Supervised *me = worker_supervised();
  RunHolder h = {(long)getpid(), "", me->round};
  snprintf(h.job, sizeof h.job, "%s", me->job);
  return h;
}

static bool is_earlier_round(const RunHolder *theirs, const RunHolder *mine) {
  return *mine->job && !strcmp(theirs->job, mine->job) && theirs->round < mine->round;
}

int run_folder_fence(const char *path, Error *error) {
  RunHolder mine = own();
  if (!*mine.job) return PLAIT_OK;
  RunHolder theirs = run_lock_read(path);
  if (FAULT(rounds_are_not_fenced, !is_earlier_round(&mine, &theirs), 1)) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED,
                   "run.dir %s belongs to round %ld of this job now, and this process is of round %ld; it writes "
                   "nothing more",
                   path, theirs.round, mine.round);
}

// The lock -----------------------------------------------------------------------------------------------------------

static int in_use(const char *path, const RunHolder *holder, Error *error) {
  if (holder->pid <= 0)
    return error_set(error, PLAIT_BAD_INPUT, "run.dir %s is in use by another run; set another", path);
  return error_set(error, PLAIT_BAD_INPUT, "run.dir %s is in use by process %ld; stop that run or set another run.dir",
                   path, holder->pid);
}

static int write_holder(int fd, const char *name, Error *error) {
  RunHolder mine = own();
  char text[100];
  int n = *mine.job ? snprintf(text, sizeof text, "%ld %s %ld\n", mine.pid, mine.job, mine.round)
                    : snprintf(text, sizeof text, "%ld\n", mine.pid);
  if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n)
    return file_write_failed(name, errno ? errno : ENOSPC, 0, error);
  return PLAIT_OK;
}

// A new file takes the place of the one that the processes of an earlier round hold.
static int take_over(RunFolder *folder, const char *name, Error *error) {
  char *temporary = xformat("%s.%ld", name, (long)getpid());
  close(folder->lock);
  folder->lock = file_open(temporary, O_RDWR | O_CREAT | O_TRUNC);
  int code = folder->lock < 0 ? file_write_failed(temporary, errno, 0, error) : PLAIT_OK;
  if (!code && flock(folder->lock, LOCK_EX | LOCK_NB))
    code = error_set(error, PLAIT_FAILED, "%s: cannot be locked: %s", temporary, strerror(errno));
  if (!code) code = write_holder(folder->lock, temporary, error);
  if (!code && rename(temporary, name)) code = file_write_failed(name, errno, 0, error);
  if (code) unlink(temporary);
  free(temporary);
  return code;
}

static int take_lock(RunFolder *folder, Error *error) {
  char *name = run_folder_file(folder, "lock"), text[128] = "";
  RunHolder mine = own();
  int code = PLAIT_OK;
  folder->lock = file_open(name, O_RDWR | O_CREAT);
  if (folder->lock < 0) code = file_write_failed(name, errno, 0, error);
  else {
    ssize_t n = pread(folder->lock, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    RunHolder theirs = run_lock_parse(text);
    if (is_earlier_round(&theirs, &mine)) code = take_over(folder, name, error);
    else if (!run_lock_take(folder->lock)) code = write_holder(folder->lock, name, error);
    else if (errno == EWOULDBLOCK) code = in_use(folder->path, &theirs, error);
    else code = error_set(error, PLAIT_FAILED, "%s: cannot be locked: %s", name, strerror(errno));
  }
  if (!code) code = run_folder_fence(folder->path, error);
  free(name);
  return code;
}

int run_folder_open(RunFolder *folder, const Recipe *recipe, Error *error) {
  *folder = (RunFolder){xstrdup(recipe->run.dir), -1};
  int code = folder_create_given(folder->path, error);
  if (code == PLAIT_OK) code = take_lock(folder, error);
  else error_prefix(error, "run.dir");
  if (code == PLAIT_OK) left_remove(folder->path, true);
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
