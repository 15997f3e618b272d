// The end of a connection that sends messages.
#include "comm/link.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

LinkOut *link_out_create(Channel *channel, bool encrypted, int rank) {
  LinkOut *o = xcalloc(1, sizeof *o);
  *o = (LinkOut){.shorts = LINK_SHORTS, .longs = LINK_LONGS, .heads = LINK_HEADS};
  link_end_open(&o->end, channel, encrypted, rank);
  return o;
}

void link_out_open(LinkOut *o, Channel *channel, bool encrypted) {
  link_end_open(&o->end, channel, encrypted, o->end.rank);
}

void link_out_destroy(LinkOut *o) {
  if (!o) return;
  channel_close(o->end.channel);
  free(o);
}

void link_send(LinkOut *o, LinkMessage *m) {
  m->id = o->next_id++;
  link_queue_add(&o->fresh, m);
}

bool link_out_is_idle(const LinkOut *o) { return !o->current && !o->fresh.first && !o->ready.first; }

// Its head alone where the receiver stores no more than that.
static LinkFrame head_of(const LinkOut *o, const LinkMessage *m) {
  LinkFrame f = {.word = LINK_MESSAGE, .id = m->id, .tag = m->tag, .bytes = m->bytes};
  f.count = (uint32_t)(m->bytes < LINK_FIRST ? m->bytes : LINK_FIRST);
  LinkStore stores = link_stores(&f);
  if (stores == LINK_STORES_SHORT ? !o->shorts : FAULT(longs_are_unlimited, !o->longs, false)) f.count = 0;
  f.flags = m->answer || !f.count || f.count < f.bytes ? LINK_ANSWER : 0;
  return f;
}

static bool begin_message(LinkOut *o, LinkMessage *m) {
  o->head = head_of(o, m);
  LinkStore stores = link_stores(&o->head);
  m->bare = stores == LINK_STORES_HEAD;
  if (m->bare && !o->heads) return false; // until the receiver has taken some
  --*(m->bare ? &o->heads : stores == LINK_STORES_SHORT ? &o->shorts : &o->longs);
  m->answer = o->head.flags == LINK_ANSWER;
  return true;
}

static bool begin_frame(LinkOut *o) {
  LinkMessage *m = o->fresh.first;
  if (!m || !begin_message(o, m)) {
    if (!(m = o->ready.first)) return false;
    size_t left = m->bytes - m->moved;
    o->head = (LinkFrame){.word = LINK_DATA, .id = m->id, .count = left < LINK_CHUNK ? (uint32_t)left : LINK_CHUNK};
  }
  o->current = m;
  o->head_sent = 0;
  o->is_awaited = false;
  o->until = m->moved + o->head.count;
  return true;
}

static void end_frame(LinkOut *o) {
  LinkMessage *m = o->current;
  o->current = NULL;
  if (o->head.word == LINK_MESSAGE) {
    link_queue_remove(&o->fresh, m);
    if (m->answer) link_queue_add(o->is_awaited ? &o->ready : &o->waiting, m);
    else m->done = true;
  } else if (m->moved == m->bytes) {
    link_queue_remove(&o->ready, m);
    m->done = true;
  }
}

unsigned link_out_write(LinkOut *o) {
  unsigned moves = 0;
  size_t sent = 0;
  while (!*o->end.broken && sent < LINK_AT_ONCE) {
    struct iovec pieces[LINK_PIECES];
    int n = 0;
    if (!o->current && !begin_frame(o)) break;
    size_t head = sizeof o->head - o->head_sent;
    if (head) pieces[n++] = (struct iovec){(char *)&o->head + o->head_sent, head};
    size_t asked = head + link_pieces(o->current, o->until - o->current->moved, pieces, &n);
    size_t gone = asked ? link_write(&o->end, pieces, n) : 0;
    if (asked && !gone) break;
    moves++;
    sent += gone;
    head = gone < head ? gone : head;
    o->head_sent += head;
    link_moved(o->current, gone - head);
    if (o->head_sent == sizeof o->head && o->current->moved == o->until) end_frame(o);
  }
  o->end.full |= sent >= LINK_AT_ONCE; // there may be more
  return moves;
}

// What the receiver says of a message: it must be one that waits for that. A receiver may be ready for a long one when
// its first bytes are still on their way.
static bool answered(LinkOut *o, const LinkFrame *f) {
  LinkMessage *now = o->current;
  if (now && now->id == f->id && o->head.word == LINK_MESSAGE) {
    bool is_early = f->word == LINK_READY && !o->is_awaited && o->until < now->bytes;
    o->is_awaited = true;
    o->heads += now->bare;
    return is_early;
  }
  LinkMessage *m = o->waiting.first;
  while (m && m->id != f->id) m = m->next;
  if (!m || (f->word == LINK_READY) != (m->moved < m->bytes)) return false;
  link_queue_remove(&o->waiting, m);
  o->heads += m->bare;
  if (f->word == LINK_READY) link_queue_add(&o->ready, m);
  else m->done = true;
  return true;
}

static bool take(LinkOut *o, const LinkFrame *f) {
  if (!link_frame_is_valid(f, false)) return false;
  if (f->word != LINK_CREDIT) return answered(o, f);
  bool is_due = f->count <= LINK_SHORTS - o->shorts && f->bytes <= LINK_LONGS - o->longs;
  if (!FAULT(any_credit_is_taken, is_due, true)) return false;
  o->shorts += f->count;
  o->longs += (uint32_t)f->bytes;
  return true;
}

unsigned link_out_read(LinkOut *o) {
  unsigned moves = 0;
  while (!*o->end.broken) {
    struct iovec piece = {o->came + o->have, sizeof o->came - o->have};
    size_t n = link_read(&o->end, &piece, 1), at = 0;
    if (!n) break;
    moves++;
    o->have += n;
    for (LinkFrame f; o->have - at >= sizeof f; at += sizeof f) {
      memcpy(&f, o->came + at, sizeof f);
      if (take(o, &f)) continue;
      o->end.malformed = true;
      link_break(&o->end, "it has sent what no rank of this version sends, so its connection was closed");
      break;
    }
    o->have -= at;
    memmove(o->came, o->came + at, o->have);
  }
  return moves;
}

void link_out_forget(LinkOut *o, LinkMessage *m) {
  bool has_begun = o->current == m;
  for (LinkMessage *w = o->waiting.first; w; w = w->next) has_begun |= w == m;
  for (LinkMessage *w = o->ready.first; w; w = w->next) has_begun |= w == m;
  if (o->current == m) o->current = NULL;
  link_queue_remove(&o->fresh, m);
  link_queue_remove(&o->waiting, m);
  link_queue_remove(&o->ready, m);
  if (has_begun) link_break(&o->end, "a message to it was given up");
}
