// From a model and a layout to a partitioned graph: all passes in order.
#pragma once
#include "model/model.h"
#include "compile/pass.h"

// Sets how many sequences a step has, and how many of a microbatch a data rank has at most; `parallel` must be set.
void compile_set_batch(CompileOptions *options, int64_t samples, int64_t micro);
// Builds the model's graph for options->mode and runs the passes. Gives the graph that Programs are made from or, with
// `after`, the graph as that pass left it.
int compile_graph(const ModelConfig *config, const CompileOptions *options, Graph **out, Error *error);

// The same for a forward graph that is already built, with its loss (a sum over targets; -1: none). The graph is
// consumed, also when it fails.
int compile_built(Graph *g, int loss_sum, const CompileOptions *options, Graph **out, Error *error);

// The names of the passes, in order, for help texts and errors; NULL ends the list.
const char *const *compile_passes(void);
