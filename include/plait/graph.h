// Half by hand: a graph of your own, placements on some of its tensors, and plait does the rest: it differentiates, has
// the other placements follow, inserts the communication, and trains on a mesh of ranks. The numbers are one rank's.
// Or without any placement: plait_graph_plan finds mesh and placements for the graph as it is.
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
// other calls return 0 or a negative code of plait/error.h; a PlaitError * may be NULL. After an error of a step or of
// plait_training_forward the training can only be destroyed, unless the error is PLAIT_BAD_INPUT: then nothing was
// done.
//
// Ownership: names, shapes and data are copied or read before a call returns. Handles are for one thread at a time.
//
// Names: of inputs, parameters, outputs and ops are unique in a graph: 1 to 63 letters, digits, '_' and '-'. A
// parameter's name is its name in files, and decides its first values; an op's name decides its dropout.
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

// Everything built after this call belongs to layer `layer` (0, 1, …; 0 before the first call). Pipelines cut between
// layers: over pp = p stages, layer l of n runs on stage l · p / n. The loss belongs to the last layer.
void plait_graph_layer(PlaitGraph *graph, int layer);

// A value that each step gets anew: (samples, size…), rank sizes (0 … 6). In a step the inputs come in the order of
// these calls.
PlaitTensor plait_graph_input(PlaitGraph *graph, const char *name, int rank, const int64_t *size);
// The same of integers, int32_t: labels, tokens, positions. They are for plait_graph_embedding, plait_graph_rope,
// plait_graph_attention and the losses.
PlaitTensor plait_graph_integers(PlaitGraph *graph, const char *name, int rank, const int64_t *size);

// A trained tensor: (size…), rank 1 … 7. Initialised with normal numbers of this standard deviation (0: zeros), which
// depend on the seed, the name and the place in the whole tensor, and on nothing else.
PlaitTensor plait_graph_parameter(PlaitGraph *graph, const char *name, int rank, const int64_t *size, double deviation);
// The same where every element is `value` at first, as 1 for the gain of a norm.
PlaitTensor plait_graph_parameter_filled(PlaitGraph *graph, const char *name, int rank, const int64_t *size,
                                         double value);

// y (samples, …, out) = x (samples, …, in) w (out, in)ᵀ + bias (out); w and bias are parameters, bias may be -1.
PlaitTensor plait_graph_linear(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitTensor w, PlaitTensor bias);

// Rows of a table by number: table (rows, size…), a parameter, ids (samples, …) integers → (samples, …, size…). Ids are
// 0 … rows - 1; an id of -1 gives zeros, and another one is refused by the step that gives it.
PlaitTensor plait_graph_embedding(PlaitGraph *graph, const char *name, PlaitTensor table, PlaitTensor ids);

typedef enum PlaitActivation {
  PLAIT_GELU,
  PLAIT_GELU_TANH,
  PLAIT_SILU,
  PLAIT_RELU,
  PLAIT_ACTIVATION_COUNT
} PlaitActivation;
PlaitTensor plait_graph_activation(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitActivation kind);
// Element by element. a and b are of one shape. Or b has no samples, and its dims are the last of a: a parameter
// (size…), or what is computed from parameters alone, is added to every (…, size…).
PlaitTensor plait_graph_add(PlaitGraph *graph, const char *name, PlaitTensor a, PlaitTensor b);
PlaitTensor plait_graph_multiply(PlaitGraph *graph, const char *name, PlaitTensor a, PlaitTensor b);
PlaitTensor plait_graph_scale(PlaitGraph *graph, const char *name, PlaitTensor x, double factor);

// Over the last dim of x (…, e), which has samples. gain and bias (e) are parameters; gain begins at 1
// (plait_graph_parameter_filled), bias at 0, and may be -1. epsilon: above 0, usually 1e-5.
PlaitTensor plait_graph_layer_norm(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitTensor gain,
                                   PlaitTensor bias, double epsilon);
PlaitTensor plait_graph_rms_norm(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitTensor gain, double epsilon);
PlaitTensor plait_graph_softmax(PlaitGraph *graph, const char *name, PlaitTensor x); // over the last dim

