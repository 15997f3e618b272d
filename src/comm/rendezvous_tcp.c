// The rendezvous at a TCP address of rank 0.
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "comm/arrivals.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous_parse.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORTS = 16, SPARE_ARRIVALS = 256 }; // spare: connections beyond those of ranks, at a time
static const double greeting_seconds = 2, meeting_seconds = 5, record_seconds = 10, retry_seconds = 0.05;

typedef struct TcpRendezvous {
  Rendezvous base;
  NetOptions options;
  NetAddress address;
  uint64_t run;
  int listener; // of rank 0; -1: none
  double deadline, notice_at; // when it gives up; when it says for whom it waits
  Channel **channel; // (ranks) of rank 0; the others have one, at 0
  bool met;          // an exchange has been done: all channels are there
  bool noticed;      // it has said so
  const Secret *secret; // NULL: there is none
  char reason[RENDEZVOUS_REASON]; // why the last attempt came to nothing
} TcpRendezvous;

static Greeting greeting_of(const TcpRendezvous *r) { return GREETING(r->options.ranks, r->run); }

// Rank 0 -----------------------------------------------------------------------------------------------------------

static int listen_somewhere(TcpRendezvous *r, Error *error) {
  int first = net_port(&r->address);
  char text[80];
  for (int i = 0; i < PORTS; i++) {
    NetAddress at = r->address;
    net_set_port(&at, first + i);
    r->listener = net_listen(&at);
    if (r->listener >= 0) return r->address = at, PLAIT_OK;
    if (r->listener != -EADDRINUSE && r->listener != -EACCES) break;
  }
  int code = -r->listener;
  r->listener = -1;
  net_describe(&r->address, text, sizeof text);
  return error_set(error, PLAIT_FAILED, "rank 0 cannot listen at %s, nor at the %d ports after it: %s", text, PORTS - 1,
                   strerror(code));
}

// Bytes of the record that an answer announces.
static int64_t record_bytes(const void *head, const void *context) {
  const Answer *answer = head;
  const TcpRendezvous *r = context;
  return answer_is_valid(answer, r->options.ranks) ? (int64_t)answer->bytes : -1;
}

// Whether a rank has come; a second one of a rank is told.
static int admit(TcpRendezvous *r, Channel *channel, const Answer *answer, void **records, size_t *lengths) {
  if (!records[answer->rank]) {
    r->channel[answer->rank] = channel;
    records[answer->rank] = memcpy(xcalloc(answer->bytes, 1), answer + 1, answer->bytes);
    lengths[answer->rank] = answer->bytes;
    return 1;
  }
  char reason[RENDEZVOUS_REASON] = "";
  uint64_t none = 0;
  snprintf(reason, sizeof reason, "another process is rank %u of this run already", answer->rank);
  double limit = clock_seconds() + greeting_seconds;
  if (channel_write(channel, &none, sizeof none, limit)) channel_write(channel, reason, sizeof reason, limit);
  channel_close(channel);
  return 0;
}

// Adds "; 2 connections WHOSE were closed", unless there were none.
static void add_closed(char *text, size_t size, int count, const char *whose) {
  size_t n = strlen(text);
  if (count)
    snprintf(text + n, size - n, "; %d connection%s %s %s closed", count, count > 1 ? "s" : "", whose,
             count > 1 ? "were" : "was");
}

// "rank 2", "ranks 1 to 3, 5": those that have not come, up to eight rows of them. Returns how many there are.
static int list_missing(const TcpRendezvous *r, void *const *records, char *list, size_t size) {
  int count = 0, rows = 0, ranks = r->options.ranks;
  size_t n = 0;
  *list = 0;
  for (int p = 1, end; p < ranks; p = end + 1) {
    for (end = p; end < ranks && !records[end];) end++;
    if (end == p) continue;
    count += end - p;
    for (int first = p; first < end && rows < 9 && n < size; rows++) {
      bool is_row = end - first > 2;
      if (rows == 8) n += (size_t)snprintf(list + n, size - n, " …");
      else if (is_row) n += (size_t)snprintf(list + n, size - n, "%s%d to %d", rows ? ", " : "", first, end - 1);
      else n += (size_t)snprintf(list + n, size - n, "%s%d", rows ? ", " : "", first);
      first = is_row ? end : first + 1;
    }
  }
  return count;
}

// After some seconds: one line says for whom this rank waits, and why it believes that they come.
static void notice(TcpRendezvous *r, const char *whom) {
  char at[80];
  if (r->noticed || clock_seconds() < r->notice_at) return;
  r->noticed = true;
  net_describe(&r->address, at, sizeof at);
  UNLESS_FAULT(ranks_wait_silently)
  fprintf(stderr, "plait: rank %d is waiting for %s at %s%s%s%s, for %g s at most\n", r->options.rank, whom, at,
          r->options.said ? " (" : "", r->options.said ? r->options.said : "", r->options.said ? ")" : "",
          r->options.patience);
}

