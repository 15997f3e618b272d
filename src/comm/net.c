// A world of net: finds the other ranks, listens for them, opens UCX where it is needed, connects the watch.
#include "base/clock.h"
#include "base/fault.h"
#include "comm/net.h"
#include "comm/net_record.h"
#include "comm/net_world.h"
#include "comm/rendezvous.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static void read_boot(char *boot, size_t size) {
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!file) return;
  if (!fgets(boot, (int)size, file)) *boot = 0;
  boot[strcspn(boot, "\n")] = 0;
  fclose(file);
}

static uint64_t space_of(const char *path) {
  struct stat space;
  return stat(path, &space) ? 0 : (uint64_t)space.st_ino;
}

static NetPlace find_place(void) {
  NetPlace here = {.processes = space_of("/proc/self/ns/pid"), .segments = space_of("/proc/self/ns/ipc"),
                .files = space_of("/proc/self/ns/mnt"), .user = (uint64_t)geteuid()};
  if (gethostname(here.host, sizeof here.host - 1)) strcpy(here.host, "unknown host");
  read_boot(here.boot, sizeof here.boot);
  return here;
}

static void warn(const NetAddress *address, int rank) {
  if (rank || net_is_loopback(address) || secret_is_users()) return;
  fprintf(stderr,
          "note: PLAIT_INSECURE is set: whoever reaches this network can join this run and read what it says\n");
}

// What travels is neither encrypted nor authenticated.
static int refuse_address(const NetAddress *address, int rank, Error *error) {
  char text[80];
  if (net_is_loopback(address) || secret_lets_listen()) return warn(address, rank), PLAIT_OK;
  net_describe(address, text, sizeof text);
  return error_set_about(error, PLAIT_BAD_INPUT, &(ErrorFacts){.key = "run.comm"},
                         "run.comm: net would listen at %s, where others could reach it, and what ranks say is neither "
                         "encrypted nor authenticated; use MASTER_ADDR=127.0.0.1 on one machine, give plait launch "
                         "--secret FILE (or all ranks PLAIT_SECRET=FILE), or set PLAIT_INSECURE=1 if nobody else is in "
                         "that network",
                         text);
}

typedef struct Making { // of a world
  NetOptions options;
  NetAddress address;  // of rank 0
  int listener;        // of its watch; -1: none
  Rendezvous *rendezvous; // NULL: not begun, or over
  NetPlace place;
  bool has_near, has_far, has_shared; // ranks to which Unix sockets, TCP or UCX carry messages
  bool all_share_memory;
  Record mine;
  void **records;      // (ranks)
  size_t *lengths;
} Making;

static int listen_anywhere(const Making *m, NetAddress *at, int *listener, Error *error) {
  char text[80];
  *at = m->address;
  net_set_port(at, 0);
  *listener = net_listen(at);
  if (*listener >= 0) return PLAIT_OK;
  net_describe(at, text, sizeof text);
  return error_set(error, PLAIT_BAD_INPUT, "rank 0 cannot listen at %s: %s (MASTER_ADDR must be its own machine)", text,
                   strerror(-*listener));
}

static int check_own_address(const Making *m, Error *error) {
  NetAddress at;
  int listener, code = m->options.rank ? PLAIT_OK : listen_anywhere(m, &at, &listener, error);
  if (!m->options.rank && !code) UNLESS_FAULT(watch_listens_unattended) close(listener);
  return code;
}

// When all ranks have come: until then nobody would look at who connects.
static int open_watch_port(Making *m, Error *error) {
  NetAddress at;
  if (m->options.rank) return PLAIT_OK;
  int code = listen_anywhere(m, &at, &m->listener, error);
  if (code) return code;
  m->mine.watch_port = (uint32_t)net_port(&at);
  if (getrandom(&m->mine.token, sizeof m->mine.token, 0) != sizeof m->mine.token)
    return error_set(error, PLAIT_FAILED, "the system gives no random numbers: %s", strerror(errno));
  return PLAIT_OK;
}

