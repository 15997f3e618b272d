// A rank at work: its State, its Programs for training and evaluation, its loader. One per thread or process.
#pragma once
#include "data/loader.h"
#include "program/agreement.h"
#include "program/exec.h"
#include "program/finite.h"
#include "program/trace.h"
#include "train/compile.h"
#include "train/watchdog.h"

// What all ranks share: compiled once, read by everybody.
typedef struct Job {
  CompileOptions options;       // of training
  const ScheduleGenerator *schedule;
  Graph *train, *evaluate;      // partitioned; evaluate may be NULL
  int microbatches, evaluate_microbatches;
  Program **program, **evaluation; // per pp coordinate
  int64_t work_bytes;           // the most that any Program of a rank needs beside the Variables
  const Backend *backend;
  int threads, helpers;         // of each rank; of other ranks that may help one, where ranks are threads
  TeamGroup *teams;             // of the ranks that help each other; NULL: none
  uint64_t seed;
  int64_t evaluate_samples;     // global batch of an evaluation step
  int check;                    // run.check: after each step ranks compare what they issued and hold; set before rank_create
} Job;

// Compiles the graphs and one Program per pipeline rank. evaluate_samples 0: no evaluation.
int job_create(const ModelConfig *config, const CompileOptions *options, const ScheduleGenerator *schedule, const Backend *backend,
               int threads, int helpers, uint64_t seed, int64_t evaluate_samples, Job **out, Error *error);
// The same for a graph of the user's own with its loss, without evaluation. The graph is consumed, also when it fails.
int job_create_built(Graph *g, int loss_sum, const CompileOptions *options, const ScheduleGenerator *schedule, const Backend *backend,
                     int threads, int helpers, uint64_t seed, Job **out, Error *error);
void job_destroy(Job *job);

typedef struct StepResult {
  double loss, grad_norm, tokens; // mean over the target tokens of the global batch; global norm before clipping; targets
  int skipped;                    // a non-finite norm: nothing was updated, unless that is done in backward
  NonFinite first;                // skipped: the first value over all ranks that was not finite; found again by running the step again, or
                                  // with updates in backward the first such gradient
  // Seconds of this rank: in all; waiting for data; computing; in exposed communication. The rest it was idle: in a
  // pipeline's bubbles, or between steps.
  double seconds, waited, computed, communicated;
} StepResult;

typedef struct Rank {
  const Job *job;
  int rank, data_rank, data_ranks;
  PlaitComm *world;
  Team *team;
  State *state;
  Executor *train, *evaluate;
  Loader *loader;
  Watchdog *watchdog;     // optional
  Trace *trace; // NULL: none
  Agreement *agreement; // NULL: ranks do not compare
} Rank;

// Allocates and binds; the parameters are initialised from the seed. world may be NULL for a mesh of one rank.
int rank_create(const Job *job, int rank, PlaitComm *world, Rank **out, Error *error);
void rank_destroy(Rank *r);

// Records steps [first, first + steps) for a file; to be called before the first one.
void rank_trace(Rank *r, int64_t first, int64_t steps);

// Opens the loader; config's layout fields (data_rank …) are filled in.
int rank_open_data(Rank *r, const LoaderConfig *config, int64_t first_step, Error *error);
// One optimizer step, number `step` (1 …), on the loader's next batch.
int rank_step(Rank *r, int64_t step, double learning_rate, StepResult *result, Error *error);
// Mean loss and target tokens over at most `batches` global batches of the given data, from its start (0: all).
int rank_evaluate(Rank *r, const LoaderConfig *config, int64_t batches, double *loss, double *tokens, Error *error);
