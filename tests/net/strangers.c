// Connections of strangers to a job, many at a time: one thread, one poll.
#include "strangers.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <stdbool.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WORDS = 1 << 16, SILENT_EVERY = 32 };

// The manner of one: it says `bytes` bytes, and then waits to be closed, or goes.
typedef enum Manner { WAITS, GOES, GOES_WITHOUT_A_WORD, RESETS, ENDS_ITS_SIDE, ECHOES, MANNERS } Manner;
typedef struct Stranger {
  int fd;
  Manner manner;
  bool connected;
  int said, bytes;
  double limit;
  unsigned char *words;
} Stranger;

static uint64_t draw(uint64_t *state) { // xorshift64*
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

// First words of what plait and UCX say, so that more than the first check sees the rest.
static int begin_well(uint64_t *random, unsigned char *words) {
  static const struct { const char *text; int bytes; } beginnings[] = {
      {"plaitprf\1\0\0\0\0\0\0\0" "0.1.0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 48},
      {"plaitprf\1\0\0\0\0\0\0\0", 16},
      {"plaitnet\2\0\0\0", 12},
      {"plaitsto\1\0\0\0\0\0\0\0", 16},
      {"plaitcpy\1\0\0\0\0\0\0\0", 16},
      {"\x78\x56\x34\x12\xbe\xba\xfe\xca", 8},
      {"\x78\x56\x34\x12\xbe\xba\xfe\xca\xff\xff\xff\xff\xff", 13},
      {"\x16\3\1\2\0\1\0\1\xfc\3\3", 11}, // a hello of TLS
      {"GET / HTTP/1.1\r\n\r\n", 18},
      {"\1\0\0\0\4\0\0\0", 8},            // an answer or an introduction of rank 1
      {"", 0},
  };
  size_t which = draw(random) % (sizeof beginnings / sizeof *beginnings);
  memcpy(words, beginnings[which].text, (size_t)beginnings[which].bytes);
  return beginnings[which].bytes;
}

static void begin(Stranger *s, const Strangers *all, uint64_t *random) {
  int most = 1 << draw(random) % 13; // short ones are as frequent as long ones
  bool is_silent = draw(random) % SILENT_EVERY == 0;
  *s = (Stranger){.manner = is_silent ? WAITS : (Manner)(1 + draw(random) % (MANNERS - 1)),
                  .limit = clock_seconds() + all->seconds, .words = s->words};
  s->fd = socket(all->at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  CHECK(s->fd >= 0);
  if (connect(s->fd, (const struct sockaddr *)&all->at.storage, all->at.length) && errno != EINPROGRESS) {
    close(s->fd);
    s->fd = -1;
    return;
  }
  if (s->manner == GOES_WITHOUT_A_WORD || (is_silent && draw(random) % 2)) return;
  s->bytes = begin_well(random, s->words);
  for (int n = (int)(draw(random) % (uint64_t)most); n > 0 && s->bytes < WORDS; n--)
    s->words[s->bytes++] = (unsigned char)draw(random);
}

static void end(Stranger *s, long *counter) {
  const struct linger at_once = {1, 0};
  ++*counter;
  if (s->manner == RESETS) setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(s->fd);
  s->fd = -1;
}

// Bytes that have come are thrown away, or said again. Whether the other side has closed the connection.
static bool hear(Stranger *s, StrangersSeen *seen) {
  unsigned char heard[4096];
  for (;;) {
    ssize_t n = recv(s->fd, heard, sizeof heard, 0);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) return true;
    seen->heard += n;
    for (ssize_t i = 0; s->manner == ECHOES && i < n && s->bytes < WORDS; i++) s->words[s->bytes++] = heard[i];
  }
}

static void advance(Stranger *s, short events, StrangersSeen *seen) {
  int problem = 0;
  socklen_t length = sizeof problem;
  if (!s->connected) {
    if (!events) {
      if (clock_seconds() > s->limit) end(s, &seen->unreachable);
      return;
    }
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &problem, &length);
    if (problem) return end(s, &seen->unreachable);
    s->connected = true;
    seen->came++;
  }
  if (events & (POLLIN | POLLHUP | POLLERR) && hear(s, seen)) return end(s, &seen->closed);
  while (s->said < s->bytes) {
    ssize_t n = send(s->fd, s->words + s->said, (size_t)(s->bytes - s->said), MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return end(s, &seen->closed);
    s->said += (int)n;
  }
  bool has_said = s->said == s->bytes;
  if (has_said && (s->manner == GOES || s->manner == GOES_WITHOUT_A_WORD || s->manner == RESETS))
    return end(s, &seen->went);
  if (has_said && s->manner == ENDS_ITS_SIDE) shutdown(s->fd, SHUT_WR), s->manner = WAITS;
  if (clock_seconds() > s->limit) end(s, &seen->kept);
}

StrangersSeen strangers_come(const Strangers *all) {
  StrangersSeen seen = {0};
  uint64_t random = 88172645463325252u + all->seed;
  Stranger *strangers = xcalloc((size_t)all->most, sizeof *strangers);
  struct pollfd *fds = xcalloc((size_t)all->most, sizeof *fds);
  long begun = 0;
  for (int i = 0; i < all->most; i++) strangers[i] = (Stranger){.fd = -1, .words = xcalloc(1, WORDS)};
  for (int here = 1; here > 0;) {
    here = 0;
    for (int i = 0; i < all->most; i++) {
      Stranger *s = &strangers[i];
      if (s->fd < 0 && begun < all->count && !(all->stop && *all->stop)) {
        begun++;
        begin(s, all, &random);
        if (s->fd < 0) seen.unreachable++;
      }
      fds[i] = (struct pollfd){s->fd, (short)(POLLIN | (s->connected && s->said == s->bytes ? 0 : POLLOUT)), 0};
      here += s->fd >= 0;
    }
    poll(fds, (nfds_t)all->most, 10);
    for (int i = 0; i < all->most; i++)
      if (strangers[i].fd >= 0) advance(&strangers[i], fds[i].revents, &seen);
    if (!here && begun < all->count && !(all->stop && *all->stop)) here = 1, poll(NULL, 0, 1); // nobody listens now
  }
  for (int i = 0; i < all->most; i++) free(strangers[i].words);
  free(strangers);
  free(fds);
  return seen;
}

void strangers_print(const StrangersSeen *s, FILE *out) {
  fprintf(out, "%ld came, %ld could not; %ld went, %ld were closed, %ld were kept; they heard %ld bytes\n", s->came,
          s->unreachable, s->went, s->closed, s->kept, s->heard);
}
