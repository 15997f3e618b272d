// Writing the checkpoint of dead workers.
#include "elastic/rescue.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/run_lock.h"
#include "base/thread.h"
#include "base/vec.h"
#include "checkpoint/memory_image.h"
#include "elastic/rescue_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY = 10 }; // milliseconds

static const char lost_part[] = "with the lost machine a part of it is lost";
// Seconds that machines have, once their workers have ended, to say what they have.
static const double meet_within = 30;

struct Rescue {
  char job[40];             // these two say who may write
  int round;
  int first, count;         // ranks of this machine
  Vec(MemoryImage *) images; // of its workers, and behind them copies of others'
  int own;                  // of these, of its workers
  char *run_folder;
  int lock;                 // of the machine that commits; -1: not held
  int64_t step;             // that is saved, or was to be; -1: none
  bool several, copied, saved; // several machines; that have copies of each other's memory; it is done
  atomic_bool done;
  pthread_mutex_t mutex;    // of these three:
  RescueLoss loss;
  Vec(int) ended;           // first ranks of the machines that take no part any more
  bool abandoned;
  pthread_t thread;
  double began, seconds, grace;
  Error error;
};

static const MemoryImageLabel *label_of(const Rescue *r, int i) { return memory_image_label(r->images.data[i]); }

static RescueLoss loss_of(Rescue *r) {
  pthread_mutex_lock(&r->mutex);
  RescueLoss loss = r->loss;
  pthread_mutex_unlock(&r->mutex);
  return loss;
}

static bool is_abandoned(Rescue *r) {
  pthread_mutex_lock(&r->mutex);
  bool abandoned = r->abandoned;
  pthread_mutex_unlock(&r->mutex);
  return abandoned;
}

static bool has_ended(Rescue *r, int first) {
  bool found = false;
  pthread_mutex_lock(&r->mutex);
  for (int i = 0; i < r->ended.count; i++) found |= r->ended.data[i] == first;
  pthread_mutex_unlock(&r->mutex);
  return found;
}

static bool leads(const Rescue *r, const RescueLoss *loss) { return loss->leader == r->first; }

// Another machine is lost since then, or this one.
static bool is_changed(Rescue *r, const RescueLoss *since) {
  return loss_of(r).machines != since->machines || is_abandoned(r);
}

// What there is ------------------------------------------------------------------------------------------------------

static int64_t newest_image(const Rescue *r) {
  int64_t newest = -1;
  for (int i = 0; i < r->images.count; i++)
    if (label_of(r, i)->step > newest) newest = label_of(r, i)->step;
  return newest;
}

static int64_t newest_on_disk(const char *dir) {
  Checkpoint *newest = NULL;
  Error ignored = {0};
  int64_t step = checkpoint_peek_latest(dir, &newest, &ignored) > 0 ? checkpoint_step(newest) : -1;
  checkpoint_close(newest);
  return step;
}

// Returns whether workers have any, be they complete or not.
static bool open_images(Rescue *r, const Workers *w, const RescuePlace *place) {
  bool any = false;
  for (int i = 0; i < w->count; i++)
    for (int k = 0; k < WORKER_MEMORIES; k++) {
      MemoryImage *image;
      struct stat status;
      any |= !fstat(w->worker[i].memory[k], &status) && status.st_size > 0;
      if (memory_image_open(w->worker[i].memory[k], w->run, &image)) vec_push(&r->images, image);
    }
  r->own = r->images.count;
  for (int i = 0; i < place->copies; i++) {
    MemoryImage *image;
    if (FAULT(copies_are_forgotten, memory_image_open(place->copy[i], w->run, &image), false))
      vec_push(&r->images, image);
  }
  return any;
}

static void rescue_free(Rescue *r) {
  for (int i = 0; i < r->images.count; i++) memory_image_close(r->images.data[i]);
  vec_free(&r->images);
  vec_free(&r->ended);
  if (r->lock >= 0) close(r->lock);
  pthread_mutex_destroy(&r->mutex);
  free(r->run_folder);
  free(r);
}

