// The end of a connection that receives messages.
#include "comm/link.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { BUFFER = 1 << 12, HEADS_AT_ONCE = 64 };

// A message that has begun to come, and which no receive has taken when it did.
typedef struct Arrived {
  MatchEntry entry;
  struct Arrived *next; // of those not in use
  LinkIn *from;
  LinkFrame head;
  size_t have;        // of head.count bytes
  LinkMessage *taker; // NULL: it waits
  bool dropped;       // nobody wants it any more
  char *data;         // NULL: there is room for the head alone
} Arrived;

typedef struct Heads { struct Heads *next; Arrived of[HEADS_AT_ONCE]; } Heads;

struct LinkIn {
  LinkEnd end;
  Match *match;
  size_t left;         // bytes that follow the last head
  LinkMessage *to;     // where they go; NULL: to `into`
  Arrived *into;       // NULL, too: nowhere
  LinkFrame head;      // the last
  LinkQueue active;    // receives whose READY was sent: their data come in this order
  char *memory;        // of what is stored
  Arrived *stored, *idle[3]; // by LinkStore: that are not in use
  Heads *heads;
  uint32_t used[3], taken[3]; // that the sender counts as stored; of those, that are not, and of which it was not told
  LinkFrame *out;             // (out_room) frames that go back
  size_t out_room, out_count, out_sent; // out_sent: bytes
  size_t at, have;            // in came: what is not used begins and ends here
  unsigned char came[BUFFER];
};

// Storing -----------------------------------------------------------------------------------------------------------

static void put_back(LinkIn *in, Arrived *a) {
  LinkStore stores = link_stores(&a->head);
  a->next = in->idle[stores];
  in->idle[stores] = a;
}

static void make_heads(LinkIn *in) {
  Heads *more = xcalloc(1, sizeof *more);
  more->next = in->heads;
  in->heads = more;
  for (int i = 0; i < HEADS_AT_ONCE; i++) {
    more->of[i].next = in->idle[LINK_STORES_HEAD];
    in->idle[LINK_STORES_HEAD] = &more->of[i];
  }
}

static void make_stores(LinkIn *in) {
  char *at = in->memory = xcalloc((size_t)LINK_SHORTS * LINK_SHORT + (size_t)LINK_LONGS * LINK_FIRST, 1);
  in->stored = xcalloc(LINK_SHORTS + LINK_LONGS, sizeof *in->stored);
  for (int i = 0; i < LINK_SHORTS + LINK_LONGS; i++) {
    LinkStore stores = i < LINK_SHORTS ? LINK_STORES_SHORT : LINK_STORES_LONG;
    Arrived *a = &in->stored[i];
    a->data = at;
    at += stores == LINK_STORES_SHORT ? LINK_SHORT : LINK_FIRST;
    a->next = in->idle[stores];
    in->idle[stores] = a;
  }
  make_heads(in);
}

LinkIn *link_in_create(Channel *channel, bool encrypted, int rank, Match *match) {
  LinkIn *in = xcalloc(1, sizeof *in);
  in->match = match;
  link_end_open(&in->end, channel, encrypted, rank);
  make_stores(in);
  in->out_room = 2 * (LINK_SHORTS + LINK_LONGS);
  in->out = xcalloc(in->out_room, sizeof *in->out);
  return in;
}

void link_in_destroy(LinkIn *in) {
  if (!in) return;
  for (Heads *all = in->heads, *next; all; all = next) {
    next = all->next;
    free(all);
  }
  channel_close(in->end.channel);
  free(in->memory);
  free(in->stored);
  free(in->out);
  free(in);
}

LinkEnd *link_in_end(LinkIn *in) { return &in->end; }

// Answers -----------------------------------------------------------------------------------------------------------

static void answer(LinkIn *in, LinkFrame frame) {
  size_t begun = in->out_sent / sizeof frame;
  if (in->out_count == in->out_room && begun) { // room before those that have not gone
    in->out_count -= begun;
    in->out_sent -= begun * sizeof frame;
    memmove(in->out, in->out + begun, in->out_count * sizeof frame);
  }
  if (in->out_count == in->out_room) in->out = xrealloc(in->out, (in->out_room *= 2) * sizeof *in->out);
  in->out[in->out_count++] = frame;
}

bool link_in_is_idle(const LinkIn *in) { return !in->out_count; }

unsigned link_in_write(LinkIn *in) {
  unsigned moves = 0;
  while (in->out_count && !*in->end.broken) {
    struct iovec piece = {(char *)in->out + in->out_sent, in->out_count * sizeof *in->out - in->out_sent};
    size_t n = link_write(&in->end, &piece, 1);
    if (!n) break;
    moves++;
    in->out_sent += n;
    if (n == piece.iov_len) in->out_count = in->out_sent = 0;
  }
  return moves;
}

