// The executor: runs a Program on one rank. It knows no parallelism, only actions, bodies, kernels and collectives.
#pragma once
#include "plait/comm.h"
#include "program/finite.h"
#include "program/state.h"
#include "program/trace.h"

typedef struct Executor Executor;

// Memory of a graph input for one step: microbatch m reads base + m × stride bytes (stride 0 in BEGIN and END).
typedef struct StepInput { const void *base; int64_t stride; } StepInput;

// Binds a Program to a rank: pointers, IndexMaps, kernels, communicators. Collective over all ranks of `world` when the
// mesh has more than one (all create their executors in the same order). Everything is borrowed. team may be NULL.
int executor_create(const Program *program, State *state, const Backend *backend, Team *team, PlaitComm *world, uint64_t seed,
                    Executor **out, Error *error);
void executor_destroy(Executor *e);

// Runs step number `step`. inputs[i] belongs to graph input i and must stay until it returns.
int executor_run(Executor *e, uint64_t step, const StepInput *inputs, Error *error);
// Seconds since the executor was made that its thread stood in collectives or waited for those under way and for sends:
// exposed communication; and that it waited to receive from another stage: the pipeline's bubbles, transfers included.
double executor_comm_seconds(const Executor *e);
double executor_stalled_seconds(const Executor *e);
// Actions and instructions go to the trace while it is on; NULL: no longer. At most so many spans a run.
void executor_set_trace(Executor *e, Trace *trace);
int executor_trace_spans(const Executor *e);
// The most microbatches that a stage of this rank had in flight at a time, over all runs; its slots, when the plan is right.
int executor_most_in_flight(const Executor *e, int stage);
// In the next runs every instruction's results are looked at, and *first becomes the first that is infinite or not a number;
// NULL: no longer. *first is the caller's, cleared but for its rank.
void executor_set_check(Executor *e, NonFinite *first);
// From now on remembers the collectives and transfers of a step, to compare them, and replicas of Variables, between ranks: after
// each step executor_check_agreement, collective over the world (see program/agreement.h). Nothing to do on a mesh of one rank.
void executor_agree(Executor *e);
int executor_check_agreement(Executor *e, int64_t step, Error *error);
// The memory of a tensor after a run (slot 0); for tests and for reading logits.
const void *executor_tensor(const Executor *e, int tensor);
