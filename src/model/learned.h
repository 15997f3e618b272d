// Decoders with learned positions, layer norm before each half of a block, and one product before and one after the
// activation (Radford et al. 2019).
#pragma once
#include "model/family.h"

// The whole model. `residual`: standard deviation of the weights that write to the residual stream, at the start;
// `positions_key`: the key of config.json that gives the number of positions.
void learned_build(ModelBuild *m, double residual, const char *positions_key, ModelOutputs *outputs);
// Of a config whose sizes have been read: that the heads divide the width, and what follows from it.
void learned_heads(ConfigReader *r, ModelConfig *c, const char *embed_key, const char *heads_key);