static int missing(const TcpRendezvous *r, void *const *records, const Arrivals *arrivals, Error *error) {
  char list[200], at[80], closed[200] = "";
  int count = list_missing(r, records, list, sizeof list);
  net_describe(&r->address, at, sizeof at);
  add_closed(closed, sizeof closed, arrivals->without_secret, "without the secret");
  add_closed(closed, sizeof closed, arrivals->refused, "with an answer that no rank gives");
  return error_set(error, PLAIT_FAILED, "of %d ranks%s%s%s %d did not come to %s within %g s: rank%s %s%s",
                   r->options.ranks, r->options.said ? " (" : "", r->options.said ? r->options.said : "",
                   r->options.said ? ")" : "", count, at, r->options.patience, count > 1 ? "s" : "", list, closed);
}

static void notice_missing(TcpRendezvous *r, void *const *records) {
  char list[200], whom[220];
  int count = list_missing(r, records, list, sizeof list);
  snprintf(whom, sizeof whom, "rank%s %s", count > 1 ? "s" : "", list);
  notice(r, whom);
}

static int gather(TcpRendezvous *r, void **records, size_t *lengths, Error *error) {
  Greeting greeting = greeting_of(r);
  Welcome welcome = {r->secret, &greeting, sizeof greeting, sizeof(Answer), record_bytes, r, meeting_seconds,
                     record_seconds, r->options.ranks + SPARE_ARRIVALS};
  Arrivals arrivals;
  int here = 1, came = 1, code = arrivals_begin(&arrivals, r->listener, &welcome, error);
  if (code) return code;
  while (here < r->options.ranks && came) {
    Channel *channel;
    void *answer;
    bool is_notice = !r->noticed && r->notice_at < r->deadline;
    came = arrivals_next(&arrivals, is_notice ? r->notice_at : r->deadline, &channel, &answer);
    if (came) here += admit(r, channel, answer, records, lengths), free(answer);
    if (came || !is_notice) continue;
    notice_missing(r, records);
    came = 1;
  }
  arrivals_end(&arrivals);
  return here == r->options.ranks ? PLAIT_OK : missing(r, records, &arrivals, error);
}

// What one of those that have met says next.
static int read_answer(const TcpRendezvous *r, int rank, void **record, size_t *length, Error *error) {
  Answer answer = {0};
  bool whole = channel_read(r->channel[rank], &answer, sizeof answer, r->deadline);
  bool is_its = FAULT(further_answers_are_anybodys, answer.rank == (uint32_t)rank, true);
  if (whole && !(answer_is_valid(&answer, r->options.ranks) && is_its))
    return error_set(error, PLAIT_FAILED, "rank 0: what rank %d sends is not its record", rank);
  if (whole) {
    *record = xcalloc(answer.bytes, 1);
    *length = answer.bytes;
    whole = channel_read(r->channel[rank], *record, answer.bytes, r->deadline);
  }
  if (whole) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "rank 0: rank %d has gone before the world was made", rank);
}

static int gather_again(const TcpRendezvous *r, void **records, size_t *lengths, Error *error) {
  int code = PLAIT_OK;
  for (int p = 1; p < r->options.ranks && !code; p++) code = read_answer(r, p, &records[p], &lengths[p], error);
  return code;
}

// All records to all others. One that has gone meanwhile is missed later.
static void tell(const TcpRendezvous *r, void *const *records, const size_t *lengths) {
  for (int p = 1; p < r->options.ranks; p++)
    for (int q = 0, good = 1; q < r->options.ranks && good; q++) {
      uint64_t length = lengths[q];
      double limit = clock_seconds() + record_seconds;
      good = channel_write(r->channel[p], &length, sizeof length, limit) &&
             channel_write(r->channel[p], records[q], lengths[q], limit);
    }
}

// Others ------------------------------------------------------------------------------------------------------------

// A connection to rank 0 of this run at a port, or NULL.
static Channel *greet(TcpRendezvous *r, int port) {
  NetAddress at = r->address;
  Greeting greeting, mine = greeting_of(r);
  char text[80];
  net_set_port(&at, port);
  net_describe(&at, text, sizeof text);
  double limit = clock_seconds() + greeting_seconds;
  int fd = net_connect(&at, limit);
  if (fd < 0) {
    if (port == net_port(&r->address)) snprintf(r->reason, sizeof r->reason, "%s: %s", text, strerror(-fd));
    return NULL;
  }
  Channel *channel = channel_open(fd, false, r->secret);
  if (!channel) return NULL;
  if (!channel_meet(channel, limit))
    snprintf(r->reason, sizeof r->reason, "what listens at %s %s", text, channel_reason(channel));
  else if (!channel_read(channel, &greeting, sizeof greeting, limit))
    snprintf(r->reason, sizeof r->reason, "what listens at %s is not plait", text);
  else if (greeting_is_ours(&greeting, &mine, text, r->options.id, r->reason)) return channel;
  channel_close(channel);
  return NULL;
}

