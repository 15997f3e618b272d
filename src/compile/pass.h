// Passes, Graph → Graph. All have one signature; passes.def lists them in the order in which they run. Between them
// graph_verify holds.
#pragma once
#include "device/device.h"
#include "op/work.h"
#include "parallel/parallel.h"
#include "compile/recompute_list.h"

// Options of the BEGIN and END regions of a training step.
typedef struct UpdateOptions {
  int64_t samples, seq;  // of all microbatches: shape of the input "step_targets", of which ranks have as many rows as
                         // their shares say
  double count;          // what the loss is divided by instead of the number of targets; 0: these are counted
  Op optimizer;          // one of ir/optimizers.def; no other is taken
  double beta1, beta2, epsilon, decay, momentum, clip;
  int muon_scale;        // MuonScale
  int dump_gradients;    // also write the reduced gradients, before clipping, to Variables "dump.NAME"
  double loss_scale;     // where dynamic loss scaling starts, or what it stays at; 0: none
  int64_t loss_scale_interval; // good steps before it doubles; 0: it stays
  int trials;            // a step whose learning rate is not a number updates nothing; not in_backward
  int64_t sequences;     // of a step, of which further losses are the mean
  double coefficient[LOSS_COUNT]; // of further losses; 0: it is only measured
  double bias_rate;      // by which a step moves the biases of routers, where the graph has them
  int one_microbatch;    // a step has one: a gradient that comes from one node is stored, not added to zeroes
  Delay delay;           // gradients are taken at the weights of that many steps ago (compile/delay.h); not in_backward
  int streams;           // the schedule does: a version takes the place of the oldest, and is not moved to it
  int at_once;           // no update waits for a word from other stages: none is clipped or skipped, whatever the norm
  int in_backward;       // it is applied in MICRO, as soon as it is made, and kept by no Variable; wants one_microbatch
} UpdateOptions;

// Which nodes backward computes again: none, those that are cheap beside products and attention, or all of a block.
typedef enum RecomputeMode { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } RecomputeMode;

// Seconds of one call of an op in a dtype on the device of `machine`.
typedef double WorkSeconds(const void *machine, Dtype dtype, const OpWork *work);

typedef struct CompileOptions {
  int mode;              // ModelMode
  const Device *device;  // passes read its description only
  Balance balance;       // of the data ranks' shares of a step; the weights are borrowed
  // By compile_set_batch:
  int64_t step_samples;  // sequences of a step (global batch)
  int64_t micro;         // the most of a microbatch that a data rank has
  int64_t micro_samples; // the batch dim of MICRO: a bound, of which each call has as many rows as the microbatch's
                         // shares say (base/shares.h)
  int microbatches;      // of a step
  int chunks;            // in which positions go through experts (ModelOptions); backward makes their rows again
  int64_t seq;
  double capacity;       // of experts (ModelOptions)
  Dtype precision;
  int split_masters;     // of matrices, in bf16: the Copy and the 16 bits that make fp32 of it
  int states_8bit;       // moments of matrices in 8 bits (op/state_code.h)
  int bf16_gradients;    // accumulators, and what is reduced; 0: as wide as the parameters
  Parallel parallel;
  RecomputeMode recompute;
  int recompute_layers;  // blocks of each stage that recompute; 0: all
  RecomputeList recompute_list; // of all blocks of the model, instead of these two; blocks 0: none
  UpdateOptions update;  // MODEL_TRAIN; samples, sequences, seq, one_microbatch, streams and at_once are filled in
  WorkSeconds *seconds;  // by these layers are cut into stages; NULL: by FLOPs
  const void *machine;   // for them; must outlive the compile
  uint64_t chaos;        // of the Programs: see runtime/chaos.h; 0: none
  const char *after;     // stop after this pass, for `plait explain`; NULL: all
} CompileOptions;

// Changes *graph, or replaces it by a new one. After an error the graph can only be destroyed.
#define PASS(name, takes, leaves, meaning) int pass_##name(Graph **graph, const CompileOptions *options, Error *error);
#include "compile/passes.def"

// For passes that make a new graph: destroys the old one.
static inline int pass_replace(Graph **graph, Graph *next) {
  graph_destroy(*graph);
  *graph = next;
  return PLAIT_OK;
}
