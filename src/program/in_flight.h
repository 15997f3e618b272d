// Upper bounds of what a rank has in flight at once in a Program, so that memory can be allocated before the first
// step.
#pragma once
#include "program/program.h"

// Collectives on the communication stream; 0: it needs no stream.
int in_flight_collectives(const Program *p);
// Buffers that their lists and counts need at most, of those that have counts (exchanges of rows).
int in_flight_buffers(const Program *p);
// In a stream: sums over the stages, which have a separate communication stream.
int in_flight_sums(const Program *p);
int in_flight_sum_buffers(const Program *p); // of their lists
// Messages to a pipeline rank that it has not received, in the forward (1) or backward (0) direction.
int in_flight_messages(const Program *p, int forward, int coordinate);
