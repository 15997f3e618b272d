// Parts of pass autodiff: what BEGIN and END of a step do, and updates in backward.
#pragma once
#include "compile/pass.h"

// Appends to MICRO the update of a parameter by its only gradient of the step (Lv et al., "Full parameter fine-tuning
// for large language models with limited resources", 2023: LOMO). The gradient's sum of squares becomes Variable
// "square.NAME", for the norm that END reports. Nothing clips it or skips the step.
void update_in_backward(Graph *g, int parameter, int gradient, const CompileOptions *options);

// BEGIN: counts target tokens of the whole step, sets the gradient seed, zeroes accumulators. END: mean loss, global
// norm, clip factor, skip flag, update. `loss_sum` is MICRO's loss tensor.
int update_build(Graph *g, int loss_sum, const CompileOptions *options, Error *error);
// The same for evaluation: count, and mean loss.
void evaluation_build(Graph *g, int loss_sum, const CompileOptions *options);