static int exchange(Making *m, const void *mine, size_t bytes, bool (*is_valid)(const void *data, size_t bytes),
                    Error *error) {
  int code = m->rendezvous->exchange(m->rendezvous, mine, bytes, m->records, m->lengths, error);
  for (int r = 0; r < m->options.ranks && !code; r++)
    if (!is_valid(m->records[r], m->lengths[r]))
      code = error_set(error, PLAIT_FAILED, "the record of rank %d is not one of this version of plait", r);
  return code;
}

static void drop_records(Making *m) {
  for (int r = 0; r < m->options.ranks; r++) free(m->records[r]), m->records[r] = NULL;
}

static const char *const wire_names[] = {"auto", "sockets", "ucx", "tcp", "mixed"}; // of NetWireChoice

static int refuse_choice(const Making *m, int rank, const NetPlace *other, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT, "run.wire is %s on rank %d, but %s on rank %d; it must be the same on all",
                   wire_names[other->wire], rank, wire_names[m->place.wire], m->options.rank);
}

// What carries messages to each rank. Nothing listens yet: what does depends on this.
static int exchange_places(Making *m, NetWorld *w, Error *error) {
  int code = rendezvous_tcp(&m->options, &m->address, w->has_secret ? &w->job : NULL, &m->rendezvous, error);
  if (!code) code = exchange(m, &m->place, sizeof m->place, place_is_valid, error);
  w->carriers = xcalloc((size_t)m->options.ranks, sizeof *w->carriers);
  m->all_share_memory = !code;
  for (int r = 0; r < m->options.ranks && !code; r++) {
    const NetPlace *other = m->records[r];
    NetCarrier carrier = carrier_between(&m->place, m->options.rank, other, r);
    if (other->wire != m->place.wire) code = refuse_choice(m, r, other, error);
    w->carriers[r] = carrier;
    m->has_near |= carrier == CARRIER_UNIX;
    m->has_far |= carrier == CARRIER_TCP;
    m->has_shared |= carrier == CARRIER_UCX;
    m->all_share_memory = m->all_share_memory && places_share_memory(m->records[0], other);
  }
  w->is_all_shared = m->place.wire == NET_WIRE_UCX;
  drop_records(m);
  return code;
}

// All ranks find the same.
static int check_encryption(const Making *m, const NetWorld *w, Error *error) {
  bool in_clear = w->is_all_shared && !m->all_share_memory && secret_encrypts();
  if (FAULT(ucx_says_it_encrypts, !in_clear, true)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--encrypt (PLAIT_ENCRYPT is 1) and run.wire: ucx contradict each other, where "
                   "ranks are on several machines: UCX does not encrypt what they say");
}

// By which this machine reaches rank 0, and so the others: nothing listens at all addresses.
static int own_address(const Making *m, NetAddress *own, Error *error) {
  *own = m->address;
  int code = m->options.rank ? net_own_address(&m->address, own) : 0;
  return !code ? PLAIT_OK
               : error_set(error, PLAIT_FAILED, "rank %d has no address by which it reaches rank 0: %s",
                           m->options.rank, strerror(-code));
}

static int open_carriers(Making *m, NetWorld *w, Error *error) {
  char interface[64] = "lo";
  NetAddress own;
  int code = PLAIT_OK;
  w->links = links_create(m->options.rank, m->options.ranks);
  if (m->has_far) code = own_address(m, &own, error);
  if (m->has_far && !code) code = links_listen_tcp(w->links, &own, &m->mine.link, error);
  if (m->has_near && !code) code = links_listen_unix(w->links, &m->mine.link, error);
  if (!m->has_shared || code) return code;
  net_interface(&m->address, interface, sizeof interface);
  NetSharedTerms terms = {.rank = m->options.rank, .ranks = m->options.ranks, .host = w->base.host,
                          .interface = interface, .is_users = w->is_all_shared,
                          .memory_only = !w->is_all_shared || m->all_share_memory};
  return net_shared_open(&terms, &w->shared, error);
}

