// A rank at work: its State, its Programs, its loader. The session (runtime/session.h) makes ranks and runs tasks on
// them.
#pragma once
#include "data/loader.h"
#include "runtime/desync.h"
#include "runtime/executor.h"
#include "runtime/finite.h"
#include "runtime/trace.h"
#include "runtime/job.h"
#include "runtime/verify.h"
#include "runtime/watchdog.h"

typedef struct StepResult {
  double loss, grad_norm,
      tokens; // mean over the target tokens of the global batch; global norm before clipping; targets
  int skipped;                    // a non-finite norm: nothing was updated, unless that is done in backward
  NonFinite first; // skipped: the first value over all ranks that was not finite; found again by running the step
                   // again, or with updates in backward the first such gradient. Where stages update at once: none
  // Seconds of this rank: in all; waiting for data; computing; in exposed communication. The rest it was idle: in a
  // pipeline's bubbles, or between steps.
  double seconds, waited, computed, communicated;
  // Of a measuring step (measure_every): the gradient norm of the first eighth of the batch's sequences with the same
  // weights, and the target tokens of these; else 0.
  double part_norm, part_tokens;
  VerifyResult verified; // of the step that run.verify has looked at; else no calls
} StepResult;

typedef struct Rank {
  int rank;
  PlaitComm *world;       // of all ranks
  Watchdog *watchdog;     // NULL: nobody watches
  // By rank_load; NULL before:
  const Job *job;
  int data_rank, data_ranks; // its place among those that divide the batch
  Team *team;
  State *state;
  DeviceQueue *queue;     // in which the kernels of all its Programs run
  Executor **executor;   // (graphs of the job)
  Executor *train;       // of these; NULL: the job does not train
  Desync *desync;   // NULL: ranks do not compare
  Verify *verify;   // until the first step has ended; NULL: nobody compares its kernels
  // By rank_open_data, rank_open_evaluation, rank_trace:
  Loader *loader, *evaluation;
  PlaitStream *signals;  // of a stream: on which the ranks tell each other of signals
  PlaitEvent asked;      // when they have
  int32_t signal[2];     // this rank's, and all ranks'
  int asking;            // under way; `signal` has come and was not looked at yet
  int answered;
  Batch **batch;         // (steps under way at most) of the next steps, in order, which a stream has begun
  int batches;
  StepInputs *inputs;    // (steps under way at most, and one more: `beside`)
  StepInput *input;      // theirs
  int beside;            // of what is run beside these steps
  int64_t measure_every; // steps; set by who wants part_norm. The job's update needs `trials`
  Trace *trace;
} Rank;

// Allocates and binds, with all memory zero but for constants. Collective over the world.
int rank_load(Rank *r, const Job *job, Error *error);
// Has the algorithms of its device's libraries chosen, or taken from the file `path` (runtime/choices.h). Collective,
// before the State has anything that must stay.
int rank_choose(Rank *r, const char *path, int resumes, Error *error);
void rank_unload(Rank *r); // also safe where nothing was loaded
// Initial parameters from the job's seed: the same bits under every parallel configuration.
void rank_initialise(Rank *r);

// Bytes of the host that binding takes on a rank of a pipeline coordinate, beside its State: the job's Programs are
// bound to a device without memory (device_null).
int64_t rank_bound_bytes(const Job *job, int coordinate);

// All ranks wait for each other.
int rank_barrier(Rank *r, Error *error);

// The signal that asks the run to stop, or 0: the same on all ranks, although ranks may receive it in different steps.
// Collective. In a stream, where ranks do not wait for each other between steps, ranks learn it one step later.
int rank_signal(Rank *r, int *number, Error *error);

// Records steps [first, first + steps) for a file; to be called before the first one.
void rank_trace(Rank *r, int64_t first, int64_t steps);

// The positions of each sequence that a rank reads.
WindowPart rank_window_part(const Job *job, int rank);
// Opens the loader; config's data rank, batch sizes and part are filled in. It reads at least rank_most_ahead steps
// ahead.
int rank_open_data(Rank *r, const LoaderConfig *config, int64_t first_step, Error *error);
// The same for evaluations: memory and the loader's thread are taken here, once for all of them.
int rank_open_evaluation(Rank *r, const LoaderConfig *config, Error *error);
// The job's shares have changed (job_set_shares): from the next step on the rank reads by them. No step may be under
// way.
void rank_take_shares(Rank *r);
// One optimizer step, number `step` (1 …), on the loader's next batch.
int rank_step(Rank *r, int64_t step, double learning_rate, StepResult *result, Error *error);
// The same, and where the schedule streams (schedule/README.md) up to rank_most_ahead of the steps that follow begin
// before this one is done, unless something that needs the weights in between comes first. `follows`: the next
// `follows` calls are for the following steps; between them the caller reads results only. Afterwards rank_under_way
// says how many have begun: calls for these have to come. learning_rate: of the step and of the rank_most_ahead steps
// after it. All ranks give the same.
int rank_step_on(Rank *r, int64_t step, const double *learning_rate, int64_t follows, StepResult *result, Error *error);
int rank_most_ahead(const Rank *r);
int rank_under_way(const Rank *r);
bool rank_updates_at_once(const Rank *r); // a step that is not finite has updated nonetheless (ScheduleGenerator)

// Called on every rank after each batch of an evaluation, with the loss of the batch's targets over all ranks. Not 0:
// the evaluation ends; negative: with this error. All ranks must return the same.
typedef int (*EvaluationVisitor)(Rank *r, void *context, const Batch *batch, double loss, double tokens, Error *error);
// Mean loss and target tokens over at most `batches` global batches of the evaluation's data, from its start (0: all).
// visit may be NULL.
int rank_evaluate(Rank *r, int64_t batches, EvaluationVisitor visit, void *context, double *loss, double *tokens,
                  Error *error);

// Runs the graph of a role that does not train once, on this rank's part of the inputs.
int rank_run(Rank *r, const JobRole *role, const StepInputs *inputs, Error *error);
// The same for the graph of role `generate` that job_find_tick finds.
int rank_run_tick(Rank *r, int64_t tokens, const StepInputs *inputs, Error *error);
Executor *rank_executor(const Rank *r, const JobRole *role); // NULL: the job has none
