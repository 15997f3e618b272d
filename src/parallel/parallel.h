// The parallel configuration: which ranks there are, which part of every tensor each of them holds, and in which order
// they compute and communicate. The model is written without it.
//
// Recipes, the C API and planners fill in a Step (step.h). parallel_check alone judges whether it can be computed.
// parallel_create turns it into what passes read.
#pragma once
#include "parallel/step.h"

// How Variables are divided over data ranks, beside what the Layout says: see the table in compile/zero.c.
typedef struct Storage {
  int zero;            // stage 0 … 3
  int reshard; // stage 3: gathered parameters are freed after each use and gathered again; 0: gathered once a step and
               // kept
  int unsplit;         // tensors are not cut, each lies whole on one rank of shard_axes
  int local_gradients; // stages 2 and 3: a rank adds up the whole gradients of its microbatches, reduced once a step
  uint32_t shard_axes; // mesh axes (bits) of the ranks that divide; over the other data axes storage is replicated
                       // (hybrid sharding)
} Storage;

typedef struct Pipeline {
  const ScheduleGenerator *schedule; // of training; evaluation and generation run forward only
  int stages;                        // virtual stages, over the ranks of pp in turn
  int cut_given;                     // the stages have `layers` layers each; else they are cut by cost
  int layers[MAX_STAGES];
} Pipeline;

typedef struct Parallel {
  Mesh mesh;
  Layout layout;
  Storage storage;
  Overlap overlap;
  Pipeline pipeline;
  int summa; // products of operands over rows and columns of ranks run in steps (compile/summa.h)
} Parallel;

// ---- the judge -----------------------------------------------------------------------------------------------------

typedef struct ParallelProblem {
  const char *key;    // what is to blame, as recipes name it: "mesh.tp"
  const char *also;   // another key that could be changed instead; NULL: none
  int64_t nearest[2]; // valid values of `key`, the nearest below and above; 0: none, or not a number
  char text[600];     // one sentence: what it is, what is allowed, the nearest valid value
  int unread;         // by parallel_check: nobody asked, so that nearest values are not looked for
} ParallelProblem;

// PLAIT_OK, or PLAIT_INFEASIBLE and the first problem. problem NULL: only the verdict is wanted, which takes a few
// microseconds: planners ask about every configuration that they try.
int parallel_check(const Step *step, const StepModel *model, ParallelProblem *problem);

// The result that passes read, for a configuration that parallel_check allows for this model. An axis of the user's may
// become two (sharding/axes.def): dp with shard_group is replica and dp, and where tp has more ranks than there are key
// and value heads it is tp, over which these are sharded, and tp_group, whose ranks share one and divide its query
// heads. 2-D, 2.5-D and 3-D tensors cut tp_depth and tp_row off tp.
Parallel parallel_create(const Step *step, const StepModel *model);

// The call of attention that the algorithm of `context` is chosen for: a data rank's microbatch and the heads that tp
// leaves.
AlgorithmCall parallel_context_call(const Step *step, const StepModel *model);

// The ranks of tp by tensor, rows and depth of the options: depth · rows · cols. 1-D tensors, and what parallel_check
// refuses, are all columns.
typedef struct TensorGrid { int depth, rows, cols; } TensorGrid;
TensorGrid parallel_grid(const StepParallel *options);

// Ranks that a word of a Layout's row means: a users' axis, tp_row or tp_depth; with these, tp means the columns.
int parallel_word_ranks(const StepParallel *options, AxisId word);
// Ranks over which a row of the Layout cuts, and whether it cuts over an axis.
int parallel_row_ranks(const StepParallel *options, LayoutRow row);
int parallel_row_has(const StepParallel *options, LayoutRow row, AxisId axis);
// Of `ranks` ranks, how many shard the key and value heads; the others share these. That is done on one axis of those
// that cut the heads: tp, tp_row, or AXIS_OWN where neither does.
int parallel_kv_ranks(const StepModel *model, int ranks);
AxisId parallel_heads_axis(const StepParallel *options);

// The mesh pp × dp × tp with the shipped Layout "tensor", ZeRO stage `zero`, one stage a pipeline rank in 1F1B, buckets
// of 25 MB.
StepParallel parallel_default(int pp, int dp, int tp, int zero);

// ---- what follows from it ------------------------------------------------------------------------------------------

int parallel_pipeline_ranks(const Parallel *parallel);
// Ranks that divide the samples of a microbatch among them: all that the Layout's batch is cut over, not dp alone.
int parallel_data_ranks(const Parallel *parallel);
