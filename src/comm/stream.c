// Streams: one communication thread that runs queued calls in the order of issue.
#include "comm/comm.h"
#include "comm/record_queue.h"
#include "base/thread.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST_CALLS = 64, FIRST_BUFFERS = 256 }; // queued at once without an allocation

typedef struct Task {
  PlaitComm *comm; // NULL: calls `function`, or where that is NULL only waits for `after`
  int (*function)(void *argument);
  union {
    PlaitEvent after;
    void *argument;
  };
  CommCall call;         // its lists are copies, which follow, unless the stream borrows them
  PlaitBuffer buffers[]; // and then the counts and offsets
} Task;

struct PlaitStream {
  PlaitTimeline timeline; // value v: the first v tasks are done
  Waiter waiter;          // its thread, which has nothing else to do
  pthread_t thread;
  Monitor finished; // its lock guards the rest; opened when a task is done
  pthread_cond_t queued;
  RecordQueue tasks; // that are not done; the first is under way
  int borrows;       // the callers' lists stay until the calls are done
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

static int run_task(const PlaitStream *s, Task *task) {
  if (task->comm) return comm_run(task->comm, &task->call, s->timeline.stream);
  if (task->function) return task->function(task->argument);
  PlaitTimeline *after = task->after.timeline;
  return after ? after->wait(after, task->after.value, &s->waiter) : PLAIT_OK;
}

static void *stream_thread(void *argument) {
  PlaitStream *s = argument;
  check_set_rank(s->rank);
  monitor_lock(&s->finished);
  for (;;) {
    while (s->done == s->issued && !s->stop) pthread_cond_wait(&s->queued, &s->finished.lock);
    if (s->done == s->issued) break;
    Task *task = record_queue_first(&s->tasks);
    monitor_unlock(&s->finished);
    if (s->chaos) delay(s);
    int code = run_task(s, task);
    monitor_lock(&s->finished);
    if (code < 0 && s->failed == UINT64_MAX) {
      s->failed = s->done;
      s->code = code;
    }
    record_queue_remove(&s->tasks);
    s->done++;
    monitor_notify_all(&s->finished);
  }
  monitor_unlock(&s->finished);
  return NULL;
}

// Returns when the first `value` tasks are done; a failed world makes all of them end, so this needs no abort of its
// own.
static int stream_reached(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  PlaitStream *s = (PlaitStream *)timeline;
  monitor_lock(&s->finished);
  while (s->done < value) monitor_wait(&s->finished, waiter);
  int code = s->failed < value ? s->code : PLAIT_OK;
  monitor_unlock(&s->finished);
  return code;
}

static int stream_poll(PlaitTimeline *timeline, uint64_t value) {
  PlaitStream *s = (PlaitStream *)timeline;
  monitor_lock(&s->finished);
  int state = s->done < value ? 0 : s->failed < value ? s->code : 1;
  monitor_unlock(&s->finished);
  return state;
}

static void stream_free(PlaitStream *s) {
  record_queue_free(&s->tasks);
  pthread_cond_destroy(&s->queued);
  monitor_destroy(&s->finished);
  free(s);
}

void stream_reserve(PlaitStream *s, size_t calls, size_t buffers) {
  record_queue_reserve(&s->tasks, calls, sizeof(Task), buffers * sizeof(PlaitBuffer));
}

void stream_borrow_lists(PlaitStream *s) { s->borrows = 1; }

int plait_stream_create(PlaitComm *comm, PlaitStream **stream, PlaitError *error) {
  PlaitStream *s = xcalloc(1, sizeof *s);
  s->rank = comm->ranks[comm->rank];
  LastCall *last = world_last(comm->world, s->rank);
  int word = atomic_fetch_add(&last->streams, 1) % LAST_CALL_STREAMS;
  s->timeline = (PlaitTimeline){stream_reached, stream_poll, &comm->waiter, last, .stream = word};
  s->waiter.alive = &last->stream_alive[word];
  s->failed = UINT64_MAX;
  stream_reserve(s, FIRST_CALLS, FIRST_BUFFERS);
  monitor_init(&s->finished, &comm->world->abort);
  pthread_cond_init(&s->queued, NULL);
  int code = thread_start(&s->thread, stream_thread, s, error, "the communication thread of rank %d", s->rank);
  if (code) error_says_rank(error, s->rank);
  *stream = code ? NULL : s;
  if (code) stream_free(s);
  return code;
}

void stream_set_chaos(PlaitStream *s, uint64_t seed) {
  monitor_lock(&s->finished);
  s->chaos = seed * ((uint64_t)s->rank + 1);
  monitor_unlock(&s->finished);
}

void plait_stream_destroy(PlaitStream *s) {
  if (!s) return;
  monitor_lock(&s->finished);
  s->stop = 1;
  pthread_cond_signal(&s->queued);
  monitor_unlock(&s->finished);
  pthread_join(s->thread, NULL);
  stream_free(s);
}

static const size_t *copy_numbers(size_t **to, const size_t *from, size_t n) {
  if (!from) return NULL;
  size_t *copy = *to;
  memcpy(copy, from, n * sizeof *copy);
  *to += n;
  return copy;
}

// Queues a call; comm NULL: nothing yet. With the lock held.
static Task *store(PlaitStream *s, PlaitComm *comm, const CommCall *call) {
  size_t n = comm ? (size_t)comm->size : 0, buffers = 0, counts = 0;
  if (comm) { // the list of a _v call is always another function's
    buffers = s->borrows && !call->recv_counts ? 0 : call->nbuffers;
    counts = (size_t)(!!call->send_counts + !!call->send_offsets + !!call->recv_counts + !!call->recv_offsets) * n;
  }
  Task *task = record_queue_add(&s->tasks, sizeof *task + buffers * sizeof *task->buffers + counts * sizeof(size_t));
  size_t *numbers = (size_t *)(void *)(task->buffers + buffers);
  task->comm = comm;
  task->function = NULL;
  task->after = (PlaitEvent){0};
  if (!comm) return task;
  task->call = *call;
  task->call.waiter = &s->waiter;
  if (buffers) task->call.buffers = memcpy(task->buffers, call->buffers, buffers * sizeof *task->buffers);
  task->call.send_counts = copy_numbers(&numbers, call->send_counts, n);
  task->call.send_offsets = copy_numbers(&numbers, call->send_offsets, n);
  task->call.recv_counts = copy_numbers(&numbers, call->recv_counts, n);
  task->call.recv_offsets = copy_numbers(&numbers, call->recv_offsets, n);
  return task;
}

// What was stored last is complete, and the lock is given up.
static void submit(PlaitStream *s, PlaitEvent *event) {
  s->issued++;
  if (event) *event = (PlaitEvent){&s->timeline, s->issued};
  pthread_cond_signal(&s->queued);
  monitor_unlock(&s->finished);
}

void stream_push(PlaitStream *s, PlaitComm *comm, const CommCall *call, PlaitEvent *event) {
  monitor_lock(&s->finished);
  store(s, comm, call);
  submit(s, event);
}

int plait_stream_wait(PlaitStream *s, PlaitEvent event) {
  monitor_lock(&s->finished);
  store(s, NULL, NULL)->after = event;
  submit(s, NULL);
  return PLAIT_OK;
}

int stream_run(PlaitStream *s, int (*function)(void *argument), void *argument, PlaitEvent *event) {
  monitor_lock(&s->finished);
  Task *task = store(s, NULL, NULL);
  task->function = function;
  task->argument = argument;
  submit(s, event);
  return PLAIT_OK;
}

int plait_stream_synchronize(PlaitStream *s) {
  monitor_lock(&s->finished);
  uint64_t value = s->issued;
  monitor_unlock(&s->finished);
  return timeline_wait(&s->timeline, value);
}
