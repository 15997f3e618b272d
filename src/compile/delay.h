// Delayed gradients: the gradient of step t is taken at the weights of step t − delay (before step `delay`: at the
// initial weights), as in pipelines that never drain (PipeDream, Narayanan et al., 2019; PipeDream-2BW, 2021), on any
// mesh.
//
// A parameter with delay d has d Variables "version1.NAME" … of its shape, dtype and storage, which are in checkpoints.
// MICRO reads version d, or the Copy that BEGIN makes of it (pass zero); BEGIN and END move the versions on; the update
// reads and writes the parameter itself, which evaluation and export read.
#pragma once
#include "compile/pass.h"

// Sets Variable.delay of every parameter, from the layers whose nodes read it: the embedding has the first layer's
// delay, the head the last's. Returns whether any is delayed.
int delay_parameters(Graph *g, const Delay *delay);
// BEGIN: catches up after a step that was skipped; the first step starts all versions. END, before the update: moves
// them on, unless `skip` (a tensor). In a stream versions and parameter take turns in their places (Program.places), so
// that only the oldest changes: the newest weights go there, where the update is made.
void delay_begin(Graph *g);
void delay_end(Graph *g, int skip, int streams);
