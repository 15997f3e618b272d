// Inside of training: what one process knows of a run, from its start to its end, and one rank while it trains.
// trainer.c runs it, start.c prepares it, report.c tells of it, and hooks (hook.h) do what belongs to steps beside.
#pragma once
#include "checkpoint/checkpoint.h"
#include "setup/setup.h"
#include "runtime/launch.h"
#include "runtime/session.h"
#include "train/changes.h"
#include "train/hook.h"
#include "train/metrics.h"
#include "train/noise_scale.h"
#include "train/progress.h"
#include "train/routers.h"
#include "train/run_folder.h"
#include "train/save_later.h"

// What the last step said of itself, for the end of the run; rank 0's.
typedef struct LastStep {
  double loss;            // of the last step that had one; NAN: none yet
  Routers routers;
  NoiseScale noise;       // run.noise_scale: smoothed over the steps so far
} LastStep;

// batch.balance measured: which shares the steps have.
typedef struct BalanceLog {
  MetricsLists shares;    // of which step which shares are known already
  bool told;              // metrics have the shares of now; rank 0's
} BalanceLog;

// The checkpoint that is being written; rank 0's.
typedef struct Writing {
  int64_t step;           // 0: none
  double since;           // clock_seconds
} Writing;

typedef enum Outcome {
  OUTCOME_FINISHED,
  OUTCOME_STOPPED,     // by a signal
  OUTCOME_ENDED_EARLY, // by eval.patience
} Outcome;

struct Trainer {
  // What the caller asks for:
  const Recipe *recipe;
  struct Cluster *cluster; // of all ranks (run_cluster); NULL: each asks its own
  const Launch *launch;   // NULL or without a world: all ranks are threads of this process, else it is one of them
  FILE *out;
  FILE *lines;            // gets what metrics.jsonl gets; may be NULL
  bool force;             // resume although it is another run
  bool measures;          // only the steps' times count: nothing is saved and no summary is made
  // Prepared before the first step:
  ModelConfig config;
  Job *job;
  Watchdog *watchdog;     // of this process, where ranks are processes; else the session has its own
  RunFolder folder;
  char *checkpoints;      // folder
  Checkpoint *resume;     // NULL: from init
  int64_t keep_until;     // later checkpoints of the folder are moved away before the first step; rank 0's
  Changes changes;        // since that checkpoint
  bool evaluate_first;    // the run was stopped before the evaluation of that step
  char *split;            // a line about what data.split holds out, or NULL
  char *rowless;          // a line about tokens for which the model has no row, or NULL
  char *documents;        // lines about datasets and tokenizers that differ in how documents begin and end, or NULL
  char precision[160];    // a line about precision: auto, or ""
  DataPasses passes;      // over data.train
  SaveLaterOptions later; // what of checkpoint.async and memory_every there is memory for
  double peak_flops;      // of all ranks, FLOP/s
  int64_t memory_before;  // resident anonymous bytes before the ranks take theirs
  double started;         // clock_seconds before the ranks start
  // What the ranks say while they train:
  SaveExtra extra;        // rank 0 keeps step and tokens up to date
  Metrics metrics;
  Events events;          // what the metrics say, for TensorBoard
  Progress progress;
  BalanceLog balance;
  LastStep last;
  Writing writing;
  Outcome outcome;
};

// What one rank knows of a run while it trains.
struct Training {
  Trainer *trainer;
  Rank *rank;
  int64_t step;           // that runs, or has run last
  double began;           // clock_seconds
  double *rates;          // (rank_most_ahead + 1) learning rates of it and of those that may begin with it
  StepResult result;
  BestLoss best;          // the same on all ranks, since all have the same losses
  int stop;               // the signal that asks the run to stop, or 0
  bool saved;             // a checkpoint of this step is written, or being written
  bool ended;             // no step follows
  void *own[HOOK_COUNT];  // what the hooks keep
};

static inline int is_process(const Trainer *t) { return t->launch && t->launch->world; }
// This process runs rank 0, which prints and owns the folder.
static inline int has_rank_0(const Trainer *t) { return !is_process(t) || t->launch->rank == 0; }
// Steps done before this run.
static inline int64_t first_step(const Trainer *t) { return t->resume ? checkpoint_step(t->resume) : 0; }

// Before the ranks (start.c) ------------------------------------------------------------------------------------------

// Compiles, checks all that can be known before, opens the run folder, and finds out where the run starts. Changes
// nothing in the folder.
int trainer_prepare(Trainer *t, Error *error);
// The recipe with what of checkpoint.async and memory_every there is memory for. The caller frees it.
int trainer_planned(const Trainer *t, Recipe *planned, Error *error);
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

int trainer_announce(const Trainer *t, Error *error); // the header of a run
// Where a batch system signals the run before its time is up (PLAIT_LEAD: seconds before), which is not enough.
void trainer_check_lead(const Trainer *t);
void trainer_measure_peak(Trainer *t);   // by every process
void trainer_expect(const Trainer *t);   // how long it will take, about
int trainer_report_step(Training *x, Error *error);
int trainer_report_evaluation(Trainer *t, int64_t step, const HeldOut *held_out, Error *error);
int trainer_report_patience(Trainer *t, int64_t step, const BestLoss *best, Error *error);
int trainer_report_rollback(Trainer *t, int64_t step, int64_t to, Error *error);
int trainer_report_save(Trainer *t, int64_t step, Error *error);

// The end of a run (summary.c): what came of it and where that is, for people and as the last line of metrics.jsonl.
// `how`: "finished", "stopped by SIGINT".
// A path that exists as the user would type it here; the caller frees it.
char *trainer_path(const char *path);
int trainer_summarise(Trainer *t, const char *how, Error *error);
