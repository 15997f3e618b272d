// The parallel configuration: which ranks there are, which part of every tensor each of them holds, and in which order
// they compute and communicate. The model is written without it.
//
// Recipes, the C API and planners fill in ParallelOptions. parallel_check alone judges whether a configuration can be.
// parallel_create turns it into what passes read.
#pragma once
#include "base/shares.h"
#include "op/algorithm.h"
#include "sharding/layout.h"
#include "schedule/schedule.h"

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

enum { GATHER_BLOCK = 0, GATHER_LAYER = -1 };
typedef struct Overlap {
  int on;               // collectives are in flight while the rank computes
  int64_t bucket_bytes; // collectives of a kind are joined up to this size; 0: none are
  int read_ahead;       // units by which gathers of parameters stand before their readers: 0 or 1
  int gather;           // such a unit: a block, a layer, or so many MB (10^6 bytes)
} Overlap;

typedef struct Pipeline {
  const ScheduleGenerator *schedule; // of training; evaluation and generation run forward only
  int stages;                        // virtual stages, over the ranks of pp in turn
  int logits_again;                  // where backward is split, W makes the head's logits once more
  int cut_given;                     // the stages have `layers` layers each; else they are cut by cost
  int layers[MAX_STAGES];
} Pipeline;

typedef struct Parallel {
  Mesh mesh;
  AlgorithmName algorithm[CHOICE_COUNT]; // by which ops that have several are computed
  Layout layout;
  Storage storage;
  Overlap overlap;
  Pipeline pipeline;
  int summa; // products of operands over rows and columns of ranks run in steps (compile/summa.h)
} Parallel;

// ---- what is asked for ---------------------------------------------------------------------------------------------

typedef struct ParallelOptions {
  Mesh mesh;             // axes as users name them: pp and dp at least
  LayoutTable layout;    // rows of axes by name
  int sequence;          // its row seq is that of parallel.sequence: for sentences
  LayoutTensorKind tensor; // cuts tp into depth, rows and columns: see parallel_grid
  int rows, depth;         // of tp's ranks; 0: as near to a square as it goes
  int summa;               // blocks are broadcast instead of gathering both operands whole
  int annotations; // placements of a user's own graph: see Layout. With these no axis may be cut in two (shard_group,
                   // heads)
  const LayoutTensor *annotation;
  int propagate;
  int zero, reshard, unsplit, local_gradients; // see Storage
  int shard_group; // data ranks, neighbours, over which ZeRO divides storage; over the groups it replicates. 0: all
  int experts; // ranks that have different experts: the innermost of dp · cp · tp; 0: as the Layout's row expert says
  AlgorithmName context; // how attention crosses cp; ALGORITHM_NONE: what moves least
  int ulysses; // ranks of cp, neighbours, that exchange positions for heads inside rings; 0: as `context` says
  Overlap overlap;
  const ScheduleGenerator *schedule;
  int logits_again;      // see Pipeline
  int stages_per_rank;   // virtual stages of a pipeline rank
  int cut;               // how many numbers `layers` has; 0: cut by cost
  const int *layers;     // (cut) layers of each stage
} ParallelOptions;

// optimizer.delay in steps: one number for all layers, or one for each. count 0: none. (compile/delay.h)
enum { MAX_DELAYS = 1024, MAX_DELAY = 64 };
typedef struct Delay { int count, of[MAX_DELAYS]; } Delay;
// Of a layer; before the first (-1) and after the last one it is that of the first and the last.
static inline int delay_of_layer(const Delay *d, int layer, int layers) {
  int i = layer < 0 ? 0 : layer >= layers ? layers - 1 : layer;
  return !d->count ? 0 : d->of[d->count == 1 || i < 0 ? 0 : i];
}

