// Plain connections, proved ones and TLS as one.
#include "net/channel.h"
#include "net/proof.h"
#include "net/socket.h"
#include "net/tls.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Until both sides have proved to have the secret.
typedef struct Meeting { Secret secret; Proof proof; } Meeting;

struct Channel {
  int fd;
  bool met;
  Tls *tls;         // NULL: plain
  Meeting *meeting; // NULL: it is over, or there is none
};

Channel *channel_open(int fd, bool is_server, const Secret *secret) {
  Channel *c = xcalloc(1, sizeof *c);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  *c = (Channel){.fd = fd, .met = !secret};
  if (!secret) return c;
  if (secret->encrypts) {
    if ((c->tls = tls_open(fd, is_server, secret))) return c;
    channel_close(c);
    return NULL;
  }
  c->meeting = xcalloc(1, sizeof *c->meeting);
  c->meeting->secret = *secret;
  const ProofTerms terms = {.secret = &c->meeting->secret, .purpose = "a channel"};
  proof_begin(&c->meeting->proof, &terms, is_server);
  return c;
}

static void end_meeting(Channel *c) {
  if (!c->meeting) return;
  explicit_bzero(&c->meeting->secret, sizeof c->meeting->secret);
  free(c->meeting);
  c->meeting = NULL;
}

void channel_close(Channel *c) {
  if (!c) return;
  tls_close(c->tls);
  end_meeting(c);
  close(c->fd);
  free(c);
}

int channel_release(Channel *c) {
  int fd = c->fd;
  CHECK(!c->tls && c->met);
  free(c);
  return fd;
}

int channel_fd(const Channel *c) { return c->fd; }

int channel_greet(Channel *c) {
  int done = 0;
  if (c->met) return 1;
  if (c->tls) done = tls_handshake(c->tls);
  else {
    ProofState state = proof_advance(&c->meeting->proof, c->fd);
    done = state == PROOF_DONE ? 1 : state == PROOF_REFUSED ? -1 : 0;
    if (done < 0) errno = c->meeting->proof.refusal == REFUSAL_LEFT ? ECONNRESET : EPROTO;
  }
  if (done <= 0) return done;
  end_meeting(c);
  c->met = true;
  return 1;
}

short channel_waits_for(const Channel *c) {
  return c->meeting && proof_state(&c->meeting->proof) == PROOF_WRITES ? POLLOUT : POLLIN;
}

const char *channel_reason(const Channel *c) {
  if (c->meeting && *proof_reason(&c->meeting->proof)) return proof_reason(&c->meeting->proof);
  return errno == EPROTO       ? "does not have the secret of this job"
         : errno == ECONNRESET ? "has ended the connection"
                               : "does not answer";
}

ssize_t channel_receive(Channel *c, void *data, size_t bytes) {
  return c->tls ? tls_receive(c->tls, data, bytes) : recv(c->fd, data, bytes, MSG_DONTWAIT);
}

ssize_t channel_send(Channel *c, const void *data, size_t bytes) {
  return c->tls ? tls_send(c->tls, data, bytes) : send(c->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int channel_meet(Channel *c, double deadline) {
  int done;
  while (!(done = channel_greet(c)))
    if (!net_ready(c->fd, channel_waits_for(c), deadline)) return errno = ETIMEDOUT, 0;
  return done > 0;
}

int channel_read(Channel *c, void *data, size_t bytes, double deadline) {
  for (char *at = data; bytes;) {
    ssize_t n = channel_receive(c, at, bytes);
    if (n > 0) at += n, bytes -= (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !net_ready(c->fd, POLLIN, deadline)) return 0;
  }
  return 1;
}

int channel_write(Channel *c, const void *data, size_t bytes, double deadline) {
  for (const char *at = data; bytes;) {
    ssize_t n = channel_send(c, at, bytes);
    if (n >= 0) at += n, bytes -= (size_t)n;
    else if ((errno != EAGAIN && errno != EINTR) || !net_ready(c->fd, POLLOUT, deadline)) return 0;
  }
  return 1;
}
