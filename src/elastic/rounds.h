// How the state of a job moves: machines come, go and are lost, rounds begin and end. No sockets, no processes, no
// clock: each function looks at the state, changes it or not, and may be called again with the same effect as once.
#pragma once
#include "elastic/job_state.h"

typedef struct RoundLimits {
  int least, most;   // machines
  int restarts;      // --max-restarts
  int exactly, unit; // ranks that the mesh has, 0: any number that is a multiple of unit
} RoundLimits;

// A failure here, as the other machines must know it.
JobFailure rounds_failure(const Failure *failure, int round, const char *machine, bool wrong_input);

// All return whether the state has changed.
bool rounds_join(JobState *state, const RoundLimits *limits, const Machine *machine);
bool rounds_leave(JobState *state, const char *id); // says goodbye
bool rounds_lose(JobState *state, const char *id);  // its lease has lapsed
bool rounds_stop(JobState *state, int signal);      // the whole job
// A worker of the machine has failed; how, rounds_ended says later.
bool rounds_failing(JobState *state, const char *id, int round);
// All workers of the machine have ended. A job that is stopped ends with rank 0's status, where others failed because
// rank 0 ended before the ranks had found each other.
bool rounds_ended(JobState *state, const char *id, const JobRoundEnd *end);
// Begins the next round, or ends the job, when all have said what they know. By one machine at a time, the
// first in the state. waited: the first round need not wait for more machines.
bool rounds_advance(JobState *state, const RoundLimits *limits, bool waited);

// Whether another round follows a failure that counts.
bool rounds_try_again(const JobState *state, const RoundLimits *limits, const JobFailure *failure);

// The ranks of the round that the machines in the state could form; 0: none yet.
int rounds_possible(const JobState *state, const RoundLimits *limits);
