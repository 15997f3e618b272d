// A job: what all ranks of a session share, compiled once and read by everybody. It knows the model and the parallel
// configuration, and no rank. It is a list of graphs over the same Variables, each with a role.
#pragma once
#include "base/shares.h"
#include "compile/compile.h"
#include "program/program.h"
#include "runtime/watchdog.h"

// What one of a job's graphs is for. roles.def has those of plait; a caller may add a graph with a role of its own.
typedef struct JobRole {
  const char *name;
  ModelMode mode;    // what its graph is compiled for
  Activity activity; // of a rank that runs it alone
} JobRole;
#define JOB_ROLE(name, mode, activity, what) extern const JobRole role_##name;
#include "runtime/roles.def"

// The result of compiling one graph: a Program for each pipeline rank.
typedef struct Compiled {
  const JobRole *role;
  int64_t tokens;    // of a sequence
  Graph *graph;      // partitioned
  Program **program; // (pipeline ranks)
  Shares shares;     // which rows of a step's microbatches each data rank has
} Compiled;

typedef struct JobOptions {
  int threads;              // of each rank
  int helpers;              // threads of other ranks that may help one, where ranks are threads; 0: none
  uint64_t seed;
  int64_t evaluate_samples; // beside training: global batch of an evaluation step; 0: there is none
  int sketch;               // see ProgramOptions
  DeviceNumbers devices;    // that the ranks of a machine take in turn
  int check;                // run.desync_check: after each step ranks compare what they issued and hold
  int believes;             // run.verify: off: libraries' calls are not compared before they are used
  int verify;               // run.verify: step: kernels of the first step are compared with those of the CPU
} JobOptions;

typedef struct Job {
  CompileOptions options;
  JobOptions run;
  Vec(Compiled *) list; // each role at most once, but `generate` for several numbers of tokens, the most first. A
                        // rank's State has the Variables of the first, and the others share them
  int64_t *work_bytes; // (pipeline ranks) memory beside the Variables: the most that any of a rank's Programs needs
  TeamGroup *teams;    // of the ranks that help each other; NULL: none
} Job;

// Compiles a model's graph for options->mode, and one Program for each pipeline rank; with training also an evaluation,
// where run->evaluate_samples asks for it, and to generate graphs for 1, 2, 4 … tokens. PLAIT_INFEASIBLE or
// PLAIT_BAD_INPUT for what cannot be. The caller destroys the job, after all sessions that have loaded it.
int job_create(const ModelConfig *config, const CompileOptions *options, const JobOptions *run, Job **out,
               Error *error);
// The same for a graph of the user's own with its loss, for training. The graph is consumed, also when it fails.
int job_create_built(Graph *g, int loss_sum, const CompileOptions *options, const JobOptions *run, Job **out,
                     Error *error);
// Adds another graph of a user's own to a job of such a graph: its Variables are among those of the first, and its
// stages and samples are the same. loss_sum: its loss, -1: none; the divisor is as in training. The graph is consumed,
// also when it fails; then the job is as it was.
int job_add(Job *job, const JobRole *role, Graph *g, int loss_sum, Error *error);
void job_destroy(Job *job); // NULL is fine

Compiled *job_find(const Job *job, const JobRole *role); // the first; NULL: the job has none
// The place in the list of the graph that generates for the fewest tokens among those with room for `tokens`.
int job_find_tick(const Job *job, int64_t tokens);
Compiled *job_train(const Job *job);                     // of a job that trains

// Other shares of the batch for the data ranks, in rows (job_data_ranks), between two steps: of training and of what
// has as many samples. The batch must be weighed (base/shares.h). No rank may read them meanwhile; each takes them then
// (rank_take_shares).
void job_set_shares(Job *job, const int *rows);

int job_pipeline_ranks(const Job *job);
// Ranks that divide the samples of a microbatch among them: all that the Layout's batch is cut over, not dp alone.
int job_data_ranks(const Job *job);
// The Program whose Variables a pipeline rank's State holds: the first's.
const Program *job_program(const Job *job, int coordinate);
// Bytes that a rank allocates when it loads the job, in the device's first space: Variables and working memory.
int64_t job_state_bytes(const Job *job, int coordinate);
int64_t job_mirror_bytes(const Job *job, int coordinate); // of host memory beside it; 0: none
