// Pulses, notices, and ranks that are gone.
#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "comm/arrivals.h"
#include "comm/net_watch.h"
#include "comm/watch_frame.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// Between two pulses, at most; the shortest silence is several of them.
static const double longest_period = 0.1, settle_seconds = 0.5, stopped_seconds = 1, introduction_seconds = 5;
enum { SPARE_ARRIVALS = 256, RETRY_MILLISECONDS = 50 }; // connections beyond those of ranks, at a time

typedef struct Link {
  Channel *channel; // NULL: it is closed
  int leaves;
  double heard;    // when something came
  atomic_int gone; // its process has ended, or is silent
  uint64_t call;   // of its last pulse
  size_t have;     // bytes that have come and were not taken
  unsigned char came[FRAME_BYTES];
  size_t sent, whole; // of the frame that goes
  unsigned char goes[FRAME_BYTES];
} Link;

struct NetWatch {
  ProcessWorld *world;
  const char (*hosts)[HOST_NAME];
  _Atomic double silence;
  Link *link;           // (ranks) of rank 0 with all others; the others have one, with rank 0
  struct pollfd *polled; // (ranks + 1)
  int *whose;           // (ranks + 1)
  int wake;             // an eventfd
  pthread_t thread;
  int started;
  double pulsed, before; // when the thread has sent its last pulse; its last turn
  pthread_mutex_t lock; // of sending, and of what follows
  int told, leaves, stop;
  atomic_int left, silent; // silent: the world has failed because of a rank's silence
};

// Words -------------------------------------------------------------------------------------------------------------

// Whether the whole frame has gone.
static bool flush(Link *l) {
  while (l->sent < l->whole) {
    ssize_t n = channel_send(l->channel, l->goes + l->sent, l->whole - l->sent);
    if (n <= 0) return false;
    l->sent += (size_t)n;
  }
  return true;
}

// With the lock. One whose connection is full reads nothing, and is told nothing more until it does: it is silent
// anyway.
static void say(NetWatch *w, int rank, Word word, const void *data, size_t bytes) {
  Link *l = &w->link[rank];
  if (!l->channel || !flush(l)) return;
  l->whole = frame_write(l->goes, word, data, bytes);
  l->sent = 0;
  flush(l);
}

static void say_to_all(NetWatch *w, Word word, const void *data, size_t bytes, int except) {
  for (int r = 0; r < w->world->base.ranks; r++)
    if (r != except) say(w, r, word, data, bytes);
}

static void wake_up(NetWatch *w) {
  uint64_t one = 1;
  ssize_t n = write(w->wake, &one, sizeof one);
  (void)n; // it is full: the thread wakes up anyway
}

void net_watch_notify(NetWatch *w, const Notice *notice) {
  pthread_mutex_lock(&w->lock);
  if (!w->told) say_to_all(w, WORD_NOTICE, notice, sizeof *notice, w->world->rank);
  w->told = 1;
  pthread_mutex_unlock(&w->lock);
}

// By the watch's thread: rank 0 passes on what it hears first.
static void spread(NetWatch *w, Notice *notice, int from) {
  if (notice->silent) atomic_store(&w->silent, 1);
  process_noticed(w->world, notice);
  pthread_mutex_lock(&w->lock);
  if (!w->told) say_to_all(w, WORD_NOTICE, notice, sizeof *notice, from);
  w->told = 1;
  pthread_mutex_unlock(&w->lock);
}

void net_watch_settle(NetWatch *w) {
  double end = clock_seconds() + settle_seconds;
  while (!abort_code(&w->world->base.abort) && clock_seconds() < end) poll(NULL, 0, 5);
}

void net_watch_leave(NetWatch *w) {
  pthread_mutex_lock(&w->lock);
  if (w->world->rank) say(w, 0, WORD_LEAVE, NULL, 0);
  else w->leaves++;
  pthread_mutex_unlock(&w->lock);
  wake_up(w);
}

int net_watch_met_silence(NetWatch *w) { return atomic_load(&w->silent); }
int net_watch_left(NetWatch *w) { return atomic_load(&w->left); }
int net_watch_is_gone(const NetWatch *w, int rank) { return atomic_load(&w->link[rank].gone); }
void net_watch_set_silence(NetWatch *w, double seconds) { w->silence = seconds; }

// Ranks that are gone -----------------------------------------------------------------------------------------------

static void tell_gone(NetWatch *w, int rank, const char *how, bool silent, int from) {
  Notice notice = {.silent = silent};
  ErrorRank whose = error_rank(rank, w->hosts[rank]);
  char call[160];
  if (net_watch_left(w) || abort_code(&w->world->base.abort)) return;
  comm_last_describe(w->link[rank].call, call, sizeof call);
  error_set_about(&notice.error, PLAIT_FAILED, &(ErrorFacts){.rank = whose, .blamed = whose}, "rank %d on %s %s; %s",
                  rank, w->hosts[rank], how, call);
  spread(w, &notice, from);
}

