// Starting workers, with torchrun's variables and a guard that outlives a killed supervisor; ending them.
#include "elastic/workers.h"
#include "base/fault.h"
#include "base/file.h"
#include "elastic/binding.h"
#include "net/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// The guard ----------------------------------------------------------------------------------------------------------

// Leads the workers' process group, and ends it when the supervisor closes its end of the pipe by dying. The death
// signal of prctl reaches workers only, and not what they have started.
static _Noreturn void guard(int pipe_end) {
  sigset_t all;
  char byte;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  prctl(PR_SET_NAME, "plait-guard");
  setpgid(0, 0);
  if (dup2(pipe_end, 0) < 0 || close_range(1, ~0u, 0)) _exit(1); // who reads our output waits for all copies of it
  while (read(0, &byte, 1) < 0 && errno == EINTR) continue;
  UNLESS_FAULT(guard_kills_nobody) kill(0, SIGKILL);
  _exit(0);
}

static int start_guard(Workers *w, Error *error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return error_set(error, PLAIT_FAILED, "no pipe for workers: %s", strerror(errno));
  w->group = fork();
  if (w->group == 0) guard(ends[0]);
  close(ends[0]);
  w->guard = ends[1];
  if (w->group < 0) return error_set(error, PLAIT_FAILED, "no process for workers: %s", strerror(errno));
  setpgid(w->group, w->group); // whoever comes first; workers join it
  return PLAIT_OK;
}

// A worker, before it is the program --------------------------------------------------------------------------------

static void set_number(const char *name, long long value) {
  char text[24];
  snprintf(text, sizeof text, "%lld", value);
  setenv(name, text, 1);
}

// torchrun's.
static void set_variables(const WorkerPlan *p, int local) {
  const struct { const char *name; int value; } numbers[] = {
      {"RANK", p->first_rank + local},
      {"WORLD_SIZE", p->ranks},
      {"LOCAL_RANK", local},
      {"LOCAL_WORLD_SIZE", p->count},
      {"GROUP_RANK", p->node},
      {"GROUP_WORLD_SIZE", p->nodes},
      {"ROLE_RANK", p->first_rank + local},
      {"ROLE_WORLD_SIZE", p->ranks},
      {"MASTER_PORT", p->port},
      {"TORCHELASTIC_RESTART_COUNT", p->restarts},
      {"TORCHELASTIC_MAX_RESTARTS", p->most_restarts},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) set_number(numbers[i].name, numbers[i].value);
  if (p->insecure) setenv("PLAIT_INSECURE", "1", 1);
  setenv(secret_drawn_variable, p->secret, 1); // not on the command line, which everybody sees
  setenv("TORCHELASTIC_RUN_ID", p->id, 1);
  setenv("MASTER_ADDR", p->host, 1);
  setenv("ROLE_NAME", "default", 1);
}

// plait's own names come first where others are set, too (comm/launcher.c), as below srun.
static Supervised told_to(const WorkerPlan *p, const Workers *w, int local, int notices, int pages) {
  const int *memory = w->worker[local].memory;
  Supervised s = {.rank = p->first_rank + local,
                  .ranks = p->ranks,
                  .local_ranks = p->count,
                  .round = p->round,
                  .net = p->net,
                  .notices = notices,
                  .pages = pages,
                  .page = pages >= 0 ? local : -1,
                  .memory = {.first = p->first_rank, .count = p->count, .copies = p->copies}};
  memcpy(s.memory.fd, memory, sizeof s.memory.fd);
  snprintf(s.run, sizeof s.run, "%s", w->run);
  snprintf(s.job, sizeof s.job, "%s", p->token);
  return s;
}

typedef struct Birth {
  pid_t supervisor;
  int reason[2];                   // errno of what failed before the program ran
  int notices;                     // end to write
  int pages;                       // -1: there are none
  int output[WORKER_STREAMS];      // -1: the supervisor's
  cpu_set_t cores;
} Birth;

static _Noreturn void become(const WorkerPlan *p, const Workers *w, const Birth *b, int local) {
  sigset_t none;
  cpu_set_t share;
  setpgid(0, w->group);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != b->supervisor) _exit(1); // it died before prctl
  int input = open("/dev/null", O_RDONLY);  // reading a terminal from another process group stops a process
  if (input >= 0) dup2(input, 0);
  for (int s = 0; s < WORKER_STREAMS; s++)
    if (b->output[s] >= 0) dup2(b->output[s], 1 + s);
  fcntl(b->notices, F_SETFD, 0);
  if (b->pages >= 0) fcntl(b->pages, F_SETFD, 0);
  for (int i = 0; i < WORKER_MEMORIES; i++)
    if (w->worker[local].memory[i] >= 0) fcntl(w->worker[local].memory[i], F_SETFD, 0);
  if (binding_share(&b->cores, local, p->count, &share)) {
    sched_setaffinity(0, sizeof share, &share);
    binding_memory(&share);
  }
  const Supervised told = told_to(p, w, local, b->notices, b->pages);
  set_variables(p, local);
  worker_write(&told);
  signal(SIGPIPE, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execvp(p->argv[0], p->argv);
  int why = errno;
  if (write(b->reason[1], &why, sizeof why)) _exit(127);
  _exit(127);
}

// Logs ---------------------------------------------------------------------------------------------------------------

static int open_log(const WorkerPlan *p, int rank, int stream, Error *error) {
  char *folder = xformat("%s/round-%d", p->log_folder, p->round), *path = NULL;
  int fd = -1;
  if (!folder_create(folder, error)) {
    path = xformat("%s/rank-%d.%s", folder, rank, stream ? "err" : "out");
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) file_write_failed(path, errno, 0, error);
  }
  free(path);
  free(folder);
  return fd;
}

