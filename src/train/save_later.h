// Checkpoints that a thread of each rank writes while the next steps run (checkpoint.async).
//
// Between two steps all ranks call save_later_begin: rank 0 makes the folder, and each rank's thread begins to copy its
// Variables (runtime/staging.h) and writes its part from the copy. Rank 0's thread commits when all parts lie there
// with their checksums; ranks do not talk to each other for it. One checkpoint is under way at a time:
// save_later_settle waits for it. The files are those of save_checkpoint.
#pragma once
#include "train/save.h"

typedef struct SaveLater SaveLater;

// Memory is taken here, once. dir is borrowed; `log` is rank 0's file descriptor of the metrics, which is synced before
// each commit: a checkpoint must not outlive the lines that lead to it.
int save_later_create(Rank *r, const char *dir, int log, SaveLater **out, Error *error);
// Waits for the thread; after a failure of other ranks no longer than they need to write what they have begun.
void save_later_destroy(SaveLater *w); // NULL is fine

// Collective; none may be under way.
int save_later_begin(SaveLater *w, const SaveExtra *extra, int keep, Error *error);
// Between two steps, by each rank alone: the error of its thread, if it has failed. On rank 0 *saved is the step of a
// checkpoint that has been committed since it was last asked, or 0.
int save_later_look(SaveLater *w, int64_t *saved, Error *error);
// Collective: waits until no checkpoint is under way. *seconds: how long; 0 where none was, or it was finished already.
int save_later_settle(SaveLater *w, int64_t *saved, double *seconds, Error *error);
