// One connection between two ranks, once it is known who is at its other end. Who has opened it sends messages
// (LinkOut), the other one receives them (LinkIn). Nothing here waits, and each rank brings the sockets.
//
// A message's first LINK_FIRST bytes follow its head at once; the receiver stores them if nobody has asked for the
// message yet. How many it stores of a sender is limited (LINK_SHORTS, LINK_LONGS): beyond that only heads are sent,
// and beyond LINK_HEADS of these nothing.
// The rest of a long message waits for READY, which says that a receive has its memory, and is read straight into it.
// The sender copies nothing: what a socket does not take stays where it is until it does.
//
// Each field that comes is checked before it is used. A connection that brings anything else is never read again.
#pragma once
#include "comm/link_frame.h"
#include "comm/net_match.h"
#include "comm/wire.h"
#include "net/channel.h"

// Why a receive was not done as asked.
typedef enum LinkStatus {
  LINK_FINE,
  LINK_LENGTH, // the message has another length than the receive; no byte of it was written
} LinkStatus;

typedef enum LinkKind { LINK_RECEIVE, LINK_ARRIVED, LINK_OWN_SEND } LinkKind; // of MatchEntry.kind

// A send or receive under way. The caller's, at one place until it is done or forgotten.
typedef struct LinkMessage {
  MatchEntry entry;         // of a receive, and of a send to this rank itself
  struct LinkMessage *next; // in the queue of a connection
  const WirePiece *pieces;      // (n) borrowed
  size_t n, piece, within;  // where it is: piece `piece`, `within` bytes into it
  size_t bytes, moved;      // in all; that have gone or come
  uint64_t tag;
  uint32_t id;
  LinkStatus status;
  bool answer; // a send that waits for its receiver
  bool bare;   // only its head was sent
  bool done;
} LinkMessage;

LinkMessage link_message(const WirePiece *pieces, size_t n);

typedef struct LinkQueue { LinkMessage *first, *last; } LinkQueue;

// What both have. ok: as long as it can be used; else why not.
typedef struct LinkEnd {
  int kind, rank; // kind, watched: net_links.c's
  int fd, watched;
  Channel *channel; // that owns fd
  bool encrypted;   // the bytes go by the channel
  bool full;        // the socket takes no more for now, or was not asked: it is to be watched
  bool malformed;   // the other side has sent what no rank sends
  char broken[120]; // empty: it can be used
} LinkEnd;

typedef struct LinkOut {
  LinkEnd end;
  LinkQueue fresh, waiting, ready; // whose heads go next; for READY or TAKEN; whose data go next
  LinkMessage *current;            // whose frame is being written; NULL: none
  LinkFrame head;
  bool is_awaited;                 // its receiver has said READY already
  size_t head_sent, until;         // bytes of the head that have gone; current->moved when the frame ends
  uint32_t next_id;
  uint32_t shorts, longs, heads;   // that the receiver still stores
  unsigned char came[8 * sizeof(LinkFrame)];
  size_t have;
} LinkOut;

typedef struct LinkIn LinkIn;

LinkOut *link_out_create(Channel *channel, bool encrypted, int rank); // takes the channel over, unless it is NULL
void link_out_open(LinkOut *out, Channel *channel, bool encrypted);   // one that was created without
void link_out_destroy(LinkOut *out);                                  // NULL is fine
void link_send(LinkOut *out, LinkMessage *message); // with tag and answer; queued
// Moves bytes as far as the socket lets it, or about a MiB. Returns how often something moved.
unsigned link_out_write(LinkOut *out);
unsigned link_out_read(LinkOut *out);
bool link_out_is_idle(const LinkOut *out);          // nothing waits to be written
void link_out_forget(LinkOut *out, LinkMessage *message); // the connection breaks if it is half written

LinkIn *link_in_create(Channel *channel, bool encrypted, int rank, Match *match); // match: borrowed
void link_in_destroy(LinkIn *in);
LinkEnd *link_in_end(LinkIn *in);
unsigned link_in_read(LinkIn *in);
unsigned link_in_write(LinkIn *in);
bool link_in_is_idle(const LinkIn *in);

// Posts a receive: from a rank, or MATCH_ANY. What has come already goes into it.
void link_receive(Match *match, LinkMessage *message, uint64_t tag, int sender);
// A send to this rank itself: done when its receiver has come.
void link_send_self(Match *match, LinkMessage *message, uint64_t tag, int self);
// Gives up a receive, or a send to this rank itself. in: of its sender; NULL where that is not known.
void link_forget(LinkMessage *message, LinkIn *in);

// For both halves.
enum { LINK_PIECES = 64, LINK_AT_ONCE = 1 << 20 };
enum { LINK_UNWATCHED = -1, LINK_WATCHED = 1, LINK_WATCHED_BOTH }; // LinkEnd.watched; 0: not yet
struct iovec;
// The next bytes of a message, `most` at most. *n grows. Returns how many there are.
size_t link_pieces(const LinkMessage *message, size_t most, struct iovec *pieces, int *n);
void link_moved(LinkMessage *message, size_t bytes);
void link_queue_add(LinkQueue *queue, LinkMessage *message);
void link_queue_remove(LinkQueue *queue, LinkMessage *message); // if it is there
void link_end_open(LinkEnd *end, Channel *channel, bool encrypted, int rank);
// As recvmsg and sendmsg; 0: nothing now (of a write: the socket is full), or it is broken.
size_t link_read(LinkEnd *end, const struct iovec *pieces, int n);
size_t link_write(LinkEnd *end, const struct iovec *pieces, int n);
void link_break(LinkEnd *end, const char *format, ...) __attribute__((format(printf, 2, 3)));
