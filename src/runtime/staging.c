// Copying a rank's Variables while the next step runs.
#include "runtime/staging.h"
#include "base/fault.h"
#include "runtime/observer.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ALIGNMENT = 64 }; // bytes, of each piece

struct Staging {
  Executor *executor;
  const State *state;
  // The same memory by a queue of its own, and with the instances of the Variables as they were at staging_begin: the
  // rank goes on to use its own.
  State view;
  CheckpointTensor *from, *to; // (count) in the view and in `memory`
  int count;
  char *memory;
  int64_t bytes;
  int observed;                // between staging_begin and staging_end
  pthread_mutex_t mutex;
  pthread_cond_t copied;
  int pending;                 // staging_copy is not done yet
};

static int64_t piece_bytes(const CheckpointTensor *t) {
  Box box = checkpoint_box(t);
  return t->primary ? box_elements(&box) * (int64_t)dtype_size(t->dtype) : 0;
}

static int64_t pieces_bytes(const CheckpointTensor *pieces, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += round_up(piece_bytes(&pieces[i]), ALIGNMENT);
  return round_up(bytes, (int64_t)sysconf(_SC_PAGESIZE));
}

int64_t staging_bytes(const Program *program, int rank) {
  State nowhere = {.program = program, .rank = rank}; // says which boxes there are; nothing is read of it
  CheckpointTensor *pieces;
  int count = state_tensors(&nowhere, CHECKPOINT_KINDS, &pieces);
  int64_t bytes = pieces_bytes(pieces, count);
  free(pieces);
  return bytes;
}

static int take_memory(Staging *s, Error *error) {
  if (!s->bytes) return PLAIT_OK;
  void *p = mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED)
    return error_set(error, PLAIT_NO_MEMORY,
                     "rank %d: no %lld bytes for the copy of the state that checkpoint.async needs: %s; set "
                     "checkpoint.async to off",
                     s->state->rank, (long long)s->bytes, strerror(errno));
  s->memory = p;
  return PLAIT_OK;
}

// Row-major, one piece behind the other.
static void place_pieces(Staging *s) {
  s->count = state_tensors(&s->view, CHECKPOINT_KINDS, &s->from);
  s->to = xcalloc((size_t)s->count + 1, sizeof *s->to);
  char *at = s->memory;
  for (int i = 0; i < s->count; i++) {
    s->to[i] = s->from[i];
    s->to[i].access = NULL;
    s->to[i].owner = NULL;
    s->to[i].data = piece_bytes(&s->from[i]) ? at : NULL;
    at += round_up(piece_bytes(&s->from[i]), ALIGNMENT);
  }
}

int staging_create(State *state, Executor *executor, Staging **out, Error *error) {
  Staging *s = xcalloc(1, sizeof *s);
  *s = (Staging){.executor = executor, .state = state, .view = *state};
  s->bytes = staging_bytes(state->program, state->rank);
  s->view.queue = NULL;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->copied, NULL);
  int code = device_queue_create(state->device, NULL, &s->view.queue, error);
  if (!code) code = take_memory(s, error);
  if (code) {
    staging_destroy(s);
    return code;
  }
  place_pieces(s);
  *out = s;
  return PLAIT_OK;
}

void staging_destroy(Staging *s) {
  if (!s) return;
  if (s->observed) executor_observe(s->executor, OBSERVER_STAGING, NULL);
  device_queue_destroy(s->view.queue);
  if (s->memory) munmap(s->memory, (size_t)s->bytes);
  pthread_mutex_destroy(&s->mutex);
  pthread_cond_destroy(&s->copied);
  free(s->from);
  free(s->to);
  free(s);
}

const CheckpointTensor *staging_tensors(const Staging *s, int *count) {
  *count = s->count;
  return s->to;
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
    if (t->variable >= 0 && t->copy < 0 && CHECKPOINT_KINDS >> g->variable.data[t->variable].kind & 1) return 1;
  }
  return 0;
}

static void see(void *self, const Observation *seen) {
  Staging *s = self;
  if (writes_state(s->state->program->graph, seen->node)) await_copy(s);
}

// COLLECTIVE: a REDUCE issues one of END before the INSTRUCTION that waits for it.
const ObserverDef observer_staging = {"staging", OBSERVES(INSTRUCTION) | OBSERVES(COLLECTIVE), 0, see};

void staging_begin(Staging *s) {
  s->view.turn = s->state->turn;
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

int staging_copy(Staging *s, Error *error) {
#ifdef PLAIT_FAULTS
  FAULT(copy_is_not_awaited, (void)0, be_late());
#endif
  for (int i = 0; i < s->count; i++) {
    if (!s->to[i].data) continue;
    Box box = checkpoint_box(&s->from[i]);
    state_read(&s->view, s->from[i].id, -1, &box, s->to[i].data);
  }
  int code = device_drain(s->view.queue, error);
  end_copy(s);
  return code;
}
