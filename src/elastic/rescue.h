// What dead workers have left in memory, as a checkpoint: the newest step of which all ranks' images are complete
// (checkpoint/memory_image.h). On several machines each supervisor writes the parts of its own workers, and the one of
// rank 0 chooses the step and commits; they meet in a folder of run.dir. Where a machine is lost, the first of the
// others leads: copies of its workers' memory (elastic/copies.h) count like those of workers. Where the ranks of each
// machine have all of the state, it writes all of it alone.
#pragma once
#include "elastic/workers.h"

typedef struct Rescue Rescue;

typedef struct RescuePlace {
  const char *job;   // token of this start of the job
  int round;         // whose workers they are: who may write is what run.dir/lock says
  int ranks;         // of the round, on all machines
  const char *run_folder; // in which several machines meet; NULL: they save nothing
  double grace;           // seconds that workers of other machines may take to end
  bool copied;            // machines may have copies of each other's memory
  const int *copy;        // (copies) files that may have images of other machines' workers
  int copies;
} RescuePlace;

// Machines of the round that are lost: what only they have will not come.
typedef struct RescueLoss {
  int machines;   // so many
  int ranks_left; // of the others
  int leader;     // the first rank of the machine that leads: the first of these
} RescueLoss;

// After a failure, when all workers here have ended. NULL: they have left nothing that is newer than the checkpoints on
// the disk. Else a thread is at work, and the next round must wait for it.
Rescue *rescue_begin(const Workers *workers, const RescuePlace *place);
void rescue_lose(Rescue *rescue, const RescueLoss *loss);
// Another machine of the round, whose first rank this is, has said that its workers have ended: it takes no part, or
// not any more. One that was cut off says so without having looked at what they have left. May be called again.
void rescue_ended(Rescue *rescue, int first);
void rescue_abandon(Rescue *rescue); // this machine has no part in the round any more
bool rescue_is_done(Rescue *rescue);
// Waits, says in a line what has come of it, and frees. NULL is fine.
void rescue_end(Rescue *rescue);
