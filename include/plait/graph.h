// Half by hand: a graph of your own, placements on some of its tensors, and plait does the rest: it differentiates, has
// the other placements follow, inserts the communication, and trains on a mesh of ranks. The numbers are one rank's.
//
//   PlaitGraph *g = plait_graph_create(64, PLAIT_FP32);                      // 64 samples a step
//   PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){8});            // (64, 8)
//   PlaitTensor y = plait_graph_input(g, "y", 1, (int64_t[]){1});            // (64, 1)
//   PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){32, 8}, 0.5);
//   PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){1, 32}, 0.2);
//   PlaitTensor h = plait_graph_activation(g, "relu", plait_graph_linear(g, "up", x, w1, -1), PLAIT_RELU);
//   plait_graph_squared_error(g, plait_graph_linear(g, "down", h, w2, -1), y);
//   plait_graph_shard(g, w1, 0, "tp");                                       // all that is said about placements
//   PlaitTraining *t;
//   if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = "dp=2 tp=2"}, &t, &error)) …
//   plait_training_step(t, (const void *[]){xs, ys}, 0.1, &result, &error);  // result.loss
//
// Shapes are global: of the whole batch, on all ranks together. Dim 0 of inputs and of what is computed from them is
// the batch, called "samples" below; parameters have none.
//
// Errors. Building calls do not return codes: the first one that is wrong leaves its sentence in the graph and gives
// -1, what is built from -1 is -1, and plait_training_create returns that error. plait_graph_error tells earlier. All
// other calls return 0 or a negative code of plait/error.h; a PlaitError * may be NULL. After an error of a step the
// training can only be destroyed.
//
// Ownership: names, shapes and data are copied or read before a call returns. Handles are for one thread at a time.
#pragma once
#include "plait/comm.h"
#include <stdio.h>

PLAIT_API_BEGIN

typedef struct PlaitGraph PlaitGraph;
typedef struct PlaitTraining PlaitTraining;
typedef int PlaitTensor; // a value in the graph; negative: none

// Building a graph --------------------------------------------------------------------------------------------------

// samples: of a step, over all ranks and microbatches; at least 1. dtype: of inputs, parameters and all that is
// computed: PLAIT_FP32 or PLAIT_FP64; PLAIT_BF16 computes in bf16 where inputs, parameters and their state stay fp32.
PlaitGraph *plait_graph_create(int64_t samples, PlaitDtype dtype);
void plait_graph_destroy(PlaitGraph *graph); // a training made from it lives on; NULL is fine
const char *plait_graph_error(const PlaitGraph *graph); // what was wrong first; NULL: nothing so far

// What is built from now on belongs to layer `layer` (0, 1, …; 0 before the first call). Pipelines cut between layers:
// over pp = p stages, layer l of n runs on stage l · p / n. The loss belongs to the last layer.
void plait_graph_layer(PlaitGraph *graph, int layer);

// A value that each step gets anew: (samples, size…), rank sizes (0 … 6). In a step the inputs come in the order of
// these calls. Names of inputs, parameters and ops are unique in a graph: 1 to 63 letters, digits, '_' and '-'.
PlaitTensor plait_graph_input(PlaitGraph *graph, const char *name, int rank, const int64_t *size);

// What is trained: (size…), rank 1 … 7. Initialised with normal numbers of this standard deviation (0: zeros), which
// depend on the seed, the name and the place in the whole tensor, and on nothing else.
PlaitTensor plait_graph_parameter(PlaitGraph *graph, const char *name, int rank, const int64_t *size, double deviation);

// y (samples, …, out) = x (samples, …, in) w (out, in)ᵀ + bias (out); bias may be -1.
PlaitTensor plait_graph_linear(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitTensor w, PlaitTensor bias);

typedef enum PlaitActivation {
  PLAIT_GELU,
  PLAIT_GELU_TANH,
  PLAIT_SILU,
  PLAIT_RELU,
  PLAIT_ACTIVATION_COUNT
} PlaitActivation;
PlaitTensor plait_graph_activation(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitActivation kind);
PlaitTensor plait_graph_add(PlaitGraph *graph, const char *name, PlaitTensor a, PlaitTensor b); // of one shape
PlaitTensor plait_graph_multiply(PlaitGraph *graph, const char *name, PlaitTensor a,
                                 PlaitTensor b); // element by element
PlaitTensor plait_graph_scale(PlaitGraph *graph, const char *name, PlaitTensor x, double factor);

