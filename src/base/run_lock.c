// Reading and taking the lock of a run's folder.
#include "base/run_lock.h"
#include "base/error.h"
#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>

RunHolder run_lock_parse(const char *text) {
  RunHolder h = {0, "", -1, 0};
  if (sscanf(text, "%ld %39s %ld", &h.pid, h.job, &h.round) != 3) *h.job = 0;
  return h;
}

RunHolder run_lock_read(const char *folder) {
  char text[128], *name = xformat("%s/lock", folder);
  int why = file_peek(name, text, sizeof text);
  free(name);
  RunHolder holder = run_lock_parse(text);
  holder.why = why == -ENOENT ? 0 : why;
  return holder;
}

int run_lock_take(int fd) {
  int failed = 0;
  for (int i = 0; i < 20 && (!i || failed); i++) {
    if (i) nanosleep(&(struct timespec){.tv_nsec = 25 * 1000 * 1000}, NULL);
    failed = flock(fd, LOCK_EX | LOCK_NB);
    if (failed && errno != EWOULDBLOCK) break;
  }
  return failed;
}
