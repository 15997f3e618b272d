// Sending what is in memory to the next machine, and keeping what the machine before sends.
#include "elastic/copies.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/memory_usage.h"
#include "base/thread.h"
#include "base/units.h"
#include "base/vec.h"
#include "checkpoint/checksum.h"
#include "net/server.h"
#include "net/socket.h"
#include "elastic/copies_protocol.h"
#include "elastic/store.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_EVERY = 20, RETRY_EVERY = 300 }; // milliseconds
static const double greeting_seconds = 5, connect_seconds = 2, piece_seconds = 60, patience = 10;

enum { MOST_CONNECTIONS = 64 }; // of which one is of the machine before
enum { MOST_HELD = 2 }; // the newest whole copy of a rank, and the one that is coming
enum { RESERVE = 8 };   // of the memory that is left, copies leave one part in so many

// The copies of one rank of the machine before.
typedef struct Held { int rank, newest; } Held; // newest: index of the whole one, -1: none; its files are 2 i, 2 i + 1

struct Copies {
  const Workers *workers;
  CopiesPlace place;
  char run[WORKER_RUN], next[256], next_host[100];
  Secret secret;
  bool is_secret;
  int listener, stop[2]; // closing stop[1] ends the sender
  pthread_t sender;
  bool sends;            // its thread is there
  Server *server;        // whose thread takes
  // The sender's:
  Channel *out;
  double failing_since;  // clock_seconds; 0: it can reach the next machine
  bool told_unreachable, told_late;
  // The taker's:
  Connection *in;        // of the machine before; NULL: there is none
  CopyFrame frame;       // that is coming
  int64_t have;          // bytes of it that have come; -1: none is coming
  int slot, fd;          // the Held of its rank; its file, -1: no memory could be had
  Vec(Held) held;
  Vec(int) files;        // two of each of them
  bool told_memory, told_malformed;
};

// Sending -------------------------------------------------------------------------------------------------------------

// Whether the thread is to end; waits for that up to this time.
static bool is_stopped(const Copies *c, int milliseconds) {
  struct pollfd stop = {c->stop[0], POLLIN, 0};
  return poll(&stop, 1, milliseconds) > 0;
}

// Until the connection can be used, within the time for a piece.
static bool is_ready(const Copies *c, const Channel *channel, short events) {
  struct pollfd fd[2] = {{c->stop[0], POLLIN, 0}, {channel_fd(channel), events, 0}};
  int ready = poll(fd, 2, (int)(1000 * piece_seconds));
  return ready > 0 && !fd[0].revents;
}

static bool put(const Copies *c, Channel *channel, const void *data, size_t bytes) {
  for (const char *at = data; bytes;) {
    ssize_t n = channel_send(channel, at, bytes);
    if (n >= 0) at += n, bytes -= (size_t)n;
    else if ((errno != EAGAIN && errno != EINTR) || !is_ready(c, channel, POLLOUT)) return false;
  }
  return true;
}

static bool take(const Copies *c, Channel *channel, void *data, size_t bytes) {
  for (char *at = data; bytes;) {
    ssize_t n = channel_receive(channel, at, bytes);
    if (n > 0) at += n, bytes -= (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !is_ready(c, channel, POLLIN)) return false;
  }
  return true;
}

// The file in which a worker has a complete image of that step; -1: it has none.
static int image_of(const Copies *c, const Worker *worker, int64_t step, MemoryImageHead *head) {
  for (int k = 0; k < WORKER_MEMORIES; k++)
    if (memory_image_peek(worker->memory[k], c->run, head) && head->step == step) return worker->memory[k];
  return -1;
}

// The newest step that all workers here have which have a place in the mesh. *first: the first one's. -1: none, or each
// machine has all of the state anyway.
static int64_t newest_here(const Copies *c, MemoryImageHead *first) {
  const Workers *w = c->workers;
  int64_t newest = -1;
  for (int k = 0; k < WORKER_MEMORIES; k++) {
    MemoryImageHead head, other;
    if (!memory_image_peek(w->worker[0].memory[k], c->run, &head) || head.alone || head.step <= newest) continue;
    int have = 1;
    while (have < w->count && w->worker[have].rank < head.ranks &&
           image_of(c, &w->worker[have], head.step, &other) >= 0)
      have++;
    if (have < w->count && w->worker[have].rank < head.ranks) continue;
    newest = head.step;
    *first = head;
  }
  return newest;
}

static void tell_unreachable(Copies *c, const char *why) {
  double now = clock_seconds();
  if (!c->failing_since) c->failing_since = now;
  if (c->told_unreachable || now - c->failing_since < patience) return;
  c->told_unreachable = true;
  fprintf(stderr, "plait launch: the memory of the workers here is not copied to %s: %s\n", c->next_host, why);
}

