// A plan's run in a separate process. See tune.h.
#include "base/file.h"
#include "base/signals.h"
#include "train/metrics.h"
#include "train/train.h"
#include "train/tune.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// The recipe of a run that only its steps matter of: whatever depends on their number is off.
static int bare(const Recipe *asked, int steps, const char *folder, Recipe *recipe, Error *error) {
  char *here = getcwd(NULL, 0), *path = *folder == '/' || !here ? xstrdup(folder) : xformat("%s/%s", here, folder),
       *dir = recipe_key_text("run.dir", path);
  long long warmup = asked->schedule.warmup < steps ? asked->schedule.warmup : steps;
  char *keys = xformat("%s plan=fixed data.valid=null data.split=0 schedule.steps=%d schedule.warmup=%lld "
                       "schedule.decay_steps=null checkpoint.every=0 checkpoint.best=false checkpoint.resume=never "
                       "eval.every=0 eval.patience=0 run.comm=local run.noise_scale=0 run.dump_gradients=null "
                       "run.tensorboard=false run.trace=null%s", dir, steps, warmup,
                       asked->run.non_finite == RECIPE_ROLLBACK ? " run.non_finite=stop" : "");
  int code = recipe_variant(asked, keys, recipe, error);
  free(keys);
  free(dir);
  free(path);
  free(here);
  return code;
}

// In the child: its output goes to folder/log, and the outcome to the parent.
static void child(const Recipe *recipe, const char *folder, int to_parent) {
  Error error = {0};
  char *log = xformat("%s/log", folder);
  setpgid(0, 0); // Ctrl-C on the terminal is for the parent, who ends the child
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = folder_create(folder, &error), file = code ? -1 : file_open(log, O_WRONLY | O_CREAT | O_TRUNC);
  if (!code && file < 0) code = file_write_failed(log, errno, 0, &error);
  if (!code) {
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    code = train_measure(recipe, stdout, &error);
  }
  fflush(stdout);
  error.code = code;
  ssize_t n = write(to_parent, &error, sizeof error);
  _exit(n == (ssize_t)sizeof error ? 0 : 1);
}

static int died(int status, Error *error) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    return error_set(error, PLAIT_FAILED, "killed by SIGKILL, as the system does when memory runs out");
  if (WIFSIGNALED(status)) return error_set(error, PLAIT_FAILED, "ended by signal %d", WTERMSIG(status));
  return error_set(error, PLAIT_FAILED, "ended with status %d and without a word", WEXITSTATUS(status));
}

// Until the child has told its outcome or is gone; 1: a signal has come before.
static int wait_for_outcome(int from_child, Error *outcome, size_t *got) {
  struct pollfd ready = {from_child, POLLIN, 0};
  for (*got = 0; *got < sizeof *outcome;) {
    if (signals_stop()) return 1;
    if (poll(&ready, 1, 100) <= 0) continue;
    ssize_t n = read(from_child, (char *)outcome + *got, sizeof *outcome - *got);
    if (n <= 0) return 0;
    *got += (size_t)n;
  }
  return 0;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The first step warms up: memory is touched for the first time.
static int median_step(const char *folder, int steps, double *seconds, Error *error) {
  MetricsSeries series = {0};
  char *path = xformat("%s/metrics.jsonl", folder);
  int code = metrics_read(path, "step_seconds", &series, error);
  if (!code && series.count < steps)
    code = error_set(error, PLAIT_FAILED, "%s has %d steps of %d", path, series.count, steps);
  if (!code) {
    int n = series.count - 1;
    qsort(series.value + 1, (size_t)n, sizeof(double), by_value);
    *seconds = (series.value[1 + (n - 1) / 2] + series.value[1 + n / 2]) / 2;
  }
  metrics_series_free(&series);
  free(path);
  return code;
}

// The child is forked without a new program, since the parent has no threads by then.
int tune_run(const Recipe *recipe, int steps, const char *folder, double *seconds, Error *error) {
  int pipes[2], status = 0;
  Recipe plan;
  Error outcome = {0};
  size_t got = 0;
  int code = bare(recipe, steps, folder, &plan, error);
  if (code) return code;
  fflush(NULL); // what is in buffers is to be written once
  pid_t id = pipe(pipes) ? -1 : fork();
  if (id < 0) {
    recipe_free(&plan);
    return error_set(error, PLAIT_FAILED, "no process can be started for a plan: %s", strerror(errno));
  }
  if (!id) {
    close(pipes[0]);
    child(&plan, folder, pipes[1]);
  }
  close(pipes[1]);
  int stopped = wait_for_outcome(pipes[0], &outcome, &got);
  if (stopped) kill(id, SIGKILL);
  close(pipes[0]);
  while (waitpid(id, &status, 0) < 0 && errno == EINTR) continue;
  recipe_free(&plan);
  if (stopped) return error_set(error, PLAIT_INTERRUPTED, "interrupted");
  if (got < sizeof outcome) return died(status, error);
  if (outcome.code) return *error = outcome, outcome.code;
  return median_step(folder, steps, seconds, error);
}
