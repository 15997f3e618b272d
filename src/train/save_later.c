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
  SaveLaterOptions options;
  Staging *staging;
  int newest;        // image of the newest copy
  char *extra;       // rank 0's, of the copy that is under way or was last
  MemoryImageLabel label;
  int64_t step;      // of the checkpoint that all ranks have begun and not settled; 0: none
  int image;         // from which it is written
  bool all_written;  // all ranks know that all have written their parts of it
  SaveCommit commit; // rank 0's
  pthread_t thread, keeper; // of the checkpoint, of a copy that no file is made of
  bool joinable, keeping;
  pthread_mutex_t mutex;
  pthread_cond_t moved; // one of these has changed:
  bool written, done;   // this rank's part, or its failure; all that the thread does
  double took;          // seconds to write this rank's part
  double until;         // clock_seconds at which rank 0's thread stops waiting for other parts; 0: it waits
  int code;             // of the thread, when it is done
  Error error;
  int keep_code;        // of the keeper
  Error keep_error;
};

int save_later_create(Rank *r, const SaveLaterOptions *options, SaveLater **out, Error *error) {
  *out = NULL;
  if (!options->writes && !options->keeping) return PLAIT_OK;
  SaveLater *w = xcalloc(1, sizeof *w);
  *w = (SaveLater){.rank = r, .options = *options};
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->moved, NULL);
  StagingOptions staging = {.images = options->keeping ? 2 : 1};
  if (options->memory) staging.fd = options->memory->fd;
  if (options->keeping == KEEPING_MACHINE_ALONE) staging.job = r->job, staging.first = options->memory->first;
  int code = staging_create(r->state, r->train, &staging, &w->staging, error);
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
  return world_rank_is_gone(ranks->world, plait_comm_world_rank(ranks, part));
}

static int await_parts(SaveLater *w) {
  for (int part = 0; part < w->commit.parts; part++)
    while (!checkpoint_part_is_written(w->options.dir, w->step, part)) {
      bool gone = is_gone(w, part);
      if (gone && checkpoint_part_is_written(w->options.dir, w->step, part)) break; // the last that it has done
      if (gone) return plait_comm_failure(w->rank->world, &w->error);
      if (is_too_late(w))
        return error_set_about(&w->error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(part, NULL)},
                               "%s/step-%lld.tmp: the part of rank %d has not come; all ranks must write to one folder",
                               w->options.dir, (long long)w->step, part);
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
  int count, code = staging_copy(w->staging, &w->label, &w->error);
#ifdef PLAIT_FAULTS
  FAULT(rollback_ignores_what_is_written, (void)0, be_late());
  FAULT(image_that_is_written_is_taken, (void)0, be_late());
#endif
  const CheckpointTensor *pieces = staging_tensors(w->staging, w->image, &count);
  if (!code) code = save_part(w->options.dir, w->step, w->rank->rank, pieces, count, &w->error);
  pthread_mutex_lock(&w->mutex);
  w->code = code;
  w->took = clock_seconds() - began;
  w->written = true;
  pthread_cond_broadcast(&w->moved);
  pthread_mutex_unlock(&w->mutex);
  if (!code && w->rank->rank == 0) {
    code = await_parts(w);
    if (!code) fsync(w->options.log);
    if (!code) code = save_commit(&w->commit, &w->error);
  }
  pthread_mutex_lock(&w->mutex);
  w->code = code;
  w->done = true;
  pthread_cond_broadcast(&w->moved);
  pthread_mutex_unlock(&w->mutex);
  return NULL;
}

static void *keep_copy(void *context) {
  SaveLater *w = context;
  w->keep_code = staging_copy(w->staging, &w->label, &w->keep_error);
  return NULL;
}

// The rank ----------------------------------------------------------------------------------------------------------

// Labels the copy for the process that writes files of it when this one is dead.
static void label_copy(SaveLater *w, const SaveExtra *extra, int keep) {
  const WorkerMemory *memory = w->options.memory;
  int ranks = w->rank->job->options.parallel.mesh.ranks, rank = w->rank->rank;
  free(w->extra);
  w->extra = NULL;
  bool alone = w->options.keeping == KEEPING_MACHINE_ALONE;
  if (memory && (rank == 0 || (alone && rank == memory->first))) {
    json_t *object = save_extra_json(extra);
    w->extra = json_dumps(object, 0);
    json_decref(object);
  }
  w->label = (MemoryImageLabel){.run = worker_supervised()->run,
                                .step = extra->step,
                                .rank = rank,
                                .ranks = ranks,
                                .alone = alone ? worker_memory_ranks(memory, ranks) : 0,
                                .dir = w->options.dir,
                                .keep = keep,
                                .log = w->options.log_path,
                                .extra = w->extra};
}