// Whoever sees it finds the world failed, unless all have come to their end.
static void gone(NetWatch *w, int rank, const char *how, bool silent, int from) {
  tell_gone(w, rank, how, silent, from);
  atomic_store(&w->link[rank].gone, 1);
}

// time: not a later one than that of which the thread knows whether this process was stopped before it.
static void look_for_silence(NetWatch *w, double time) {
  double limit = w->silence;
  char how[96];
  snprintf(how, sizeof how, "is silent: nothing has come of it for %g s (run.silence)", limit);
  for (int r = 0; r < w->world->base.ranks; r++)
    if (w->link[r].channel && time - w->link[r].heard > FAULT(net_silence_unseen, limit, 1e9))
      gone(w, r, how, true, w->world->rank);
}

// Receiving ---------------------------------------------------------------------------------------------------------

static void take(NetWatch *w, int rank, Frame *frame) {
  Link *l = &w->link[rank];
  if (frame->word == WORD_PULSE) l->call = frame->call;
  if (frame->word == WORD_NOTICE) {
    frame->notice.error.blamed.rank = FAULT(net_blames_the_messenger, frame->notice.error.blamed.rank, rank);
    if (!abort_code(&w->world->base.abort)) spread(w, &frame->notice, rank);
  }
  if (frame->word == WORD_LEAVE && !l->leaves) {
    l->leaves = 1;
    pthread_mutex_lock(&w->lock);
    w->leaves++;
    pthread_mutex_unlock(&w->lock);
  }
  if (frame->word == WORD_LEFT) atomic_store(&w->left, 1);
}

// All that has come. NULL: the connection is fine; else how it ends.
static const char *receive(NetWatch *w, int rank, double now) {
  static const char ended[] = "has died: its connection has ended",
                    malformed[] = "has sent what is not a message of the watch, so its connection was closed";
  Link *l = &w->link[rank];
  for (;;) {
    Frame frame;
    int taken = frame_take(l->came, l->have, rank, w->world->base.ranks, &frame);
    if (taken < 0) return malformed;
    if (taken) {
      take(w, rank, &frame);
      l->have -= (size_t)taken;
      memmove(l->came, l->came + taken, l->have);
      continue;
    }
    pthread_mutex_lock(&w->lock); // TLS sends and receives by one state
    ssize_t n = channel_receive(l->channel, l->came + l->have, sizeof l->came - l->have);
    pthread_mutex_unlock(&w->lock);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return ended;
    if (n < 0 && errno == EAGAIN) return NULL;
    if (n < 0) continue;
    l->have += (size_t)n;
    l->heard = now;
  }
}

static void listen_to(NetWatch *w, int rank, double now) {
  Link *l = &w->link[rank];
  const char *how = receive(w, rank, now);
  if (!how) return;
  pthread_mutex_lock(&w->lock);
  channel_close(l->channel);
  l->channel = NULL;
  pthread_mutex_unlock(&w->lock);
  if (FAULT(net_death_unseen, false, true)) return;
  gone(w, rank, how, false, rank);
}

// The thread --------------------------------------------------------------------------------------------------------

static double period(const NetWatch *w) {
  double most = w->silence / 10;
  return most < longest_period ? most : longest_period;
}

static int gather_links(NetWatch *w) {
  int n = 0;
  w->polled[n++] = (struct pollfd){w->wake, POLLIN, 0};
  for (int r = 0; r < w->world->base.ranks; r++)
    if (w->link[r].channel)
      w->whose[n] = r, w->polled[n++] = (struct pollfd){channel_fd(w->link[r].channel), POLLIN, 0};
  return n;
}

static void pulse(NetWatch *w) {
  double alive;
  uint64_t call = comm_last(&w->world->base, w->world->rank, &alive);
  pthread_mutex_lock(&w->lock);
  say_to_all(w, WORD_PULSE, &call, sizeof call, w->world->rank);
  pthread_mutex_unlock(&w->lock);
}

// Rank 0: have all come to the end?
static void look_for_end(NetWatch *w) {
  pthread_mutex_lock(&w->lock);
  if (!w->world->rank && w->leaves == w->world->base.ranks && !net_watch_left(w)) {
    say_to_all(w, WORD_LEFT, NULL, 0, w->world->rank);
    atomic_store(&w->left, 1);
  }
  pthread_mutex_unlock(&w->lock);
}

static int stops(NetWatch *w) {
  pthread_mutex_lock(&w->lock);
  int stop = w->stop;
  pthread_mutex_unlock(&w->lock);
  return stop;
}

// What follows from the first n of `polled`.
static void turn(NetWatch *w, int n, double now) {
  uint64_t count;
  if (w->polled[0].revents && read(w->wake, &count, sizeof count) < 0) return;
  for (int i = 1; i < n; i++)
    if (w->polled[i].revents) listen_to(w, w->whose[i], now);
  if (now - w->before > stopped_seconds) // this process itself was stopped: what others sent meanwhile has been read
    for (int r = 0; r < w->world->base.ranks; r++) w->link[r].heard = now;
  w->before = now;
  if (now - w->pulsed >= period(w)) pulse(w), w->pulsed = now;
  look_for_end(w);
  look_for_silence(w, now);
}