// Zeroes elements with this probability (0 to below 1) and scales the others by 1 / (1 - probability), in steps; in
// plait_training_forward it does nothing. Which elements depends on the seed, the step, the name and the element's
// place in the step's batch, so that it is the same on any mesh. x (samples, size…).
PlaitTensor plait_graph_dropout(PlaitGraph *graph, const char *name, PlaitTensor x, double probability);

// Rotary positions (Su et al., 2021): in x (samples, s, …, d) the pairs (i, i + d/2) of the last dim are turned by the
// angle position · theta^(-2i/d), as in Llama. positions (samples, s) integers, or -1: 0 … s - 1 in each sample. theta:
// above 0, usually 10000.
PlaitTensor plait_graph_rope(PlaitGraph *graph, const char *name, PlaitTensor x, PlaitTensor positions, double theta);

// softmax(q kᵀ / √d) v, head by head: q (samples, s, heads, d), k and v (samples, s, heads, d) → as q. With grouped
// heads q is (samples, s, kv_heads, group, d), k and v (samples, s, kv_heads, d). causal: a position sees none after
// it. documents (samples, s) integers, or -1: positions see those only that have the same number. dropout: of the
// probabilities, as above.
PlaitTensor plait_graph_attention(PlaitGraph *graph, const char *name, PlaitTensor q, PlaitTensor k, PlaitTensor v,
                                  PlaitTensor documents, int causal, double dropout);

// The product of a and b (or a alone, b -1), summed over the dims that the result lacks. text names each dim with a
// small letter; blanks do not count:
//   "b s d, d f -> b s f"     a linear layer
//   "b s t, b t d -> b s d"   a product sample by sample
//   "b s d -> b d"            a sum over s
//   "b s d -> b d s"          a transpose
//   "b d -> b s=16 d"         every row 16 times
// No letter stands twice in an operand. Where an operand has samples, their letter is the first in it, in the other
// operand if that has samples too, and in the result: sums over samples are for losses. A product with a parameter that
// plait_graph_linear could do, or could with the parameter transposed, is as fast; others run on a plain kernel. Any
// dim may be cut by any axis; a sum over a cut dim is completed when needed.
PlaitTensor plait_graph_einsum(PlaitGraph *graph, const char *name, const char *text, PlaitTensor a, PlaitTensor b);
// The sum, or with `mean` the mean, over dim `dim` (not the samples), which goes away.
PlaitTensor plait_graph_reduce(PlaitGraph *graph, const char *name, PlaitTensor x, int dim, int mean);
// x repeated `size` times along a new dim at place `dim` (with samples 1 and more).
PlaitTensor plait_graph_broadcast(PlaitGraph *graph, const char *name, PlaitTensor x, int dim, int64_t size);

// Losses: a graph has one of these ------------------------------------------------------------------------------------

// The mean of (y - target)² over all elements of the step. y and target (samples, …) of one shape.
void plait_graph_squared_error(PlaitGraph *graph, PlaitTensor y, PlaitTensor target);
// The mean of -log softmax(logits)[target], logits (samples, …, classes). target is an input: integers (samples, …)
// from 0 to classes - 1, and -1 where there is none, which the mean leaves out; or probabilities (samples, …, classes).
void plait_graph_cross_entropy(PlaitGraph *graph, PlaitTensor logits, PlaitTensor target);
// The same of logits x wᵀ, x (samples, s, e), w (classes, e) a parameter, labels (samples, s) integers, without ever
// holding all logits: for vocabularies. w may be cut along its classes.
void plait_graph_linear_cross_entropy(PlaitGraph *graph, PlaitTensor x, PlaitTensor w, PlaitTensor labels);

