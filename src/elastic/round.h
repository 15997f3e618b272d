// One round on this machine: its workers from their start until all have ended, and what of them failed first.
#pragma once
#include "elastic/failure.h"
#include <signal.h>

typedef struct Round {
  Workers workers;
  Failure failure;        // found once it is clear
  double grace;           // seconds from SIGTERM to SIGKILL
  int number;
  int fine;               // the status of workers that end because a signal asked them to; 0: none did
  bool may_be_asked; // by others, and not all at the same moment: all such statuses are fine, and who was asked may
                     // fail because others have ended
  double failed_at;       // when the first bad end was seen
  double end_at;          // when the next signal ends the workers: SIGTERM, then SIGKILL; 0: they are not to end
  int64_t memory_kills;   // before the round
  int told;               // the signal that was sent for it: 0, SIGTERM or SIGKILL
  int asked;              // the signal that asked them to save and end; 0: none
  bool failing;           // a worker has ended badly
} Round;

// As workers_start.
int round_start(Round *round, const WorkerPlan *plan, double grace, Error *error);
bool round_running(const Round *round);
// Waits for output, notices, the descriptors `other` (revents are set), or the time of the next signal; reads what the
// workers say. seconds: at most so long; below 0: any time.
struct pollfd;
void round_wait(Round *round, struct pollfd *other, int count, double seconds);
void round_reap(Round *round);              // after SIGCHLD: which workers have ended?
// A worker that ends badly lets all end. Returns 1 when it has become clear which failed first: round->failure.
int round_look(Round *round);
void round_end_soon(Round *round);          // workers that talk to each other have noticed; a moment to say why
// To save and end; no time limit. rank_0: only that one, if it is here: it tells the others, and a second SIGINT would
// end them at once.
void round_ask(Round *round, int signal, bool rank_0);
// The worker has ended with a status that says that a signal has asked it to.
bool round_is_asked(const Worker *worker);
void round_free(Round *round);              // kills what is left; safe on a zeroed one

// Blocked, and read from *fd by poll: no handler, nothing between a check and a wait. A signal that was ignored stays
// so (nohup).
int round_take_signals(int *fd, sigset_t *old, Error *error);
