// Watches the ranks of a world of net: a connection of each to rank 0, a thread that sends pulses along it, and words
// of failure. It depends on no message of UCX: the system closes the connection of a process that dies, whatever killed
// it, and a process that is stopped sends no pulses. What a rank says before it leaves arrives before its end does, so
// the rank that failed first is never mistaken for one that left because of it.
#pragma once
#include "net/socket.h"
#include "comm/process.h"
#include "net/secret.h"

typedef struct NetWatch NetWatch;

// Connects the ranks: rank 0 by its listener (which it closes), the others to `address`. Only who proves to have the
// world's secret is let in; all goes by TLS where it encrypts. hosts: (ranks) names, for sentences; borrowed. Waits for
// all ranks until the deadline.
int net_watch_create(ProcessWorld *world, int listener, const NetAddress *address, const Secret *secret,
                     const char (*hosts)[HOST_NAME], double silence, double deadline, NetWatch **watch, Error *error);
int net_watch_start(NetWatch *watch, Error *error); // its thread
// What the thread does again and again, without waiting, at the time `now` of clock_seconds(): takes what has come,
// sends a pulse where one is due, looks for silence. For a watch that has no thread.
void net_watch_turn(NetWatch *watch, double now);
void net_watch_destroy(NetWatch *watch);            // NULL is fine

void net_watch_set_silence(NetWatch *watch, double seconds);
void net_watch_notify(NetWatch *watch, const Notice *notice); // tells all others, unless they know
void net_watch_settle(NetWatch *watch);  // waits a moment for the word of another rank, if the world has not failed
void net_watch_leave(NetWatch *watch);   // this rank has nothing more to do
int net_watch_left(NetWatch *watch);     // nor has any other
// The connection with it has ended, or nothing came along it for `silence`. Rank 0 has one with each rank, the others
// have one with rank 0.
int net_watch_is_gone(const NetWatch *watch, int rank);
int net_watch_met_silence(NetWatch *watch); // the world has failed because a rank was silent, as far as is known here
