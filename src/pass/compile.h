// From a model and a layout to a partitioned graph: all passes in order.
#pragma once
#include "model/model.h"
#include "pass/pass.h"

typedef struct CompileOptions {
  int mode;              // ModelMode
  int64_t micro_samples; // sequences of a microbatch over all data ranks
  int64_t step_samples;  // sequences of a step (global batch)
  int64_t seq;
  Dtype precision;
  int bf16_gradients;    // accumulators, and what is reduced; 0: as wide as the parameters
  Mesh mesh;
  Layout layout;
  int stages;            // virtual pipeline stages
  int cut_given;         // the stages have `layers` layers each; else they are cut by cost
  int layers[MAX_STAGES];
  RecomputeMode recompute; // and how many blocks of a stage, 0: all
  int recompute_layers;
  UpdateOptions update;  // MODEL_TRAIN; samples and seq are filled in
  uint64_t chaos;        // of the Programs: see program/chaos.h; 0: none
  const char *after;     // stop behind this pass, for `plait explain`; NULL: all
} CompileOptions;

// Builds the model's graph for options->mode and runs the passes: the graph that Programs are made from (or, with `after`, as that pass
// left it).
int compile_graph(const ModelConfig *config, const CompileOptions *options, Graph **out, Error *error);

// The same for a forward graph that is already built, with its loss (a sum over targets; -1: none). The graph is consumed, also when it fails.
int compile_built(Graph *g, int loss_sum, const CompileOptions *options, Graph **out, Error *error);

// The names of the passes, in order, for help texts and errors; NULL ends the list.
const char *const *compile_passes(void);
