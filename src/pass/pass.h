// Passes, Graph → Graph, in the order in which they run. Between all of them graph_verify holds.
#pragma once
#include "dist/layout.h"
#include "graph/graph.h"

// The passes that exist, in order; `plait explain --after NAME` stops behind one.
#define PASSES(X) X(autodiff) X(stage) X(precision) X(place) X(zero) X(recompute) X(partition) X(ahead) X(fuse) X(bucket)

// What the BEGIN and END regions of a training step do.
typedef struct UpdateOptions {
  int64_t samples, seq;  // of the global batch: shape of the input "step_targets"
  double count;          // what the loss is divided by instead of the number of targets; 0: these are counted
  const char *optimizer; // "adamw" or "sgd"
  double beta1, beta2, epsilon, decay, momentum, clip;
  int dump_gradients;    // also write the reduced gradients, before clipping, to Variables "dump.NAME"
  double loss_scale;     // where dynamic loss scaling starts, or what it stays at; 0: none
  int64_t loss_scale_interval; // good steps before it doubles; 0: it stays
  int one_microbatch;    // a step has one: a gradient that comes from one node is stored, not added to zeroes
  int in_backward;       // it is applied in MICRO, as soon as it is made, and kept by no Variable; wants one_microbatch
} UpdateOptions;

// Appends the backward pass of `loss` to MICRO: gradients of every parameter, in Variables "gradient.NAME", or given to
// update_in_backward, as `update` says (NULL: accumulated). The loss op is its own seed (DESIGN: linear + cross entropy is one node).
int pass_autodiff(Graph *g, int loss, const UpdateOptions *update, Error *error);
// Appends to MICRO the update of a parameter by its only gradient of the step (Lv et al., "Full parameter fine-tuning for large
// language models with limited resources", 2023: LOMO). The gradient's sum of squares becomes Variable "square.NAME", for
// the norm that END reports. Nothing clips it or skips the step.
void update_in_backward(Graph *g, int parameter, int gradient, const UpdateOptions *options);

// BEGIN: counts target tokens of the whole step, sets the gradient seed, zeroes accumulators. END: mean loss, global norm,
// clip factor, skip flag, update. `loss_sum` is MICRO's loss tensor.
int pass_update(Graph *g, int loss_sum, const UpdateOptions *options, Error *error);
// The same for evaluation: count, and mean loss.
int pass_evaluate(Graph *g, int loss_sum, int64_t samples, int64_t seq, Error *error);

// Cuts the layers into `stages` contiguous stages, and says where nodes run and Variables live. `layers` (stages) says how many
// layers each has; NULL: so that the costliest stage (by FLOPs, with the embedding in the first and the head in the last) costs
// the least.
int pass_stage(Graph *g, int stages, const int *layers, Error *error);
// Retypes the floating-point tensors and Variables of the model (fp32 in the model) to `compute`.
int pass_precision(Graph *g, Dtype compute, Error *error);
// Gradient accumulators, what is added to them and how they are reduced become `dtype`; a part of precision.
void pass_precision_gradients(Graph *g, Dtype dtype);
// Annotates MICRO: placements of tensors, of parameters as MICRO sees them, and what nodes want and give.
int pass_place(Graph *g, const Mesh *mesh, const Layout *layout, Error *error);
// Annotates storage of Variables by the ZeRO table, adds Copies and their refresh, and places BEGIN and END.
int pass_zero(Graph *g, const Mesh *mesh, const Layout *layout, Error *error);
// Recomputes activations in backward: `layers_per_stage` blocks of each stage, 0: all of them.
typedef enum RecomputeMode { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } RecomputeMode;
int pass_recompute(Graph *g, RecomputeMode mode, int layers_per_stage, Error *error);
// New graph with local shapes, in which every redistribution is a node.
int pass_partition(const Graph *g, const Mesh *mesh, Graph **out, Error *error);
// New graph: in MICRO, gathers of parameters stand one block before their readers, and what reads reduced gradients one block
// behind the reduction, so that the executor has something to do meanwhile.
int pass_ahead(const Graph *g, Graph **out, Error *error);
// New graph: nodes that are joined into one, or vanish: see the table in fuse.c.
int pass_fuse(const Graph *g, Graph **out, Error *error);
// New graph: neighbouring collectives over the same group become one with a list of buffers, up to bucket_bytes.
int pass_bucket(const Graph *g, int64_t bucket_bytes, Graph **out, Error *error);