// What a configuration must fit: a model, and a step.
typedef struct Workload {
  const char *model;       // for sentences, "the model of config.json"; NULL: it is not known yet, and not judged
  const char *family;      // "the gpt2 model", for what a model does not have
  int64_t layers;
  int64_t size[DIM_COUNT]; // of the model's weights by dim, their common divisor; 0: none of them has it
  const struct ModelWidth *width; // (widths) which sizes of which weights these are, for sentences (model/config.h)
  int widths;
  int64_t samples;         // sequences of a step
  int64_t micro;           // the most sequences of a microbatch that a data rank has
  Balance balance;         // of the data ranks' shares of a step; its weights are borrowed
  int64_t seq;
  int update_in_backward;  // gradients are applied as soon as they are made: what stands in the way of it is below
  int chunks;              // in which the positions of a rank go through experts; 0, 1: at once
  double clip;             // global gradient norm; 0: none
  const Delay *delay;      // of gradients; NULL: none
  int tied;                // the head is the embedding
  int moves_biases;        // a step moves biases of routers, which the next one reads
  int scales_loss, skips;  // steps whose gradients overflow, or are not finite, are skipped
  int trials;              // steps are tried on parts of the batch
} Workload;

typedef struct ParallelProblem {
  const char *key;    // what is to blame, as recipes name it: "mesh.tp"
  const char *also;   // another key that could be changed instead; NULL: none
  int64_t nearest[2]; // valid values of `key`, the nearest below and above; 0: none, or not a number
  char text[600];     // one sentence: what it is, what is allowed, the nearest valid value
  int unread;         // by parallel_check: nobody asked, so that nearest values are not looked for
} ParallelProblem;

// PLAIT_OK, or PLAIT_INFEASIBLE and the first problem. problem NULL: only the verdict is wanted, which takes a few
// microseconds: planners ask about every configuration that they try.
int parallel_check(const ParallelOptions *options, const Workload *workload, ParallelProblem *problem);

// What passes read, of a configuration that parallel_check allows for this workload. An axis of the user's may become
// two (sharding/axes.def): dp with shard_group is replica and dp, and where tp has more ranks than there are key and
// value heads it is tp, over which these are sharded, and tp_group, whose ranks share one and divide its query heads.
// 2-D, 2.5-D and 3-D tensors cut tp_depth and tp_row off tp.
Parallel parallel_create(const ParallelOptions *options, const Workload *workload);

// The call of attention that `context` is chosen for: a data rank's microbatch and the heads that tp leaves. And the
// algorithm that is taken for it; ALGORITHM_NONE where no sequence is cut over cp, or none can be.
AlgorithmCall parallel_context_call(const ParallelOptions *options, const Workload *workload);
AlgorithmName parallel_context(const ParallelOptions *options, const Workload *workload);

// The ranks of tp by tensor, rows and depth of the options: depth · rows · cols. 1-D tensors, and what parallel_check
// refuses, are all columns.
typedef struct TensorGrid { int depth, rows, cols; } TensorGrid;
TensorGrid parallel_grid(const ParallelOptions *options);

// Ranks that a word of a Layout's row means: a users' axis, tp_row or tp_depth; with these, tp means the columns.
int parallel_word_ranks(const ParallelOptions *options, AxisId word);
// Ranks over which a row of the Layout cuts, and whether it cuts over an axis.
int parallel_row_ranks(const ParallelOptions *options, LayoutRow row);
int parallel_row_has(const ParallelOptions *options, LayoutRow row, AxisId axis);
// Of so many ranks, how many shard the key and value heads; the others share these. That is done on one axis of those
// that cut the heads: tp, tp_row, or AXIS_OWN where neither does.
int parallel_kv_ranks(const Workload *workload, int ranks);
AxisId parallel_heads_axis(const ParallelOptions *options);

// The mesh pp × dp × tp with the shipped Layout "tensor", ZeRO stage `zero`, one stage a pipeline rank in 1F1B, buckets
// of 25 MB.
ParallelOptions parallel_default(int pp, int dp, int tp, int zero);

// ---- what follows from it ------------------------------------------------------------------------------------------

int parallel_pipeline_ranks(const Parallel *parallel);
// Ranks that divide the samples of a microbatch among them: all that the Layout's batch is cut over, not dp alone.
int parallel_data_ranks(const Parallel *parallel);