// plait_training_forward gives a copy of this tensor (samples, …), as many and in the order of these calls.
void plait_graph_output(PlaitGraph *graph, const char *name, PlaitTensor tensor);

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
                    // stages, "dp" for the samples. Other axes are those named in plait_graph_shard, in small letters,
                    // at most 14. An axis with more than one rank that no call names is refused
  PlaitComm *comm;  // this rank's handle to the communicator of all ranks of its world (plait_comm_world), as many as
                    // the mesh has; borrowed: what plait_world_run gives its function, for one. NULL: ranks are
                    // threads of this process, which the training makes
  int microbatches; // most parts of a step's samples that are computed one after the other; 0: 1. The step
                    // does not depend on it. Samples need not divide: of a microbatch ranks of dp differ by one at most
  const char *schedule; // of a pipeline, one of parallel.pipeline in docs/recipes.md that runs one stage a rank; NULL:
                        // "1f1b"
  int zero;              // ZeRO stage over dp: 0 … 3
  int threads;           // of each rank; 0: 1
  uint64_t seed;         // of the initial parameters and of dropout
  const char *optimizer; // one of optimizer.name in docs/recipes.md, with its authors' betas (adamw: 0.9 and 0.999) and
                         // epsilon 1e-8; NULL: "sgd". Of muon, matrices are those of plait_graph_linear that are not
                         // the table of plait_graph_embedding; all else is adamw's
  double momentum;       // of sgd and muon, 0 … 1; muon has its authors' 0.95 instead of 0
  double weight_decay;   // of parameters with at least two dims
  double clip;           // largest global norm of the gradient; 0: none
  const struct PlaitGraphPlan *plan; // what plait_graph_plan found for this graph: it takes the place of mesh,
                                     // microbatches, schedule and zero, and of plait_graph_shard. NULL: none
  const char *backend; // where the ranks compute: "cpu", or "cuda" for NVIDIA GPUs, which ranks of a machine take in
                       // turn (docs/cuda.md). NULL: what PLAIT_BACKEND says in the environment, else "cpu"
} PlaitTrainingOptions;

// Compiles the graph for the mesh, allocates, initialises; the graph may be destroyed. options may be NULL. With comm
// (in the function of plait_world_run, or in threads or processes of your own) every rank makes this and all further
// calls, with the same arguments but for comm, and gets the same results. Without it one call does everything for all
// ranks. PLAIT_BAD_INPUT: what the graph, the options or the mesh cannot be; PLAIT_INFEASIBLE: a cut that does not
// divide.
int plait_training_create(const PlaitGraph *graph, const PlaitTrainingOptions *options, PlaitTraining **training,
                          PlaitError *error);
void plait_training_destroy(PlaitTraining *training); // NULL is fine

typedef struct PlaitStepResult {
  double loss;          // over the whole batch, before the update
  double gradient_norm; // global, before clipping
  int skipped;          // 1: the norm was not finite, nothing was updated
} PlaitStepResult;

// One step. inputs[i] is input i of the whole step, (samples, size…), row-major: int32_t where it is of integers, else
// fp64 in an fp64 graph and fp32 in others; who calls for one rank passes all of it too: ranks read their parts. result
// may be NULL. PLAIT_BAD_INPUT, with nothing done: an input that is NULL, or an integer that is neither a row of its
// table nor a class.
int plait_training_step(PlaitTraining *training, const void *const *inputs, double learning_rate,
                        PlaitStepResult *result, PlaitError *error);

// The graph on these inputs as in a step, but forward only, without dropout, and nothing is updated. outputs[i], of the
// i-th plait_graph_output, is filled: (samples, …), row-major, fp64 in an fp64 graph and else fp32; NULL: it is not
// wanted. outputs may be NULL, as loss. An input that the loss alone reads, and that is not itself an output, may be
// NULL; *loss is NaN then.
int plait_training_forward(PlaitTraining *training, const void *const *inputs, void *const *outputs, double *loss,
                           PlaitError *error);

// Steps that have updated the parameters: those before a plait_training_load too.
int64_t plait_training_steps(const PlaitTraining *training);

// A parameter as a whole, row-major, fp64 in an fp64 graph and else fp32, wherever its parts lie; size: bytes of
// `data`, which must be the parameter's. Between steps.
int plait_training_read(PlaitTraining *training, const char *parameter, void *data, size_t size, PlaitError *error);
int plait_training_write(PlaitTraining *training, const char *parameter, const void *data, size_t size,
                         PlaitError *error);

// Prints the compiled step of one rank: nodes with shapes and placements, collectives among them.
void plait_training_print(const PlaitTraining *training, FILE *out);

// Fully automatic: a plan ---------------------------------------------------------------------------------------------

// Where to plan for. A cluster is described by a file (docs/clusters.md); none of its devices need be there.
typedef struct PlaitPlanOptions {
  const char
      *cluster; // the name of a shipped cluster, as "h200-node", or a file; NULL: this machine, which the first call
                // measures: that takes about a minute, is said on stderr and is kept (plait probe does it beforehand)
  int ranks;           // 0: those of the mesh that is given; where none is, all devices of the cluster
  double memory_bytes; // that a rank may take; 0: what a device of the cluster has
  int exhaustive;      // 1: every plan there is is simulated, to check the search; small graphs only
} PlaitPlanOptions;