static int find_rank_0(TcpRendezvous *r, Error *error) {
  while (clock_seconds() < r->deadline) {
    for (int i = 0; i < PORTS; i++)
      if ((r->channel[0] = greet(r, net_port(&r->address) + i))) return PLAIT_OK;
    notice(r, "rank 0");
    poll(NULL, 0, (int)(1000 * retry_seconds));
  }
  return error_set(error, PLAIT_FAILED, "rank %d waited %g s for rank 0%s%s%s in vain (%s)", r->options.rank,
                   r->options.patience, r->options.said ? " (" : "", r->options.said ? r->options.said : "",
                   r->options.said ? ")" : "", r->reason);
}

static int malformed(const TcpRendezvous *r, Error *error) {
  return error_set(error, PLAIT_FAILED, "rank %d: what rank 0 sends is not a list of the ranks' records",
                   r->options.rank);
}

static int receive_all(TcpRendezvous *r, void **records, size_t *lengths, Error *error) {
  Channel *root = r->channel[0];
  bool whole = true;
  for (int q = 0; q < r->options.ranks && whole; q++) {
    uint64_t length;
    char reason[RENDEZVOUS_REASON];
    if (!(whole = channel_read(root, &length, sizeof length, r->deadline))) break;
    Told told = told_by_root(length);
    if (told == TOLD_MALFORMED) return malformed(r, error);
    if (told == TOLD_REASON) {
      if (!(whole = channel_read(root, reason, sizeof reason, r->deadline))) break;
      return reason_is_valid(reason) ? error_set(error, PLAIT_BAD_INPUT, "%s", reason) : malformed(r, error);
    }
    records[q] = xcalloc(length, 1);
    lengths[q] = length;
    whole = channel_read(root, records[q], length, r->deadline);
  }
  if (whole) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "rank %d: rank 0 has gone, or waits in vain for others", r->options.rank);
}

static int send_mine(TcpRendezvous *r, const void *mine, size_t bytes, Error *error) {
  Answer answer = {(uint32_t)r->options.rank, (uint32_t)bytes};
  double limit = clock_seconds() + record_seconds;
  if (channel_write(r->channel[0], &answer, sizeof answer, limit) && channel_write(r->channel[0], mine, bytes, limit))
    return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "rank %d: rank 0 does not read", r->options.rank);
}

// -------------------------------------------------------------------------------------------------------------------

static int tcp_exchange(Rendezvous *base, const void *mine, size_t bytes, void **records, size_t *lengths,
                        Error *error) {
  TcpRendezvous *r = (TcpRendezvous *)base;
  int code = PLAIT_OK;
  memset(records, 0, (size_t)r->options.ranks * sizeof *records);
  r->deadline = clock_seconds() + r->options.patience;
  r->notice_at = clock_seconds() + r->options.notice;
  if (r->options.rank == 0) {
    records[0] = memcpy(xcalloc(bytes, 1), mine, bytes);
    lengths[0] = bytes;
    code = r->met ? gather_again(r, records, lengths, error) : gather(r, records, lengths, error);
    if (!code) tell(r, records, lengths);
  } else {
    code = r->met ? PLAIT_OK : find_rank_0(r, error);
    if (!code) code = send_mine(r, mine, bytes, error);
    if (!code) code = receive_all(r, records, lengths, error);
  }
  for (int q = 0; q < r->options.ranks && code; q++) free(records[q]), records[q] = NULL;
  r->met = !code;
  return code;
}

static void tcp_close(Rendezvous *base) {
  TcpRendezvous *r = (TcpRendezvous *)base;
  for (int p = 0; p < r->options.ranks; p++)
    channel_close(r->channel[p]);
  if (r->listener >= 0) close(r->listener);
  free(r->channel);
  free(r);
}

int rendezvous_tcp(const NetOptions *options, const NetAddress *address, const Secret *secret, Rendezvous **rendezvous,
                   Error *error) {
  TcpRendezvous *r = xcalloc(1, sizeof *r);
  *r = (TcpRendezvous){{tcp_exchange, tcp_close}, *options, *address, hash_text(options->id), -1};
  r->channel = xcalloc((size_t)options->ranks, sizeof *r->channel);
  r->secret = secret;
  int code = options->rank ? PLAIT_OK : listen_somewhere(r, error);
  if (code) tcp_close(&r->base);
  else *rendezvous = &r->base;
  return code;
}
