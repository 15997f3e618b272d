// Changes since the checkpoint when a run resumes: keys of the recipe, and the contents of the files that they name.
#pragma once
#include "checkpoint/checkpoint.h"
#include "recipe/recipe.h"

// The contents of corpora and tokenizer as fingerprints, {"data.train": ["…", …], …}, for a checkpoint's `extra`:
// of each file its size and a checksum of its first and last megabytes. A file that cannot be read has none.
json_t *changes_facts(const Recipe *recipe);

typedef struct Changes {
  char *listed;  // "schedule.steps 300 → 600, optimizer.lr 0.0003 → 0.0001"; NULL: none
  char *other_run; // of these, what makes it another run; NULL: nothing
  char *unknown; // a sentence where the recorded recipe is one that this version of plait cannot read; else NULL
  char *follows; // a line "note: …" for each thing that follows from these keys and that they do not say; NULL: nothing
} Changes;

// The recipe, config.json and contents that a checkpoint has recorded, against those of now. Facts that were not
// recorded (checkpoints of earlier versions) are not compared. `facts` is borrowed. The caller frees *changes.
void changes_find(const Recipe *recipe, const ModelConfig *config, const json_t *facts, const Checkpoint *checkpoint,
                  Changes *changes);
void changes_free(Changes *changes); // also safe twice
