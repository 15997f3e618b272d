// Connections that come to a listener and have to say who they are, as a user of net/server.h: one that says nothing,
// or says it slowly, delays no other.
#pragma once
#include "base/vec.h"
#include "net/server.h"

// The steps of each connection, and their limits.
typedef struct Welcome {
  const Secret *secret;   // NULL: there is none
  const void *greeting;   // what it is told first; NULL: nothing
  size_t greeting_bytes;
  size_t head_bytes;      // that it has to answer
  int64_t (*rest)(const void *head, const void *context); // how many bytes follow the head; below 0: it is refused
  const void *context;    // of `rest`
  double meeting_seconds, answer_seconds; // for the handshake; for the answer after it
  int most;               // connections at a time; when more come, the one that has waited longest is closed
} Welcome;

typedef struct Arrivals {
  Welcome welcome;
  Server *server;
  Vec(struct Arrival { Channel *channel; void *answer; }) came; // whole answers that nobody has taken yet
  // Connections that were closed: in the handshake; without a whole answer; with one that was refused.
  int without_secret, unanswered, refused;
} Arrivals;

// The listener stays the caller's; -1: connections come by server_add. `arrivals` stays where it is until its end.
int arrivals_begin(Arrivals *arrivals, int listener, const Welcome *welcome, Error *error);
// A turn of the server. Whether there is a connection that has given a whole answer: its head and what follows,
// malloc'ed. *due: when the next turn is.
bool arrivals_turn(Arrivals *arrivals, double now, double *due, Channel **channel, void **answer);
// The same, and waits for it until the deadline of clock_seconds(). 1, or 0.
int arrivals_next(Arrivals *arrivals, double deadline, Channel **channel, void **answer);
void arrivals_end(Arrivals *arrivals); // closes and counts those that are left
