// Upper bounds of what a rank has in flight at once in a Program, so that memory can be allocated before the first
// step.
#pragma once
#include "program/program.h"

// Collectives on an axis's communication stream; none: it needs no stream. copies: lists of buffers are copied, as
// those of several steps differ; else only those of calls that have counts (exchanges of rows). buffers: what is copied
// takes.
typedef struct InFlight { int calls, buffers, copies; } InFlight;
InFlight in_flight_collectives(const Program *p, int axis);
// Messages to a pipeline rank that it has not received, in the forward (1) or backward (0) direction.
int in_flight_messages(const Program *p, int forward, int coordinate);
