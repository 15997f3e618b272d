// Losses beside the model's own, and how busy the experts of routers are: their nodes in BEGIN, MICRO and END.
#pragma once
#include "compile/pass.h"

// Each for all that Graph.further and Graph.router hold. Of BEGIN: zeroes, and the seeds of gradients; `loss_scale`
// is that tensor (), or -1.
void losses_begin(Graph *g, int loss_scale, const CompileOptions *o);
// Of MICRO: sums over the microbatches.
void losses_micro(Graph *g);
// Of END: means and loads that are complete, and routers' biases, which stay where `skip` () is 1.
void losses_end(Graph *g, int skip, const CompileOptions *o);
// A node of MICRO whose output is a loss of the list with a coefficient: autodiff begins there too.
int losses_has_root(const Graph *g, int node, const CompileOptions *o);