// Who may write ------------------------------------------------------------------------------------------------------

// Each time before something is written: another round may have begun without this machine.
static int fence(Rescue *r) {
  RunHolder holder = run_lock_read(r->run_folder);
  bool is_ours = !strcmp(holder.job, r->job) && holder.round == r->round;
  if (FAULT(memory_is_not_fenced, is_ours, 1)) return PLAIT_OK;
  if (holder.why)
    return error_set(&r->error, PLAIT_FAILED, "%s/lock cannot be read: %s", r->run_folder, strerror(-holder.why));
  return error_set(&r->error, PLAIT_FAILED, "run.dir %s belongs to another round or run now", r->run_folder);
}

// So that no other run begins in the folder meanwhile.
static int take_lock(Rescue *r) {
  char *name = xformat("%s/lock", r->run_folder);
  int fd = file_open(name, O_RDWR);
  int code = fd < 0 || run_lock_take(fd)
                 ? error_set(&r->error, PLAIT_FAILED, "%s: cannot be locked: %s", name,
                             errno == EWOULDBLOCK ? "another process holds it, which may be saving" : strerror(errno))
                 : fence(r);
  if (FAULT(failed_locks_count_as_held, !code, fd >= 0)) r->lock = fd;
  else if (fd >= 0) close(fd);
  free(name);
  return code;
}

// The step -----------------------------------------------------------------------------------------------------------

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY * 1000000L}, NULL); }

static RescueNote own_note(const Rescue *r) {
  RescueNote note = {.first = r->first, .count = r->count};
  for (int i = 0; i < r->images.count; i++) {
    note.mesh = label_of(r, i)->ranks;
    vec_push(&note.kept, (RescueKept){label_of(r, i)->rank, label_of(r, i)->step});
  }
  return note;
}

static bool has_note(const RescueNotes *notes, int first) {
  bool found = false;
  for (int i = 0; i < notes->count; i++) found |= notes->data[i].first == first;
  return found;
}

// Whether a machine has ended without a note; one writes its note before it ends, so the notes are read last.
static bool lacks_a_note(Rescue *r, const RescueFolder *folder) {
  Vec(int) ended = {0};
  RescueNotes notes = {0};
  bool lacks = false;
  pthread_mutex_lock(&r->mutex);
  for (int i = 0; i < r->ended.count; i++) vec_push(&ended, r->ended.data[i]);
  pthread_mutex_unlock(&r->mutex);
  if (ended.count) rescue_folder_read(folder, &notes);
  for (int i = 0; i < ended.count; i++) lacks |= !has_note(&notes, ended.data[i]);
  rescue_notes_free(&notes);
  vec_free(&ended);
  return FAULT(ended_machines_are_awaited, lacks, false);
}

// Whether all other machines that have left a note have ended. All notes are there when a step has been chosen.
static bool others_have_ended(Rescue *r, const RescueFolder *folder) {
  RescueNotes notes = {0};
  bool all = r->several;
  if (r->several) rescue_folder_read(folder, &notes);
  for (int i = 0; i < notes.count; i++)
    all &= notes.data[i].first == r->first || has_ended(r, notes.data[i].first);
  rescue_notes_free(&notes);
  return FAULT(missing_parts_are_awaited, all, false);
}

// On several machines: the notes of all that are left, as they come.
static int choose_step(Rescue *r, const RescueFolder *folder, const RescueLoss *loss) {
  RescueNotes notes = {0};
  vec_push(&notes, own_note(r));
  while (r->several && rescue_ranks(&notes) < loss->ranks_left) {
    rescue_notes_free(&notes);
    if (is_changed(r, loss)) return error_set(&r->error, PLAIT_FAILED, "%s", lost_part);
    if (lacks_a_note(r, folder) || clock_seconds() - r->began > meet_within + r->grace)
      return error_set(&r->error, PLAIT_FAILED, "not all machines say what they have");
    nap();
    rescue_folder_read(folder, &notes);
  }
  r->step = rescue_newest(&notes);
  rescue_notes_free(&notes);
  if (r->step >= 0) return PLAIT_OK;
  return error_set(&r->error, PLAIT_FAILED, "%s", loss->machines ? lost_part : "no step of it is whole on all ranks");
}