// The loss, once a graph: the mean of (y - target)² over all elements of the step. y and target (samples, …) of one
// shape.
void plait_graph_squared_error(PlaitGraph *graph, PlaitTensor y, PlaitTensor target);

// Placements --------------------------------------------------------------------------------------------------------

// Dim `dim` of the tensor is cut over the mesh axis `axis` (any name but "pp"); further calls cut further, the later
// axis inside the earlier. A mesh without that axis cuts nothing, so that the same graph runs on any. Inputs are cut
// along the samples over "dp" and cannot be annotated.
//
// Tensors that are not annotated follow by the rules of the ops that use them, parameters from their first reader: with
// w1 (out, in) of a linear layer cut along `out`, so are its bias, its result, what is computed from that element by
// element, and then w2 along `in`; w2's result is a partial sum over the axis, which an all_reduce completes. Where two
// annotations contradict each other, values are moved; the result is the same.
void plait_graph_shard(PlaitGraph *graph, PlaitTensor tensor, int dim, const char *axis);
// The tensor is whole on every rank (along the samples still cut over "dp", where it has them).
void plait_graph_replicate(PlaitGraph *graph, PlaitTensor tensor);

// Training ----------------------------------------------------------------------------------------------------------

typedef struct PlaitTrainingOptions { // all zero: one rank, SGD
  const char *mesh; // axes and sizes, as "pp=2 dp=2 tp=2", the last on neighbouring ranks; NULL: one rank. "pp" is for
                    // stages, "dp" for the samples, other names (small letters) are for plait_graph_shard
  PlaitComm *comm;  // this rank's handle to the communicator of all ranks of its world (plait_comm_world), as many as
                    // the mesh has; borrowed. NULL: ranks are threads of this process, which the training makes
  int microbatches; // parts of a step's samples that are computed one after the other; 0: 1. The step does not depend
                    // on it; samples must divide by microbatches · dp
  const char
      *schedule; // of a pipeline, one of parallel.pipeline in docs/recipes.md that runs one stage a rank; NULL: "1f1b"
  int zero;              // ZeRO stage over dp: 0 … 3
  int threads;           // of each rank; 0: 1
  uint64_t seed;         // of the initial parameters
  const char *optimizer; // one of optimizer.name in docs/recipes.md, with its authors' betas (adamw: 0.9 and 0.999) and
                         // epsilon 1e-8; NULL: "sgd"
  double momentum;       // of sgd, 0 … 1
  double weight_decay;   // of parameters with at least two dims
  double clip;           // largest global norm of the gradient; 0: none
} PlaitTrainingOptions;

// Compiles the graph for the mesh, allocates, initialises; the graph may be destroyed. options may be NULL. With comm
// (processes of plait_world_mpi_create, or threads of your own) every rank makes this and all further calls, with the
// same arguments but for comm, and gets the same results. Without it one call does everything for all ranks.
// PLAIT_BAD_INPUT: what the graph, the options or the mesh cannot be; PLAIT_INFEASIBLE: a cut that does not divide.
int plait_training_create(const PlaitGraph *graph, const PlaitTrainingOptions *options, PlaitTraining **training,
                          PlaitError *error);
void plait_training_destroy(PlaitTraining *training); // NULL is fine

typedef struct PlaitStepResult {
  double loss;          // over the whole batch, before the update
  double gradient_norm; // global, before clipping
  int skipped;          // 1: the norm was not finite, nothing was updated
} PlaitStepResult;

// One step. inputs[i] is input i of the whole step, (samples, size…), row-major, fp64 in an fp64 graph and else fp32;
// who calls for one rank passes all of it too: ranks read their parts. result may be NULL.
int plait_training_step(PlaitTraining *training, const void *const *inputs, double learning_rate,
                        PlaitStepResult *result, PlaitError *error);

// A parameter as a whole, row-major, fp64 in an fp64 graph and else fp32, wherever its parts lie; size: bytes of
// `data`, which must be the parameter's. Between steps.
int plait_training_read(PlaitTraining *training, const char *parameter, void *data, size_t size, PlaitError *error);
int plait_training_write(PlaitTraining *training, const char *parameter, const void *data, size_t size,
                         PlaitError *error);

// Prints the compiled step of one rank: nodes with shapes and placements, collectives among them.
void plait_training_print(const PlaitTraining *training, FILE *out);

PLAIT_API_END
