// Finds the first failure of a round and says what is known of it.
#include "elastic/failure.h"
#include "base/control_group.h"
#include "base/signals.h"
#include "comm/last_call.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char failure_is_left[] = "nothing is started again, since that would end in the same way";

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
  return w->said.code ? 2 : !obeyed(w);
}

// A process's connections end, and its peers fail, before its parent hears of it.
static int blames_another(const Worker *w) { return error_blames(&w->said, w->rank) >= 0; }

// As rounds.c compares machines' failures.
static int gravity(const Worker *w) { return 2 * weight(w) - (weight(w) == 2 && blames_another(w)); }

static void name_signal(int number, char *text, size_t size) {
  const char *name = sigabbrev_np(number);
  if (name) snprintf(text, size, "SIG%s", name);
  else snprintf(text, size, "signal %d", number);
}

static void describe_memory(int64_t kills, char *text, size_t size) {
  ControlGroup group;
  if (kills < 0 || failure_memory_kills() <= kills || !control_group_find("", "memory", &group)) return;
  snprintf(text, size, ", killed for memory (its control group %.300s has reached its limit)",
           control_group_name(&group));
}

// "rank 1 on node7 (pid 4711) was killed by SIGKILL in training step 12; its last collective, all_reduce (…), is done".
// The worker's own words take the place of the collective.
static void describe(const Worker *w, const WorkerPage *page, int64_t memory_kills, Failure *f) {
  char host[64] = "", name[32] = "", phase[48] = "", call[160] = "", memory[500] = "";
  bool killed = WIFSIGNALED(w->status) && !obeyed(w);
  gethostname(host, sizeof host - 1);
  if (page) worker_page_describe_phase(page, phase, sizeof phase);
  if (page && (killed || !w->said.code)) last_call_describe(&page->last, call, sizeof call);
  if (killed) name_signal(WTERMSIG(w->status), name, sizeof name);
  if (killed && WTERMSIG(w->status) == SIGKILL) describe_memory(memory_kills, memory, sizeof memory);
  int n = snprintf(f->how, sizeof f->how, "rank %d on %s (pid %ld) ", w->rank, host, (long)w->pid);
  n += killed ? snprintf(f->how + n, sizeof f->how - (size_t)n, "was killed by %s", name)
              : snprintf(f->how + n, sizeof f->how - (size_t)n, "ended with status %d", f->exit_status);
  snprintf(f->how + n, sizeof f->how - (size_t)n, "%s%s%s%s%s", *phase ? " " : "", phase, memory, *call ? "; " : "",
           call);
  f->said = killed ? (Error){0} : w->said;
}

void failure_print(const char *how, const char *words, char *text, size_t size) {
  snprintf(text, size, "%s%s%s", how, *how && *words ? ": " : "", words);
}

void failure_describe(const Failure *f, char *text, size_t size) {
  failure_print(f->how, f->said.message, text, size);
}

bool failure_lasts(const Failure *f) { return f->weight == 2 && f->said.code == PLAIT_UNWRITABLE; }

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
    if (gravity(&workers->worker[i]) > (first ? gravity(first) : 0)) first = &workers->worker[i];
  if (!first || (!all && (weight(first) < 2 || (weight(first) == 2 && blames_another(first))))) return 0;
  f->happened = 1;
  f->rank = first->rank;
  f->pid = first->pid;
  f->status = first->status;
  f->exit_status = status_of(workers, first);
  f->weight = weight(first);
  const WorkerPage *pages = workers->pages.page;
  describe(first, pages ? &pages[first - workers->worker] : NULL, memory_kills, f);
  return 1;
}
