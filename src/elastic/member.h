// One machine's place in a job: a thread that finds or serves the store (elastic/job_store.h), renews this machine's
// lease, tells the others what happens here, and sees what the others tell. The caller's thread reads the job's state
// and says what it wants.
#pragma once
#include "base/error.h"
#include "elastic/rounds.h"
#include "elastic/store.h"

typedef struct MemberOptions {
  const char *endpoints, *id;  // --rdzv, --rdzv-id; endpoints NULL: a job of one machine (elastic/job_store_alone.c)
  bool insecure;
  double silence;              // seconds after which a machine that says nothing is lost
  double patience;             // seconds without a store after which the job is given up
  RoundLimits limits;
  const char *recipe;          // what all machines must run, as a number in text
  const char *what;            // the same in lines (elastic/job_what.h), for sentences; NULL: not known
  const char *folder;          // run.dir, which all machines share; NULL: none
  const char *address;         // of this machine for the others; NULL: the one by which it reaches the store
  int nproc, node_rank;        // node_rank -1: any
  bool copies;                 // it takes copies of other machines' memory
} MemberOptions;

typedef struct Member Member;
// The options are borrowed. A job of one machine has no thread: member_look does what is wanted.
int member_open(const MemberOptions *options, Member **member, Error *error);
// The machine's lease ends at once. done: the job has ended on this machine, too.
void member_close(Member *member);

// A member without a thread, in a network of the caller's, and what the thread does again and again: one look at the
// store, or one try to find it, and the seconds to *rest before the next. false: it has come to its end.
Member *member_make(const MemberOptions *options, StoreNetwork *network);
bool member_turn(Member *member, double *rest);

int member_event(const Member *member);    // a descriptor that is ready to be read when there is news
// The newest state that is known, NULL: none yet; the caller frees it. *here: this machine, in it; NULL: it is not
// (any more). After this the descriptor is not ready until there is more. PLAIT_BAD_INPUT, PLAIT_FAILED: the job cannot
// continue here.
int member_look(Member *member, JobState **state, Machine **here, Error *error);
const char *member_id(const Member *member);
bool member_waits(Member *member, char *text, size_t size); // the store is not reached: a sentence that says so
void member_store(Member *member, char *text, size_t size); // the endpoint at which it was found last

// A wish stays until the state has it; each may be said again.
void member_set_busy(Member *member,
                     bool busy); // workers of an old round still run: it is not to join as a new machine
void member_leave(Member *member);
void member_stop(Member *member, int signal);
void member_failing(Member *member, int round);
void member_ended(Member *member, const JobRoundEnd *how);
// The job is done, or this machine has left it: waits, at most some seconds, until the others know; with the store here
// and no other endpoint, as long as others are there and `stop` is not ready to be read.
void member_finish(Member *member, int stop);
void member_end_job(Member *member, int status); // it was the last machine: the job has ended with that status
bool member_serves(Member *member); // the store
bool member_keeps(Member *member);  // of all machines this one serves the store, or has the lease in run.dir
