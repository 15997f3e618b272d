// Finds the first failure of a round and says what is known of it.
#include "elastic/failure.h"
#include "base/control_group.h"
#include "base/signals.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int64_t failure_memory_kills(void) {
  ControlGroup group;
  if (!control_group_find("", "memory", &group)) return -1;
  return control_group_number(&group, group.version == 1 ? "memory.oom_control" : "memory.events", "oom_kill");
}

static int failed(const Worker *w) { return w->ended && w->pid > 0 && w->status != 0; }

// A worker that was told to end and ended has not failed. One that dies of another signal meanwhile may have failed
// before.
static int obeyed(const Worker *w) {
  if (!WIFSIGNALED(w->status)) return w->told != 0;
  return w->told == SIGKILL || (w->told && WTERMSIG(w->status) == w->told);
}

// Killed by a signal: 3; says why: 2; ended with a status: 1.
static int weight(const Worker *w) {
  if (!failed(w)) return 0;
  if (WIFSIGNALED(w->status) && !obeyed(w)) return 3;
  return w->sentence[0] ? 2 : !obeyed(w);
}

// "rank 1 on node7 has died": a process's connections end before its parent hears of it.
static int blames_another(const Worker *w) {
  int rank;
  for (const char *at = w->sentence; (at = strstr(at, "rank ")); at++)
    if (sscanf(at, "rank %d on ", &rank) == 1 && rank != w->rank) return 1;
  return 0;
}

static void name_signal(int number, char *text, size_t size) {
  const char *name = sigabbrev_np(number);
  if (name) snprintf(text, size, "SIG%s", name);
  else snprintf(text, size, "signal %d", number);
}

static void describe(const Worker *w, int64_t memory_kills, Failure *f) {
  char host[64] = "", name[32], *at = f->sentence;
  size_t room = sizeof f->sentence;
  gethostname(host, sizeof host - 1);
  int n = snprintf(at, room, "rank %d on %s (pid %ld) ", w->rank, host, (long)w->pid);
  at += n, room -= (size_t)n;
  if (!WIFSIGNALED(w->status) || obeyed(w)) {
    snprintf(at, room, "ended with status %d%s%s", f->exit_status, w->sentence[0] ? ": " : "", w->sentence);
    return;
  }
  name_signal(WTERMSIG(w->status), name, sizeof name);
  n = snprintf(at, room, "was killed by %s", name);
  if (WTERMSIG(w->status) == SIGKILL && memory_kills >= 0 && failure_memory_kills() > memory_kills) {
    ControlGroup group;
    control_group_find("", "memory", &group);
    snprintf(at + n, room - (size_t)n, ", killed for memory: its control group %.300s has reached its limit",
             control_group_name(&group));
  }
}

// One that was ended while it told its sentence has the status of the others, which ended by themselves.
static int status_of(const Workers *workers, const Worker *first) {
  const Worker *w = first;
  for (int i = 0; i < workers->count && obeyed(w); i++)
    if (failed(&workers->worker[i]) && !obeyed(&workers->worker[i])) w = &workers->worker[i];
  return worker_exit_status(w);
}

int failure_find(const Workers *workers, int64_t memory_kills, bool all, Failure *f) {
  const Worker *first = NULL;
  for (int i = 0; i < workers->count; i++)
    if (weight(&workers->worker[i]) > (first ? weight(first) : 0)) first = &workers->worker[i];
  if (!first || (!all && (weight(first) < 2 || (weight(first) == 2 && blames_another(first))))) return 0;
  f->happened = 1;
  f->rank = first->rank;
  f->pid = first->pid;
  f->status = first->status;
  f->exit_status = status_of(workers, first);
  f->weight = weight(first);
  f->blames = blames_another(first);
  describe(first, memory_kills, f);
  return 1;
}

void failure_find_seen(const Workers *workers, Failure *f) {
  char start[32];
  snprintf(start, sizeof start, "rank %d ", f->rank);
  for (int i = 0; i < workers->count && !f->seen[0]; i++) {
    const Worker *w = &workers->worker[i];
    const char *about = strstr(w->sentence, start);
    if (w->rank != f->rank && about) snprintf(f->seen, sizeof f->seen, "%s", about);
  }
}
