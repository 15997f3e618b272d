// The worker processes of one round on this machine: started together, ended together, none left over.
#pragma once
#include "base/error.h"
#include "worker/notice.h"
#include "worker/page.h"
#include "worker/worker.h"
#include <stdbool.h>
#include <sys/types.h>

// What the workers of a round are told. The texts are borrowed.
typedef struct WorkerPlan {
  char *const *argv;        // the program and its arguments, ended by NULL
  int count;                // workers of this machine
  int first_rank, ranks;    // rank of the first of them; ranks of all machines
  int node, nodes;          // this machine's number in the round, of so many
  const char *host;         // of rank 0
  int port;
  const char *id;           // of the job: TORCHELASTIC_RUN_ID
  const char *token;        // of this start of the job: ranks of another start are not let in
  int round, restarts, most_restarts;
  const char *log_folder;   // DIR/round-R/rank-N.out and .err; NULL: they write where the supervisor writes
  int tee;                  // 1: standard output goes there, too; 2: errors; 3: both
  bool copies;              // what they keep in memory is kept on the next machine, too (elastic/copies.h)
  bool insecure;            // other addresses than the loopback interface's are fine
  const char *secret;       // that plait launch has drawn (secret_draw); "": the user has given one
  bool net;                 // ranks talk by net, whatever the recipe says, which may be written for threads
} WorkerPlan;

enum { WORKER_STREAMS = 2, WORKER_LINE = 4096 };

// What a worker prints when the supervisor reads it (tee).
typedef struct WorkerStream { int from, to_log, to_console, length; char line[WORKER_LINE]; } WorkerStream;

typedef struct Worker {
  int rank;
  pid_t pid;
  bool ended;
  int told;   // by the supervisor before it ended: 0, SIGTERM or SIGKILL
  int status; // of waitpid, once it has ended
  WorkerStream stream[WORKER_STREAMS];
  int memory[WORKER_MEMORIES]; // files without names in which it keeps what is to outlive it; -1: it has none
  Error said; // why it failed, as it says itself; code 0 where it did not say
} Worker;

typedef struct Workers {
  Worker *worker; // (count)
  int count;
  pid_t group;    // process group of all of them; also the guard's id, which ends them if the supervisor dies
  int guard;      // the pipe that the guard reads
  int ranks;      // of all machines
  int notices;    // what workers say of themselves; -1: none
  NoticeReader heard; // of that pipe
  WorkerPages pages; // what each does
  char run[WORKER_RUN]; // PLAIT_RUN_ID: another round is another run
  long long step; // the first that this round has done; 0: none yet
} Workers;

// Starts them, or none. PLAIT_BAD_INPUT: the program cannot be run.
int workers_start(const WorkerPlan *plan, Workers *workers, Error *error);
// Notes which have ended; `told`: the signal that the supervisor sent to all before. Returns how many these are.
int workers_reap(Workers *workers, int told);
int workers_running(const Workers *workers);
int worker_exit_status(const Worker *worker); // what a shell calls it: its status, or 128 + the signal
void workers_signal(const Workers *workers, int number); // to those that run, and to what they have started
void workers_read_notices(Workers *workers);
void workers_read_output(Worker *worker, int stream); // of one whose `from` is open; with tee
// Kills what is left, with the children of workers, and frees. Safe on a zeroed one.
void workers_end(Workers *workers);
