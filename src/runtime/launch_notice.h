// What a worker tells the supervisor that started it (plait launch), by a pipe whose number PLAIT_LAUNCH_FD is:
// lines "step N" and "failed RANK SENTENCE", or "lasting RANK SENTENCE" where a restart would fail as well. Without
// that variable all of it does nothing.
#pragma once
#include "base/error.h"
#include <stdint.h>

// The first step that this process has done since it started; from it the supervisor knows that the run advances.
void launch_notice_step(int64_t step);
// Why this rank ends. 1: the supervisor will print it, once for all ranks.
int launch_notice_failure(int rank, const Error *error);