// This rank's record goes out, all ranks' come in.
static int exchange_records(Making *m, NetWorld *w, Error *error) {
  void *address = NULL;
  size_t bytes = 0;
  int code = w->shared ? net_shared_address(w->shared, &address, &bytes, error) : PLAIT_OK;
  if (code) return code;
  m->mine.address_bytes = (uint32_t)bytes;
  char *record = xcalloc(1, sizeof m->mine + bytes);
  memcpy(record, &m->mine, sizeof m->mine);
  if (bytes) memcpy(record + sizeof m->mine, address, bytes);
  free(address);
  code = exchange(m, record, sizeof m->mine + bytes, record_is_valid, error);
  for (int r = 0; r < m->options.ranks && !code; r++)
    if (r != m->options.rank && !record_has(m->records[r], w->carriers[r]))
      code = error_set(error, PLAIT_FAILED, "the record of rank %d does not say where that rank can be reached", r);
  free(record);
  return code;
}

// (ranks) that of the first rank of the same machine.
static int *number_machines(const Making *m) {
  int *machines = xcalloc((size_t)m->options.ranks, sizeof *machines);
  for (int r = 0; r < m->options.ranks; r++)
    while (!record_same_machine(m->records[machines[r]], m->records[r])) machines[r]++;
  return machines;
}

static int connect_all(Making *m, NetWorld *w, Error *error) {
  int code = PLAIT_OK, n = m->options.ranks, local = 0;
  const Record *first = m->records[0];
  NetAddress watch = m->address;
  w->hosts = xcalloc((size_t)n, sizeof *w->hosts);
  for (int r = 0; r < n; r++) {
    const Record *other = m->records[r];
    memcpy(w->hosts[r], other->host, HOST_NAME - 1);
    local += record_same_machine(other, &m->mine);
  }
  process_world_init(&w->base, &net_wire, m->options.rank, n, local);
  if (local < n) w->base.machines = number_machines(m);
  // Known to the ranks of this world alone: who knows the token and, if the job has one, the secret.
  Secret secret = secret_derive(w->has_secret ? &w->job : NULL, "plait: the ranks of a world", &first->token, 1);
  for (int r = 0; r < n; r++) {
    const Record *other = m->records[r];
    if (w->carriers[r] == CARRIER_UCX) net_shared_set_peer(w->shared, r, other + 1, other->address_bytes);
    else links_set_peer(w->links, r, &other->link, w->carriers[r] == CARRIER_UNIX);
  }
  links_begin(w->links, &secret, secret_encrypts(), (const char (*)[HOST_NAME])w->hosts);
  if (w->shared) net_shared_begin(w->shared, &secret);
  net_set_port(&watch, (int)first->watch_port);
  if (!code)
    code = net_watch_create(&w->base, m->listener, &watch, &secret, (const char (*)[HOST_NAME])w->hosts,
                            m->options.silence, clock_seconds() + m->options.patience, &w->watch, error);
  return code;
}

static int make(Making *m, NetWorld *w, Error *error) {
  int code = net_resolve(m->options.host, m->options.port, &m->address, error);
  if (!code && m->options.several) code = net_check_name(m->options.host, &m->address, error);
  if (code) return error_prefix(error, "MASTER_ADDR, the machine of rank 0");
  code = refuse_address(&m->address, m->options.rank, error);
  if (code) return code;
  code = check_own_address(m, error);
  if (!code) code = exchange_places(m, w, error);
  if (!code) code = check_encryption(m, w, error);
  if (!code) code = open_carriers(m, w, error);
  if (!code) code = open_watch_port(m, error);
  if (!code) code = exchange_records(m, w, error);
  if (m->rendezvous) m->rendezvous->close(m->rendezvous), m->rendezvous = NULL;
  if (!code) code = connect_all(m, w, error);
  if (!code) code = net_watch_start(w->watch, error);
  if (!code) code = process_world_start(&w->base, error);
  return code;
}

