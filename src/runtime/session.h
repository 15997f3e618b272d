// A session: the ranks of one world that this process runs, each with its communicator, its thread, and once a job is
// loaded its memory and Programs. It is the only place where ranks run: training, evaluation, generation, the C API,
// benchmarks and tests give it tasks, which it runs on all its ranks at the same time, since ranks wait for each other.
//
// A rank that fails makes all others fail: its world is aborted, so that whoever waits for it returns. The session
// keeps the first failure, and says which rank caused it. After that it can only be closed. A session of fewer ranks
// may be opened then: its epoch is the next one, and what the ranks held comes from a checkpoint.
#pragma once
#include "runtime/rank.h"

typedef struct Session Session;

typedef struct SessionOptions {
  int ranks;                     // of the world, as threads of this process; the session makes the world
  PlaitComm *
      comm; // or: the communicator of all ranks of a world that this process or thread has joined as one rank. Borrowed
  const WatchdogLimits *limits;  // of the ranks' activities; NULL: nobody watches
  Watchdog *watchdog;            // or: one that watches this rank already. Borrowed
  int64_t epoch;                 // of membership: 0, then one more each time the ranks change
} SessionOptions;

// Starts the ranks. PLAIT_FAILED with a sentence where the system has no more threads. The caller closes it.
int session_open(const SessionOptions *options, Session **session, Error *error);
// Ends the ranks, and frees what they hold: after all of them are done, since another rank may read a rank's memory
// until then.
void session_close(Session *session); // NULL is fine

// A rank's part of a task. Negative: it fails, with a sentence.
typedef int (*SessionTask)(Rank *rank, void *context, Error *error);
// Runs a task on every rank of the session, and returns when all are done: PLAIT_OK, or the first failure of a rank of
// this process, with the rank in the sentence where there are several. Not from within a task.
int session_run(Session *session, SessionTask task, void *context, Error *error);

// Gives a task to every rank and returns at once, with its number. A rank does its tasks in their order; after a
// failure none is given. Ranks do not wait for each other between them. Where this process has one rank, which runs in
// the caller's thread, the task is done when this returns. The context must stay until session_wait.
int64_t session_begin(Session *session, SessionTask task, void *context);
// Until every rank of this process has done that task; the code is session_run's.
int session_wait(Session *session, int64_t number, Error *error);
// A task for one rank of this process, behind those that it has been given; waits for this rank alone.
int session_run_on(Session *session, int rank, SessionTask task, void *context, Error *error);

// Gives each rank memory for the job's Variables, and its Programs. Collective, as a task; once a session. Parameters
// are zero.
int session_load(Session *session, const Job *job, Error *error);

int session_ranks(const Session *session);     // of the world
int64_t session_epoch(const Session *session);
int session_is_local(const Session *session);  // all ranks are threads of this process
PlaitWorld *session_world(const Session *session);
// Between tasks: a rank of this process, for reading what it holds; NULL: it is another process's.
Rank *session_rank(const Session *session, int rank);
// The rank of this process whose task failed first, or -1.
int session_culprit(const Session *session);
