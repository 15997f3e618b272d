// Saves a rank's part of checkpoints, and looks whether those that a thread writes are there.
#include "train/saving.h"
#include "base/clock.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct Saving {
  SaveLater *later; // NULL: checkpoints are written at once, and none is kept in memory
  char *log;        // path of metrics.jsonl
} Saving;

static Saving *own(const Training *x) { return x->own[HOOK_SAVING]; }

static int open(Training *x, Error *error) {
  const Trainer *t = x->trainer;
  Saving *s = own(x);
  SaveLaterOptions options = t->later;
  s->log = run_folder_file(&t->folder, "metrics.jsonl");
  options.dir = t->checkpoints;
  options.log_path = s->log;
  options.log = t->metrics.fd;
  return save_later_create(x->rank, &options, &s->later, error);
}

static void close_saving(Training *x) {
  save_later_destroy(own(x)->later);
  free(own(x)->log);
}

// Rank 0, when a checkpoint lies there.
static int tell_saved(Trainer *t, int64_t step, Error *error) {
  t->writing.step = 0;
  int code = trainer_report_save(t, step, error);
  if (code) return code;
  return t->recipe->checkpoint.resume[0] == '/' ? trainer_write_recipe(t, true, error) : PLAIT_OK;
}

int saving_settle(Training *x, Error *error) {
  Trainer *t = x->trainer;
  int64_t saved = 0, written = x->rank->rank ? 0 : t->writing.step;
  double seconds = 0, begin = trace_begin(x->rank->trace);
  int code = own(x)->later ? save_later_settle(own(x)->later, &saved, &seconds, error) : PLAIT_OK;
  if (seconds > 0) trace_end(x->rank->trace, begin, "wait for a checkpoint", NULL, "checkpoint", -1, -1);
  if (code || !saved) return code;
  code = tell_saved(t, saved, error);
  if (seconds >= 0.1) // what a person would notice
    progress_note(&t->progress, "step %lld: waited %.1f s until the checkpoint of step %lld was written",
                  (long long)x->step, seconds, (long long)written);
  return code;
}

// Not collective.
static int look(Training *x, Error *error) {
  int64_t saved = 0;
  int code = own(x)->later ? save_later_look(own(x)->later, &saved, error) : PLAIT_OK;
  return code || !saved ? code : tell_saved(x->trainer, saved, error);
}

static SaveExtra extra_of(const Training *x) {
  SaveExtra extra = x->trainer->extra; // borrows what it owns
  extra.step = x->step;
  extra.best = x->best;
  extra.is_best = x->trainer->recipe->checkpoint.best && x->best.step == x->step;
  return extra;
}

int saving_save(Training *x, bool more, Error *error) {
  Trainer *t = x->trainer;
  Rank *r = x->rank;
  bool later = t->later.writes && more;
  if (t->measures) return PLAIT_OK;
  int code = saving_settle(x, error), keep = t->recipe->checkpoint.keep;
  if (code) return code;
  watchdog_enter(r->watchdog, r->rank, ACTIVITY_CHECKPOINT, x->step);
  SaveExtra extra = extra_of(x);
  if (r->rank == 0) t->writing = (Writing){x->step, clock_seconds()};
  if (r->rank == 0 && !later) fsync(t->metrics.fd); // a checkpoint must not outlive the lines that lead to it
  double begin = trace_begin(r->trace);
  code = later ? save_later_begin(own(x)->later, &extra, keep, error)
               : save_checkpoint(r, t->checkpoints, &extra, keep, error);
  trace_end(r->trace, begin, "checkpoint", NULL, "checkpoint", -1, -1);
  x->saved = true;
  return code || r->rank || later ? code : tell_saved(t, x->step, error);
}

// Of a step without a checkpoint (checkpoint.memory_every).
static bool is_kept(const Trainer *t, int64_t step) {
  int64_t every = t->recipe->checkpoint.memory_every;
  return t->later.keeping && every && step % every == 0 && step < t->recipe->schedule.steps;
}

static int keep(Training *x, Error *error) {
  if (x->saved || !is_kept(x->trainer, x->step)) return PLAIT_OK;
  SaveExtra extra = extra_of(x);
  double begin = trace_begin(x->rank->trace);
  int code = save_later_keep(own(x)->later, &extra, x->trainer->recipe->checkpoint.keep, error);
  trace_end(x->rank->trace, begin, "keep in memory", NULL, "checkpoint", -1, -1);
  return code;
}

const Hook hook_saving = {.size = sizeof(Saving),
                          .on = {[HOOK_OPEN] = open, [HOOK_AFTER] = look, [HOOK_BETWEEN] = keep},
                          .pauses = is_kept,
                          .close = close_saving};