static bool connect_next(Copies *c) {
  NetAddress at;
  Error error = {0};
  CopyGreeting mine = copy_greeting(c->run);
  int fd = -1;
  if (net_resolve(c->next, c->place.next_port, &at, &error)) return tell_unreachable(c, error.message), false;
  fd = net_connect(&at, clock_seconds() + connect_seconds);
  if (fd < 0) return tell_unreachable(c, strerror(-fd)), false;
  c->out = channel_open(fd, false, c->is_secret ? &c->secret : NULL);
  bool met = c->out && channel_meet(c->out, clock_seconds() + greeting_seconds);
  char why[200] = "the connection ends";
  if (c->out && !met) snprintf(why, sizeof why, "what listens there %s", channel_reason(c->out));
  if (met && put(c, c->out, &mine, sizeof mine)) return true;
  channel_close(c->out);
  c->out = NULL;
  return tell_unreachable(c, why), false;
}

static bool put_end(Copies *c, CopyEnd end) {
  CopyPiece piece = {.end = end};
  return put(c, c->out, &piece, sizeof piece);
}

// Its worker may replace the image at any time: the bytes count if its head is the same behind them.
static bool send_image(Copies *c, int fd, const MemoryImageHead *head, bool *overtaken) {
  CopyFrame frame = {.step = head->step, .bytes = head->bytes, .rank = head->rank, .ranks = head->ranks,
                     .made = head->made};
  MemoryImageHead now;
  CopyReply reply;
  copy_frame_sign(&frame);
  char *data = xcalloc(COPY_PIECE, 1);
  bool good = put(c, c->out, &frame, sizeof frame);
  for (int64_t at = 0; good && at < head->bytes;) {
    size_t bytes = head->bytes - at < COPY_PIECE ? (size_t)(head->bytes - at) : COPY_PIECE;
    if (pread(fd, data, bytes, (off_t)at) != (ssize_t)bytes) break;
    CopyPiece piece = {(uint32_t)bytes, COPY_GOES_ON, checksum_of(data, bytes)};
    good = put(c, c->out, &piece, sizeof piece) && put(c, c->out, data, bytes);
    at += (int64_t)bytes;
  }
  free(data);
  bool same = memory_image_peek(fd, c->run, &now) && memory_image_same(&now, head);
  *overtaken = FAULT(torn_copies_are_sent, !same, false);
  return good && put_end(c, *overtaken ? COPY_IS_OVERTAKEN : COPY_IS_WHOLE) &&
         take(c, c->out, &reply, sizeof reply) && copy_reply_is_valid(&reply, &frame);
}

// false: the connection is lost. What a worker has replaced meanwhile is not sent on: the next step will be.
static bool send_step(Copies *c, int64_t step) {
  const Workers *w = c->workers;
  for (int i = 0; i < w->count; i++) {
    MemoryImageHead head;
    bool overtaken = false;
    int fd = image_of(c, &w->worker[i], step, &head);
    if (fd < 0) continue;
    if (!send_image(c, fd, &head, &overtaken)) return false;
    if (overtaken) break;
  }
  return true;
}

static void tell_late(Copies *c, int64_t step, double seconds) {
  MemoryImageHead head;
  int64_t now = newest_here(c, &head);
  if (c->told_late || now <= step) return;
  c->told_late = true;
  fprintf(stderr,
          "plait launch: the copy of step %lld took %.1f s to %s, and the workers have step %lld by now: where a "
          "machine is lost meanwhile, a step may be lacking; a larger checkpoint.memory_every gives copies more "
          "time\n",
          (long long)step, seconds, c->next_host, (long long)now);
}

static void *send_all(void *context) {
  Copies *c = context;
  MemoryImageHead sent = {.step = -1}, due = {.step = -1};
  for (int pause = LOOK_EVERY; !is_stopped(c, pause);) {
    pause = LOOK_EVERY;
    if (newest_here(c, &due) < 0 || memory_image_same(&due, &sent)) continue;
    pause = RETRY_EVERY;
    if (!c->out && !connect_next(c)) continue;
    double began = clock_seconds();
    if (send_step(c, due.step)) {
      sent = due;
      pause = 0;
      c->failing_since = 0;
      tell_late(c, due.step, clock_seconds() - began);
      continue;
    }
    channel_close(c->out);
    c->out = NULL;
    tell_unreachable(c, "the connection ends");
  }
  return NULL;
}

// Taking --------------------------------------------------------------------------------------------------------------