typedef struct PlaitPlacement { const char *parameter; int dim; const char *axis; } PlaitPlacement; // plait_graph_shard

// A plan, to be read and to be run: PlaitTrainingOptions.plan.
typedef struct PlaitGraphPlan {
  const char *mesh;     // as in PlaitTrainingOptions: "pp=1 dp=2 tp=4"; likewise the next three
  int microbatches;
  const char *schedule;
  int zero;
  const PlaitPlacement *placement; // (placements) of parameters; all else follows from them
  int placements;
  double step_seconds;  // predicted
  double memory_bytes;  // of the rank that takes the most
  double room_bytes;    // that it may take
  const char *limit;    // the resource of which a tenth more would shorten the step the most: "nvlink bandwidth"; NULL:
                        // none would
  int64_t plans;        // that there are without placements: meshes, microbatches, schedules, ZeRO stages
  int64_t too_large;    // of these, that do not fit
  int64_t simulated;    // plans that were compiled and simulated, with different placements
  int64_t left;         // that might be faster and were not looked at: after 2500 simulations the search ends
} PlaitGraphPlan;

// The fastest plan for a graph that says nothing about ranks. The search tries meshes of "pp", "dp" and "tp", ZeRO
// stages, microbatches, schedules and, over "tp", cuts of parameters; each plan is compiled as
// plait_training_create would, and simulated on the cluster (docs/foresight.md). Plans that do not fit are left out.
//
// Of `options`, which may be NULL, mesh, microbatches, schedule and zero stay as they are given (0 and NULL: open);
// optimizer and precision count, comm and plan do not. Placements that the graph has stay too.
//
// PLAIT_BAD_INPUT: as plait_training_create; the cluster cannot be read, has fewer devices than there are ranks, or no
// rate for the graph's dtype. PLAIT_INFEASIBLE: no mesh of that many ranks cuts the graph; or nothing fits, and the
// sentence says what is nearest. The same call gives the same plan on every machine.
int plait_graph_plan(const PlaitGraph *graph, const PlaitTrainingOptions *options,
                     const PlaitPlanOptions *where, PlaitGraphPlan **plan, PlaitError *error);
// Memory and time of one plan: that of the options, with the placements of the graph. Also PLAIT_OK where it does not
// fit (memory_bytes above room_bytes). where->ranks, if it is given, must be those of the mesh.
int plait_graph_predict(const PlaitGraph *graph, const PlaitTrainingOptions *options,
                        const PlaitPlanOptions *where, PlaitGraphPlan **plan, PlaitError *error);
void plait_graph_plan_destroy(PlaitGraphPlan *plan); // with all that it points to; NULL is fine
// Prints it on a few lines: what was chosen, what a step takes, what was tried.
void plait_graph_plan_print(const PlaitGraphPlan *plan, FILE *out);

// Files -------------------------------------------------------------------------------------------------------------

// A checkpoint: parameters, the optimizer's state and the number of steps, in the folder FOLDER/step-N. It is complete
// or does not exist, and holds no ranks: a training of the same graph and optimizer on any mesh loads it, and continues
// as this one would (bit by bit on the same mesh). Every rank must see the folder. PLAIT_FAILED: the disk; the training
// can continue.
int plait_training_save(PlaitTraining *training, const char *folder, PlaitError *error);
// Loads such a checkpoint by its path FOLDER/step-N, or the newest valid one of FOLDER. PLAIT_BAD_INPUT, with nothing
// changed: there is none, it is damaged, or it is of another graph, optimizer or, with dropout, seed.
int plait_training_load(PlaitTraining *training, const char *path, PlaitError *error);

// The parameters alone as one safetensors file, under their names, which other programs read; and back, from a file
// that has at least all parameters of the graph in their shapes, in any floating-point type. The number of steps and
// the optimizer's state stay as they are.
int plait_training_save_parameters(PlaitTraining *training, const char *path, PlaitError *error);
int plait_training_load_parameters(PlaitTraining *training, const char *path, PlaitError *error);

PLAIT_API_END