// Files --------------------------------------------------------------------------------------------------------------

typedef struct Part {
  const MemoryImage *image;
  int number; // of the part; -1: of its rank, without spare pieces
  pthread_t thread;
  int code;
  Error error;
} Part;

static void *write_part(void *context) {
  Part *p = context;
  const MemoryImageLabel *label = memory_image_label(p->image);
  int count;
  const CheckpointTensor *pieces = memory_image_pieces(p->image, &count);
  CheckpointTensor *all = xcalloc((size_t)count + 1, sizeof *all);
  memcpy(all, pieces, sizeof *all * (size_t)count);
  for (int i = 0; i < count && p->number >= 0; i++) all[i].primary = 1;
  p->code = checkpoint_write_part(label->dir, label->step, p->number < 0 ? label->rank : p->number, all, count,
                                  &p->error);
  free(all);
  return NULL;
}

// A copy is written where the machine of its rank is lost, or does not have that step. The notes of all are there when
// a step has been chosen.
static bool is_mine(const Rescue *r, int i, const RescueNotes *notes) {
  return label_of(r, i)->step == r->step && (i < r->own || !rescue_is_home(notes, label_of(r, i)->rank, r->step));
}

// folder NULL: all that the ranks here have, in parts from 0 on.
static int write_parts(Rescue *r, const RescueFolder *folder) {
  Part *part = xcalloc((size_t)r->images.count + 1, sizeof *part);
  int started = 0, code = fence(r), images = folder ? r->images.count : r->own;
  RescueNotes notes = {0};
  if (folder && r->several) rescue_folder_read(folder, &notes);
  for (int i = 0; i < images && !code; i++) {
    if (!is_mine(r, i, &notes)) continue;
    part[started] = (Part){.image = r->images.data[i], .number = folder ? -1 : label_of(r, i)->rank - r->first};
    code = thread_start(&part[started].thread, write_part, &part[started], &r->error, "a thread that saves a rank");
    started += !code;
  }
  for (int i = 0; i < started; i++) {
    pthread_join(part[i].thread, NULL);
    if (!code && (code = part[i].code)) r->error = part[i].error;
  }
  rescue_notes_free(&notes);
  free(part);
  return code;
}

static int sync_log(const char *path, Error *error) {
  int fd = path ? file_open(path, O_RDONLY) : -1;
  int failed = path && (fd >= 0 ? fsync(fd) : errno != ENOENT); // of none nothing is to be written
  if (fd >= 0) close(fd);
  return failed ? error_set(error, PLAIT_FAILED, "%s: %s", path, strerror(errno)) : PLAIT_OK;
}

// The image that says how the checkpoint is finished: that of rank 0, or of the first rank of a machine that has all.
// NULL: it is not here.
static const MemoryImageLabel *leading_label(const Rescue *r) {
  for (int i = 0; i < r->images.count; i++)
    if (label_of(r, i)->step == r->step && label_of(r, i)->extra) return label_of(r, i);
  return NULL;
}

static int commit(Rescue *r, const MemoryImageLabel *l, int parts) {
  json_t *extra = json_loads(l->extra, 0, NULL);
  if (!extra) return error_set(&r->error, PLAIT_FAILED, "what rank %d has left of it is not whole", l->rank);
  int code = fence(r);
  if (!code) code = sync_log(l->log, &r->error);
  if (!code) code = checkpoint_finish(l->dir, r->step, parts, extra, &r->error);
  if (!code) r->saved = true;
  if (!code) code = checkpoint_prune(l->dir, r->step, l->keep, &r->error);
  json_decref(extra);
  return code;
}

