// A model with experts that belongs to the tests of parity: Llama's blocks, with experts in place of the feed-forward
// half.
#pragma once
#include "model/family.h"

extern const Family parity_experts;
