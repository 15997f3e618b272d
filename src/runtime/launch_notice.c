// Writing to the pipe of PLAIT_LAUNCH_FD.
#include "runtime/launch_notice.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int descriptor(void) {
  const char *text = getenv("PLAIT_LAUNCH_FD");
  char *end;
  struct stat status;
  long fd = text && *text ? strtol(text, &end, 10) : -1;
  return fd > 2 && fd < INT_MAX && !*end && !fstat((int)fd, &status) && S_ISFIFO(status.st_mode) ? (int)fd : -1;
}

// One write of less than PIPE_BUF bytes: lines of several processes do not mix.
static int say(const char *line, int length) {
  int fd = descriptor();
  return fd >= 0 && write(fd, line, (size_t)length) == length;
}

void launch_notice_step(int64_t step) {
  char line[64];
  say(line, snprintf(line, sizeof line, "step %lld\n", (long long)step));
}

int launch_notice_failure(int rank, const Error *error) {
  char line[sizeof error->message + 64];
  if (!error->message[0]) return 0;
  const char *how = error->code == PLAIT_UNWRITABLE ? "lasting" : "failed";
  return say(line, snprintf(line, sizeof line, "%s %d %s\n", how, rank, error->message));
}
