// Each rank's part of the work of a collective, once all ranks' calls and memory can be read.
#pragma once
#include "comm/comm.h"

enum { LOCAL_MOST_RANKS = 4096 };

// calls: (n), by rank of the communicator; ranks: (n), their world ranks, for the message.
// PLAIT_FAILED and a sentence naming two ranks and their calls if these are not one collective.
int share_check(const CommCall *const *calls, int n, const int *ranks, Error *error);

// Memory that the collective moves, in bytes: decides whether it pays to share it out.
size_t share_bytes(const CommCall *const *calls, int n);

// Does the part of `rank`. Parts touch distinct memory: they may run at the same time, or one after another.
void share_run(const CommCall *const *calls, int n, int rank);
