// Copying a rank's Variables while the next step runs.
#include "runtime/staging.h"
#include "base/fault.h"
#include "runtime/machine_state.h"
#include "runtime/observer.h"
#include <pthread.h>
#include <time.h>

struct Staging {
  Executor *executor;
  const State *state;
  // The same memory by a separate queue, and with the instances of the Variables as they were at staging_begin: the
  // rank continues to use its own.
  State view;
  CheckpointTensor *from; // (count) in the view
  int count;
  MemoryImage *image[WORKER_MEMORIES];
  int current;            // the image of the copy that is under way, or was last
  int observed;           // between staging_begin and staging_end
  pthread_mutex_t mutex;
  pthread_cond_t copied;
  int pending;            // staging_copy is not done yet
};

int64_t staging_bytes(const Program *program, int rank) {
  State nowhere = {.program = program, .rank = rank}; // says which boxes there are; nothing is read of it
  CheckpointTensor *pieces;
  int count = state_tensors(&nowhere, variable_is_saved, &pieces);
  int64_t bytes = memory_image_bytes(pieces, count);
  free(pieces);
  return bytes;
}

int staging_create(State *state, Executor *executor, const StagingOptions *o, Staging **out, Error *error) {
  Staging *s = xcalloc(1, sizeof *s);
  *s = (Staging){.executor = executor, .state = state, .view = *state};
  s->view.queue = NULL;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->copied, NULL);
  s->count = state_tensors(&s->view, variable_is_saved, &s->from);
  if (o->job) machine_mark_spare(o->job, o->first, state->rank, s->from, s->count);
  int code = device_queue_create(state->device, NULL, &s->view.queue, error);
  for (int i = 0; i < o->images && !code; i++)
    if ((code = memory_image_create(o->fd ? o->fd[i] : -1, s->from, s->count, &s->image[i], error))) {
      error_name_rank(error, state->rank, NULL);
      error_append(error, "; set checkpoint.async to off, and checkpoint.memory_every to 0");
    }
  if (code) staging_destroy(s);
  else *out = s;
  return code;
}

void staging_destroy(Staging *s) {
  if (!s) return;
  if (s->observed) executor_observe(s->executor, OBSERVER_STAGING, NULL);
  device_queue_destroy(s->view.queue);
  for (int i = 0; i < WORKER_MEMORIES; i++) memory_image_close(s->image[i]);
  pthread_mutex_destroy(&s->mutex);
  pthread_cond_destroy(&s->copied);
  free(s->from);
  free(s);
}

const CheckpointTensor *staging_tensors(const Staging *s, int image, int *count) {
  return memory_image_pieces(s->image[image], count);
}

// Waiting -----------------------------------------------------------------------------------------------------------

static void await_copy(Staging *s) {
  pthread_mutex_lock(&s->mutex);
  UNLESS_FAULT(copy_is_not_awaited) while (s->pending) pthread_cond_wait(&s->copied, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
}

static int writes_state(const Graph *g, const Node *n) {
  for (int k = 0; k < n->noutput; k++) {
    const Tensor *t = graph_tensor(g, n->output[k]);
    if (t->variable >= 0 && t->copy < 0 && variable_is_saved(&g->variable.data[t->variable])) return 1;
  }
  return 0;
}

static void see(void *self, const Observation *seen) {
  Staging *s = self;
  if (writes_state(s->state->program->graph, seen->node)) await_copy(s);
}

// COLLECTIVE: a REDUCE issues one of END before the INSTRUCTION that waits for it.
const ObserverDef observer_staging = {"staging", OBSERVES(INSTRUCTION) | OBSERVES(COLLECTIVE), 0, see};

void staging_begin(Staging *s, int image) {
  s->view.turn = s->state->turn;
  s->current = image;
  s->pending = 1; // before the thread that copies is started or told
  s->observed = 1;
  executor_observe(s->executor, OBSERVER_STAGING, s);
}

void staging_end(Staging *s) {
  if (!s->observed) return;
  pthread_mutex_lock(&s->mutex);
  while (s->pending) pthread_cond_wait(&s->copied, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
  executor_observe(s->executor, OBSERVER_STAGING, NULL);
  s->observed = 0;
}

#ifdef PLAIT_FAULTS
// Long enough that the step is over.
static void be_late(void) { nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL); }
#endif

static void end_copy(Staging *s) {
  pthread_mutex_lock(&s->mutex);
  s->pending = 0;
  pthread_cond_broadcast(&s->copied);
  pthread_mutex_unlock(&s->mutex);
}

void staging_abandon(Staging *s) {
  end_copy(s);
  staging_end(s);
}

// For tests: a copy that takes longer than it needs is met by kills.
static void linger(const Staging *s) {
  if (s->state->program->chaos) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

int staging_copy(Staging *s, const MemoryImageLabel *label, Error *error) {
#ifdef PLAIT_FAULTS
  FAULT(copy_is_not_awaited, (void)0, be_late());
#endif
  MemoryImage *image = s->image[s->current];
  int count;
  const CheckpointTensor *to = memory_image_pieces(image, &count);
  memory_image_begin(image);
  for (int i = 0; i < count; i++) {
    if (!to[i].data) continue;
    Box box = checkpoint_box(&s->from[i]);
    state_read(&s->view, s->from[i].id, -1, &box, to[i].data);
    linger(s);
  }
  int code = device_drain(s->view.queue, error);
  if (!code) code = memory_image_complete(image, label, error);
  end_copy(s); // what is awaited is whole: of one of the last two steps all ranks have the image
  return code;
}
