// Connections that come to a listener and have to say who they are. All of them are served at the same time: one that
// says nothing, or says it slowly, delays no other.
#pragma once
#include "net/channel.h"

// What each connection goes through.
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

typedef struct Arrival Arrival;
typedef struct Arrivals {
  int listener;
  Welcome welcome;
  Arrival *first, *last;  // in the order in which they came
  int count;
  struct pollfd *polled;  // (most + 1)
  // Connections that were closed: in the handshake; without a whole answer; with one that was refused.
  int without_secret, unanswered, refused;
} Arrivals;

Arrivals arrivals_of(int listener, const Welcome *welcome); // the listener stays the caller's
// What decides, without waiting: the caller brings the time. A connection has come to the listener:
void arrivals_add(Arrivals *arrivals, int fd, double now);
// Takes what has come along all of them, and closes those whose time is over. Whether one has given a whole answer.
bool arrivals_turn(Arrivals *arrivals, double now, Channel **channel, void **answer);
double arrivals_limit(const Arrivals *arrivals); // when the time of the first is over; INFINITY: there are none
// The next connection that has given a whole answer: its head and what follows, malloc'ed. 1; 0: none until the
// deadline of clock_seconds(); below 0: -errno of the listener.
int arrivals_next(Arrivals *arrivals, double deadline, Channel **channel, void **answer);
void arrivals_end(Arrivals *arrivals); // closes and counts those that are left