static int await_parts(Rescue *r, const MemoryImageLabel *l, const RescueFolder *folder, const RescueLoss *loss) {
  for (int part = 0; part < l->ranks; part++)
    for (;;) {
      bool all_ended = others_have_ended(r, folder); // looked at before the part, which is written before
      if (checkpoint_part_is_written(l->dir, r->step, part)) break;
      if (all_ended) return error_set(&r->error, PLAIT_FAILED, "another machine has not written its part");
      if (is_changed(r, loss)) return error_set(&r->error, PLAIT_FAILED, "%s", lost_part);
      if (rescue_folder_has_failed(folder))
        return error_set(&r->error, PLAIT_FAILED, "another machine cannot write its part, and says why");
      nap();
    }
  return PLAIT_OK;
}

// Creates the checkpoint's folder. Returns 1, and creates nothing, where the disk already has a complete checkpoint of
// this step or of a later one.
static int begin(Rescue *r, const char *dir) {
  int code = r->lock < 0 ? take_lock(r) : PLAIT_OK;
  if (code) return code;
  return newest_on_disk(dir) >= r->step ? 1 : checkpoint_begin(dir, r->step, &r->error);
}

// The machine of rank 0, or the first that is left.
static int lead(Rescue *r, const RescueFolder *folder, const RescueLoss *loss) {
  int code = choose_step(r, folder, loss);
  if (code) return code;
  const MemoryImageLabel *l = leading_label(r);
  if (!l) return error_set(&r->error, PLAIT_FAILED, "what rank 0 has left of it is not whole");
  code = begin(r, l->dir);
  if (code > 0) return PLAIT_OK;
  if (!code && r->several) code = rescue_folder_decide(folder, r->step, &r->error);
  if (!code) code = write_parts(r, folder);
  if (!code) code = await_parts(r, l, folder, loss);
  if (!code) code = commit(r, l, l->ranks);
  if (code && !r->saved && r->lock >= 0) checkpoint_abandon(l->dir, r->step);
  return code;
}

// The newest step of which all ranks here have images that together hold all; -1: there is none.
static int64_t newest_alone(const Rescue *r) {
  int64_t newest = -1;
  for (int i = 0; i < r->own; i++) {
    int64_t step = label_of(r, i)->step;
    int ranks = 0;
    for (int k = 0; k < r->own; k++) ranks += label_of(r, k)->step == step;
    if (label_of(r, i)->alone == ranks && step > newest) newest = step;
  }
  return newest;
}

// After another machine was lost, by the first that is left.
static int save_alone(Rescue *r) {
  r->step = newest_alone(r);
  if (r->step < 0) return error_set(&r->error, PLAIT_FAILED, "%s", lost_part);
  const MemoryImageLabel *l = leading_label(r);
  if (!l) return error_set(&r->error, PLAIT_FAILED, "what rank %d has left of it is not whole", r->first);
  int code = begin(r, l->dir);
  if (code > 0) return PLAIT_OK;
  if (!code) code = write_parts(r, NULL);
  if (!code) code = commit(r, l, l->alone);
  if (code && !r->saved && r->lock >= 0) checkpoint_abandon(l->dir, r->step);
  return code;
}

// The others.
static int help(Rescue *r, const RescueFolder *folder, const RescueLoss *loss) {
  int decided = 0;
  for (;;) {
    bool is_gone = FAULT(ended_leader_is_awaited, has_ended(r, loss->leader), false); // it decides before it ends
    decided = rescue_folder_decision(folder, &r->step);
    if (decided) break;
    if (is_gone || is_changed(r, loss) || clock_seconds() - r->began > 2 * meet_within + r->grace) break;
    nap();
  }
  if (decided < 0) return PLAIT_OK; // the machine that leads says why
  if (!decided) {
    if (!is_changed(r, loss)) rescue_folder_remove(folder); // else another one may still wait for what it says
    return error_set(&r->error, PLAIT_FAILED, "the machine of rank 0 is lost, or says nothing");
  }
  int code = write_parts(r, folder);
  if (code) rescue_folder_fail(folder);
  return code;
}

