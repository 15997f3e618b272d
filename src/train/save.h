// Checkpoints of a run: what is in them, who writes what, and how one is loaded under any layout.
#pragma once
#include "checkpoint/checkpoint.h"
#include "runtime/rank.h"
#include "recipe/recipe.h"
#include "train/held_out.h"

// The `extra` of a run's checkpoints.
typedef struct SaveExtra {
  int64_t step;
  double tokens;        // target tokens trained on so far
  BestLoss best;        // when the run starts; each rank then keeps its own
  bool is_best;         // and shall be known as such: DIR/best
  char *recipe, *config; // texts of the effective recipe and of config.json; owned
  json_t *dtypes;       // of the Hugging Face folder that the run started from, or NULL; owned
  json_t *facts;        // of the files that the recipe names (train/changes.h), or NULL; owned
  json_t *began_at;     // checkpoints where the run was told to begin (train/resume.h), or NULL; owned
  json_t *text;         // what run_text.h says, or NULL; owned
} SaveExtra;

int save_extra_create(const Recipe *recipe, const ModelConfig *config, SaveExtra *out, Error *error);
void save_extra_free(SaveExtra *extra);

// Writes DIR/step-N; called by every rank. A rank on which it fails must abort the world, as the others wait for it;
// when all have returned, checkpoint_abandon tidies up.
int save_checkpoint(Rank *r, const char *dir, const SaveExtra *extra, int keep, Error *error);

// Rank 0's work when all parts have been written: manifest, rename, DIR/best, and deleting older ones.
typedef struct SaveCommit {
  const char *dir;
  int64_t step;
  int parts, keep;
  bool is_best;
  json_t *extra;
} SaveCommit;
int save_commit(const SaveCommit *commit, Error *error);
// save_begin is for rank 0, before any part is written: it makes DIR/step-N.tmp. Then each rank writes its part with
// save_part.
int save_begin(const char *dir, int64_t step, Error *error);
int save_part(const char *dir, int64_t step, int rank, const CheckpointTensor *tensors, int count, Error *error);
json_t *save_extra_json(const SaveExtra *extra); // the caller's; shares objects with `extra`

// Does the checkpoint hold exactly the Variables of the model and the optimizer, in their shapes? Reads no data.
int save_compare(const Job *job, Checkpoint *checkpoint, Error *error);
// After it has failed: prefixes the error with the recipe keys that changed (of those that decide the Variables) and
// appends the remedy.
int save_explain(const Recipe *recipe, Checkpoint *checkpoint, Error *error);
// Fills the rank's Variables from a checkpoint that save_compare has passed.
int save_load(Rank *r, Checkpoint *checkpoint, Error *error);