// What the sender counted is stored no more: the sender is told when it is half of what there is.
static void consumed(LinkIn *in, LinkStore stores) {
  if (stores == LINK_STORES_HEAD) { // it learns of these by the answers
    in->used[stores]--;
    return;
  }
  in->taken[stores]++;
  uint32_t shorts = in->taken[LINK_STORES_SHORT], longs = in->taken[LINK_STORES_LONG];
  if (FAULT(credit_is_kept, shorts < LINK_SHORTS / 2 && longs < LINK_LONGS / 2, true)) return;
  answer(in, (LinkFrame){.word = LINK_CREDIT, .count = shorts, .bytes = longs});
  for (int i = 0; i < LINK_STORES_HEAD; i++) in->used[i] -= in->taken[i], in->taken[i] = 0;
}

// Messages ----------------------------------------------------------------------------------------------------------

// A receive and a message are for each other: what does the sender learn? The data of a long message come later.
static void accept_message(LinkIn *in, LinkMessage *m, const LinkFrame *head) {
  if (FAULT(lengths_may_differ, m->bytes != head->bytes, false)) {
    m->status = LINK_LENGTH;
    m->done = true;
    return;
  }
  m->id = head->id;
  if (head->count == head->bytes) return;
  answer(in, (LinkFrame){.word = LINK_READY, .id = head->id});
  link_queue_add(&in->active, m);
}

static void finish_if_whole(LinkIn *in, LinkMessage *m, const LinkFrame *head) {
  if (head->count < head->bytes) return;
  if (head->flags & LINK_ANSWER) answer(in, (LinkFrame){.word = LINK_TAKEN, .id = head->id});
  m->done = true;
}

static void copy_in(LinkMessage *m, const char *data, size_t bytes) {
  while (bytes) {
    struct iovec pieces[LINK_PIECES];
    int n = 0;
    size_t covered = link_pieces(m, bytes, pieces, &n);
    for (int i = 0; i < n; data += pieces[i++].iov_len) memcpy(pieces[i].iov_base, data, pieces[i].iov_len);
    link_moved(m, covered);
    bytes -= covered;
  }
}

// All that follows its head has come.
static void deliver(Arrived *a) {
  LinkIn *in = a->from;
  LinkMessage *m = a->taker;
  if (!m && !a->dropped) return;
  if (m) copy_in(m, a->data, a->head.count);
  if (m) finish_if_whole(in, m, &a->head);
  consumed(in, link_stores(&a->head));
  put_back(in, a);
}

static void claim(Arrived *a, LinkMessage *m) {
  accept_message(a->from, m, &a->head);
  if (m->done) a->dropped = true;
  else a->taker = m;
  if (a->have == a->head.count) deliver(a);
  if (!*a->from->end.broken) link_in_write(a->from);
}

static void copy_across(LinkMessage *to, LinkMessage *from) {
  if (to->bytes != from->bytes) to->status = LINK_LENGTH;
  while (from->bytes == to->bytes && from->moved < from->bytes) {
    struct iovec pieces[LINK_PIECES];
    int n = 0;
    link_pieces(from, from->bytes - from->moved, pieces, &n);
    for (int i = 0; i < n; i++) {
      copy_in(to, pieces[i].iov_base, pieces[i].iov_len);
      link_moved(from, pieces[i].iov_len);
    }
  }
  to->done = from->done = true;
}

static LinkMessage *of_entry(MatchEntry *e) {
  return (LinkMessage *)(void *)((char *)e - offsetof(LinkMessage, entry));
}

void link_receive(Match *match, LinkMessage *m, uint64_t tag, int sender) {
  m->entry = (MatchEntry){.tag = tag, .sender = sender, .kind = LINK_RECEIVE};
  MatchEntry *message = match_receive(match, &m->entry);
  if (!message) return;
  if (message->kind == LINK_OWN_SEND) copy_across(m, of_entry(message));
  else claim((Arrived *)(void *)message, m);
}

void link_send_self(Match *match, LinkMessage *m, uint64_t tag, int self) {
  m->entry = (MatchEntry){.tag = tag, .sender = self, .kind = LINK_OWN_SEND};
  MatchEntry *receive = match_message(match, tag, self);
  if (receive) copy_across(of_entry(receive), m);
  else match_keep(match, &m->entry);
}

// What comes for it while it is half there has nowhere to go.
void link_forget(LinkMessage *m, LinkIn *in) {
  bool waits = m->entry.list != NULL;
  match_forget(&m->entry);
  if (waits || m->done || !in) return;
  for (int i = 0; i < LINK_SHORTS + LINK_LONGS; i++)
    if (in->stored[i].taker == m) in->stored[i].taker = NULL, in->stored[i].dropped = true;
  if (in->to == m) in->to = NULL;
  link_break(&in->end, "a message from it was given up");
}

// Reading -----------------------------------------------------------------------------------------------------------

static bool malformed(LinkIn *in) {
  in->end.malformed = true;
  link_break(&in->end, "it has sent what no rank of this version sends, so its connection was closed");
  return false;
}

