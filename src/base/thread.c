// pthread_create with a signal mask and an explanation.
#include "base/thread.h"
#include "base/control_group.h"
#include "base/units.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...) {
  size_t n = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + n, size - n, format, arguments);
  va_end(arguments);
}

// The smallest pids.max on the way up, and whose it is.
static int64_t most_in_group(ControlGroup *of) {
  int64_t least = -1;
  ControlGroup g;
  for (int more = control_group_find("", "pids", &g); more; more = control_group_up(&g)) {
    int64_t most = control_group_number(&g, "pids.max", NULL);
    if (most >= 0 && (least < 0 || most < least)) least = most, *of = g;
  }
  return least;
}

// The kernel does not say which limit it was: all that there are, in the words by which they are set. Root has no limit
// on processes.
static void describe_limits(char *text, size_t size) {
  struct rlimit limit;
  ControlGroup group;
  int64_t most = most_in_group(&group);
  *text = 0;
  if (geteuid() && !getrlimit(RLIMIT_NPROC, &limit) && limit.rlim_cur != RLIM_INFINITY)
    add(text, size, ", ulimit -u allows this user %lld threads", (long long)limit.rlim_cur);
  if (most >= 0)
    add(text, size, ", control group %.80s allows %lld threads (pids.max)", control_group_name(&group),
        (long long)most);
  if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
    add(text, size, ", ulimit -v is %s", units_bytes((double)limit.rlim_cur).s);
}

static int start(pthread_t *thread, void *(*run)(void *), void *argument) {
  static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF};
  sigset_t taken, before;
  sigfillset(&taken);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&taken, faults[i]);
  pthread_sigmask(SIG_SETMASK, &taken, &before);
  int why = pthread_create(thread, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return why;
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *argument, Error *error, const char *format, ...) {
  int why = start(thread, run, argument);
  if (!why) return PLAIT_OK;
  char name[160], limits[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  describe_limits(limits, sizeof limits);
  return error_set(error, PLAIT_FAILED, "%s cannot be started: %s%s%s; take fewer threads, or raise the limit", name,
                   strerror(why), *limits ? "; limits here: " : "", *limits ? limits + 2 : "");
}
