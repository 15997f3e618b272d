// The variables by which a supervisor tells a worker what it is.
#include "worker/worker.h"
#include "base/fault.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const names[] = {
#define WORKER_VARIABLE(id, name, says) name,
#include "worker/variables.def"
#undef WORKER_VARIABLE
};

const char *worker_variable(WorkerVariable variable) { return names[variable]; }

// Reading -------------------------------------------------------------------------------------------------------------

static const char *text_of(WorkerVariable variable) {
  const char *text = getenv(names[variable]);
  return text ? text : "";
}

// -1: it is not a number from 0, or not set.
static int number_of(WorkerVariable variable) {
  const char *text = text_of(variable);
  char *end;
  long value = *text ? strtol(text, &end, 10) : -1;
  return *text && !*end && value >= 0 && value < INT_MAX ? (int)value : -1;
}

// A name that is cut off would be another one.
static void read_name(WorkerVariable variable, char *name, size_t size) {
  const char *text = text_of(variable);
  if (strlen(text) < size) snprintf(name, size, "%s", text);
}

// A descriptor may be another file's by now.
static bool is_kind(int fd, mode_t kind) {
  struct stat status;
  return fd > 2 && !fstat(fd, &status) && (status.st_mode & S_IFMT) == kind;
}

static void read_page(Supervised *s) {
  const char *text = text_of(WORKER_PAGE);
  int end = 0;
  if (sscanf(text, "%d:%d%n", &s->pages, &s->page, &end) == 2 && !text[end] && s->page >= 0 &&
      is_kind(s->pages, S_IFREG))
    return;
  s->pages = s->page = -1;
}

Supervised worker_read(void) {
  Supervised s = {.rank = number_of(WORKER_RANK),
                  .ranks = number_of(WORKER_RANKS),
                  .local_ranks = number_of(WORKER_LOCAL_RANKS),
                  .round = number_of(WORKER_ROUND),
                  .net = FAULT(workers_take_run_comm, !strcmp(text_of(WORKER_COMM), "net"), false),
                  .notices = number_of(WORKER_NOTICES)};
  read_name(WORKER_RUN_NAME, s.run, sizeof s.run);
  read_name(WORKER_JOB_NAME, s.job, sizeof s.job);
  if (!*s.job || s.round < 0) *s.job = 0, s.round = -1;
  if (!is_kind(s.notices, S_IFIFO)) s.notices = -1;
  s.lead = strtod(text_of(WORKER_LEAD), NULL);
  if (!(s.lead > 0)) s.lead = 0;
  read_page(&s);
  if (!worker_memory_parse(text_of(WORKER_MEMORY), &s.memory)) s.memory = (WorkerMemory){.fd = {-1, -1}};
  return s;
}

static Supervised own;
static void read_own(void) { own = worker_read(); }

const Supervised *worker_supervised(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_own);
  return &own;
}

// Writing -------------------------------------------------------------------------------------------------------------

static void set_text(WorkerVariable variable, const char *text) {
  if (*text) setenv(names[variable], text, 1);
  else unsetenv(names[variable]); // of a supervisor that is itself a worker
}

static void set_number(WorkerVariable variable, int value) {
  char text[16] = "";
  if (value >= 0) snprintf(text, sizeof text, "%d", value);
  set_text(variable, text);
}

void worker_write(const Supervised *s) {
  char page[32] = "", memory[80] = "";
  if (s->pages >= 0) snprintf(page, sizeof page, "%d:%d", s->pages, s->page);
  if (s->memory.count > 0) worker_memory_print(&s->memory, memory, sizeof memory);
  set_number(WORKER_RANK, s->rank);
  set_number(WORKER_RANKS, s->ranks);
  set_number(WORKER_LOCAL_RANKS, s->local_ranks);
  set_text(WORKER_RUN_NAME, s->run);
  set_text(WORKER_JOB_NAME, s->job);
  set_number(WORKER_ROUND, s->round);
  set_text(WORKER_COMM, s->net ? "net" : "");
  set_number(WORKER_NOTICES, s->notices);
  set_text(WORKER_PAGE, page);
  set_text(WORKER_MEMORY, memory);
}
