// Checkpoints that are written while the next steps run.
#include "train/save_later.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "runtime/staging.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
  SHOWN_WITHIN = 60, // seconds until a part that another machine has written must be seen here
  LOOK_EVERY = 5     // milliseconds between looks for the parts of other ranks
};

struct SaveLater {
  Rank *rank;
  const char *dir;
  int log;
  Staging *staging;
  int64_t step;      // of the checkpoint that all ranks have begun and not settled; 0: none
  SaveCommit commit; // rank 0's
  pthread_t thread;
  bool joinable;
  pthread_mutex_t mutex;
  pthread_cond_t moved; // one of these has changed:
  bool written, done;   // this rank's part, or its failure; all that the thread does
  double took;          // seconds to write this rank's part
  double until;         // clock_seconds at which rank 0's thread stops waiting for other parts; 0: it waits
  int code;             // of the thread, when it is done
  Error error;
};

int save_later_create(Rank *r, const char *dir, int log, SaveLater **out, Error *error) {
  SaveLater *w = xcalloc(1, sizeof *w);
  *w = (SaveLater){.rank = r, .dir = dir, .log = log};
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->moved, NULL);
  int code = staging_create(r->state, r->train, &w->staging, error);
  if (code) save_later_destroy(w);
  else *out = w;
  return code;
}

// The thread --------------------------------------------------------------------------------------------------------

static bool is_too_late(SaveLater *w) {
  pthread_mutex_lock(&w->mutex);
  bool late = w->until > 0 && clock_seconds() > w->until;
  pthread_mutex_unlock(&w->mutex);
  return late;
}

static bool is_gone(const SaveLater *w, int part) {
  const PlaitComm *ranks = w->rank->world;
  return FAULT(parts_of_the_dead_awaited, world_rank_is_gone(ranks->world, plait_comm_world_rank(ranks, part)), false);
}

static int await_parts(SaveLater *w) {
  for (int part = 0; part < w->commit.parts; part++)
    while (!checkpoint_part_is_written(w->dir, w->step, part)) {
      bool gone = is_gone(w, part);
      if (gone && checkpoint_part_is_written(w->dir, w->step, part)) break; // the last that it has done
      if (gone) return error_set(&w->error, PLAIT_FAILED, "%s", plait_comm_error(w->rank->world));
      if (is_too_late(w))
        return error_set(&w->error, PLAIT_FAILED,
                         "%s/step-%lld.tmp: the part of rank %d has not come; all ranks must write to one folder",
                         w->dir, (long long)w->step, part);
      nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY * 1000000L}, NULL);
    }
  return PLAIT_OK;
}

#ifdef PLAIT_FAULTS
// Long enough that the next step is over.
static void be_late(void) { nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL); }
#endif

static void *write_part(void *context) {
  SaveLater *w = context;
  double began = clock_seconds();
  int count, code = staging_copy(w->staging, &w->error);
#ifdef PLAIT_FAULTS
  FAULT(rollback_ignores_what_is_written, (void)0, be_late());
#endif
  const CheckpointTensor *pieces = staging_tensors(w->staging, &count);
  if (!code) code = save_fence(w->dir, &w->error);
  if (!code) code = checkpoint_write_part(w->dir, w->step, w->rank->rank, pieces, count, &w->error);
  pthread_mutex_lock(&w->mutex);
  w->code = code;
  w->took = clock_seconds() - began;
  w->written = true;
  pthread_cond_broadcast(&w->moved);
  pthread_mutex_unlock(&w->mutex);
  if (!code && w->rank->rank == 0) {
    code = await_parts(w);
    if (!code) fsync(w->log);
    if (!code) code = save_commit(&w->commit, &w->error);
  }
  pthread_mutex_lock(&w->mutex);
  w->code = code;
  w->done = true;
  pthread_cond_broadcast(&w->moved);
  pthread_mutex_unlock(&w->mutex);
  return NULL;
}

// The rank ----------------------------------------------------------------------------------------------------------

