// Which checkpoint a run starts from, and which of its own have to be moved out of the way for it.
#pragma once
#include "checkpoint/checkpoint.h"
#include "recipe/recipe.h"

typedef struct ResumeFrom {
  Checkpoint *checkpoint; // NULL: from init
  int64_t keep_until;     // later checkpoints of run.dir are to be moved before the first step; INT64_MAX: none
  char *notes;            // lines for the user, or NULL
} ResumeFrom;

typedef enum ResumeLook { RESUME_VERIFY, RESUME_PEEK } ResumeLook;

// By checkpoint.resume and the checkpoints in the folder `checkpoints` of run.dir. Changes nothing on the disk.
// RESUME_PEEK verifies no data: it finds the same checkpoint as long as none is damaged. PLAIT_BAD_INPUT where starting
// there would leave later checkpoints in place (unless `force`), where none can be read, or where the named one cannot.
// The caller frees *from.
int resume_find(const Recipe *recipe, const char *checkpoints, bool force, ResumeLook look, ResumeFrom *from,
                Error *error);
void resume_free(ResumeFrom *from);

// Does the checkpoint `path` lie in the folder? Links are followed.
bool resume_lies_in(const char *path, const char *folder);

// The checkpoints at which the run was told to begin, as a list of paths for a checkpoint's `extra`: those of the
// checkpoint that it starts from (of this run; else NULL) and the one that checkpoint.resume names. The caller owns it.
json_t *resume_origins(const Recipe *recipe, const Checkpoint *own);

// Moves the checkpoints after keep_until, with the link `best` if it names one of them and a copy of metrics.jsonl, to
// a new folder of run.dir, and says so in `out`.
int resume_set_aside(const Recipe *recipe, const char *checkpoints, int64_t keep_until, FILE *out, Error *error);
