// Streams: one communication thread that runs queued calls in the order of issue.
#include "comm/comm.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Lists up to this long are stored without a later allocation.
enum { FIRST_TASKS = 64, FIRST_BUFFERS = 64, FIRST_NUMBERS = 64 };

typedef struct Task {
  PlaitComm *comm; // NULL: only waits for `after`
  PlaitEvent after;
  CommCall call; // its arrays are the ones below
  PlaitBuffer *buffers;
  size_t *numbers;
  size_t buffers_capacity, numbers_capacity;
} Task;

struct PlaitStream {
  PlaitTimeline timeline; // value v: the first v tasks are done
  pthread_t thread;
  Gate finished; // its lock guards the rest; opened when a task is done
  pthread_cond_t queued;
  Task **ring; // (capacity) task i at i % capacity; a power of 2. Tasks stay where they are when the ring grows
  size_t capacity;
  uint64_t issued, done;
  uint64_t failed; // the first task that failed and its code; UINT64_MAX while none has
  int code, stop, rank;
  uint64_t chaos; // state of the random delays before tasks; 0: none
};

static void delay(PlaitStream *s) {
  s->chaos ^= s->chaos << 13; // xorshift
  s->chaos ^= s->chaos >> 7;
  s->chaos ^= s->chaos << 17;
  if (!(s->chaos >> 32 & 1)) nanosleep(&(struct timespec){0, (long)(s->chaos % 300000)}, NULL);
}

static int run_task(Task *task) {
  PlaitTimeline *after = task->after.timeline;
  if (task->comm) return comm_run(task->comm, &task->call);
  return after ? after->wait(after, task->after.value, NULL) : PLAIT_OK;
}

static void *stream_thread(void *argument) {
  PlaitStream *s = argument;
  check_set_rank(s->rank);
  gate_lock(&s->finished);
  for (;;) {
    while (s->done == s->issued && !s->stop) pthread_cond_wait(&s->queued, &s->finished.lock);
    if (s->done == s->issued) break;
    Task *task = s->ring[s->done % s->capacity];
    gate_unlock(&s->finished);
    if (s->chaos) delay(s);
    int code = run_task(task);
    gate_lock(&s->finished);
    if (code < 0 && s->failed == UINT64_MAX) {
      s->failed = s->done;
      s->code = code;
    }
    s->done++;
    gate_open(&s->finished);
  }
  gate_unlock(&s->finished);
  return NULL;
}

// Returns when the first `value` tasks are done; a failed world makes all of them end, so this needs no abort of its own.
static int stream_reached(PlaitTimeline *timeline, uint64_t value, const Idle *idle) {
  PlaitStream *s = (PlaitStream *)timeline;
  gate_lock(&s->finished);
  while (s->done < value) gate_wait(&s->finished, idle);
  int code = s->failed < value ? s->code : PLAIT_OK;
  gate_unlock(&s->finished);
  return code;
}

static int stream_poll(PlaitTimeline *timeline, uint64_t value) {
  PlaitStream *s = (PlaitStream *)timeline;
  gate_lock(&s->finished);
  int state = s->done < value ? 0 : s->failed < value ? s->code : 1;
  gate_unlock(&s->finished);
  return state;
}

static Task *task_create(void) {
  Task *task = xcalloc(1, sizeof *task);
  task->buffers = xcalloc(task->buffers_capacity = FIRST_BUFFERS, sizeof *task->buffers);
  task->numbers = xcalloc(task->numbers_capacity = FIRST_NUMBERS, sizeof *task->numbers);
  // Written, so that the pages are there now and memory does not grow with the first calls.
  memset(task->buffers, 0, FIRST_BUFFERS * sizeof *task->buffers);
  memset(task->numbers, 0, FIRST_NUMBERS * sizeof *task->numbers);
  return task;
}

static void stream_free(PlaitStream *s) {
  for (size_t i = 0; i < s->capacity; i++) {
    free(s->ring[i]->buffers);
    free(s->ring[i]->numbers);
    free(s->ring[i]);
  }
  free(s->ring);
  pthread_cond_destroy(&s->queued);
  gate_destroy(&s->finished);
  free(s);
}