int save_later_begin(SaveLater *w, const SaveExtra *extra, int keep, Error *error) {
  Rank *r = w->rank;
  CHECK(!w->step, "a checkpoint is under way");
  int code = r->rank == 0 ? save_fence(w->dir, error) : PLAIT_OK;
  if (!code && r->rank == 0) code = checkpoint_begin(w->dir, extra->step, error);
  if (!code) code = rank_barrier(r, error);
  if (code) return code;
  w->step = extra->step;
  w->written = w->done = false;
  w->until = 0;
  w->code = PLAIT_OK;
  w->error = (Error){0};
  if (r->rank == 0)
    w->commit = (SaveCommit){
        w->dir, w->step, r->job->options.parallel.mesh.ranks, keep, extra->is_best, save_extra_json(extra)};
  staging_begin(w->staging);
  code = thread_start(&w->thread, write_part, w, error, "the thread that writes the checkpoint of rank %d", r->rank);
  w->joinable = !code;
  if (code) staging_abandon(w->staging);
  return code;
}

// The thread is done, or will be.
static int join(SaveLater *w, int64_t *saved, Error *error) {
  if (!w->joinable) return PLAIT_OK;
  pthread_join(w->thread, NULL);
  w->joinable = false;
  json_decref(w->commit.extra); // here, since it shares objects with what the rank goes on to use
  w->commit.extra = NULL;
  if (w->code) *error = w->error;
  else if (w->rank->rank == 0) *saved = w->step;
  return w->code;
}

static bool is_done(SaveLater *w) {
  pthread_mutex_lock(&w->mutex);
  bool done = w->done;
  pthread_mutex_unlock(&w->mutex);
  return done;
}

int save_later_look(SaveLater *w, int64_t *saved, Error *error) {
  *saved = 0;
  staging_end(w->staging);
  return w->joinable && is_done(w) ? join(w, saved, error) : PLAIT_OK;
}

static int await_own_part(SaveLater *w, Error *error) {
  pthread_mutex_lock(&w->mutex);
  while (!w->written) pthread_cond_wait(&w->moved, &w->mutex);
  int code = w->code;
  if (code) *error = w->error;
  pthread_mutex_unlock(&w->mutex);
  return code;
}

static void wait_until(SaveLater *w, double seconds) {
  pthread_mutex_lock(&w->mutex);
  w->until = clock_seconds() + seconds;
  pthread_mutex_unlock(&w->mutex);
}

// The first barrier tells rank 0 that all parts are written, the second the others that they are committed.
int save_later_settle(SaveLater *w, int64_t *saved, double *seconds, Error *error) {
  *saved = 0;
  *seconds = 0;
  if (!w->step) return PLAIT_OK;
  bool waits = w->joinable && !is_done(w);
  double begin = clock_seconds();
  watchdog_enter(w->rank->watchdog, w->rank->rank, ACTIVITY_CHECKPOINT, w->step);
  staging_end(w->staging);
  int code = await_own_part(w, error);
  if (!code) code = rank_barrier(w->rank, error);
  if (code) return code;
  wait_until(w, SHOWN_WITHIN);
  code = join(w, saved, error);
  if (!code) code = rank_barrier(w->rank, error);
  if (waits) *seconds = clock_seconds() - begin;
  w->step = 0;
  return code;
}

// Where the run has failed, the part of a rank that died never comes, and whoever waits for it delays the next start.
// Ranks that live have begun their parts when this one did.
static void stop_waiting_soon(SaveLater *w) {
  Error ignored;
  if (!w->joinable) return;
  await_own_part(w, &ignored);
  wait_until(w, fmax(0.5, w->took));
}

void save_later_destroy(SaveLater *w) {
  int64_t saved;
  Error ignored;
  if (!w) return;
  stop_waiting_soon(w);
  join(w, &saved, &ignored);
  staging_destroy(w->staging);
  pthread_mutex_destroy(&w->mutex);
  pthread_cond_destroy(&w->moved);
  free(w);
}
