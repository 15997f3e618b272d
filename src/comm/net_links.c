// Connections with other ranks: listening, connecting, letting in, and what the system says of all of them at once.
#include "comm/net_links.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/fault.h"
#include "net/proof.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 32, GUESTS_AT_ONCE = 16, MOST_TRIES = 1000, FEW_DESCRIPTORS = 256 };
static const double guest_seconds = 5, first_retry = 0.01, longest_retry = 1;
static const char purpose[] = "plait: messages between two ranks";

// What the first field of all that epoll knows says.
typedef enum Kind { KIND_LISTENER, KIND_GUEST, KIND_PEER, KIND_OUT, KIND_IN } Kind;

typedef struct Listener { int kind, fd; bool is_unix; } Listener; // fd -1: there is none

// What a connection goes through before it is a link: TLS, if asked for, and the proof.
typedef struct Greeting {
  Channel *channel;
  Proof proof;
  bool is_met, watches_output;
} Greeting;

typedef struct Guest {
  int kind;
  bool is_over; // it is freed when all that has happened has been seen
  Greeting greeting;
  double limit;
  struct Guest *next;
} Guest;

typedef struct Peer {
  int kind, rank;
  LinkAddress address;
  bool is_near;
  LinkOut *out; // NULL: nothing was sent to it yet
  LinkIn *in;   // NULL: nothing has come of it yet
  bool is_connecting;
  int fd;       // while the system connects; -1: there is a greeting, or it waits to try again
  Greeting greeting;
  double again; // when it tries again
  int tries;
  struct Peer *next; // of those that wait for it
} Peer;

struct Links {
  int rank, ranks, epoll;
  Match match;
  Peer *peer; // (ranks)
  Listener tcp, unix_socket;
  char path[LINK_PATH];
  Secret secret;
  bool encrypts, watches; // watches: there is a socket
  const char (*hosts)[HOST_NAME];
  Guest *guests, *over; // the newest first; that are over
  int guest_count;
  Peer *again;
  int malformed;      // the rank that has sent what no rank sends; -1: none
  uint64_t strangers;
  double looked;      // when the time of guests was looked at
};

Links *links_create(int rank, int ranks) {
  Links *l = xcalloc(1, sizeof *l);
  if (2 * ranks > FEW_DESCRIPTORS) descriptors_raise(); // two connections with each
  l->rank = rank;
  l->ranks = ranks;
  l->malformed = -1;
  l->tcp = (Listener){KIND_LISTENER, -1, false};
  l->unix_socket = (Listener){KIND_LISTENER, -1, true};
  l->epoll = epoll_create1(EPOLL_CLOEXEC);
  CHECK(l->epoll >= 0, "no epoll: %s", strerror(errno));
  l->peer = xcalloc((size_t)ranks, sizeof *l->peer);
  for (int r = 0; r < ranks; r++) l->peer[r].kind = KIND_PEER, l->peer[r].rank = r, l->peer[r].fd = -1;
  return l;
}

static void free_guests(Guest **list) {
  for (Guest *g = *list, *next; g; g = next) {
    next = g->next;
    channel_close(g->greeting.channel);
    free(g);
  }
  *list = NULL;
}

void links_destroy(Links *l) {
  if (!l) return;
  free_guests(&l->guests);
  free_guests(&l->over);
  for (int r = 0; r < l->ranks; r++) {
    Peer *p = &l->peer[r];
    link_out_destroy(p->out);
    link_in_destroy(p->in);
    channel_close(p->greeting.channel);
    if (p->fd >= 0) close(p->fd);
  }
  if (l->tcp.fd >= 0) close(l->tcp.fd);
  if (l->unix_socket.fd >= 0) close(l->unix_socket.fd);
  link_folder_remove(l->path);
  close(l->epoll);
  free(l->peer);
  free(l);
}

// Watching ----------------------------------------------------------------------------------------------------------