int plait_stream_create(PlaitComm *comm, PlaitStream **stream, PlaitError *error) {
  PlaitStream *s = xcalloc(1, sizeof *s);
  s->timeline = (PlaitTimeline){stream_reached, stream_poll, &comm->idle};
  s->rank = comm->ranks[comm->rank];
  s->failed = UINT64_MAX;
  s->ring = xcalloc(s->capacity = FIRST_TASKS, sizeof *s->ring);
  for (size_t i = 0; i < s->capacity; i++) s->ring[i] = task_create();
  gate_init(&s->finished, &comm->world->abort);
  pthread_cond_init(&s->queued, NULL);
  sigset_t all, before; // signals are for the main thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = pthread_create(&s->thread, NULL, stream_thread, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  *stream = status ? NULL : s;
  if (!status) return PLAIT_OK;
  stream_free(s);
  return error_set(error, PLAIT_FAILED, "rank %d cannot start a communication thread: %s", comm->ranks[comm->rank],
                   strerror(status));
}

void stream_set_chaos(PlaitStream *s, uint64_t seed) {
  gate_lock(&s->finished);
  s->chaos = seed * ((uint64_t)s->rank + 1);
  gate_unlock(&s->finished);
}

void plait_stream_destroy(PlaitStream *s) {
  if (!s) return;
  gate_lock(&s->finished);
  s->stop = 1;
  pthread_cond_signal(&s->queued);
  gate_unlock(&s->finished);
  pthread_join(s->thread, NULL);
  stream_free(s);
}

// With the lock held.
static void grow(PlaitStream *s) {
  Task **ring = xcalloc(2 * s->capacity, sizeof *ring);
  for (uint64_t i = s->done; i < s->done + s->capacity; i++) {
    ring[i % (2 * s->capacity)] = s->ring[i % s->capacity];
    ring[(i + s->capacity) % (2 * s->capacity)] = task_create();
  }
  free(s->ring);
  s->ring = ring;
  s->capacity *= 2;
}

static const size_t *copy_numbers(Task *task, size_t *used, const size_t *from, size_t n) {
  if (!from) return NULL;
  size_t *to = task->numbers + *used;
  memcpy(to, from, n * sizeof *to);
  *used += n;
  return to;
}

static void store(Task *task, PlaitComm *comm, const CommCall *call) {
  size_t n = (size_t)comm->size, used = 0;
  task->comm = comm;
  task->call = *call;
  if (call->nbuffers > task->buffers_capacity)
    task->buffers = xrealloc(task->buffers, (task->buffers_capacity = call->nbuffers) * sizeof *task->buffers);
  if (call->recv_counts && 4 * n > task->numbers_capacity)
    task->numbers = xrealloc(task->numbers, (task->numbers_capacity = 4 * n) * sizeof *task->numbers);
  if (call->nbuffers) memcpy(task->buffers, call->buffers, call->nbuffers * sizeof *task->buffers);
  task->call.buffers = task->buffers;
  task->call.send_counts = copy_numbers(task, &used, call->send_counts, n);
  task->call.send_offsets = copy_numbers(task, &used, call->send_offsets, n);
  task->call.recv_counts = copy_numbers(task, &used, call->recv_counts, n);
  task->call.recv_offsets = copy_numbers(task, &used, call->recv_offsets, n);
}

// Queues a call, or (comm NULL) a wait for `after`.
static void push(PlaitStream *s, PlaitComm *comm, const CommCall *call, PlaitEvent after, PlaitEvent *event) {
  gate_lock(&s->finished);
  if (s->issued - s->done == s->capacity) grow(s);
  Task *task = s->ring[s->issued % s->capacity];
  task->after = after;
  if (comm)
    store(task, comm, call);
  else
    task->comm = NULL;
  s->issued++;
  if (event) *event = (PlaitEvent){&s->timeline, s->issued};
  pthread_cond_signal(&s->queued);
  gate_unlock(&s->finished);
}

void stream_push(PlaitStream *stream, PlaitComm *comm, const CommCall *call, PlaitEvent *event) {
  push(stream, comm, call, (PlaitEvent){0}, event);
}

int plait_stream_wait(PlaitStream *stream, PlaitEvent event) {
  push(stream, NULL, NULL, event, NULL);
  return PLAIT_OK;
}

int plait_stream_synchronize(PlaitStream *s) {
  gate_lock(&s->finished);
  uint64_t value = s->issued;
  gate_unlock(&s->finished);
  return stream_reached(&s->timeline, value, s->timeline.idle);
}