// The index of the rank's Held.
static int held_of(Copies *c, int rank) {
  for (int i = 0; i < c->held.count; i++)
    if (c->held.data[i].rank == rank) return i;
  vec_push(&c->held, ((Held){rank, -1}));
  for (int k = 0; k < MOST_HELD; k++) {
    char name[48];
    snprintf(name, sizeof name, "plait copy of rank %d, %d", rank, k);
    vec_push(&c->files, memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (c->files.data[c->files.count - 1] >= 0) fcntl(c->files.data[c->files.count - 1], F_ADD_SEALS, F_SEAL_SHRINK);
  }
  return c->held.count - 1;
}

// Where the next copy goes, so that the newest whole one stays meanwhile.
static int next_slot(const Held *h) { return FAULT(copies_replace_the_whole_one, h->newest == 0, h->newest == 1); }

static int64_t file_bytes(int fd) {
  struct stat s;
  return fd >= 0 && !fstat(fd, &s) ? s.st_size : 0;
}

// Bytes that a copy in this file may have. What a machine announces may be anything, and is taken from the system at
// once, which would kill processes for it.
static int64_t room_in(const Copies *c, int fd) {
  int64_t room = c->place.most;
  for (int i = 0; i < c->files.count; i++) room -= file_bytes(c->files.data[i]);
  if (!c->place.most) {
    room = memory_usage_available();
    if (room < 0) return INT64_MAX;
    room -= room / RESERVE;
  }
  return room + file_bytes(fd);
}

static int take_memory(const Copies *c, int fd, const CopyFrame *f, Error *error) {
  int64_t room = room_in(c, fd);
  if (FAULT(copies_of_any_size, f->bytes <= room, true)) return memory_copy_begin(fd, f->bytes, error);
  return error_set(error, PLAIT_NO_MEMORY, "its copy is to have %s, and there is room for %s",
                   units_bytes((double)f->bytes).s, units_bytes(room > 0 ? (double)room : 0).s);
}

// The file descriptor for a new copy, or -1 if memory for it cannot be allocated.
static int begin_copy(Copies *c, int held, const CopyFrame *f) {
  Error error = {0};
  int fd = c->files.data[MOST_HELD * held + next_slot(&c->held.data[held])];
  if (!take_memory(c, fd, f, &error)) return fd;
  if (!c->told_memory)
    fprintf(stderr, "plait launch: copies of other machines' memory are not kept here: rank %d: %s\n", f->rank,
            error.message);
  c->told_memory = true;
  return -1;
}

static int64_t malformed(Copies *c, Connection *in) {
  if (!c->told_malformed)
    fprintf(stderr, "plait launch: what the machine before this one sends is damaged, or is not a copy of its "
                    "workers' memory; its connection was closed\n");
  c->told_malformed = true;
  return connection_end(in, SERVER_LEFT), 0;
}

// Of a new sender. The one before is forgotten: it was the same machine's.
static int64_t greet(Copies *c, Connection *in, const void *data) {
  CopyGreeting theirs;
  memcpy(&theirs, data, sizeof theirs);
  in->proven = copy_greeting_is_of(&theirs, c->run);
  if (!in->proven) return -1;
  if (c->in) connection_end(c->in, SERVER_LEFT);
  c->in = in;
  c->have = -1;
  in->head = sizeof(CopyFrame);
  return 0;
}

static int64_t take_frame(Copies *c, Connection *in, const void *data) {
  memcpy(&c->frame, data, sizeof c->frame);
  if (!copy_frame_is_valid(&c->frame, c->place.ranks)) return malformed(c, in);
  c->slot = held_of(c, c->frame.rank);
  c->fd = begin_copy(c, c->slot, &c->frame);
  c->have = 0;
  in->head = sizeof(CopyPiece);
  return 0;
}

// After the last piece.
static void end_frame(Copies *c, Connection *in, bool is_whole) {
  const CopyFrame *f = &c->frame;
  MemoryImageHead head = {.step = f->step, .bytes = f->bytes, .rank = f->rank, .ranks = f->ranks, .made = f->made};
  bool kept = FAULT(half_sent_copy_counts, is_whole, true) && c->fd >= 0 && memory_copy_complete(c->fd, c->run, &head);
  if (kept) c->held.data[c->slot].newest = next_slot(&c->held.data[c->slot]);
  connection_send(in, &(CopyReply){f->step, f->rank, kept}, sizeof(CopyReply));
  c->have = -1;
  in->head = sizeof(CopyFrame);
}

static int64_t take_piece(Copies *c, Connection *in, const unsigned char *data, size_t bytes) {
  CopyPiece piece;
  Error error = {0};
  memcpy(&piece, data, sizeof piece);
  if (!copy_piece_is_valid(&piece, c->frame.bytes - c->have)) return malformed(c, in);
  if (piece.end != COPY_GOES_ON) return end_frame(c, in, piece.end == COPY_IS_WHOLE), 0;
  if (bytes == sizeof piece) return piece.bytes;
  bool damaged = checksum_of(data + sizeof piece, piece.bytes) != piece.checksum;
  if (FAULT(damaged_copies_are_kept, damaged, false)) return malformed(c, in);
  if (c->fd >= 0 && memory_copy_write(c->fd, c->have, data + sizeof piece, piece.bytes, &error))
    connection_end(in, SERVER_LEFT);
  c->have += piece.bytes;
  return 0;
}

static int64_t take_message(void *context, Connection *in, const unsigned char *data, size_t bytes) {
  Copies *c = context;
  if (!in->proven) return greet(c, in, data);
  return c->have < 0 ? take_frame(c, in, data) : take_piece(c, in, data, bytes);
}

static void leave(void *context, Connection *in) {
  Copies *c = context;
  if (c->in == in) c->in = NULL;
}

static void tell(void *context, const char *sentence) { fprintf(stderr, "plait launch: %s\n", sentence); }

// -------------------------------------------------------------------------------------------------------------------

static int take_here(Copies *c, const CopiesPlace *place, Error *error) {
  NetAddress at;
  char text[80], name[120];
  int code = net_resolve(place->address, place->port, &at, error);
  if (!code) code = store_check_address(&at, place->insecure, error);
  if (code) return code;
  net_describe(&at, text, sizeof text);
  c->listener = net_listen(&at);
  if (c->listener < 0) return error_set(error, PLAIT_FAILED, "%s: %s", text, strerror(-c->listener));
  snprintf(name, sizeof name, "the port for copies of memory at %s", text);
  const ServerOptions options = {.name = name, .listener = c->listener, .secret = c->is_secret ? &c->secret : NULL,
                                 .meeting_seconds = greeting_seconds, .proof_seconds = greeting_seconds,
                                 .most = MOST_CONNECTIONS, .head = sizeof(CopyGreeting),
                                 .most_out = sizeof(CopyReply), .context = c, .take = take_message, .leave = leave,
                                 .tell = tell};
  code = server_open(&options, &c->server, error);
  return code ? code : server_start(c->server, error, "a thread that takes copies of memory");
}

int copies_start(const Workers *workers, const CopiesPlace *place, Copies **out, Error *error) {
  Copies *c = xcalloc(1, sizeof *c);
  *c = (Copies){.workers = workers, .place = *place, .listener = -1, .stop = {-1, -1}};
  snprintf(c->run, sizeof c->run, "%s", workers->run);
  snprintf(c->next, sizeof c->next, "%s", place->next);
  snprintf(c->next_host, sizeof c->next_host, "%s", place->next_host);
  int code = secret_of_environment(&c->secret, &c->is_secret, error);
  if (!code && !c->is_secret && FAULT(copies_ask_nobody, *place->secret, 0)) {
    code = secret_of_text(place->secret, &c->secret, error);
    c->is_secret = true;
  }
  if (!code) code = take_here(c, place, error);
  if (!code && pipe2(c->stop, O_CLOEXEC)) code = error_set(error, PLAIT_FAILED, "no pipe: %s", strerror(errno));
  if (!code) code = thread_start(&c->sender, send_all, c, error, "a thread that copies memory to another machine");
  c->sends = !code;
  if (code) copies_end(c);
  else *out = c;
  return code;
}

void copies_stop(Copies *c) {
  if (!c) return;
  if (c->stop[1] >= 0) close(c->stop[1]); // the other end is ready to be read
  if (c->sends) pthread_join(c->sender, NULL);
  server_close(c->server);
  if (c->stop[0] >= 0) close(c->stop[0]);
  if (c->listener >= 0) close(c->listener);
  channel_close(c->out);
  c->stop[0] = c->stop[1] = c->listener = -1;
  c->sends = false;
  c->server = NULL;
  c->out = NULL;
}

int copies_files(const Copies *c, const int **fd) {
  *fd = c ? c->files.data : NULL;
  return c ? c->files.count : 0;
}

void copies_end(Copies *c) {
  if (!c) return;
  copies_stop(c);
  for (int i = 0; i < c->files.count; i++)
    if (c->files.data[i] >= 0) close(c->files.data[i]);
  vec_free(&c->files);
  vec_free(&c->held);
  free(c);
}
