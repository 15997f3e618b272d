// A job: what all ranks of a session share, compiled once and read by everybody. It knows the model and the parallel
// configuration, and no rank.
#pragma once
#include "base/shares.h"
#include "compile/compile.h"
#include "program/program.h"

// The result of compiling one graph: a Program for each pipeline rank.
typedef struct Compiled {
  Graph *graph;      // partitioned; NULL: the job has none
  Program **program; // (pipeline ranks)
  Shares shares;     // which rows of a step's microbatches each data rank has
} Compiled;

typedef struct JobOptions {
  int threads;              // of each rank
  int helpers;              // threads of other ranks that may help one, where ranks are threads; 0: none
  uint64_t seed;
  int64_t evaluate_samples; // beside training: global batch of an evaluation step; 0: there is none
  int sketch;               // see ProgramOptions
  int check;                // run.desync_check: after each step ranks compare what they issued and hold
} JobOptions;

typedef struct Job {
  CompileOptions options;
  JobOptions run;
  Compiled train, evaluate, generate; // as options.mode says; with training also an evaluation, where it is asked for
  int64_t *work_bytes; // (pipeline ranks) memory beside the Variables: the most that any of a rank's Programs needs
  TeamGroup *teams;    // of the ranks that help each other; NULL: none
} Job;

// Compiles a model's graph for options->mode, and one Program for each pipeline rank. PLAIT_INFEASIBLE or
// PLAIT_BAD_INPUT for what cannot be. The caller destroys the job, after all sessions that have loaded it.
int job_create(const ModelConfig *config, const CompileOptions *options, const JobOptions *run, Job **out,
               Error *error);
// The same for a graph of the user's own with its loss, for training. The graph is consumed, also when it fails.
int job_create_built(Graph *g, int loss_sum, const CompileOptions *options, const JobOptions *run, Job **out,
                     Error *error);
// Adds an evaluation to a job of a graph of the user's own that has none: a graph of the same parameters with its loss,
// over as many samples. The divisor of the loss is as in training. The graph is consumed, also when it fails.
int job_add_evaluation(Job *job, Graph *g, int loss_sum, Error *error);
void job_destroy(Job *job); // NULL is fine

// Other shares of the batch for the data ranks, in rows (job_data_ranks), between two steps: of training and of the
// evaluation. The batch must be weighed (base/shares.h). No rank may read them meanwhile; each takes them then
// (rank_take_shares).
void job_set_shares(Job *job, const int *rows);

int job_pipeline_ranks(const Job *job);
// Ranks that divide the samples of a microbatch among them: all that the Layout's batch is cut over, not dp alone.
int job_data_ranks(const Job *job);
// The Program whose Variables a pipeline rank's State holds; those of its other graphs are among them.
const Program *job_program(const Job *job, int coordinate);
// Bytes that a rank allocates when it loads the job, in the device's first space: Variables and working memory.
int64_t job_state_bytes(const Job *job, int coordinate);