static void watch(Links *l, int fd, int operation, bool output, void *what) {
  l->watches = true;
  struct epoll_event event = {.events = output ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = what};
  CHECK(!epoll_ctl(l->epoll, operation, fd, &event), "epoll: %s", strerror(errno));
}

// A link whose socket is full is watched for room; a broken one is not watched any more.
static void watch_end(Links *l, LinkEnd *e) {
  if (e->malformed && l->malformed < 0) l->malformed = e->rank;
  if (!e->watched) return;
  int wanted = *e->broken ? LINK_UNWATCHED : e->full ? LINK_WATCHED_BOTH : LINK_WATCHED;
  if (wanted == e->watched) return;
  if (wanted == LINK_UNWATCHED) epoll_ctl(l->epoll, EPOLL_CTL_DEL, e->fd, NULL);
  else watch(l, e->fd, EPOLL_CTL_MOD, wanted == LINK_WATCHED_BOTH, e);
  e->watched = wanted;
}

static void watch_first(Links *l, LinkEnd *e, Kind kind) {
  e->kind = (int)kind;
  e->watched = LINK_WATCHED;
  watch(l, e->fd, EPOLL_CTL_MOD, false, e); // what became of a greeting is watched already
}

// Greetings ---------------------------------------------------------------------------------------------------------

// Words of a rank: which it is, and whom it looks for (of who listens: anybody).
static bool expects_rank(const uint64_t words[PROOF_WORDS], const void *context) {
  const Links *l = context;
  bool is_other = words[0] < (uint64_t)l->ranks && words[0] != (uint64_t)l->rank;
  return is_other && FAULT(guests_come_twice, !l->peer[words[0]].in, true) && words[1] == (uint64_t)l->rank;
}

static bool expects_peer(const uint64_t words[PROOF_WORDS], const void *context) {
  const Peer *p = context;
  return FAULT(anybody_listens, words[0] == (uint64_t)p->rank, true);
}

// NULL and false: no memory.
static bool greet(Links *l, Greeting *g, int fd, Peer *to) {
  ProofTerms terms = {.secret = &l->secret,
                      .purpose = purpose,
                      .words = {(uint64_t)l->rank, to ? (uint64_t)to->rank : 0},
                      .expects = to ? expects_peer : expects_rank,
                      .context = to ? (void *)to : (void *)l};
  *g = (Greeting){.channel = channel_open(fd, !to, l->encrypts ? &l->secret : NULL)};
  if (g->channel) proof_begin(&g->proof, &terms, !to);
  return g->channel != NULL;
}