void net_watch_turn(NetWatch *w, double now) {
  int n = gather_links(w);
  poll(w->polled, (nfds_t)n, 0);
  turn(w, n, now);
}

static void *watch_thread(void *argument) {
  NetWatch *w = argument;
  check_set_rank(w->world->rank);
  w->before = clock_seconds();
  while (!stops(w)) {
    int n = gather_links(w);
    poll(w->polled, (nfds_t)n, (int)(1000 * period(w)) + 1);
    turn(w, n, clock_seconds());
  }
  return NULL;
}

// Connecting --------------------------------------------------------------------------------------------------------

// Nothing follows an introduction.
static int64_t check_introduction(const void *head, const void *context) {
  const int *ranks = context;
  return introduction_is_valid(head, *ranks) ? 0 : -1;
}

// *strangers: connections that were closed because they did not introduce themselves as a rank; -1: the error says why
// none can be taken.
static int accept_all(NetWatch *w, int listener, const Secret *secret, double deadline, int *strangers, Error *error) {
  const int ranks = w->world->base.ranks;
  Welcome welcome = {.secret = secret, .head_bytes = sizeof(Introduction), .rest = check_introduction,
                     .context = &ranks, .meeting_seconds = introduction_seconds,
                     .answer_seconds = introduction_seconds, .most = ranks + SPARE_ARRIVALS};
  Arrivals arrivals;
  Channel *channel;
  void *answer;
  int here = 1;
  if (arrivals_begin(&arrivals, listener, &welcome, error)) return *strangers = -1, 0;
  while (here < ranks && arrivals_next(&arrivals, deadline, &channel, &answer)) {
    Link *l = &w->link[((Introduction *)answer)->rank];
    if (!l->channel) l->channel = channel, here++;
    else channel_close(channel), arrivals.refused++;
    free(answer);
  }
  arrivals_end(&arrivals);
  *strangers = arrivals.without_secret + arrivals.unanswered + arrivals.refused;
  return here == ranks;
}

// Again where rank 0 has closed this connection because hundreds of strangers came; a rank 0 that has gone does not
// listen any more.
static int connect_to_0(NetWatch *w, const NetAddress *address, const Secret *secret, double deadline) {
  Introduction me = {.rank = (uint32_t)w->world->rank};
  for (int fd; (fd = net_connect(address, deadline)) >= 0 && clock_seconds() < deadline;) {
    Channel *channel = channel_open(fd, false, secret);
    if (channel && channel_meet(channel, deadline) && channel_write(channel, &me, sizeof me, deadline))
      return w->link[0].channel = channel, 1;
    channel_close(channel);
    poll(NULL, 0, RETRY_MILLISECONDS);
  }
  return 0;
}

int net_watch_create(ProcessWorld *world, int listener, const NetAddress *address, const Secret *secret,
                     const char (*hosts)[HOST_NAME], double silence, double deadline, NetWatch **watch, Error *error) {
  size_t n = (size_t)world->base.ranks;
  NetWatch *w = xcalloc(1, sizeof *w);
  w->world = world;
  w->hosts = hosts;
  w->silence = silence;
  w->link = xcalloc(n, sizeof *w->link);
  w->polled = xcalloc(n + 1, sizeof *w->polled);
  w->whose = xcalloc(n + 1, sizeof *w->whose);
  pthread_mutex_init(&w->lock, NULL);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int strangers = 0, good = world->rank ? connect_to_0(w, address, secret, deadline)
                                        : accept_all(w, listener, secret, deadline, &strangers, error);
  w->before = clock_seconds();
  for (size_t r = 0; r < n; r++) w->link[r].heard = w->before;
  *watch = w;
  if (good && w->wake >= 0) return PLAIT_OK;
  if (strangers < 0) return PLAIT_FAILED;
  char closed[100] = "";
  if (strangers)
    snprintf(closed, sizeof closed, " (connections closed that did not come from a rank: %d)", strangers);
  return error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(world->rank, world->host)},
                         "rank %d on %s: %s%s", world->rank, world->host,
                         world->rank ? "rank 0 has gone" : "another rank has gone before the world was made", closed);
}

int net_watch_start(NetWatch *w, Error *error) {
  int code = thread_start(&w->thread, watch_thread, w, error, "the thread that watches other ranks");
  w->started = !code;
  return code;
}

void net_watch_destroy(NetWatch *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = 1;
  pthread_mutex_unlock(&w->lock);
  wake_up(w);
  if (w->started) pthread_join(w->thread, NULL);
  for (int r = 0; r < w->world->base.ranks; r++) channel_close(w->link[r].channel);
  if (w->wake >= 0) close(w->wake);
  pthread_mutex_destroy(&w->lock);
  free(w->link);
  free(w->polled);
  free(w->whose);
  free(w);
}
