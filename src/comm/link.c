// What both ends of a connection between two ranks have: bytes in pieces, to and from a socket.
#include "comm/link.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

LinkMessage link_message(const WirePiece *pieces, size_t n) {
  LinkMessage m = {.pieces = pieces, .n = n};
  for (size_t i = 0; i < n; i++) m.bytes += pieces[i].bytes;
  return m;
}

size_t link_pieces(const LinkMessage *m, size_t most, struct iovec *pieces, int *n) {
  size_t within = m->within, covered = 0;
  for (size_t p = m->piece; p < m->n && covered < most && *n < LINK_PIECES; p++, within = 0) {
    size_t bytes = m->pieces[p].bytes - within;
    if (bytes > most - covered) bytes = most - covered;
    if (bytes) pieces[(*n)++] = (struct iovec){(char *)m->pieces[p].data + within, bytes};
    covered += bytes;
  }
  return covered;
}

void link_moved(LinkMessage *m, size_t bytes) {
  m->moved += bytes;
  m->within += bytes;
  while (m->piece < m->n && m->within >= m->pieces[m->piece].bytes) m->within -= m->pieces[m->piece++].bytes;
}

void link_queue_add(LinkQueue *q, LinkMessage *m) {
  m->next = NULL;
  if (q->last) q->last->next = m;
  else q->first = m;
  q->last = m;
}

void link_queue_remove(LinkQueue *q, LinkMessage *m) {
  LinkMessage **link = &q->first, *before = NULL;
  while (*link && *link != m) before = *link, link = &before->next;
  if (!*link) return;
  *link = m->next;
  if (q->last == m) q->last = before;
}

void link_end_open(LinkEnd *e, Channel *channel, bool encrypted, int rank) {
  e->channel = channel;
  e->fd = channel ? channel_fd(channel) : -1;
  e->encrypted = encrypted;
  e->rank = rank;
}

void link_break(LinkEnd *e, const char *format, ...) {
  va_list arguments;
  if (*e->broken) return;
  va_start(arguments, format);
  vsnprintf(e->broken, sizeof e->broken, format, arguments);
  va_end(arguments);
}

static ssize_t pass(LinkEnd *e, const struct iovec *pieces, int n, bool writes) {
  struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = (size_t)n};
  ssize_t all = 0;
  if (!e->encrypted)
    return writes ? sendmsg(e->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(e->fd, &message, MSG_DONTWAIT);
  for (int i = 0; i < n; i++)
    for (size_t at = 0; at < pieces[i].iov_len;) { // a record of TLS may be shorter than a piece
      char *from = (char *)pieces[i].iov_base + at;
      ssize_t moved = writes ? channel_send(e->channel, from, pieces[i].iov_len - at)
                             : channel_receive(e->channel, from, pieces[i].iov_len - at);
      if (moved <= 0) return all ? all : moved;
      at += (size_t)moved;
      all += moved;
    }
  return all;
}

size_t link_read(LinkEnd *e, const struct iovec *pieces, int n) {
  ssize_t moved;
  do moved = pass(e, pieces, n, false);
  while (moved < 0 && errno == EINTR);
  if (moved > 0) return (size_t)moved;
  if (moved == 0) link_break(e, "its connection has ended");
  else if (errno != EAGAIN) link_break(e, "its connection has failed: %s", strerror(errno));
  return 0;
}

size_t link_write(LinkEnd *e, const struct iovec *pieces, int n) {
  ssize_t moved;
  do moved = pass(e, pieces, n, true);
  while (moved < 0 && errno == EINTR);
  e->full = moved < 0 && errno == EAGAIN;
  if (moved < 0 && errno != EAGAIN) link_break(e, "its connection has failed: %s", strerror(errno));
  return moved > 0 ? (size_t)moved : 0;
}