// As far as the socket lets it. READS and WRITES: not yet.
static ProofState advance(Greeting *g) {
  if (!g->is_met) {
    int met = channel_greet(g->channel);
    if (met < 0) proof_ended(&g->proof);
    if (met <= 0) return met < 0 ? PROOF_REFUSED : PROOF_READS;
    g->is_met = true;
  }
  for (;;) {
    ProofState state = proof_state(&g->proof);
    if (state != PROOF_READS && state != PROOF_WRITES) return state;
    size_t bytes;
    const void *out = state == PROOF_WRITES ? proof_output(&g->proof, &bytes) : NULL;
    void *in = state == PROOF_READS ? proof_input(&g->proof, &bytes) : NULL;
    ssize_t n = out ? channel_send(g->channel, out, bytes) : channel_receive(g->channel, in, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return state;
    if (n <= 0) proof_ended(&g->proof);
    else if (out) proof_sent(&g->proof, (size_t)n);
    else proof_received(&g->proof, (size_t)n);
  }
}

static void watch_greeting(Links *l, Greeting *g, ProofState state, void *what) {
  bool output = state == PROOF_WRITES;
  if (output != g->watches_output) watch(l, channel_fd(g->channel), EPOLL_CTL_MOD, output, what);
  g->watches_output = output;
}

static void drop_greeting(const Links *l, Greeting *g) {
  epoll_ctl(l->epoll, EPOLL_CTL_DEL, channel_fd(g->channel), NULL);
  channel_close(g->channel);
  g->channel = NULL;
}

// Guests ------------------------------------------------------------------------------------------------------------

// Takes it from the list; it is freed later, as what is known of it may still be waiting to be seen.
static void leave_list(Links *l, Guest *g) {
  Guest **link = &l->guests;
  while (*link != g) link = &(*link)->next;
  *link = g->next;
  l->guest_count--;
  g->is_over = true;
  g->next = l->over;
  l->over = g;
}

static void turn_away(Links *l, Guest *g) {
  l->strangers++;
  leave_list(l, g);
  drop_greeting(l, &g->greeting);
}

static void turn_away_oldest(Links *l) {
  Guest *g = l->guests;
  while (g && g->next) g = g->next;
  if (g) turn_away(l, g);
}

static void host_guest(Links *l, Guest *g) {
  ProofState state = advance(&g->greeting);
  if (state == PROOF_REFUSED) {
    turn_away(l, g);
  } else if (state == PROOF_DONE) {
    Peer *p = &l->peer[proof_words(&g->greeting.proof)[0]];
    leave_list(l, g);
    p->in = link_in_create(g->greeting.channel, l->encrypts, p->rank, &l->match);
    g->greeting.channel = NULL;
    watch_first(l, link_in_end(p->in), KIND_IN);
    link_in_read(p->in); // what has come with the end of the greeting
    watch_end(l, link_in_end(p->in));
  } else {
    watch_greeting(l, &g->greeting, state, g);
  }
}

// Who has come to a listener. Who sends nothing is there until others need its place.
static void admit(Links *l, const Listener *at) {
  for (int i = 0; i < GUESTS_AT_ONCE; i++) {
    int fd = net_accept(at->fd, 0);
    if (fd == -EMFILE || fd == -ENFILE) turn_away_oldest(l);
    if (fd < 0) return;
    if (at->is_unix && !FAULT(any_user_may_come, net_is_own_user(fd), true)) {
      l->strangers++;
      close(fd);
      continue;
    }
    if (FAULT(guests_are_unlimited, l->guest_count == LINKS_GUESTS, false)) turn_away_oldest(l);
    Guest *g = xcalloc(1, sizeof *g);
    *g = (Guest){.kind = KIND_GUEST, .limit = clock_seconds() + guest_seconds, .next = l->guests};
    if (!greet(l, &g->greeting, fd, NULL)) {
      free(g);
      continue;
    }
    l->guests = g;
    l->guest_count++;
    watch(l, fd, EPOLL_CTL_ADD, false, g);
    host_guest(l, g);
  }
}

static void look_at_time(Links *l) {
  double now = clock_seconds();
  if (now - l->looked < 0.1) return;
  l->looked = now;
  for (Guest *g = l->guests, *next; g; g = next) {
    next = g->next;
    if (now > g->limit) turn_away(l, g);
  }
}

// Connecting --------------------------------------------------------------------------------------------------------

static void cannot_connect(Links *l, Peer *p, const char *why) {
  link_break(&p->out->end, "%s", why);
  p->is_connecting = false;
}

// The other side has ended the connection before it knew who this is: it has many guests, or was busy for long.
static void try_again(Links *l, Peer *p) {
  double wait = first_retry * (1 << (p->tries < 8 ? p->tries : 8));
  if (++p->tries > MOST_TRIES) return cannot_connect(l, p, "it has ended each connection before the first message");
  p->again = clock_seconds() + (wait < longest_retry ? wait : longest_retry);
  p->next = l->again;
  l->again = p;
}

static void meet(Links *l, Peer *p) {
  ProofState state = advance(&p->greeting);
  if (state == PROOF_DONE) {
    link_out_open(p->out, p->greeting.channel, l->encrypts);
    p->greeting.channel = NULL;
    p->is_connecting = false;
    watch_first(l, &p->out->end, KIND_OUT);
    link_out_write(p->out);
    watch_end(l, &p->out->end);
  } else if (state == PROOF_REFUSED) {
    char why[PROOF_REASON + 40];
    bool has_ended = p->greeting.proof.refusal == REFUSAL_LEFT;
    snprintf(why, sizeof why, "what listens there %s", proof_reason(&p->greeting.proof));
    drop_greeting(l, &p->greeting);
    if (has_ended) try_again(l, p);
    else cannot_connect(l, p, why);
  } else {
    watch_greeting(l, &p->greeting, state, p);
  }
}

static void connect_to(Links *l, Peer *p) {
  NetAddress at;
  p->is_connecting = true;
  if (!p->is_near) at = link_address_get(&p->address);
  p->fd = p->is_near ? net_connect_begin_unix(p->address.path) : net_connect_begin(&at);
  if (p->fd == -EAGAIN) try_again(l, p); // a Unix socket's queue is full
  else if (p->fd < 0) cannot_connect(l, p, strerror(-p->fd));
  else watch(l, p->fd, EPOLL_CTL_ADD, true, p);
}

// The system has connected, or cannot; then there is the greeting.
static void advance_peer(Links *l, Peer *p) {
  if (p->greeting.channel) return meet(l, p);
  if (p->fd < 0) return;
  int fd = p->fd, problem = net_connect_result(fd);
  p->fd = -1;
  if (problem || (p->is_near && !net_is_own_user(fd))) {
    close(fd);
    cannot_connect(l, p, problem ? strerror(-problem) : "another user listens there");
    return;
  }
  watch(l, fd, EPOLL_CTL_MOD, false, p);
  if (greet(l, &p->greeting, fd, p)) meet(l, p);
  else cannot_connect(l, p, "out of memory");
}

static void connect_again(Links *l) {
  double now = clock_seconds();
  for (Peer **link = &l->again, *p; (p = *link);) {
    if (now < p->again) {
      link = &p->next;
      continue;
    }
    *link = p->next;
    connect_to(l, p);
    if (l->again == p) break; // it waits once more
  }
}

// Progress ----------------------------------------------------------------------------------------------------------

static unsigned see(Links *l, void *what, uint32_t events) {
  unsigned moves = 0;
  switch ((Kind) * (int *)what) {
  case KIND_LISTENER: admit(l, what); break;
  case KIND_GUEST:
    if (!((Guest *)what)->is_over) host_guest(l, what);
    break;
  case KIND_PEER: advance_peer(l, what); break;
  case KIND_OUT: {
    LinkOut *o = what;
    moves = link_out_read(o);
    if (moves || events & EPOLLOUT) moves += link_out_write(o);
    watch_end(l, &o->end);
    break;
  }
  case KIND_IN: {
    LinkIn *in = l->peer[((LinkEnd *)what)->rank].in;
    moves = link_in_read(in);
    watch_end(l, what);
    break;
  }
  }
  return moves;
}

unsigned links_progress(Links *l) {
  struct epoll_event events[EVENTS];
  unsigned moves = 0;
  if (!l->watches) return 0;
  int n = epoll_wait(l->epoll, events, EVENTS, 0);
  for (int i = 0; i < n; i++) moves += see(l, events[i].data.ptr, events[i].events);
  if (l->guests) look_at_time(l);
  if (l->over) free_guests(&l->over);
  if (l->again) connect_again(l);
  return moves;
}

// Listening ---------------------------------------------------------------------------------------------------------

int links_listen_tcp(Links *l, const NetAddress *interface_address, LinkAddress *address, Error *error) {
  NetAddress at = *interface_address;
  char text[80];
  net_set_port(&at, 0);
  l->tcp.fd = net_listen(&at);
  net_describe_host(&at, text, sizeof text);
  if (l->tcp.fd < 0)
    return error_set(error, PLAIT_FAILED, "rank %d cannot listen at %s: %s", l->rank, text, strerror(-l->tcp.fd));
  link_address_set(address, &at);
  return PLAIT_OK;
}

int links_listen_unix(Links *l, LinkAddress *address, Error *error) {
  l->unix_socket.fd = link_folder_listen(l->path);
  if (l->unix_socket.fd < 0)
    return error_set(error, PLAIT_FAILED, "rank %d cannot listen at a socket in a folder of its own: %s", l->rank,
                     strerror(-l->unix_socket.fd));
  memcpy(address->path, l->path, sizeof address->path);
  return PLAIT_OK;
}

void links_set_peer(Links *l, int rank, const LinkAddress *address, bool is_near) {
  l->peer[rank].address = *address;
  l->peer[rank].is_near = is_near;
}

void links_begin(Links *l, const Secret *secret, bool encrypts, const char (*hosts)[HOST_NAME]) {
  l->secret = *secret;
  l->secret.encrypts = FAULT(links_do_not_encrypt, encrypts, false);
  l->encrypts = encrypts;
  l->hosts = hosts;
  if (l->tcp.fd >= 0) watch(l, l->tcp.fd, EPOLL_CTL_ADD, false, &l->tcp);
  if (l->unix_socket.fd >= 0) watch(l, l->unix_socket.fd, EPOLL_CTL_ADD, false, &l->unix_socket);
}

// Messages ----------------------------------------------------------------------------------------------------------

void links_send(Links *l, LinkMessage *m, int rank, uint64_t tag, bool answer) {
  Peer *p = &l->peer[rank];
  m->tag = tag;
  m->answer = answer;
  if (rank == l->rank) {
    link_send_self(&l->match, m, tag, rank);
    return;
  }
  if (!p->out) {
    p->out = link_out_create(NULL, false, rank);
    connect_to(l, p);
  }
  link_send(p->out, m);
  if (p->is_connecting || *p->out->end.broken || p->out->end.full) return;
  link_out_write(p->out);
  watch_end(l, &p->out->end);
}

void links_receive(Links *l, LinkMessage *m, int rank, uint64_t tag) {
  m->tag = tag;
  link_receive(&l->match, m, tag, rank);
  for (int r = rank >= 0 ? rank : 0; r < (rank >= 0 ? rank + 1 : l->ranks); r++) // who has sent it may have an answer
    if (l->peer[r].in) watch_end(l, link_in_end(l->peer[r].in));
}

void links_forget(Links *l, LinkMessage *m, int rank, bool receives) {
  if (receives || rank == l->rank) link_forget(m, rank >= 0 ? l->peer[rank].in : NULL);
  else link_out_forget(l->peer[rank].out, m);
}

bool links_are_idle(const Links *l) {
  for (int r = 0; r < l->ranks; r++) {
    const Peer *p = &l->peer[r];
    if (p->out && !*p->out->end.broken && !link_out_is_idle(p->out)) return false;
    if (p->in && !*link_in_end(p->in)->broken && !link_in_is_idle(p->in)) return false;
  }
  return true;
}

const char *links_broken(const Links *l, int *rank, bool receives) {
  const Peer *p = *rank >= 0 ? &l->peer[*rank] : NULL;
  if (l->malformed >= 0) {
    *rank = l->malformed;
    p = &l->peer[*rank];
    return p->in && link_in_end(p->in)->malformed ? link_in_end(p->in)->broken : p->out->end.broken;
  }
  if (!p) return NULL;
  if (receives) return p->in && *link_in_end(p->in)->broken ? link_in_end(p->in)->broken : NULL;
  return p->out && *p->out->end.broken ? p->out->end.broken : NULL;
}

void links_describe(const Links *l, int rank, char *text, size_t size) {
  const char *how = rank == l->rank ? "self" : l->peer[rank].is_near ? "unix" : "tcp";
  snprintf(text, size, "%s%s", how, l->encrypts && rank != l->rank ? "+tls" : "");
}

uint64_t links_strangers(const Links *l) { return l->strangers; }
