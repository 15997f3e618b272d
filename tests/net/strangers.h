// Strangers at a port: very many connections, which say anything but what the job says. For servers in a test's own
// process, and by test_crowds HOST PORT COUNT for those of a job that runs.
#pragma once
#include "net/socket.h"
#include <stdio.h>

typedef struct Strangers {
  NetAddress at;
  long count;      // connections
  int most;        // of these at a time
  unsigned seed;   // of what they say
  double seconds;  // within which the other side has to close each that does not go by itself
  const volatile int *stop; // not NULL: no more come when it is set
} Strangers;

typedef struct StrangersSeen {
  long came, unreachable; // connections that were made; that the host refused
  long went, closed;      // that ended by themselves; that the other side has ended
  long kept;              // that the other side has not ended in time
  long heard;             // bytes that the other side has said to all of them
} StrangersSeen;

StrangersSeen strangers_come(const Strangers *strangers);
void strangers_print(const StrangersSeen *seen, FILE *out);
