// What the supervisors of a job have in common: who is there, which round runs, how it ends. One value of the store,
// which they change by compare-and-set.
#pragma once
#include "elastic/failure.h"
#include "net/secret.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOB_MACHINES = 1024, JOB_SENTENCE = FAILURE_SENTENCE, JOB_NAME = 64, JOB_ID = 24 };

typedef enum JobPhase {
  JOB_GATHERS, // not enough machines, or the first round waits for more
  JOB_RUNS,
  JOB_ENDS,    // the round is ended on all machines
  JOB_DONE
} JobPhase;

typedef enum JobEnding { // why a round ends; a later one is more urgent
  ENDING_NONE,
  ENDING_CHANGED, // a machine joins or leaves: at a step boundary, with a common save
  ENDING_STOPPED, // a signal stops the job, with a common save
  ENDING_LOST,    // a machine is gone: at once
  ENDING_FAILED   // a worker has failed: at once
} JobEnding;

typedef struct Machine {
  char id[JOB_ID];       // of this start of a supervisor
  char host[JOB_NAME], address[JOB_NAME];
  int pid, nproc, port;  // the workers that it may start; a port of it that is free, for the case that it has rank 0
  int copies_port;       // where it takes copies of other machines' memory (elastic/copies.h); 0: it takes none
  int node_rank;         // as the user wants it; -1: anywhere
  int first, ranks;      // in this round; ranks 0: a spare, or it waits for the next round
  bool ended, finished;  // its workers of this round; finished: all with status 0
  bool leaving;
} Machine;

// A failure that ended a round. weight: 3 a signal killed the worker, 2 it said why, 1 it ended with a status; 0: none.
typedef struct JobFailure {
  int round, weight, rank, status; // status: what a shell calls it
  int text;            // where in `words` what they say of it begins, as in Error
  int blamed;          // the other rank that the worker says is to blame, on the machine `blamed_host`; -1: none
  bool wrong_input;    // a restart would end in the same way
  bool counted;        // it was found to be what ended the round: one of the restarts, or the job's end
  char machine[JOB_ID], host[JOB_NAME], blamed_host[JOB_NAME];
  char how[FAILURE_HOW]; // as in Failure
  char words[sizeof((Error *)0)->message]; // what the worker says itself; "": nothing
} JobFailure;

// How a machine's workers have ended.
typedef struct JobRoundEnd {
  int round;
  bool finished;      // all with status 0
  bool paused;        // this machine was stopped meanwhile, for longer than --silence
  int status;         // rank 0's if it was here; else of a worker that ended as it was asked to; 0: there was none
  JobFailure failure; // weight 0: none has failed
} JobRoundEnd;

typedef struct JobState {
  int64_t changes;         // counts: of two states the one with more is newer
  char job[20];            // a random number of this start of the job
  char secret[SECRET_TEXT]; // of its processes, as this start has drawn it; "": the user has given one
  char recipe[20], version[40]; // what all must have in common
  JobPhase phase;
  JobEnding ending;
  int round, restarts;     // round -1: none yet
  int lost;                // machines that this round has lost
  char lost_host[JOB_NAME]; // the first of them
  bool asked; // its workers were asked to save and end, or stopped for so long that others count them as lost
  int stop, status;        // the signal that stops the job; the status that it ended with
  char cause[JOB_SENTENCE]; // of the round, or of what ends it
  JobFailure failure;      // the heaviest of its round
  int count;
  Machine machine[JOB_MACHINES];
} JobState;

// JSON; the caller frees it.
char *job_state_print(const JobState *state);
// NULL: a field is missing, has another type, or a value that no job has. The caller frees it.
JobState *job_state_parse(const char *text, size_t bytes);
JobState *job_state_copy(const JobState *state);

Machine *job_machine(JobState *state, const char *id); // NULL: it is not there
int job_members(const JobState *state);                // machines that have ranks in this round
int job_ranks(const JobState *state);
// Of those that have ranks in this round, the machine behind that one, and behind the last the first.
const Machine *job_next(const JobState *state, const Machine *machine);
// A random number as text, of a job or a machine.
void job_make_name(char *text, size_t size);
