// Passes, Graph → Graph. All have one signature; passes.def lists them in the order in which they run. Between them
// graph_verify holds.
#pragma once
#include "device/device.h"
#include "op/work.h"
#include "parallel/parallel.h"

// Seconds of one call of an op in a dtype: machine_seconds (machine/machine_times.h), which passes may not include.
struct MachineTimes;
typedef double WorkSeconds(const struct MachineTimes *times, Dtype dtype, const OpWork *work);

// Whether kernels are taken that have the same bits in each run, where others are faster. AUTO: for what several ranks
// compute alike, so that they stay alike.
typedef enum SameBits { SAME_BITS_AUTO, SAME_BITS_ALWAYS, SAME_BITS_NEVER } SameBits;

typedef struct CompileOptions {
  int mode;              // ModelMode
  int never_trains;      // no graph of its job does: parameters are stored in the dtype in which MICRO reads them
  int panels;            // weights lie in panels where the device has them: for graphs that answer requests
  const Device *device;  // passes read its description only
  Step step;             // what is computed; of other modes than MODEL_TRAIN its forward pass
  SameBits same_bits;
  Parallel parallel;     // what follows from step.parallel
  int64_t micro_samples; // the batch dim of MICRO: a bound, of which each call has as many rows as the microbatch's
                         // shares say (base/shares.h); by compile_set_batch
  int microbatches;      // of a step; by compile_set_batch
  WorkSeconds *seconds;  // by these layers are cut into stages; NULL: by FLOPs
  const struct MachineTimes *times; // for them; must outlive the compile
  VariableTest *far;     // storage of which Variables lies in the device's second space; NULL: of none. Tests set it
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
