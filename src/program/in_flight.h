// What a rank that runs a Program has under way at once at most, so that memory for it can be taken before the first
// step.
#pragma once
#include "program/program.h"

// Collectives on the communication stream; 0: it needs no stream.
int in_flight_collectives(const Program *p);
// Messages to a pipeline rank that it has not received, in the forward (1) or backward (0) direction.
int in_flight_messages(const Program *p, int forward, int coordinate);