// What is half made. The others see that this rank has gone.
static void unmake(NetWorld *w) {
  Error why = {0};
  error_set(&why, PLAIT_FAILED, "the world was not made");
  if (w->base.wire) abort_all(&w->base.base.abort, &why);
  net_watch_destroy(w->watch);
  net_close(w);
  if (w->base.wire) process_world_free(&w->base);
  free(w);
}

// run.wire, or where that leaves it open PLAIT_WIRE. A rank that lacks UCX says so; only run.wire: ucx needs it.
static int choose_wire(Making *m, Error *error) {
  const char *named = getenv("PLAIT_WIRE");
  NetWireChoice choice = m->options.wire;
  Error none = {0};
  if (choice == NET_WIRE_AUTO && named && *named) {
    while (choice <= NET_WIRE_MIXED && strcmp(named, wire_names[choice])) choice++;
    if (choice > NET_WIRE_MIXED)
      return error_set(error, PLAIT_BAD_INPUT, "PLAIT_WIRE is \"%.40s\"; it must be auto, sockets or ucx", named);
  }
  m->place.wire = choice;
  if (choice == NET_WIRE_UCX) return net_shared_load(error);
  m->place.has_ucx =
      (choice == NET_WIRE_AUTO || choice == NET_WIRE_MIXED) && m->options.ranks > 1 && !net_shared_load(&none);
  return PLAIT_OK;
}

int net_world_create(const NetOptions *options, PlaitWorld **world, Error *error) {
  Making m = {.options = *options, .listener = -1, .place = find_place()};
  *world = NULL;
  if (options->ranks < 1 || options->ranks > NET_MOST_RANKS || options->rank < 0 || options->rank >= options->ranks)
    return error_set(error, PLAIT_BAD_INPUT, "rank %d of %d: ranks are 0 to ranks - 1, of at most %d", options->rank,
                     options->ranks, NET_MOST_RANKS);
  if (m.options.silence <= 0) m.options.silence = NET_SILENCE;
  if (m.options.patience <= 0) m.options.patience = NET_PATIENCE;
  if (m.options.notice <= 0) m.options.notice = NET_NOTICE;
  NetWorld *w = xcalloc(1, sizeof *w);
  w->base.rank = options->rank;
  w->base.base.ranks = options->ranks;
  w->blamed = -1;
  w->base.tickets = 1 << (TAG_BITS - 1);
  w->base.control.handle = 1;
  memcpy(m.mine.host, m.place.host, sizeof m.mine.host);
  memcpy(m.mine.boot, m.place.boot, sizeof m.mine.boot);
  memcpy(w->base.host, m.place.host, sizeof w->base.host);
  size_t n = (size_t)options->ranks;
  m.records = xcalloc(n, sizeof *m.records);
  m.lengths = xcalloc(n, sizeof *m.lengths);
  int code = choose_wire(&m, error);
  if (!code) code = secret_of_environment(&w->job, &w->has_secret, error);
  if (!code) code = make(&m, w, error);
  drop_records(&m);
  free(m.records);
  free(m.lengths);
  if (m.listener >= 0) close(m.listener);
  if (code) unmake(w);
  else *world = &w->base.base;
  return code;
}

uint64_t net_strangers(PlaitWorld *world) {
  const NetWorld *w = (NetWorld *)world;
  return links_strangers(w->links) + (w->shared ? net_shared_strangers(w->shared) : 0);
}

size_t net_address(PlaitWorld *world, void *address, size_t most) {
  void *own;
  size_t bytes;
  Error error = {0};
  CHECK(!net_shared_address(((NetWorld *)world)->shared, &own, &bytes, &error) && bytes <= most);
  memcpy(address, own, bytes);
  free(own);
  return bytes;
}

void net_carriers(PlaitWorld *world, int rank, char *text, size_t size) {
  NetWorld *w = (NetWorld *)world;
  process_lock(&w->base);
  if (w->carriers[rank] == CARRIER_UCX) net_shared_describe(w->shared, rank, text, size);
  else links_describe(w->links, rank, text, size);
  process_unlock(&w->base);
}