// Where a worker's stream goes: *child is what it gets. With tee it is a pipe that the supervisor reads.
static int open_stream(const WorkerPlan *p, int rank, int stream, WorkerStream *s, int *child, Error *error) {
  int ends[2];
  *s = (WorkerStream){.from = -1, .to_log = -1, .to_console = 1 + stream};
  *child = -1;
  if (!p->log_folder) return PLAIT_OK;
  int log = open_log(p, rank, stream, error);
  if (log < 0) return error_prefix(error, "--log-dir");
  if (!(p->tee >> stream & 1)) return *child = log, PLAIT_OK;
  s->to_log = log;
  if (pipe2(ends, O_CLOEXEC)) return error_set(error, PLAIT_FAILED, "no pipe for --tee: %s", strerror(errno));
  s->from = ends[0];
  *child = ends[1];
  return PLAIT_OK;
}

// -------------------------------------------------------------------------------------------------------------------

static int start_one(const WorkerPlan *p, Workers *w, Birth *b, int local, Error *error) {
  Worker *worker = &w->worker[local];
  int code = PLAIT_OK, why = 0;
  *worker = (Worker){.rank = p->first_rank + local, .ended = true};
  for (int s = 0; s < WORKER_STREAMS; s++) worker->stream[s].from = worker->stream[s].to_log = b->output[s] = -1;
  for (int s = 0; s < WORKER_STREAMS && !code; s++)
    code = open_stream(p, worker->rank, s, &worker->stream[s], &b->output[s], error);
  worker_memory_create(worker->rank, worker->memory);
  w->count = local + 1;
  if (!code && pipe2(b->reason, O_CLOEXEC))
    code = error_set(error, PLAIT_FAILED, "no pipe for a worker: %s", strerror(errno));
  if (!code) {
    worker->pid = fork();
    if (worker->pid == 0) become(p, w, b, local);
    close(b->reason[1]);
    if (worker->pid < 0)
      code = error_set(error, PLAIT_FAILED, "rank %d: no process: %s", worker->rank, strerror(errno));
    else worker->ended = false;
    if (!code && read(b->reason[0], &why, sizeof why) == sizeof why)
      code = error_set(error, PLAIT_BAD_INPUT, "%s: cannot be run: %s", p->argv[0], strerror(why));
    close(b->reason[0]);
  }
  for (int s = 0; s < WORKER_STREAMS; s++)
    if (b->output[s] >= 0) close(b->output[s]);
  return code;
}

int workers_start(const WorkerPlan *p, Workers *w, Error *error) {
  int notices[2];
  Birth birth = {.supervisor = getpid()};
  *w = (Workers){.worker = xcalloc((size_t)p->count, sizeof(Worker)), .ranks = p->ranks, .guard = -1, .notices = -1};
  snprintf(w->run, sizeof w->run, "%.300s.%.40s.%d", p->id, p->token, p->round);
  int code = start_guard(w, error);
  if (!code && pipe2(notices, O_CLOEXEC))
    code = error_set(error, PLAIT_FAILED, "no pipe for workers: %s", strerror(errno));
  if (code) return workers_end(w), code;
  w->pages = worker_pages_create(p->count, &birth.pages);
  w->notices = notices[0];
  birth.notices = notices[1];
  fcntl(w->notices, F_SETFL, O_NONBLOCK);
  sched_getaffinity(0, sizeof birth.cores, &birth.cores);
  for (int i = 0; i < p->count && !code; i++) code = start_one(p, w, &birth, i, error);
  close(birth.notices);
  if (birth.pages >= 0) close(birth.pages);
  if (code) workers_end(w);
  return code;
}

int workers_reap(Workers *w, int told) {
  int ended = 0;
  for (int i = 0; i < w->count; i++) {
    Worker *worker = &w->worker[i];
    if (worker->ended || waitpid(worker->pid, &worker->status, WNOHANG) != worker->pid) continue;
    worker->ended = true;
    worker->told = told;
    ended++;
  }
  return ended;
}

int workers_running(const Workers *w) {
  int running = 0;
  for (int i = 0; i < w->count; i++) running += !w->worker[i].ended;
  return running;
}

int worker_exit_status(const Worker *w) {
  return WIFSIGNALED(w->status) ? 128 + WTERMSIG(w->status) : WEXITSTATUS(w->status);
}

void workers_signal(const Workers *w, int number) {
  if (w->group > 0) kill(-w->group, number); // the guard blocks all but SIGKILL
}

static void close_one(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

void workers_end(Workers *w) {
  if (!w->worker) return;
  if (w->group > 0) {
    kill(-w->group, SIGKILL);
    while (waitpid(w->group, NULL, 0) < 0 && errno == EINTR) continue;
  }
  for (int i = 0; i < w->count; i++) {
    Worker *worker = &w->worker[i];
    if (!worker->ended) waitpid(worker->pid, &worker->status, 0);
    for (int s = 0; s < WORKER_STREAMS; s++) {
      if (worker->stream[s].from >= 0) workers_read_output(worker, s);
      close_one(&worker->stream[s].from);
      close_one(&worker->stream[s].to_log);
    }
    for (int k = 0; k < WORKER_MEMORIES; k++) close_one(&worker->memory[k]);
  }
  close_one(&w->guard);
  close_one(&w->notices);
  worker_pages_destroy(&w->pages);
  free(w->worker);
  *w = (Workers){.guard = -1, .notices = -1};
}
