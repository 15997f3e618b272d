// Inside of training: what one process knows of a run, from its start to its end. trainer.c runs it, start.c prepares
// it, report.c tells of it.
#pragma once
#include "checkpoint/checkpoint.h"
#include "setup/setup.h"
#include "runtime/launch.h"
#include "runtime/session.h"
#include "train/changes.h"
#include "train/metrics.h"
#include "train/noise_scale.h"
#include "train/non_finite.h"
#include "train/progress.h"
#include "train/routers.h"
#include "train/run_folder.h"
#include "train/save_later.h"

typedef struct Trainer {
  const Recipe *recipe;
  struct Cluster *cluster; // of all ranks (run_cluster); NULL: each asks its own
  const Launch *launch;   // NULL or without a world: all ranks are threads of this process, else it is one of them
  FILE *out;
  bool force;             // resume although it is another run
  FILE *lines;            // gets what metrics.jsonl gets; may be NULL
  bool measures;          // only the steps' times count: nothing is saved and no summary is made
  ModelConfig config;
  Job *job;
  Watchdog *watchdog;     // of this process, where ranks are processes; else the session has its own
  RunFolder folder;
  char *checkpoints;      // folder
  Checkpoint *resume;     // NULL: from init
  int64_t keep_until;     // later checkpoints of the folder are moved away before the first step; rank 0's
  Changes changes;        // since that checkpoint
  char *split;            // a line about what data.split holds out, or NULL
  char *rowless;          // a line about tokens for which the model has no row, or NULL
  char *documents;        // lines about datasets and tokenizers that differ in how documents begin and end, or NULL
  DataPasses passes;      // over data.train
  SaveExtra extra;        // rank 0 keeps step and tokens up to date
  Metrics metrics;
  Events events;          // what the metrics say, for TensorBoard
  Progress progress;
  double peak_flops, flops_per_token;
  int64_t first_step;     // steps done before this run
  NoiseScale noise;       // run.noise_scale; rank 0's
  double last_loss;       // of the last step
  Routers routers;        // of the last step; rank 0's
  char precision[160];    // a line about precision: auto, or ""
  double started;         // clock_seconds before the ranks start
  int64_t memory_before;  // resident anonymous bytes before the ranks take theirs
  int evaluate_first;     // the run was stopped before the evaluation of first_step
  int64_t saving;         // step of the checkpoint being written; 0: none. Rank 0's
  double saving_since;    // clock_seconds
  SaveLaterOptions later; // what of checkpoint.async and memory_every there is memory for
  MetricsLists shares;    // batch.balance measured: of which step which shares are known already
  bool shares_told;       // metrics have the shares of now; rank 0's
  int one_machine;        // all ranks read one clock
  int stopped;            // by a signal
  int patience_over;      // eval.patience has ended the run
} Trainer;

static inline int is_process(const Trainer *t) { return t->launch && t->launch->world; }
// This process runs rank 0, which prints and owns the folder.
static inline int has_rank_0(const Trainer *t) { return !is_process(t) || t->launch->rank == 0; }

// Before the ranks (start.c) ------------------------------------------------------------------------------------------

// Compiles, checks all that can be known before, opens the run folder, and finds out where the run starts. Changes
// nothing in the folder.
int trainer_prepare(Trainer *t, Error *error);
// Whether there is nothing left to train; says so, and what to do.
bool trainer_is_over(const Trainer *t);
// Says what is not as it was when the run was saved.
void trainer_tell_changes(const Trainer *t);
// From here on the run folder is changed: all that could be refused has been.
int trainer_begin_writing(Trainer *t, Error *error);
// run.dir/recipe.yaml. Once the folder has checkpoints it says to resume from these, wherever the run began.
int trainer_write_recipe(const Trainer *t, bool has_checkpoints, Error *error);
static inline int trainer_due(int64_t every, int64_t step, int64_t last) {
  return step == last || (every && step % every == 0);
}
int trainer_due_evaluation(const Trainer *t, int64_t step);

// For people and for metrics (report.c); by rank 0 but where said otherwise -------------------------------------------

void trainer_announce(const Trainer *t); // the header of a run
// Where a batch system signals the run before its time is up (PLAIT_LEAD: seconds before), which is not enough.
void trainer_check_lead(const Trainer *t);
void trainer_measure_peak(Trainer *t);   // by every process
void trainer_expect(const Trainer *t);   // how long it will take, about
int trainer_report_step(Trainer *t, Rank *r, const Recovery *v, int64_t step, double lr, const StepResult *s,
                        Error *error);
int trainer_report_evaluation(Trainer *t, int64_t step, const HeldOut *held_out, Error *error);
int trainer_report_patience(Trainer *t, int64_t step, const BestLoss *best, Error *error);
int trainer_report_rollback(Trainer *t, int64_t step, int64_t to, Error *error);
int trainer_report_save(Trainer *t, int64_t step, Error *error);

// The end of a run (summary.c): what came of it and where that is, for people and as the last line of metrics.jsonl.
// `how`: "finished", "stopped by SIGINT".
// A path that exists as the user would type it here; the caller frees it.
char *trainer_path(const char *path);
int trainer_summarise(Trainer *t, const char *how, Error *error);
