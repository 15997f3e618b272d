// Checkpoints that a thread of each rank writes while the next steps run (checkpoint.async), and those that are kept in
// memory only (checkpoint.memory_every).
//
// Between two steps all ranks call save_later_begin: rank 0 makes the folder, and each rank's thread begins to copy its
// Variables (runtime/staging.h) and writes its part from the copy. Rank 0's thread commits when all parts lie there
// with their checksums; ranks do not talk to each other for it. One checkpoint is under way at a time:
// save_later_settle waits for it. The files are those of save_checkpoint.
//
// save_later_keep makes the copy, and writes nothing. Under plait launch the copies of both lie in memory that the
// supervisor holds, with all that it takes to write the files: it does so when a rank has died (elastic/rescue.h).
#pragma once
#include "train/save.h"
#include "worker/memory.h"

typedef struct SaveLater SaveLater;

// Which losses the copies in memory (checkpoint.memory_every) survive.
typedef enum Keeping {
  KEEPING_NOTHING,        // there are none
  KEEPING_PROCESS,        // of processes
  KEEPING_MACHINE_ALONE,  // … and of machines: the ranks of each have all of the state
  KEEPING_MACHINE_COPIED, // … and of a machine: the next one has a copy, too (checkpoint.copies)
} Keeping;

typedef struct SaveLaterOptions {
  const char *dir;       // of the checkpoints; borrowed, as the others
  const char *log_path;  // metrics.jsonl
  int log;               // rank 0's file descriptor of it, which is synced before each commit: a checkpoint must not
                         // outlive the lines that lead to it
  const WorkerMemory *memory; // of this rank, or NULL
  bool writes;           // save_later_begin will be called (checkpoint.async, where there is memory for it)
  Keeping keeping;       // not KEEPING_NOTHING: save_later_keep will be called; it needs `memory`. With
                         // KEEPING_MACHINE_ALONE copies are of all that the ranks of this machine have
} SaveLaterOptions;

// Memory is taken here, once: two copies where save_later_keep will be called, else one; where nothing of both is asked
// for, *out is NULL.
int save_later_create(Rank *r, const SaveLaterOptions *options, SaveLater **out, Error *error);
// Waits for the threads; after a failure of other ranks no longer than they need to write what they have begun.
void save_later_destroy(SaveLater *w); // NULL is fine

// Collective; none may be under way.
int save_later_begin(SaveLater *w, const SaveExtra *extra, int keep, Error *error);
// Collective; of a step in which nothing else is saved.
int save_later_keep(SaveLater *w, const SaveExtra *extra, int keep, Error *error);
// Between two steps, by each rank alone: the error of its threads, if one has failed. On rank 0 *saved is the step of a
// checkpoint that has been committed since it was last asked, or 0. Copies that were begun are complete.
int save_later_look(SaveLater *w, int64_t *saved, Error *error);
// Collective: waits until no checkpoint is under way. *seconds: how long; 0 where none was, or it was finished already.
int save_later_settle(SaveLater *w, int64_t *saved, double *seconds, Error *error);
