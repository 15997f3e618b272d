// The executor: runs a Program on one rank. It knows no parallelism, only actions, bodies, kernels and collectives.
#pragma once
#include "runtime/bind.h"
#include "runtime/observer.h"

typedef struct Executor Executor;

// Binds a Program to a rank (runtime/bind.h), whose kernels run in `queue`, and makes the streams for its collectives
// in flight. Collective over all ranks of `world` when the mesh has more than one (all create their executors in the
// same order). Everything is borrowed. world NULL with such a mesh: it can be looked at, but not run.
int executor_create(const Program *program, State *state, DeviceQueue *queue, PlaitComm *world, uint64_t seed,
                    Executor **out, Error *error);
void executor_destroy(Executor *e);

// Runs step number `step`. The memory of the inputs must stay until it returns; an input of the graph that is not given
// is an error. Of a Program whose schedule streams, parts of `ahead` more steps are run too, whose inputs follow; the
// next calls have to be for them, with the same inputs again. `ahead` is below the schedule's number of steps that are
// under way; while a call leaves out steps that could have begun, the next one has one less: so the pipeline drains.
int executor_run(Executor *e, uint64_t step, const StepInputs *inputs, int ahead, Error *error);
// In a stream, after a step that was skipped: its weights stay where they are, and what was begun of the next step is
// dropped, so that either may be run. Nothing where no stream is. Not where stages update at once. Collective.
int executor_take_back(Executor *e, Error *error);
int executor_under_way(const Executor *e); // how many later steps have begun
// Seconds since the executor was made that its thread stood in collectives or waited for those under way and for sends:
// exposed communication; and that it waited to receive from another stage: the pipeline's bubbles, transfers included.
double executor_comm_seconds(const Executor *e);
double executor_stalled_seconds(const Executor *e);
// From the next run on an observer sees what the executor does; self NULL: no longer. It is the caller's.
void executor_observe(Executor *e, ObserverKind kind, void *self);
// The most microbatches that a stage of this rank had in flight at a time, over all runs; its slots, when the plan is
// right.
int executor_most_in_flight(const Executor *e, int stage);
// The communicators of this rank's collectives and messages, and the axes of each: number i of executor_comms.
// NULL: it is in none. Several may have the same axes.
int executor_comms(const Executor *e);
PlaitComm *executor_comm(const Executor *e, int i, uint32_t *axes);
// Bytes of the host that binding took: instructions, operands, buffers of collectives.
int64_t executor_host_bytes(const Executor *e);