// With the machines that are left.
static int attempt(Rescue *r, const RescueLoss *loss) {
  RescueFolder folder = {r->run_folder, r->job, r->round, loss->machines};
  bool each_alone = !r->copied || (r->own && label_of(r, 0)->alone);
  r->error = (Error){0};
  r->step = -1;
  if (loss->machines && each_alone) return leads(r, loss) ? save_alone(r) : PLAIT_OK; // that one says what comes of it
  RescueNote note = own_note(r);
  int code = r->several ? rescue_folder_write(&folder, &note, &r->error) : PLAIT_OK;
  rescue_note_free(&note);
  if (!code) code = leads(r, loss) ? lead(r, &folder, loss) : help(r, &folder, loss);
  return code;
}

static void *rescue(void *context) {
  Rescue *r = context;
  RescueLoss loss;
  do {
    loss = loss_of(r);
    attempt(r, &loss);
  } while (!r->saved && !is_abandoned(r) && is_changed(r, &loss));
  for (int lost = 0; lost <= loss.machines && r->several && leads(r, &loss); lost++)
    rescue_folder_remove(&(RescueFolder){r->run_folder, r->job, r->round, lost});
  r->seconds = clock_seconds() - r->began;
  atomic_store(&r->done, true);
  return NULL;
}

// -------------------------------------------------------------------------------------------------------------------

Rescue *rescue_begin(const Workers *w, const RescuePlace *place) {
  Rescue *r = xcalloc(1, sizeof *r);
  *r = (Rescue){.round = place->round, .count = w->count, .lock = -1, .step = -1};
  snprintf(r->job, sizeof r->job, "%s", place->job);
  r->began = clock_seconds();
  r->grace = place->grace;
  r->first = w->count ? w->worker[0].rank : 0;
  r->loss = (RescueLoss){.ranks_left = place->ranks};
  r->several = place->ranks > w->count;
  r->copied = place->copied;
  pthread_mutex_init(&r->mutex, NULL);
  bool any = open_images(r, w, place);
  // Several machines may find different ones, so that all take part who could have any.
  if (r->several ? !any || !place->run_folder
                 : !r->images.count || newest_on_disk(label_of(r, 0)->dir) >= newest_image(r))
    return rescue_free(r), NULL;
  r->run_folder = xstrdup(r->several ? place->run_folder : label_of(r, 0)->dir);
  char *inner = r->several ? NULL : strrchr(r->run_folder, '/'); // RUN/checkpoints, which may not be there yet
  if (inner) *inner = 0;
  if (!thread_start(&r->thread, rescue, r, &r->error, "a thread that saves what workers have left")) return r;
  fprintf(stderr, "plait launch: %s\n", r->error.message);
  rescue_free(r);
  return NULL;
}

void rescue_lose(Rescue *r, const RescueLoss *loss) {
  pthread_mutex_lock(&r->mutex);
  r->loss = *loss;
  pthread_mutex_unlock(&r->mutex);
}

void rescue_ended(Rescue *r, int first) {
  bool known = has_ended(r, first);
  pthread_mutex_lock(&r->mutex);
  if (!known) vec_push(&r->ended, first);
  pthread_mutex_unlock(&r->mutex);
}

void rescue_abandon(Rescue *r) {
  pthread_mutex_lock(&r->mutex);
  r->abandoned = true;
  pthread_mutex_unlock(&r->mutex);
}

bool rescue_is_done(Rescue *r) { return atomic_load(&r->done); }

void rescue_end(Rescue *r) {
  if (!r) return;
  pthread_join(r->thread, NULL);
  if (r->saved)
    fprintf(stderr, "plait launch: step %lld was in the memory of the workers, and is saved now (%.2f s)\n",
            (long long)r->step, r->seconds);
  if (r->error.message[0])
    fprintf(stderr, "plait launch: what the workers kept in memory for a checkpoint%s: %s%s\n",
            r->saved ? "" : " is not saved", r->error.message,
            r->saved ? "" : "; what comes next resumes from the last checkpoint");
  rescue_free(r);
}
