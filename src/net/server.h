// A loop that listens, accepts and greets connections, reads whole messages, sends, keeps time, closes and counts.
// Nothing in a turn blocks, and no connection waits for another one.
//
// A connection is *unproven* until its user has seen by its first messages that it belongs here (connection->proven).
// Strangers have unproven ones only, and those give way: they have a limit of time, and where there are too many
// connections, or no descriptors, the oldest unproven one is closed for a newcomer.
#pragma once
#include "net/channel.h"

typedef enum ServerEnd {
  SERVER_LEFT,           // the other side has ended it, or its user has
  SERVER_WITHOUT_SECRET, // it did not prove to have the secret
  SERVER_SILENT,         // its time was over
  SERVER_MALFORMED,      // it sent what `take` refuses
  SERVER_CROWDED_OUT,    // there were too many
  SERVER_UNREAD,         // it does not read what it is sent
  SERVER_ENDS
} ServerEnd;

typedef struct Server Server;

// The first fields are its user's to read, and to set where it says so.
typedef struct Connection Connection;
struct Connection {
  Server *server;
  Connection *next;   // that came after it, of those that are open (server_first)
  Channel *channel;
  void *own;          // set by the user
  size_t head;        // set by the user: bytes with which the next message begins; at first that of ServerOptions
  bool met, proven;   // the greeting is done; set by the user in `take`
  double limit;       // when it is closed. Once it is proven: set by the user, INFINITY at first
  ServerEnd end;      // for `leave`: why it is closed
  // The server's:
  Connection *before;
  bool over, ready, pauses, finishes; // ready: there may be something to read
  uint32_t watched;                   // events of epoll
  struct { unsigned char *data; size_t count, room; } in, out;
  size_t want, written;               // bytes of `in` before `take` is called; of `out` that have been sent
  double stuck;                       // since when nothing of `out` could be sent
};

typedef struct ServerOptions {
  const char *name;      // for sentences, as in "the store at 127.0.0.1:29400"; copied
  int listener;          // a socket that does not block, the caller's; -1: connections come by server_add
  const Secret *secret;  // NULL: there is none
  double meeting_seconds, proof_seconds; // for the greeting; then to be proven
  int most;              // connections at a time, within half of the process's limit on open files; 0: 1024
  size_t head, most_out; // most_out: bytes that may wait to be sent to one
  void *context;
  // In place of channel_greet: 1, 0, or -1 with its errno. NULL: channel_greet.
  int (*greet)(void *context, Connection *connection);
  void (*meet)(void *context, Connection *connection); // its greeting is done; may be NULL
  // `bytes` of a message have come: first connection->head, then as many as it has asked for. Returns how many more it
  // needs, all of which are given together with those before; 0: the message was taken; -1: malformed, the connection
  // is closed.
  int64_t (*take)(void *context, Connection *connection, const unsigned char *data, size_t bytes);
  double (*pass)(void *context, double now); // at the end of each turn; when it wants the next one; may be NULL
  void (*leave)(void *context, Connection *connection); // before it is freed; may be NULL
  void (*tell)(void *context, const char *sentence); // of the first connection closed of each kind, and how many in all
} ServerOptions;

// PLAIT_FAILED: no descriptors. Raises the process's limit on open files.
int server_open(const ServerOptions *options, Server **server, Error *error);
int server_start(Server *server, Error *error, const char *thread); // turns it in a thread, until it is closed
void server_close(Server *server); // ends the thread, and all connections; NULL is fine
// Or the caller turns it, at the time `now` of clock_seconds(): takes and sends what it can without waiting, and
// returns when the next turn is due if nothing comes. server_wait waits for that, or for something to come.
double server_turn(Server *server, double now);
void server_wait(const Server *server, double until);
void server_add(Server *server, int fd, double now); // a connection that was accepted elsewhere
Connection *server_first(const Server *server);
double server_now(const Server *server); // of the last turn
int server_closed(const Server *server, ServerEnd end); // how many connections

// For the callbacks, and between turns. The connection stays there until the end of the turn.
void connection_send(Connection *connection, const void *data, size_t bytes);
void connection_pause(Connection *connection, bool pauses); // nothing more is read; its end is noticed
void connection_finish(Connection *connection, ServerEnd end); // is closed when all is sent
void connection_end(Connection *connection, ServerEnd end); // is closed
Channel *connection_release(Connection *connection); // leaves the server with what it has not read; then the caller's
