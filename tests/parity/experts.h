// A model with experts that belongs to the tests of parity: Llama's blocks, with experts in place of the feed-forward
// half.
#pragma once
#include "model/family.h"

extern const Family parity_experts;
extern const Family parity_experts_apart; // the experts lie on what Layouts call ffn, and not what is inside them
extern const Family
    parity_experts_alike; // all logits of routers begin at 0: in the first step all tokens go to the first experts
