// What dead workers have left in memory, as a checkpoint: the newest step of which all ranks' images are complete
// (checkpoint/memory_image.h). On several machines each supervisor writes the parts of its own workers; the one of rank
// 0 chooses the step and commits. They meet in a folder of run.dir. Where a machine is lost, and the ranks of each have
// all of the state, the first of the others writes all of it alone.
#pragma once
#include "elastic/workers.h"

typedef struct Rescue Rescue;

typedef struct RescuePlace {
  const char *job;   // token of this start of the job
  int round;         // whose workers they are: who may write is what run.dir/lock says
  int ranks;         // of the round, on all machines
  const char *run_folder; // in which several machines meet; NULL: they save nothing
  double grace;           // seconds that workers of other machines may take to end
} RescuePlace;

// After a failure, when all workers here have ended. NULL: they have left nothing that is newer than the checkpoints on
// the disk. Else a thread is at work, and the next round must wait for it.
Rescue *rescue_begin(const Workers *workers, const RescuePlace *place);
// A machine of the round is lost: what only it has will not come. is_first: of those that are left, this one is.
void rescue_lose(Rescue *rescue, bool is_first);
bool rescue_is_done(Rescue *rescue);
// Waits, says in a line what has come of it, and frees. NULL is fine.
void rescue_end(Rescue *rescue);
