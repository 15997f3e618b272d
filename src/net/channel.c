// Plain connections and TLS as one.
#include "net/channel.h"
#include "net/socket.h"
#include "net/tls.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct Channel { int fd; bool met; Tls *tls; }; // tls NULL: plain

Channel *channel_open(int fd, bool is_server, const Secret *secret) {
  Channel *c = xcalloc(1, sizeof *c);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  *c = (Channel){.fd = fd, .met = !secret, .tls = secret ? tls_open(fd, is_server, secret) : NULL};
  if (!secret || c->tls) return c;
  channel_close(c);
  return NULL;
}

void channel_close(Channel *c) {
  if (!c) return;
  tls_close(c->tls);
  close(c->fd);
  free(c);
}

int channel_release(Channel *c) {
  int fd = c->fd;
  CHECK(!c->tls);
  free(c);
  return fd;
}

int channel_fd(const Channel *c) { return c->fd; }

int channel_greet(Channel *c) {
  int done = c->met ? 1 : tls_handshake(c->tls);
  if (done > 0) c->met = true;
  return done;
}

ssize_t channel_receive(Channel *c, void *data, size_t bytes) {
  return c->tls ? tls_receive(c->tls, data, bytes) : recv(c->fd, data, bytes, MSG_DONTWAIT);
}

ssize_t channel_send(Channel *c, const void *data, size_t bytes) {
  return c->tls ? tls_send(c->tls, data, bytes) : send(c->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool channel_has_more(const Channel *c) { return c->tls && c->met && tls_pending(c->tls) > 0; }

int channel_meet(Channel *c, double deadline) {
  int done;
  while (!(done = channel_greet(c)))
    if (!net_ready(c->fd, POLLIN, deadline)) return errno = ETIMEDOUT, 0;
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