// A message begins: it goes into the receive that waits for it, or is stored.
static bool begin_message(LinkIn *in, const LinkFrame *f) {
  static const uint32_t most[3] = {LINK_SHORTS, LINK_LONGS, LINK_HEADS};
  LinkStore stores = link_stores(f);
  if (FAULT(stores_are_unlimited, in->used[stores] == most[stores], false)) return malformed(in);
  in->used[stores]++;
  in->left = f->count;
  MatchEntry *receive = match_message(in->match, f->tag, in->end.rank);
  if (receive) {
    LinkMessage *m = of_entry(receive);
    accept_message(in, m, f);
    in->to = m->done ? NULL : m;
    consumed(in, stores);
    return true;
  }
  if (!in->idle[stores] && stores == LINK_STORES_HEAD) make_heads(in);
  Arrived *a = in->idle[stores];
  CHECK(a);
  in->idle[stores] = a->next;
  *a = (Arrived){.entry = {.tag = f->tag, .sender = in->end.rank, .kind = LINK_ARRIVED}, .from = in, .head = *f,
                 .data = a->data};
  match_keep(in->match, &a->entry);
  in->into = a;
  return true;
}

// The data of the receive that was ready first.
static bool begin_data(LinkIn *in, const LinkFrame *f) {
  LinkMessage *m = in->active.first;
  if (!m || FAULT(data_of_any_message, m->id != f->id || f->count > m->bytes - m->moved, false)) return malformed(in);
  in->to = m;
  in->left = f->count;
  return true;
}

static void end_frame(LinkIn *in) {
  LinkMessage *m = in->to;
  Arrived *a = in->into;
  in->to = NULL;
  in->into = NULL;
  if (a) {
    deliver(a);
  } else if (m && in->head.word == LINK_MESSAGE) {
    finish_if_whole(in, m, &in->head);
  } else if (m && m->moved == m->bytes) {
    link_queue_remove(&in->active, m);
    m->done = true;
  }
}

static void moved(LinkIn *in, size_t bytes) {
  if (in->to) link_moved(in->to, bytes);
  else if (in->into) in->into->have += bytes;
  in->left -= bytes;
  if (!in->left) end_frame(in);
}

static bool take_head(LinkIn *in) {
  memcpy(&in->head, in->came + in->at, sizeof in->head);
  in->at += sizeof in->head;
  const LinkFrame *f = &in->head;
  if (!link_frame_is_valid(f, true)) return malformed(in);
  if (!(f->word == LINK_MESSAGE ? begin_message(in, f) : begin_data(in, f))) return false;
  if (!in->left) end_frame(in);
  return true;
}

// What is in the buffer goes where it belongs. false: it holds neither a head nor bytes that follow one.
static bool use_buffer(LinkIn *in) {
  size_t have = in->have - in->at;
  if (!in->left) return have >= sizeof(LinkFrame) && take_head(in);
  if (!have) return false;
  size_t n = have < in->left ? have : in->left;
  const char *from = (const char *)in->came + in->at;
  in->at += n;
  if (in->to) {
    LinkMessage *m = in->to;
    copy_in(m, from, n);
    in->left -= n;
    if (!in->left) end_frame(in);
    return true;
  }
  if (in->into) memcpy(in->into->data + in->into->have, from, n);
  moved(in, n);
  return true;
}

// Straight to where the bytes belong, and with them the next head.
static size_t fill(LinkIn *in, bool *short_read) {
  struct iovec pieces[LINK_PIECES + 1];
  int n = 0;
  size_t covered = 0, room = in->left ? sizeof(LinkFrame) : sizeof in->came;
  memmove(in->came, in->came + in->at, in->have - in->at);
  in->have -= in->at;
  in->at = 0;
  if (in->to) covered = link_pieces(in->to, in->left, pieces, &n);
  else if (in->into) pieces[n++] = (struct iovec){in->into->data + in->into->have, covered = in->left};
  if (!in->to && !in->into) room = sizeof in->came; // nobody wants them
  else if (covered < in->left) room = 0;
  if (room > in->have) pieces[n++] = (struct iovec){in->came + in->have, room - in->have};
  size_t asked = covered + (room > in->have ? room - in->have : 0), got = link_read(&in->end, pieces, n);
  size_t straight = got < covered ? got : covered;
  if (straight) moved(in, straight);
  in->have += got - straight;
  *short_read = got < asked;
  return got;
}

unsigned link_in_read(LinkIn *in) {
  unsigned moves = 0;
  bool drained = false;
  for (size_t got = 0; !*in->end.broken && !drained && (got < LINK_AT_ONCE || in->end.encrypted);) {
    while (use_buffer(in)) {}
    if (*in->end.broken) break;
    size_t n = fill(in, &drained);
    if (!n) break;
    moves++;
    got += n;
    drained = drained && !in->end.encrypted;
  }
  while (!*in->end.broken && use_buffer(in)) {}
  return moves + link_in_write(in);
}
