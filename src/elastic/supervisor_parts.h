// Shared by the parts of a supervisor: its loop and its signals (supervisor.c), the round that runs here
// (supervisor_round.c), and what is printed and written (supervisor_say.c).
#pragma once
#include "elastic/copies.h"
#include "elastic/member.h"
#include "elastic/rescue.h"
#include "elastic/round.h"
#include "elastic/supervisor.h"

enum { SUPERVISOR_WRONG_INPUT = 2 }; // the status of plait train

typedef struct Supervisor {
  const LaunchOptions *options;
  MemberOptions membership;
  Member *member;
  int signals;          // signalfd
  JobState *state;      // as it is known here; NULL: not yet
  Machine *here;        // this machine in it; NULL: it is not
  Round round;          // of this machine's workers
  bool working;         // it has any, or had and has not told how they ended
  int begun;            // the last round that was started here
  int ranks;            // of that round, on all machines
  int printed;          // the last round whose failure was printed
  int announced;        // the last round whose beginning was printed
  int leaving;          // the signal by which this machine leaves; 0: it does not
  int stopping;         // the signal by which the job stops, as far as this machine has got it; 0: it does not
  double caused;        // when the round before was seen to end, or this machine began
  double ticked_at;     // when this process has last looked; 0: not since the round was started
  bool paused;          // in this round it did not look for longer than --silence: it was stopped
  double ended_at;      // when all workers had ended
  double first_ended_at; // when rank 0's machine was seen to have ended this round; 0: it has not
  double cut_off_at;    // when the store was lost; 0: it is reached
  Copies *copies;       // of other machines' memory, and of the one here; NULL: none are made
  Rescue *rescue;       // of what this round's workers have left in memory; NULL: none is under way
  bool rescued;         // whatever came of it
  bool journaled;
  char waiting[300];    // what was said of it
  char awaited[300];    // what this machine waits for, by describe_wait; "": nothing
  double awaited_since;
  bool awaited_told;
} Supervisor;

// The one difference between a job of one machine and one of several. Its supervisor is the only one to know the
// workers, so nobody else can ask them to end, take them for lost or wait for them (README.md).
static inline bool supervisor_is_alone(const Supervisor *me) { return !me->options->endpoints; }

// The machine of rank 0; NULL: it is not there (any more).
const Machine *supervisor_first_machine(const JobState *state);

void supervisor_stop(Supervisor *me, int signal); // tells the state that the signal stops the job

// A round here --------------------------------------------------------------------------------------------------------

// The state says that a round begins in which this machine has ranks.
int supervisor_round_start(Supervisor *me, Error *error);
// While there are workers, or were: what the state says about their round, and what they say to it.
void supervisor_round_follow(Supervisor *me);
void supervisor_round_abandon(Supervisor *me, const char *why); // it continues without this machine
void supervisor_round_drop(Supervisor *me); // what is left of it; safe where nothing is

// Printing -----------------------------------------------------------------------------------------------------

void supervisor_say_waiting(Supervisor *me, const char *text); // once, until it changes; "": nothing
void supervisor_say_waits(Supervisor *me);  // for machines; after a long wait for what
// A failure here that no other machine can outweigh: at once.
void supervisor_say_own_failure(Supervisor *me, const JobFailure *failure);
void supervisor_say_news(Supervisor *me);   // of the state: a failure that counts, a round, the end
// A line of launch.jsonl, by the machine of rank 0: with the first step, or where the round has `ended` without one.
void supervisor_write_journal(Supervisor *me, bool ended);