// The image that may be lost: not the newest copy, for as long as the one that takes its place is not complete. It is
// the same on all ranks.
static int older_image(const SaveLater *w) { return w->options.keeping ? !w->newest : 0; }

int save_later_begin(SaveLater *w, const SaveExtra *extra, int keep, Error *error) {
  Rank *r = w->rank;
  CHECK(!w->step, "a checkpoint is under way");
  int code = r->rank == 0 ? save_begin(w->options.dir, extra->step, error) : PLAIT_OK;
  if (!code) code = rank_barrier(r, error);
  if (code) return code;
  w->step = extra->step;
  w->image = w->newest = older_image(w);
  w->all_written = w->written = w->done = false;
  w->until = 0;
  w->code = PLAIT_OK;
  w->error = (Error){0};
  if (r->rank == 0)
    w->commit = (SaveCommit){
        w->options.dir, w->step, r->job->options.parallel.mesh.ranks, keep, extra->is_best, save_extra_json(extra)};
  label_copy(w, extra, keep);
  staging_begin(w->staging, w->image);
  code = thread_start(&w->thread, write_part, w, error, "the thread that writes the checkpoint of rank %d", r->rank);
  if (code) error_says_rank(error, r->rank);
  w->joinable = !code;
  if (code) staging_abandon(w->staging);
  return code;
}

static bool has_written(SaveLater *w) {
  pthread_mutex_lock(&w->mutex);
  bool written = w->written;
  pthread_mutex_unlock(&w->mutex);
  return written;
}

// Files are written from one image until all ranks have written theirs. Meanwhile the other one is taken each time: who
// dies during that copy leaves the one that is written.
static int agree_on_written(SaveLater *w, Error *error) {
  if (!w->step || w->all_written) return PLAIT_OK;
  int32_t written = has_written(w);
  PlaitBuffer buffer = {&written, &written, 1};
  PlaitComm *world = w->rank->world;
  if (plait_comm_size(world) > 1 && plait_all_reduce(world, &buffer, 1, PLAIT_INT32, PLAIT_MIN, NULL, NULL))
    return plait_comm_failure(world, error);
  w->all_written = written;
  return PLAIT_OK;
}

int save_later_keep(SaveLater *w, const SaveExtra *extra, int keep, Error *error) {
  int code = agree_on_written(w, error);
  if (code) return code;
  bool is_read = FAULT(image_that_is_written_is_taken, w->step && !w->all_written, 0);
  w->newest = is_read ? !w->image : older_image(w);
  w->keep_error = (Error){0};
  label_copy(w, extra, keep);
  staging_begin(w->staging, w->newest);
  code = thread_start(&w->keeper, keep_copy, w, error, "the thread that copies the state of rank %d", w->rank->rank);
  if (code) error_says_rank(error, w->rank->rank);
  w->keeping = !code;
  if (code) staging_abandon(w->staging);
  return code;
}

static int join_keeper(SaveLater *w, Error *error) {
  if (!w->keeping) return PLAIT_OK;
  pthread_join(w->keeper, NULL);
  w->keeping = false;
  if (w->keep_code) *error = w->keep_error;
  return w->keep_code;
}

// The thread is done, or will be.
static int join(SaveLater *w, int64_t *saved, Error *error) {
  if (!w->joinable) return PLAIT_OK;
  pthread_join(w->thread, NULL);
  w->joinable = false;
  json_decref(w->commit.extra); // here, since it shares objects with data that the rank continues to use
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
  int code = join_keeper(w, error);
  return !code && w->joinable && is_done(w) ? join(w, saved, error) : code;
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
  join_keeper(w, &ignored);
  free(w->extra);
  staging_destroy(w->staging);
  pthread_mutex_destroy(&w->mutex);
  pthread_cond_destroy(&w->moved);
  free(w);
}
